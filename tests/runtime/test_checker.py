"""The journal checker: good journals pass, and each way to break one is found, numbered and placed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, TypeAlias

import msgspec
import pytest
from msgspec.structs import replace

from tidewheel.core import events as e
from tidewheel.core.workflow import Concurrency, Run, Schedule, Task, TimeWait, TriggerRule, WaitFor, Workflow
from tidewheel.log.interface import EVENTS, POOL_EVENTS
from tidewheel.runtime.checker import Checker, Report
from tidewheel.runtime.witness.rules import Ends, holds, may_hold
from tidewheel.runtime.witness.standing import STEPS_MS_MAX
from tidewheel.wire.codec import GENESIS, encode_event

NOW = int(datetime.fromisoformat("2026-06-01T00:00:00Z").timestamp() * 1000)
MINUTE = 60_000
PARTITION = 3


def task(id_: str, *needs: str, **more: Any) -> Task:
    return Task(id=id_, action=Run(command="true"), needs=needs, **more)


#: a ─► b ─► d ; a ─► c ─► d (all_done); f has an ``if``.
WORKFLOW = Workflow(
    id="d",
    tasks=(
        task("a"),
        task("b", "a"),
        task("c", "a"),
        task("d", "b", "c", trigger_rule="all_done"),
        task("f", "a", if_="false"),
    ),
    schedule=Schedule(cron=("*/10 * * * *",), catchup="all"),
    concurrency=Concurrency(max_runs=2, max_tasks=2),
)
CURSOR = NOW - 10 * MINUTE


def deployed(workflow: Workflow = WORKFLOW, version: str = "v1", **more: Any) -> e.DagDeployed:
    cursor = CURSOR if workflow.schedule is not None else None
    definition = msgspec.json.encode(workflow).decode()
    return e.DagDeployed(
        **{"dag": "d", "at": NOW, "version": version, "definition": definition, "cursor": cursor, **more}
    )


def created(run_id: str = "r", **more: Any) -> e.RunCreated:
    return e.RunCreated(**{"dag": "d", "run_id": run_id, "at": NOW, "version": "v1", "kind": "manual", **more})


def scheduled(slot: int, **more: Any) -> e.RunCreated:
    interval = {"interval_start": slot - 10 * MINUTE, "interval_end": slot}
    return created(f"scheduled__{slot}", kind="scheduled", logical_date=slot, **{**interval, **more})


def skipped_slots(first: int, last: int, count: int, **more: Any) -> e.SlotsSkipped:
    return e.SlotsSkipped(
        **{"dag": "d", "at": NOW, "first": first, "last": last, "count": count, "reason": "x", **more}
    )


def of_run(kind: type[Any], run_id: str = "r", /, **more: Any) -> Any:
    return kind(**{"dag": "d", "run_id": run_id, "at": NOW, **more})


def of_task(kind: type[Any], name: str, attempt: int = 1, /, **more: Any) -> Any:
    return kind(**{"dag": "d", "run_id": "r", "task": name, "attempt": attempt, "at": NOW, **more})


def queued(name: str, attempt: int = 1, **more: Any) -> e.TaskQueued:
    return of_task(e.TaskQueued, name, attempt, **{"pool": "default", "pool_slots": 1, **more})  # type: ignore[no-any-return]


def leased(name: str, attempt: int = 1, **more: Any) -> e.TaskLeased:
    fields = {"worker": "w1", "mail_partition": 0, "expires_at": NOW + 30_000, **more}
    return of_task(e.TaskLeased, name, attempt, **fields)  # type: ignore[no-any-return]


def begun(name: str, attempt: int = 1, **more: Any) -> e.TaskStarted:
    fields = {"worker": "w1", "started_at": NOW, "expires_at": NOW + 30_000, **more}
    return of_task(e.TaskStarted, name, attempt, **fields)  # type: ignore[no-any-return]


def succeeded(name: str, attempt: int = 1, **more: Any) -> e.TaskSucceeded:
    fields = {"worker": "w1", "started_at": NOW, "ended_at": NOW, **more}
    return of_task(e.TaskSucceeded, name, attempt, **fields)  # type: ignore[no-any-return]


def failed(name: str, attempt: int = 1, **more: Any) -> e.TaskFailed:
    fields = {"worker": "w1", "started_at": NOW, "ended_at": NOW, "kind": "exit_code", "message": "1", **more}
    return of_task(e.TaskFailed, name, attempt, **fields)  # type: ignore[no-any-return]


def expired(name: str, attempt: int = 1, **more: Any) -> e.LeaseExpired:
    fields = {"worker": "w1", "message": "silent", "at": NOW + 30_000, **more}
    return of_task(e.LeaseExpired, name, attempt, **fields)  # type: ignore[no-any-return]


def done(name: str, attempt: int = 1) -> list[e.Event]:
    return [queued(name, attempt), leased(name, attempt), succeeded(name, attempt)]


def joined(**more: Any) -> e.WorkerJoined:
    fields = {"pool": "default", "at": NOW, "worker": "w1", "slots": 2, "mail_partition": 0, "expires_at": NOW + MINUTE}
    return e.WorkerJoined(**{**fields, **more})


def at_pool(kind: type[Any], name: str, attempt: int = 1, /, **more: Any) -> Any:
    return kind(**{"pool": "default", "dag": "d", "run_id": "r", "task": name, "attempt": attempt, "at": NOW, **more})


def enqueued(name: str, attempt: int = 1, slots: int = 1, **more: Any) -> e.TaskEnqueued:
    fields = {"pool_slots": slots, "priority": 0, "logical_date": 0, **more}
    return at_pool(e.TaskEnqueued, name, attempt, **fields)  # type: ignore[no-any-return]


def granted(name: str, attempt: int = 1, worker: str = "w1") -> e.SlotGranted:
    return at_pool(e.SlotGranted, name, attempt, worker=worker)  # type: ignore[no-any-return]


def released(name: str, attempt: int = 1) -> e.SlotReleased:
    return at_pool(e.SlotReleased, name, attempt)  # type: ignore[no-any-return]


class Journal:
    """A partition as bytes, written as the engine writes it unless told otherwise."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.records: list[bytes] = []
        self.chain = GENESIS
        self.seqs: dict[str, int] = {}

    def write(self, event: Any, **place: Any) -> None:
        name = getattr(event, "dag", "") if self.topic == EVENTS else event.pool
        self.seqs[name] = place.get("seq", self.seqs.get(name, 0) + 1)
        fields = {
            "seq": self.seqs[name],
            "shard_seq": len(self.records) + 1,
            "writer": 1,
            "cause": f"commands/{PARTITION}/{len(self.records)}",
            "previous": self.chain,
        }
        data, self.chain = encode_event(event, **{**fields, **place})
        self.records.append(data)


