"""Why a run, a task or a DAG does not go on: one test a reason, on rows as the read model has them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tidewheel.core.workflow import DAY_MS, Schedule
from tidewheel_projections.tasks import WAITS_FOR_MAX_TASKS
from tidewheel_projections.views import BackfillRow, DagRow, RunRow
from tidewheel_projections.waiting import OpenTasks, QueueOfRuns
from tidewheel_services.why.dags import DagFacts, why_no_run
from tidewheel_services.why.reason import Reason
from tidewheel_services.why.runs import why_queued
from tidewheel_services.why.shards import Shard, why_silent
from tidewheel_services.why.tasks import RunFacts, why_task, why_tasks
from tidewheel_services.why.written import Written, written

AT = "2026-01-05T00:00:00.000Z"
NOW = 1_767_571_200_000


def row(kind: type[Any], /, **more: Any) -> Any:
    """A row with these fields; the others say nothing."""
    nothing = {"str": "", "int": 0, "bool": False, "list[str]": [], "dict[str, int]": {}}
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    empty = {name: nothing.get(getattr(field.type, "__name__", str(field.type))) for name, field in fields.items()}
    return kind(**{**empty, **more})


def dag(**more: Any) -> DagRow:
    found: DagRow = row(DagRow, dag="d", **more)
    return found


def run(**more: Any) -> RunRow:
    found: RunRow = row(RunRow, **{"dag": "d", "run_id": "r", "state": "running", "kind": "manual", **more})
    return found


def queue(**more: Any) -> QueueOfRuns:
    found: QueueOfRuns = row(QueueOfRuns, **more)
    return found


def said(reasons: Any) -> list[tuple[str, str]]:
    return [(reason.code, reason.message) for reason in reasons]


# --- Nobody decides ----------------------------------------------------------------------------------------------


def test_a_log_that_is_away() -> None:
    (reason,) = why_silent([Shard(number=0, fault="kafka:9092: refused"), Shard(number=1, fault="x")], 1.0)
    assert reason.code == "log_unavailable" and reason.message.endswith("nothing is decided: kafka:9092: refused")


def test_no_scheduler() -> None:
    (reason,) = why_silent([Shard(number=0, schedulers=0, undecided=9, undecided_ms=99_000)], 1.0)
    assert reason.code == "no_scheduler" and "`tidewheel scheduler`" in reason.message


def test_a_shard_without_an_owner_is_seen_by_what_nobody_decides() -> None:
    (reason,) = why_silent([Shard(number=3, undecided=2, undecided_ms=41_000), Shard(number=4, undecided=1)], 1.0)
    assert reason.code == "shard_silent"
    assert reason.message.startswith("in shard 3 2 commands wait to be decided, the oldest for 41 s: it has no owner")


def test_a_shard_that_stands_still() -> None:
    (reason,) = why_silent([Shard(number=3, stopped="events/3 offset 7: not chained")], 1.0)
    assert reason.code == "shard_stopped" and "events/3 offset 7" in reason.message


@pytest.mark.parametrize(
    ("shard", "silent_s", "said"),
    [
        (Shard(number=3, unread="offset 7 is not chained"), 1.0, "does not follow shard 3: offset 7 is not chained"),
        (Shard(number=3), 45.0, "nothing was heard of the projector for 45 s"),
        (Shard(number=3), None, "no projector was ever at work"),
    ],
)
def test_a_read_model_that_may_be_old(shard: Shard, silent_s: float | None, said: str) -> None:
    (reason,) = why_silent([shard], silent_s)
    assert reason.code == "read_model_behind" and reason.message.endswith(said)


def test_of_what_goes_on_nothing_is_said() -> None:
    assert list(why_silent([Shard(number=3, undecided=5, undecided_ms=900)], 2.0)) == []


# --- A run's turn ------------------------------------------------------------------------------------------------

REPLACES = written({"schedule": {"overlap": "cancel_running"}, "concurrency": {"max_runs": 1}})


def test_a_paused_dag() -> None:
    (reason,) = said(why_queued(run(state="queued"), dag(paused=True, reason="maintenance"), Written(), queue()))
    assert reason == ("paused", "DAG d is paused (maintenance); `tidewheel unpause d` lets it go on")


def test_max_runs() -> None:
    one = written({"concurrency": {"max_runs": 1}})
    (reason,) = said(why_queued(run(), dag(), one, queue(running=1)))
    assert reason == ("max_runs", "1 run of the DAG is at work, and its max_runs allows 1")
    (reason,) = said(why_queued(run(), dag(), Written(), queue(running=16, before=2)))
    assert reason[1] == "16 runs of the DAG are at work, and its max_runs allows 16; 2 runs of the DAG go before it"


def test_a_scheduled_run_that_replaces_others_names_them_and_not_max_runs() -> None:
    waits = queue(running=1, scheduled=["scheduled__a"])
    (reason,) = said(why_queued(run(kind="scheduled"), dag(), REPLACES, waits))
    assert reason[0] == "overlap"
    assert reason[1] == "waits until scheduled__a has ended: a scheduled run is at work alone (overlap: cancel_running)"
    assert said(why_queued(run(kind="manual"), dag(), REPLACES, waits))[0][0] == "max_runs"
    other = written({"schedule": {"overlap": "queue"}, "concurrency": {"max_runs": 1}})
    assert said(why_queued(run(kind="scheduled"), dag(), other, waits))[0][0] == "max_runs"


def test_behind_runs_that_wait_for_something_else() -> None:
    (reason,) = said(why_queued(run(), dag(), Written(), queue(running=1, before=1)))
    assert reason == ("queue", "1 run of the DAG goes before it")


def test_nothing_holds_a_run_of_a_backfill_but_a_pause() -> None:
    made = run(backfill_id="b1")
    assert said(why_queued(made, dag(), REPLACES, queue(running=9)))[0][0] == "starting"
    assert said(why_queued(made, dag(paused=True), REPLACES, queue()))[0][0] == "paused"
    assert said(why_queued(run(backfill_id="b1", reopened=1), dag(), REPLACES, queue(running=9)))[0][0] == "max_runs"


def test_a_run_that_is_about_to_start() -> None:
    assert said(why_queued(run(), dag(), Written(), queue(running=3)))[0][0] == "starting"


# --- Tasks -------------------------------------------------------------------------------------------------------

FLOW = written(
    {
        "concurrency": {"max_tasks": 4},
        "tasks": [
            {"id": "list"},
            {"id": "load", "needs": ["list"], "for_each": "${{ x }}", "max_parallel": 8, "queue_timeout_ms": 60_000},
            {"id": "join", "needs": ["list", "load"], "trigger_rule": "all_done"},
        ],
    }
)


def open_task(task: str, state: str, count: int = 1, **more: Any) -> OpenTasks:
    ordinal = ("list", "load", "join").index(task.partition("[")[0])
    fields = {"ordinal": ordinal, "instances": "[" in task, "pool": "p", "pool_slots": 1, "attempt": 1, "worker": "w"}
    found: OpenTasks = row(OpenTasks, **{**fields, "state": state, "count": count, "tasks": [task], **more})
    return found


def why(*tasks: OpenTasks, **more: Any) -> list[Reason]:
    return list(why_tasks(RunFacts(run=more.pop("run", run()), written=FLOW, tasks=tasks, **more)))


def test_needs_that_have_not_ended_with_their_states() -> None:
    reasons = why(
        open_task("list", "running", worker="w", started_at=AT),
        open_task("load", "scheduled"),
        open_task("join", "scheduled"),
    )
    assert [(one.tasks, one.code, one.message) for one in reasons] == [
        (("load",), "needs", "waits for list (running)"),
        (("join",), "needs", "waits for list (running), load (scheduled) (trigger_rule: all_done)"),
    ]


def test_max_tasks() -> None:
    held = open_task("list", "scheduled", reason=WAITS_FOR_MAX_TASKS)
    (reason,) = why(held, tasks_under_way=4)
    assert (reason.code, reason.message) == (
        "max_tasks",
        "4 tasks of the DAG are under way, and its max_tasks allows 4",
    )
    (reason,) = why(held, tasks_under_way=4, run=run(backfill_id="b1"))
    assert reason.message.endswith("; tasks of a backfill go after all others")


def test_instances_wait_for_their_turn_and_their_task_for_them() -> None:
    more = [open_task("load[0]", "running", 8, started_at=AT), open_task("load[8]", "scheduled", 992)]
    reasons = why(open_task("load", "deferred", reason="waits for its 1,000 instances"), *more)
    assert said(reasons) == [
        ("instances", "waits for its instances: 8 running, 992 scheduled"),
        ("max_parallel", "wait for one of the 8 before them to end (max_parallel)"),
    ]
    assert reasons[1].count == 992


def test_queue_timeout_is_told_with_what_the_pool_says() -> None:
    (reason,) = why(open_task("load[0]", "queued", queued_at=AT))
    assert reason.code == "no_worker"
    assert reason.message.endswith("; it fails if it still waits at 2026-01-05T00:01:00Z (queue_timeout)")
    assert reason.until == "2026-01-05T00:01:00Z"


def test_a_retry() -> None:
    (reason,) = why(open_task("list", "retrying", retry_at=AT, reason="exited with status 3"))
    assert (reason.code, reason.until) == ("retry", AT)
    assert reason.message == f"is tried again at {AT}: exited with status 3"


def test_a_lease_that_no_worker_has_taken_up_yet() -> None:
    (reason,) = why(open_task("list", "leased", leased_at=AT))
    assert reason.code == "leased" and reason.message.startswith(f"worker w was given it at {AT}")


def test_what_is_being_ended() -> None:
    at_work = open_task("list", "running", started_at=AT)
    (reason,) = why(at_work, run=run(cancel_requested_at=AT))
    assert reason.code == "cancelling" and "worker w has been told" in reason.message
    (reason,) = why(open_task("list", "running", started_at=AT, reason="cleared by user:ann: again"))
    assert (reason.code, reason.message[:43]) == ("cancelling", "is being ended (cleared by user:ann: again)")
    (reason,) = why(open_task("list", "deferred", reason="wrong day"))
    assert reason.message == "is being ended (wrong day), and so is the run that it waits for"


def test_instances_that_wait_each_for_its_own_are_one_reason_if_they_are_many() -> None:
    def waiting(count: int) -> list[OpenTasks]:
        approval = {"waits_for": "approval", "reason": "waits for an approval"}
        return [
            open_task(f"load[{index}]", "deferred", timeout_at=f"2026-01-0{index + 1}T00:00:00Z", **approval)
            for index in range(count)
        ]

    assert [one.tasks for one in why(*waiting(3))] == [("load[0]",), ("load[1]",), ("load[2]",)]
    (reason,) = why(*waiting(7))
    assert (reason.code, reason.count, reason.until) == ("approval", 7, "2026-01-07T00:00:00Z")
    assert reason.tasks == tuple(f"load[{index}]" for index in range(5))
    assert reason.message == (
        "each for its own; load[0]: waits for an approval; `tidewheel approve d r 'load[0]'` gives it"
    )
    retries = [open_task(f"load[{index}]", "retrying", 2, reason=f"exit status {index}") for index in range(4)]
    *apart, folded = why(open_task("list", "retrying", reason="x"), open_task("join", "retrying"), *retries)
    assert ([one.tasks for one in apart], folded.count) == ([("list",), ("join",)], 8)


def test_what_is_at_work_is_told_only_if_it_is_asked_for() -> None:
    at_work = open_task("list", "running", started_at=AT)
    assert why(at_work) == []
    reason = why_task(RunFacts(run=run(), written=FLOW, tasks=[at_work]), at_work)
    assert (reason.code, reason.message) == ("running", f"it does not wait: worker w is at work on it since {AT}")


@pytest.mark.parametrize(
    ("waits_for", "explained", "code", "said"),
    [
        ("time", "waits until T", "time", "waits until T"),
        (
            "approval",
            "waits for an approval",
            "approval",
            "waits for an approval; `tidewheel approve d r list` gives it",
        ),
        ("http", "waits for an answer of u", "http", "waits for an answer of u; the waiter looks for it"),
        ("kafka", "waits for a record", "kafka", "waits for a record; the waiter looks for it"),
        ("run", "waits for the end of run x", "run", "waits for the end of run x; there is no such run yet"),
        ("workflow", "waits for the end of run x", "workflow", "waits for the end of run x; there is no such run yet"),
        ("trigger", "waits for run x", "trigger", "waits for run x; there is no such run yet"),
        (
            "trigger",
            "waits for room in DAG 'x', asks",
            "no_room",
            "waits for room in DAG 'x', asks; there is no such run yet",
        ),
    ],
)
def test_waits(waits_for: str, explained: str, code: str, said: str) -> None:
    wait = open_task("list", "deferred", waits_for=waits_for, reason=explained, timeout_at=AT)
    awaited = {"list": "there is no such run yet"} if waits_for in ("run", "workflow", "trigger") else {}
    (reason,) = why(wait, awaited=awaited)
    assert (reason.code, reason.message, reason.until) == (code, said, AT)


def test_a_wait_that_nobody_looks_after() -> None:
    for waits_for in ("http", "kafka"):
        wait = open_task("list", "deferred", waits_for=waits_for, reason="waits for it")
        (reason,) = why(wait, waiter=False)
        assert reason.code == "no_waiter" and reason.message.endswith("start one with `tidewheel waiter`")


# --- The next run ------------------------------------------------------------------------------------------------


def next_run(**more: Any) -> list[Reason]:
    return list(why_no_run(DagFacts(**{"dag": dag(), **more}), NOW))


EVERY_DAY = Schedule(every_ms=DAY_MS)


def test_a_dag_that_was_removed() -> None:
    (reason,) = next_run(dag=dag(removed=True, reason="gone"), schedule=EVERY_DAY)
    assert (reason.code, reason.message) == ("removed", "DAG d was removed (gone); deploy it again to run it")


def test_a_paused_dag_has_no_next_slot() -> None:
    assert [reason.code for reason in next_run(dag=dag(paused=True), schedule=EVERY_DAY, slot_cursor=NOW)] == ["paused"]


def test_a_dag_without_a_schedule() -> None:
    assert said(next_run()) == [("no_schedule", "it has no schedule: it runs when somebody asks for it")]
    (reason,) = next_run(triggers=2)
    assert reason.message == "it has no schedule: it runs by 2 triggers, or when somebody asks for it"


def test_the_next_slot_and_what_became_of_the_last() -> None:
    skipped, slot = next_run(schedule=EVERY_DAY, slot_cursor=NOW, skipped="S: overlap is skip")
    assert (skipped.code, skipped.message) == ("slots_skipped", "the last slots that got no run: S: overlap is skip")
    assert (slot.code, slot.until) == ("schedule", "2026-01-06T00:00:00Z")


def test_a_schedule_at_its_end() -> None:
    assert [reason.code for reason in next_run(schedule=Schedule(every_ms=DAY_MS, end_ms=NOW), slot_cursor=NOW)] == [
        "schedule_ended"
    ]


def test_slots_wait_while_too_many_of_their_runs_do() -> None:
    (reason,) = next_run(schedule=EVERY_DAY, slot_cursor=NOW - 3 * DAY_MS, queued=100, queued_scheduled=100)
    assert reason.code == "slots_held_back" and "slot 2026-01-03T00:00:00Z and later ones wait" in reason.message
    (reason,) = next_run(schedule=EVERY_DAY, slot_cursor=NOW - 3 * DAY_MS)
    assert (reason.code, reason.until) == ("schedule", None)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"state": "paused", "reason": "look"}, "b is paused (look); `tidewheel backfill-resume d b` lets it go on"),
        ({"live": 2, "width": 2}, "2 runs of backfill b have not ended: it makes further ones when one of them has"),
        ({"live": 1, "width": 4, "mode": "chunked"}, "it makes further ones when all 4 of its chunk have"),
        ({"live": 1, "runs": 8, "skipped": 1}, "1 run of backfill b has not ended; it has come to its last slot"),
        ({}, "backfill b is about to make its next run"),
    ],
)
def test_backfills_that_have_not_ended(fields: dict[str, Any], said: str) -> None:
    made = row(
        BackfillRow, **{"dag": "d", "backfill_id": "b", "state": "running", "mode": "parallel", "slots": 9, **fields}
    )
    reason = next_run(backfills=[made])[0]
    assert reason.code == "backfill" and reason.message.endswith(said)


def test_triggers_that_are_put_off() -> None:
    assert next_run(postponed=True, queued=1000)[0].code == "triggers_held_back"
