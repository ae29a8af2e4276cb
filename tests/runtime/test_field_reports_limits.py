"""What broke elsewhere in limits, alerts and records, on the whole of ours under virtual time.

The ids are those of docs/field-reports.md.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.runtime.worlds import (
    HOUR,
    MINUTE,
    SECOND,
    a_world,
    dead_letters,
    ends,
    ends_of,
    nothing_is_left,
    restart,
    started_runs,
    task,
)
from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.rules import Rules
from tidewheel.core.scope import slot_run_id
from tidewheel.core.workflow import Concurrency, Deadline, Schedule, Workflow
from tidewheel.definition.expressions import CelEvaluator
from tidewheel.log.interface import COMMANDS, TRIGGERS, Append
from tidewheel.testing.world import START_MS, Outcome
from tidewheel.wire.codec import encode
from tidewheel.wire.messages import TriggerRun

# --- limits --------------------------------------------------------------------------------------------------------


def test_c072_slots_of_what_was_killed_or_cancelled_are_given_back() -> None:
    """One slot. Its worker is killed; then what runs in it is cancelled, and ends only with its lease."""
    world = a_world()
    world.ask(c.ConfigurePool(pool="default", slots=1))
    world.add_worker("w1", behaviour=lambda _: Outcome(takes_ms=10 * HOUR))
    world.deploy(Workflow(id="d", tasks=(task("a", infra_retries=0),)))
    for number in range(4):
        world.ask(c.StartRun(dag="d", run_id=f"r{number}"))
    world.advance(5 * SECOND)
    assert [run for _, run, *_ in world.started] == ["r0"]
    world.workers[0].alive = False
    world.add_worker("w2", behaviour=lambda _: Outcome(takes_ms=10 * HOUR))
    world.advance(35 * SECOND)
    assert [run for _, run, *_ in world.started] == ["r0", "r1"], "within a lease and 5 s"
    world.workers[1].alive = False
    assert world.ask(c.CancelRun(dag="d", run_id="r1")).ok
    world.add_worker("w3", behaviour=lambda _: Outcome(takes_ms=10 * HOUR))
    world.advance(35 * SECOND)
    assert [run for _, run, *_ in world.started] == ["r0", "r1", "r2"]
    assert world.ask(c.CancelRun(dag="d", run_id="r2")).ok
    world.settle()
    assert [run for _, run, *_ in world.started] == ["r0", "r1", "r2", "r3"], "a living worker gives it back at once"
    nothing_is_left(world)


def test_c075_of_four_slots_that_are_not_to_wait_two_run_and_two_are_refused() -> None:
    world = a_world()
    world.add_worker(behaviour=lambda _: Outcome(takes_ms=15 * MINUTE))
    begun = world.now
    schedule = Schedule(every_ms=10 * MINUTE, overlap="skip", end_ms=begun + 40 * MINUTE)
    world.deploy(Workflow(id="d", tasks=(task("a"),), schedule=schedule))
    for _ in range(12):
        world.advance(5 * MINUTE, step_ms=MINUTE)
        restart(world)
    ran = [slot_run_id(begun + minutes * MINUTE) for minutes in (10, 30)]
    assert ends(world) == dict.fromkeys(ran, "RunSucceeded")
    skipped = [event for event in world.events(e.SlotsSkipped) if isinstance(event, e.SlotsSkipped)]
    assert [(event.first, event.count) for event in skipped] == [(begun + m * MINUTE, 1) for m in (20, 40)]
    assert [run_id in event.reason for run_id, event in zip(ran, skipped, strict=True)] == [True, True]
    nothing_is_left(world)


def test_c075_who_is_refused_for_want_of_room_counts_for_nothing_and_may_ask_again() -> None:
    """Two run, one may wait, two are told to come back, and do."""
    world = a_world(rules=Rules(evaluator=CelEvaluator(), waiting_runs_max=1))
    world.add_worker(slots=9, behaviour=lambda _: Outcome(takes_ms=10 * SECOND))
    world.deploy(Workflow(id="d", tasks=(task("a"),), concurrency=Concurrency(max_runs=2)))
    asks = [c.StartRun(dag="d", run_id=f"r{number}") for number in range(5)]
    for _ in range(10):
        codes = [world.ask(ask).code for ask in asks]
    assert codes == ["", "", "", "overloaded", "overloaded"]
    assert started_runs(world) == ["r0", "r1"]
    restart(world)
    world.advance(11 * SECOND)
    assert started_runs(world) == ["r0", "r1", "r2"]
    assert [world.ask(ask).code for ask in asks[3:]] == ["", ""]
    assert started_runs(world) == ["r0", "r1", "r2", "r3"]
    world.advance(30 * SECOND)
    assert ends(world) == {f"r{number}": "RunSucceeded" for number in range(5)}
    nothing_is_left(world)


@pytest.mark.parametrize("priority", [0, 10])
def test_c076_a_wide_task_starts_when_what_ran_before_it_has_ended(priority: int) -> None:
    """A stream of narrow tasks of ten seconds each, more than three slots can take."""
    world = a_world()
    world.add_worker(slots=3, behaviour=lambda work: Outcome(takes_ms=0 if work.dag == "wide" else 10 * SECOND))
    world.deploy(Workflow(id="narrow", tasks=(task("n"),), concurrency=Concurrency(max_runs=1_000)))
    world.deploy(Workflow(id="wide", tasks=(task("w", pool_slots=3),), priority=priority))
    asked = 0
    for second in range(60):
        world.ask(c.StartRun(dag="narrow", run_id=f"r{second}"))
        if second == 20:
            world.ask(c.StartRun(dag="wide", run_id="w"))
            asked = world.now
        world.advance(SECOND)
    (leased,) = (event for event in world.events(e.TaskLeased) if getattr(event, "dag", "") == "wide")
    assert isinstance(leased, e.TaskLeased)
    assert leased.at - asked <= 10 * SECOND
    world.check()


@pytest.mark.parametrize("paused", [False, True])
def test_c080_a_backfill_whose_definition_goes_is_over_with_the_reason(paused: bool) -> None:
    """Ten of its runs are at work, or wait for a paused DAG, and ten are still to be made."""
    world = a_world()
    world.add_worker(slots=20, behaviour=lambda _: Outcome(takes_ms=5_000))
    flow = Workflow(id="going", tasks=(task("a"),), schedule=Schedule(every_ms=HOUR))
    world.deploy(flow)
    if paused:
        world.ask(c.PauseDag(dag="going"))
    backfill = c.StartBackfill(dag="going", since=START_MS - 19 * HOUR, until=START_MS, width=10, mode="parallel")
    assert world.ask(backfill).ok
    world.advance(1_000)
    assert (len(world.events(e.RunCreated)), len(world.events(e.RunStarted))) == (10, 0 if paused else 10)
    assert world.ask(c.RemoveDag(dag="going", reason="its file is gone")).ok
    restart(world)
    world.advance(MINUTE)
    (over,) = world.events(e.BackfillCancelled)
    assert isinstance(over, e.BackfillCancelled)
    assert over.reason == "the DAG was removed"
    told = [event for event in world.events(e.RunCancelRequested) if isinstance(event, e.RunCancelRequested)]
    assert {event.reason for event in told} <= {"the DAG was removed"}
    found = list(ends(world).values())
    assert found == ["RunCancelled" if paused else "RunSucceeded"] * 10, "what was at work finishes"
    world.deploy(flow, "v2")
    world.ask(c.UnpauseDag(dag="going"))
    assert world.ask(backfill).ok, "and when it is back, the rest can be had"
    world.advance(MINUTE)
    assert len(world.events(e.RunSucceeded)) == (10 if paused else 20)
    nothing_is_left(world)


# --- alerts --------------------------------------------------------------------------------------------------------


def test_c103_a_deadline_is_told_once_whether_the_task_runs_or_never_gets_a_slot() -> None:
    world = a_world()
    world.add_worker(behaviour=lambda _: Outcome(takes_ms=30 * SECOND))
    at_work, waiting = Deadline(within_ms=2 * SECOND, from_="started"), Deadline(within_ms=2 * SECOND, from_="queued")
    world.deploy(Workflow(id="slow", tasks=(task("a"),), deadlines=(at_work,)))
    world.deploy(Workflow(id="stuck", tasks=(task("a", pool="nobody"),), deadlines=(at_work,)))
    world.deploy(
        Workflow(id="never", tasks=(task("a"),), deadlines=(waiting,), concurrency=Concurrency(max_runs=1)),
    )
    world.ask(c.PauseDag(dag="never"))
    begun = world.now
    for dag in ("slow", "stuck", "never"):
        world.ask(c.StartRun(dag=dag, run_id="r"))
    for _ in range(9):
        world.advance(5 * SECOND, step_ms=500)
        restart(world)
    missed = [event for event in world.events(e.DeadlineMissed) if isinstance(event, e.DeadlineMissed)]
    assert sorted((event.dag, event.at) for event in missed) == [
        (dag, begun + 2 * SECOND) for dag in ("never", "slow", "stuck")
    ]
    assert ends_of(world, "slow") == {"r": "RunSucceeded"}, "an alert ends nothing"
    world.check()


# --- reports and records -------------------------------------------------------------------------------------------


def test_c108_c109_a_failure_that_is_told_twice_is_refused_the_second_time() -> None:
    """With another text, before and after a restart, for two branches of a join; and the partition lives."""
    world = a_world()
    world.add_worker(behaviour=lambda work: Outcome(takes_ms=SECOND, fails="exception" if work.task == "a" else None))
    join = task("z", "a", "b", trigger_rule="all_done")
    world.deploy(Workflow(id="d", tasks=(task("a"), task("b"), join, task("later", "z"))))
    world.ask(c.StartRun(dag="d", run_id="r"))
    world.advance(SECOND + 100, step_ms=100)
    place: dict[str, Any] = {"dag": "d", "run_id": "r", "attempt": 1, "worker": "w1", "actor": "worker:w1"}
    times = {"started_at": world.now, "ended_at": world.now}
    for _ in range(2):
        world.send(c.ReportFailure(**place, **times, task="a", kind="exception", message="another text"))
        world.send(c.ReportSuccess(**place, **times, task="b"))
        world.settle()
        restart(world)
    refused = [event for event in world.events(e.ReportRefused) if isinstance(event, e.ReportRefused)]
    assert sorted(event.task for event in refused) == ["a", "a", "b", "b"]
    (failed,) = world.events(e.TaskFailed)
    assert isinstance(failed, e.TaskFailed)
    assert failed.message == "it failed"
    assert world.ask(c.StartRun(dag="d", run_id="s")).ok
    world.advance(10 * SECOND)
    assert ends(world) == {"r": "RunSucceeded", "s": "RunSucceeded"}
    assert [key[2] for key in world.started].count("z") == 2
    nothing_is_left(world)


@pytest.mark.parametrize("topic", [COMMANDS, TRIGGERS])
def test_c121_records_cut_at_each_byte_are_parked_and_those_between_them_are_handled(topic: str) -> None:
    def record(run_id: str) -> bytes:
        return encode(c.StartRun(dag="d", run_id=run_id) if topic == COMMANDS else TriggerRun(dag="d", run_id=run_id))

    world = a_world(partitions=1)
    world.add_worker(slots=50)
    world.deploy(Workflow(id="d", tasks=(task("a"),)))
    whole = record("cut")
    producer = world.log.producer()
    for end in range(len(whole)):
        producer.send(Append(topic, b"d", whole[:end], partition=0))
        producer.send(Append(topic, b"d", record(f"r{end}"), partition=0))
    world.advance(SECOND)
    letters = dead_letters(world)
    assert [letter.value for letter in letters] == [whole[:end] for end in range(len(whole))]
    assert {letter.topic for letter in letters} == {topic}
    assert {letter.code for letter in letters} <= {"foreign", "invalid", "truncated", "malformed"}
    assert all(letter.reason for letter in letters)
    assert ends(world) == {f"r{end}": "RunSucceeded" for end in range(len(whole))}
    nothing_is_left(world)