def written(topic: str, events: Sequence[e.Event]) -> list[bytes]:
    journal = Journal(topic)
    for event in events:
        journal.write(event)
    return journal.records


def fed(events: Sequence[bytes], pool: Sequence[bytes] = ()) -> Checker:
    checker = Checker()
    for topic, records in ((EVENTS, events), (POOL_EVENTS, pool)):
        for offset, data in enumerate(records):
            checker.feed(topic, PARTITION, offset, data)
    return checker


def checked(events: Sequence[e.Event], pool: Sequence[e.Event] = (), *, settled: bool = False) -> Report:
    return fed(written(EVENTS, events), written(POOL_EVENTS, pool)).finish(settled=settled)


def found(report: Report) -> list[tuple[int, int, str]]:
    return [(v.offset, v.invariant, v.message) for v in report.violations]


# --- good journals -----------------------------------------------------------------------------------------------

START: list[e.Event] = [deployed(), created(), of_run(e.RunStarted)]
#: One run: a is retried once, b fails for good, c is lost and then succeeds, f's ``if`` is false.
STORY: list[e.Event] = [
    *START,
    queued("a"),
    leased("a"),
    begun("a"),
    of_task(e.TaskHeartbeat, "a", worker="w1", expires_at=NOW + 31_000),
    failed("a", retry_at=NOW),
    queued("a", 2),
    leased("a", 2),
    succeeded("a", 2),
    queued("b"),
    queued("c"),
    of_task(e.TaskSkipped, "f", 0, reason="if is false"),
    of_task(e.ReportRefused, "a", 1, worker="w1", report="ReportSuccess", reason="replaced by attempt 2"),
    leased("c"),
    leased("b"),
    expired("c", retry_at=NOW + 40_000),
    failed("b"),
    queued("c", 2),
    leased("c", 2),
    succeeded("c", 2),
    *done("d"),
    of_run(e.RunSucceeded),
    of_task(e.ReportRefused, "c", 2, worker="w1", report="ReportSuccess", reason="the run is not live"),
]


def test_a_run_with_retries_losses_and_skips_is_good() -> None:
    assert checked(STORY) == Report(ok=True, events=len(STORY))


def test_every_prefix_of_a_good_journal_between_decisions_is_good() -> None:
    """A run that waits for something is explained by it."""
    for length in (1, *range(4, 11), *range(14, 22), 23, 24, 26, 27):
        assert found(checked(STORY[:length])) == [], STORY[length - 1]


#: w waits for ten minutes, v for as long as it may, u for each of two items.
HOLD = Workflow(
    id="d",
    tasks=(
        Task(id="w", action=WaitFor(what=TimeWait(after_ms=10 * MINUTE))),
        Task(
            id="v",
            action=WaitFor(what=TimeWait(at="2027-01-01"), timeout_ms=MINUTE, on_timeout="skip"),
            trigger_rule="all_done",
        ),
        Task(id="u", action=WaitFor(what=TimeWait(after_ms=MINUTE)), for_each=[1, 2], needs=("w",)),
    ),
)


def deferred(name: str, attempt: int = 1, **more: Any) -> e.TaskDeferred:
    return of_task(e.TaskDeferred, name, attempt, **{"waits_for": "time", **more})


def came(name: str, at: int, **more: Any) -> e.TaskSucceeded:
    return of_task(e.TaskSucceeded, name, **{"at": at, "worker": "", "started_at": NOW, "ended_at": at, **more})


WAITS: list[e.Event] = [
    deployed(HOLD),
    created(),
    of_run(e.RunStarted),
    deferred("w", resume_at=NOW + 10 * MINUTE),
    deferred("v", resume_at=NOW + 90 * MINUTE, timeout_at=NOW + MINUTE),
    of_task(e.TaskSkipped, "v", at=NOW + MINUTE, reason="it waited for too long"),
    came("w", NOW + 10 * MINUTE),
    of_task(e.TaskExpanded, "u", 0, items=2, first=0, values="[1,2]"),
    deferred("u[0]", resume_at=NOW + MINUTE),
    deferred("u[1]", resume_at=NOW + MINUTE),
    came("u[1]", NOW + MINUTE),
    came("u[0]", NOW + MINUTE),
    came("u", NOW + MINUTE, attempt=0),
    of_run(e.RunSucceeded),
]


def test_waits_are_good() -> None:
    for length in (1, 5, 6, 10, 11, len(WAITS)):
        assert found(checked(WAITS[:length])) == [], WAITS[length - 1]


def test_a_cancelled_run_is_good() -> None:
    events = [
        *START,
        *done("a"),
        queued("b"),
        queued("c"),
        of_task(e.TaskSkipped, "f", 0, reason="if is false"),
        leased("b"),
        of_run(e.RunCancelRequested, actor="user:ann", reason="wrong day"),
        of_task(e.TaskCancelRequested, "b", worker="w1"),
        of_task(e.TaskCancelled, "c", reason="wrong day"),
        of_task(e.TaskCancelled, "d", 0, reason="wrong day"),
        of_task(e.TaskCancelled, "b", worker="w1", reason="the worker ended it as asked"),
        of_run(e.RunCancelled, reason="wrong day"),
    ]
    assert found(checked(events)) == []


def test_an_expression_that_fails_and_an_attempt_nobody_can_place_are_good() -> None:
    tasks = (task("a", if_="nonsense"), task("b"), task("c", "a", "b"))
    events = [
        deployed(Workflow(id="d", tasks=tasks)),
        created(),
        of_run(e.RunStarted),
        failed("a", 0, worker="", started_at=None, kind="expression"),
        of_task(e.TaskUpstreamFailed, "c", 0, reason="a is failed"),
        queued("b"),
        failed("b", worker="", started_at=None, kind="unplaceable"),
        of_run(e.RunFailed, reason="c is upstream_failed"),
    ]
    assert found(checked(events)) == []


def test_slots_in_order_skips_and_a_changed_schedule_are_good() -> None:
    other = Workflow(id="d", tasks=(), schedule=Schedule(every_ms=60 * MINUTE))
    first, second = (f"scheduled__{slot}" for slot in (NOW, NOW + 40 * MINUTE))
    events = [
        deployed(),
        scheduled(NOW),
        skipped_slots(NOW + 10 * MINUTE, NOW + 30 * MINUTE, 3),
        scheduled(NOW + 40 * MINUTE),
        of_run(e.RunStarted, first),
        of_task(e.TaskQueued, "a", run_id=first, pool="default", pool_slots=1),
        of_run(e.RunStarted, second),
        of_task(e.TaskQueued, "a", run_id=second, pool="default", pool_slots=1),
        deployed(other, "v2", cursor=NOW),
        scheduled(NOW + 60 * MINUTE, version="v2", interval_start=NOW),
        of_run(e.RunStarted, f"scheduled__{NOW + 60 * MINUTE}"),
        of_run(e.RunSucceeded, f"scheduled__{NOW + 60 * MINUTE}"),
    ]
    assert found(checked(events)) == []


def test_a_pool_within_its_slots_is_good_and_agrees_with_its_dag() -> None:
    pool = [
        e.PoolConfigured(pool="default", at=NOW, slots=2),
        joined(),
        enqueued("a"),
        granted("a"),
        released("a"),
        enqueued("b"),
        enqueued("c"),
        granted("b"),
        e.WorkerSuspended(pool="default", at=NOW, worker="w1"),
        e.WorkerRenewed(pool="default", at=NOW, worker="w1", expires_at=NOW + MINUTE),
        granted("c"),
        e.WorkerLeft(pool="default", at=NOW, worker="w1"),
        released("b"),
    ]
    dag = [
        *START,
        *done("a"),
        queued("b"),
        queued("c"),
        of_task(e.TaskSkipped, "f", 0, reason="if is false"),
        leased("b"),
        leased("c"),
        succeeded("b"),
    ]
    assert found(checked(dag, pool, settled=True)) == []


# --- each invariant broken ---------------------------------------------------------------------------------------

Change: TypeAlias = Callable[[list[e.Event]], None]


def put(index: int, event: e.Event) -> Change:
    return lambda events: events.insert(index, event)


def drop(index: int) -> Change:
    return lambda events: events.__delitem__(index)


def swap(index: int, **fields: Any) -> Change:
    return lambda events: events.__setitem__(index, replace(events[index], **fields))


MUTATIONS = [
    # change of STORY, offset of the first violation, invariant, words of the message
    pytest.param(swap(8, attempt=3), 8, 1, "attempt 3 follows attempt 1", id="1-attempt-jumps"),
    pytest.param(swap(8, attempt=1), 8, 1, "attempt 1 follows attempt 1", id="1-attempt-repeats"),
    pytest.param(put(5, queued("a", 2)), 5, 1, "begins while attempt 1 is leased", id="1-queued-while-live"),
    pytest.param(put(5, leased("a", worker="w2")), 5, 1, "the attempt is leased", id="1-leased-twice"),
    pytest.param(put(4, begun("a")), 4, 1, "the attempt is queued", id="1-started-unleased"),
    pytest.param(put(10, leased("a", 3)), 10, 1, "attempt 2 is the current one", id="1-future-attempt"),
    pytest.param(put(25, queued("a", 3)), 25, 2, "begins while attempt 2 is success", id="2-queued-after-success"),
    pytest.param(put(26, queued("a", 3)), 26, 1, "run d/r has ended already", id="1-queued-after-the-run"),
    pytest.param(put(26, leased("d", 2)), 26, 1, "run d/r has ended already", id="1-leased-after-the-run"),
    pytest.param(put(23, of_run(e.RunSucceeded)), 23, 6, "ended while d is queued", id="6-ended-with-open-task"),
    pytest.param(
        put(24, of_run(e.RunSucceeded)), 24, 1, "ended while attempt 1 of d is leased", id="1-ended-with-lease"
    ),
    pytest.param(swap(17, at=NOW + 29_999), 17, 1, "called expired 1 ms before its end", id="1-expired-early"),
    pytest.param(put(8, succeeded("a")), 8, 2, "the attempt is retrying", id="2-success-after-failure"),
    pytest.param(put(10, succeeded("a", 1)), 10, 2, "attempt 2 is the current one", id="2-late-report-accepted"),
    pytest.param(
        put(22, of_task(e.TaskHeartbeat, "c", 2, worker="w1", expires_at=NOW)),
        22,
        2,
        "is success",
        id="2-beat-after-end",
    ),
    pytest.param(put(26, of_run(e.RunSucceeded)), 26, 2, "RunSucceeded: run d/r has ended", id="2-run-ended-twice"),
    pytest.param(put(3, of_run(e.RunStarted)), 3, 2, "is started a second time", id="2-run-started-twice"),
    pytest.param(put(4, queued("b")), 4, 3, "all_success does not hold: 0 succeeded", id="3-too-early"),
    pytest.param(drop(18), 21, 3, "all_done does not hold", id="3-open-upstream"),
    pytest.param(put(4, of_task(e.TaskSkipped, "b", 0, reason="x")), 4, 3, "holds or still may", id="3-skipped-early"),
    pytest.param(
        put(11, of_task(e.TaskUpstreamFailed, "b", 0, reason="x")), 11, 3, "holds or still may", id="3-upstream-failed"
    ),
    pytest.param(put(3, of_task(e.TaskReady, "zz", 1)), 3, 3, "version v1 has no such task", id="3-unknown-task"),
    pytest.param(drop(2), 2, 3, "begins before its run has started", id="3-run-not-started"),
    pytest.param(put(2, created()), 2, 4, "is created a second time", id="4-run-id-twice"),
    pytest.param(put(26, created()), 26, 4, "is created a second time", id="4-ended-run-id-again"),
    pytest.param(swap(1, version="v0"), 1, 4, "with version v0; v1 is deployed", id="4-other-version"),
    pytest.param(swap(3, pool="other"), 3, 5, "asks 1 slots of 'other', not 1 of 'default'", id="5-other-pool"),
    pytest.param(
        put(13, of_task(e.TaskQueued, "f", pool="default", pool_slots=1)), 13, 5, "beyond max_tasks 2", id="5-max-tasks"
    ),
    pytest.param(swap(4, worker=""), 4, 9, "leased to nobody", id="9-lease-without-worker"),
    pytest.param(swap(10, worker="w2"), 10, 9, "names worker 'w2'; the lease is 'w1's", id="9-other-worker"),
    pytest.param(swap(13, reason=""), 13, 9, "gives no reason", id="9-skip-without-reason"),
    pytest.param(swap(17, message=""), 17, 9, "gives no reason", id="9-expiry-without-reason"),
    pytest.param(swap(14, reason=""), 14, 9, "gives no reason", id="9-refusal-without-reason"),
    pytest.param(swap(3, actor=""), 3, 9, "does not say by whom", id="9-no-actor"),
    pytest.param(
        put(11, of_task(e.TaskCancelled, "b", 0, reason="x")), 11, 9, "that nobody cancelled", id="9-cancelled-unasked"
    ),
]


WAIT_MUTATIONS = [
    pytest.param(swap(3, attempt=2), 3, 1, "attempt 2 follows attempt 0", id="1-attempt-jumps"),
    pytest.param(
        put(4, deferred("w", 2, resume_at=NOW + 10 * MINUTE)),
        4,
        1,
        "begins while attempt 1 is deferred",
        id="1-deferred-twice",
    ),
    pytest.param(swap(3, resume_at=NOW), 3, 3, f"not {NOW + 10 * MINUTE}", id="3-other-time"),
    pytest.param(swap(6, at=NOW + 9 * MINUTE), 6, 3, "before the time it waits for", id="3-too-early"),
    pytest.param(swap(6, worker="w1"), 6, 9, "names worker 'w1'", id="9-a-worker"),
    pytest.param(swap(6, attempt=2), 6, 1, "attempt 1 is the current one", id="1-other-attempt"),
    pytest.param(swap(5, at=NOW + MINUTE - 1), 5, 3, "before the end of its time", id="3-gives-up-early"),
    pytest.param(swap(5, reason=""), 5, 9, "gives no reason", id="9-no-reason"),
    pytest.param(put(6, came("v", NOW + 90 * MINUTE)), 6, 2, "the attempt is skipped", id="2-after-its-end"),
    pytest.param(drop(8), 8, 3, "instance 0 is next", id="3-instance-out-of-order"),
]


@pytest.mark.parametrize(("change", "offset", "invariant", "words"), WAIT_MUTATIONS)
def test_a_broken_wait_is_found(change: Change, offset: int, invariant: int, words: str) -> None:
    events = WAITS.copy()
    change(events)
    at, number, message = found(checked(events))[0]
    assert (at, number) == (offset, invariant), message
    assert words in message


@pytest.mark.parametrize(("change", "offset", "invariant", "words"), MUTATIONS)
def test_a_broken_story_is_found_where_it_breaks(change: Change, offset: int, invariant: int, words: str) -> None:
    events = list(STORY)
    change(events)
    report = checked(events)
    assert not report.ok
    first = report.violations[0]
    assert (first.topic, first.partition, first.offset, first.invariant) == (EVENTS, PARTITION, offset, invariant)
    assert words in first.message


RUN = [deployed(), created(), of_run(e.RunStarted)]
CANCELLED = [*RUN, queued("a"), leased("a"), of_run(e.RunCancelRequested, reason="x")]
PAUSE = e.DagPaused(dag="d", at=NOW)
#: The log has gone on for longer than a step may take.
LATER = e.DagUnpaused(dag="d", at=NOW + STEPS_MS_MAX + 1)
HOURLY = Workflow(id="d", tasks=(), schedule=Schedule(every_ms=60 * MINUTE))
SLOTS = [deployed(), scheduled(NOW), scheduled(NOW + 10 * MINUTE)]
DAG_CASES = [
    pytest.param(
        [*RUN, queued("a"), leased("a"), of_task(e.TaskCheckpointed, "a", worker="w2", checkpoint="1")],
        5,
        9,
        "the lease is 'w1's",
        id="9-checkpoint-of-another-worker",
    ),
    pytest.param(
        [*RUN, queued("a"), of_task(e.TaskCheckpointed, "a", worker="w1", checkpoint="1")],
        4,
        1,
        "queued",
        id="1-checkpoint-of-nobody",
    ),
    pytest.param([*CANCELLED, queued("b", 1)], 6, 1, "begins in a cancelled run", id="1-begins-after-cancel"),
    pytest.param([*CANCELLED, failed("a", retry_at=NOW)], 6, 1, "tried again in a cancelled run", id="1-retry"),
    pytest.param([*CANCELLED, of_task(e.TaskCancelled, "a", worker="w1", reason="x")], 6, 9, "never told", id="9-told"),
    pytest.param([deployed(), queued("a")], 1, 1, "was never created", id="1-no-run"),
    pytest.param([deployed(), of_run(e.RunStarted)], 1, 2, "was never created", id="2-no-run"),
    pytest.param([*SLOTS, scheduled(NOW + 30 * MINUTE)], 3, 4, f"but {NOW + 20 * MINUTE} is next", id="4-slot-lost"),
    pytest.param(
        [*SLOTS, created("x", kind="scheduled", logical_date=NOW)], 3, 4, "again: the cursor is at", id="4-slot-again"
    ),
    pytest.param(
        [*SLOTS, created("x", logical_date=NOW)], 3, 4, "the second one of logical date", id="4-two-of-a-date"
    ),
    pytest.param([*SLOTS[:2], scheduled(NOW + 10 * MINUTE, interval_start=NOW - 1)], 2, 4, "covers", id="4-interval"),
    pytest.param(
        [*SLOTS, skipped_slots(NOW + 20 * MINUTE, NOW + 40 * MINUTE, 2)], 3, 4, "counts 2 slots where the", id="4-count"
    ),
    pytest.param(
        [*SLOTS, skipped_slots(NOW + 20 * MINUTE, NOW + 41 * MINUTE, 3)],
        3,
        4,
        "which is no slot",
        id="4-skip-to-no-slot",
    ),
    pytest.param(
        [*SLOTS, skipped_slots(NOW + 30 * MINUTE, NOW + 40 * MINUTE, 2)], 3, 4, "is next", id="4-skip-leaves-one-out"
    ),
    pytest.param([deployed(), PAUSE, scheduled(NOW)], 2, 4, "is paused", id="4-scheduled-while-paused"),
    pytest.param([*SLOTS, deployed(version="v2", cursor=NOW)], 3, 4, "its cursor jumped", id="4-cursor-jumps"),
    pytest.param([deployed(), deployed(HOURLY, "v2", cursor=NOW)], 1, 4, "was due before the schedule", id="4-dropped"),
    pytest.param([deployed(cursor=NOW + 1)], 0, 4, "1 ms into the future", id="4-cursor-in-the-future"),
    pytest.param([deployed(cursor=None)], 0, 4, "with cursor None", id="4-no-cursor"),
    pytest.param(
        [deployed(Workflow(id="d", tasks=())), scheduled(NOW)], 1, 4, "has no schedule", id="4-slot-without-schedule"
    ),
    pytest.param([created()], 0, 4, "nothing is deployed", id="4-run-without-definition"),
    pytest.param(
        [deployed(), e.DagRemoved(dag="d", at=NOW), created()], 2, 4, "after its DAG was removed", id="4-removed"
    ),
    pytest.param([deployed(), created(), PAUSE, of_run(e.RunStarted)], 3, 5, "DAG is paused", id="5-paused"),
    pytest.param(
        [deployed(), *(created(r) for r in "xyz"), *(of_run(e.RunStarted, r) for r in "xyz")],
        6,
        5,
        "beyond max_runs 2",
        id="5-max-runs",
    ),
    pytest.param([deployed(definition="{}")], 0, 8, "can not be read", id="8-definition"),
    pytest.param(
        [*STORY[:25], of_run(e.RunFailed, reason="x")], 25, 6, "not RunSucceeded: failed leaves: none", id="6-failed"
    ),
    pytest.param([*STORY[:24], failed("d"), of_run(e.RunSucceeded)], 25, 6, "failed leaves: d", id="6-success"),
    pytest.param([*STORY[:24], failed("d"), of_run(e.RunFailed, reason="")], 25, 9, "gives no reason", id="9-reason"),
    pytest.param([*STORY[:25], of_run(e.RunCancelled, reason="x")], 25, 6, "not RunSucceeded", id="6-not-cancelled"),
    # Liveness: the place is the last word of the run that is stuck.
    pytest.param([*STORY[:25]], 24, 6, "every task has ended, but the run has not", id="6-run-not-ended"),
    pytest.param(
        [*STORY[:22], LATER], 21, 6, "d/r/d is scheduled, though its rule all_done holds", id="6-task-forgotten"
    ),
    pytest.param(
        [*RUN, queued("a"), leased("a"), failed("a"), LATER],
        5,
        6,
        "d/r/b is scheduled, though its rule all_success can not",
        id="6-b",
    ),
    pytest.param([deployed(), created()], 1, 6, "queued, though there is room", id="6-run-not-started"),
    pytest.param(
        [*RUN, of_task(e.TaskReady, "a")], 3, 6, "held back, though max_tasks has room", id="6-ready-with-room"
    ),
]


@pytest.mark.parametrize(("events", "offset", "invariant", "words"), DAG_CASES)
def test_a_broken_dag_is_found_where_it_breaks(events: list[e.Event], offset: int, invariant: int, words: str) -> None:
    first = checked(events).violations[0]
    assert (first.offset, first.invariant) == (offset, invariant), first
    assert words in first.message


def test_nothing_is_stuck_that_waits_for_room() -> None:
    """A run behind ``max_runs`` or a paused DAG, a task behind ``max_tasks``, a back-off."""
    behind = [deployed(), *(created(r) for r in "xyz")]
    for name in "xy":
        behind += [of_run(e.RunStarted, name), of_task(e.TaskQueued, "a", run_id=name, pool="default", pool_slots=1)]
    assert found(checked(behind)) == []
    assert found(checked([deployed(), PAUSE, created()])) == []
    assert found(checked([deployed(), PAUSE, deployed(HOURLY, "v2", cursor=NOW, paused=True)])) == []
    assert (
        found(
            checked(
                [
                    *behind[:4],
                    *behind[4:],
                    of_task(e.TaskLeased, "a", run_id="x", worker="w", mail_partition=0, expires_at=NOW),
                ]
            )
        )
        == []
    )
    held = [*RUN, *done("a"), queued("b"), queued("c"), of_task(e.TaskReady, "f")]
    assert found(checked(held)) == []
    assert found(checked([*RUN, queued("a"), leased("a"), failed("a", retry_at=NOW)])) == []


JOIN = [e.PoolConfigured(pool="default", at=NOW, slots=2), joined(slots=8)]
POOL_CASES = [
    pytest.param([*JOIN, granted("a")], 2, 5, "without waiting for them", id="granted-unasked"),
    pytest.param([*JOIN, enqueued("a"), enqueued("a")], 3, 5, "where it is already", id="enqueued-twice"),
    pytest.param([*JOIN, enqueued("a"), granted("a"), enqueued("a")], 4, 5, "where it is already", id="enqueued-held"),
    pytest.param([*JOIN, enqueued("a"), granted("a"), granted("a")], 4, 5, "without waiting", id="granted-twice"),
    pytest.param([*JOIN, released("a")], 2, 5, "where it is not", id="released-unknown"),
    pytest.param(
        [*JOIN, enqueued("a"), granted("a"), released("a"), released("a")], 5, 5, "where it is not", id="released-twice"
    ),
    pytest.param(
        [*JOIN, enqueued("a"), granted("a"), enqueued("b", slots=2), granted("b")],
        5,
        5,
        "3 slots of pool 'default' are in use; it has 2",
        id="pool-overfull",
    ),
    pytest.param(
        [
            joined(slots=4),
            enqueued("a", max_pool_share=25),
            enqueued("b", max_pool_share=25),
            granted("a"),
            granted("b"),
        ],
        4,
        5,
        "DAG 'd' holds 2 of 4 slots of pool 'default'; its share is 25%",
        id="share-exceeded",
    ),
    pytest.param(
        [joined(slots=1), enqueued("a"), enqueued("b"), granted("a"), granted("b")],
        4,
        5,
        "holds 2 slots; it offered 1",
        id="worker-overfull",
    ),
    pytest.param([*JOIN, enqueued("a"), granted("a", worker="w9")], 3, 5, "'w9', which does not serve", id="stranger"),
    pytest.param(
        [*JOIN, e.WorkerSuspended(pool="default", at=NOW, worker="w1"), enqueued("a"), granted("a")],
        4,
        5,
        "is suspended in",
        id="suspended",
    ),
    pytest.param(
        [*JOIN, e.WorkerLeft(pool="default", at=NOW, worker="w1"), enqueued("a"), granted("a")],
        4,
        5,
        "does not serve",
        id="left",
    ),
    pytest.param([e.WorkerLeft(pool="default", at=NOW, worker="w1")], 0, 5, "has no worker 'w1'", id="left-unknown"),
    pytest.param([*JOIN, at_pool(e.SlotRefused, "a", reason="x")], 2, 5, "where it does not wait", id="refused"),
    pytest.param(
        [*JOIN, enqueued("a"), at_pool(e.SlotRefused, "a", reason="")], 3, 9, "without a reason", id="refused-silently"
    ),
]


@pytest.mark.parametrize(("events", "offset", "invariant", "words"), POOL_CASES)
def test_a_broken_pool_is_found_where_it_breaks(events: list[e.Event], offset: int, invariant: int, words: str) -> None:
    report = checked([], events)
    assert [(v.topic, v.offset, v.invariant) for v in report.violations] == [(POOL_EVENTS, offset, invariant)]
    assert words in report.violations[0].message


def test_leaked_slots_and_forgotten_attempts_show_once_all_is_settled() -> None:
    """C072: slots are live leases, and an attempt that waits is known to its pool."""
    dag = [*START, queued("a"), leased("a"), failed("a", retry_at=NOW)]
    pool = [*JOIN, enqueued("a"), granted("a")]
    assert found(checked(dag, pool)) == []
    report = checked(dag, pool, settled=True)
    assert [(v.topic, v.offset, v.invariant) for v in report.violations] == [(POOL_EVENTS, 3, 5)]
    assert "holds slots of pool 'default' but is not live: they leak" in report.violations[0].message
    lost = checked([*START, queued("a")], JOIN, settled=True)
    assert [(v.topic, v.offset, v.invariant) for v in lost.violations] == [(EVENTS, 3, 6)]
    assert "unknown to pool 'default'" in lost.violations[0].message


# --- the partition as bytes --------------------------------------------------------------------------------------


def violations_of(records: Sequence[bytes]) -> list[tuple[int, int, str]]:
    return found(fed(records).finish())


def only(records: Sequence[bytes]) -> tuple[int, int, str]:
    (violation,) = violations_of(records)
    return violation


def test_a_lost_record_is_a_hole() -> None:
    records = written(EVENTS, STORY)
    del records[7]
    found_ = violations_of(records)
    assert [(offset, invariant) for offset, invariant, _ in found_] == [(7, 7), (7, 7)]
    assert "expected event 8 of the partition, found 9" in found_[0][2]
    assert "expected event 8 of DAG 'd', found 9" in found_[1][2]


def test_a_doubled_record_is_a_repeat() -> None:
    records = written(EVENTS, STORY)
    records.insert(8, records[7])
    assert only(records) == (8, 7, "expected event 9 of the partition, found 8")


def test_swapped_records_are_found() -> None:
    records = written(EVENTS, STORY)
    records[7], records[8] = records[8], records[7]
    assert violations_of(records)[0][:2] == (7, 7)


def test_every_altered_byte_is_found() -> None:
    """Nobody edits history: one bit anywhere in a record breaks the chain there, or makes it no event at all."""
    records = written(EVENTS, STORY)
    for position in range(len(records[8])):
        altered = bytearray(records[8])
        altered[position] ^= 1
        found_ = violations_of([*records[:8], bytes(altered), *records[9:]])
        assert found_, position
        assert found_[0][:2] == (8, 7), position


def test_a_fork_is_found() -> None:
    """A second writer that goes on from an older event has the right numbers and the wrong chain."""
    journal = Journal(EVENTS)
    for event in STORY[:8]:
        journal.write(event)
    journal.write(STORY[8], previous=b"12345678")
    assert only(journal.records)[:2] == (8, 7)
    assert "does not follow the one before it" in only(journal.records)[2]


def test_garbage_in_the_journal_is_found_and_what_follows_is_still_proved() -> None:
    records = written(EVENTS, STORY)
    found_ = violations_of([*records[:8], b"not an event", *records[9:]])
    assert found_[0][:2] == (8, 7)
    assert "the record is no event" in found_[0][2]
    assert {offset for offset, _, _ in found_} <= {8, 9}
    for garbage in (b"", records[8][:40], records[8] + b"\0"):
        assert violations_of([*records[:8], garbage, *records[9:]])[0][:2] == (8, 7)


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ({"writer": 0}, "writer 0 writes after writer 1"),
        ({"seq": 10}, "expected event 9 of DAG 'd', found 10"),
        ({"seq": 8}, "expected event 9 of DAG 'd', found 8"),
        ({"shard_seq": 12}, "expected event 9 of the partition, found 12"),
        ({"cause": f"commands/{PARTITION}/7"}, ""),
        ({"cause": f"commands/{PARTITION}/2"}, f"input commands/{PARTITION}/2 is answered again"),
        ({"cause": ""}, "does not say what caused it"),
    ],
)
def test_the_place_of_an_event_is_checked(place: dict[str, Any], words: str) -> None:
    journal = Journal(EVENTS)
    for event in STORY[:8]:
        journal.write(event)
    journal.write(STORY[8], **place)
    found_ = violations_of(journal.records)
    if not words:
        assert found_ == []
        return
    assert found_[0][:2] == (8, 7)
    assert words in found_[0][2]


def test_an_input_answered_again_after_another_is_found_also_for_the_same_offset() -> None:
    journal = Journal(EVENTS)
    journal.write(deployed(), cause="triggers/3/4")
    journal.write(created(), cause="timer")
    journal.write(of_run(e.RunStarted), cause="triggers/3/4")
    assert violations_of(journal.records)[0][:2] == (2, 7)


def test_triggers_are_in_order_for_each_dag_and_what_follows_for_others_is_in_none() -> None:
    """Trigger 4 of another DAG was put off while trigger 7 was answered; its run asks this DAG for one then."""
    journal = Journal(EVENTS)
    journal.write(deployed(), cause="commands/3/1")
    journal.write(created(kind="kafka"), cause="triggers/3/7")
    journal.write(created(kind="triggered", run_id="asked"), cause="triggers/3/4")
    assert not [words for _, _, words in violations_of(journal.records) if "answered" in words]
    journal.write(created(kind="kafka", run_id="again"), cause="triggers/3/6")
    found_ = [words for _, _, words in violations_of(journal.records) if "answered" in words]
    assert found_ == ["input triggers/3/6 is answered again, after input triggers/3/7"]


def test_within_a_decision_nothing_is_asked_what_it_waits_for() -> None:
    """A reader of a live log may stop between the events of one transaction."""
    checker = Checker()
    for offset, record in enumerate(written(EVENTS, [deployed(), created()])):
        checker.feed(EVENTS, PARTITION, offset, record)
    assert checker.finish(midway=True).ok
    assert "is queued, though there is room to start it" in found(checker.finish())[0][2]


def test_events_on_the_wrong_journal_or_partition_are_found() -> None:
    records = written(EVENTS, [deployed()])
    checker = Checker()
    checker.feed(POOL_EVENTS, 0, 0, records[0])
    assert found(checker.finish()) == [(0, 7, "a DagDeployed does not belong into pool-events")]
    checker = Checker()
    checker.feed(EVENTS, 0, 0, records[0])
    checker.feed(EVENTS, 1, 0, records[0])
    report = checker.finish()
    assert "DAG 'd' is written to partition 0 and to 1" in report.violations[0].message


def test_a_journal_that_does_not_begin_at_its_first_event_is_not_proved() -> None:
    offset, invariant, message = violations_of(written(EVENTS, STORY)[3:])[0]
    assert (offset, invariant, message) == (0, 7, "expected event 1 of the partition, found 4")


def test_after_a_hole_an_aggregate_is_not_judged_but_the_others_are() -> None:
    journal = Journal(EVENTS)
    for event in STORY[:5]:
        journal.write(event)
    journal.write(STORY[5], seq=7)  # an event of DAG d is missing
    journal.write(queued("zz", 9))
    journal.write(replace(deployed(), dag="other", cursor=None))
    found_ = violations_of(journal.records)
    assert [(offset, invariant) for offset, invariant, _ in found_] == [(5, 7), (7, 4)]


def test_finish_may_be_asked_again_as_the_journal_grows() -> None:
    records = written(EVENTS, STORY)
    checker = Checker()
    stuck = set()
    for offset, data in enumerate(records):
        checker.feed(EVENTS, PARTITION, offset, data)
        if not checker.finish().ok:
            stuck.add(offset)
    assert checker.finish() == Report(ok=True, events=len(records))
    assert stuck == {1, 24}  # in the middle of decisions, where no step is to come


def test_violations_beyond_the_first_thousand_are_counted() -> None:
    report = checked([deployed(), *(of_run(e.RunStarted, f"x{n}") for n in range(1_005))])
    assert len(report.violations) == 1_000
    assert report.more == 5


@pytest.mark.parametrize("rule", TriggerRule.__args__)  # type: ignore[attr-defined]
def test_a_rule_that_may_hold_does_so_for_some_ending(rule: TriggerRule) -> None:
    """``may_hold`` against trying every way the open upstreams can end."""
    for success in range(3):
        for skipped in range(3):
            for bad in range(3):
                for open_ in range(3):
                    needs = success + skipped + bad + open_
                    endings = [
                        Ends(needs, success + s, skipped + k, bad + open_ - s - k)
                        for s in range(open_ + 1)
                        for k in range(open_ - s + 1)
                    ]
                    now = Ends(needs, success, skipped, bad)
                    assert may_hold(rule, now) == (holds(rule, now) or any(holds(rule, end) for end in endings))
