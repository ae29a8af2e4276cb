"""Backfills: what they make, in which order, and what ends them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.core.scenes import NOW, RULES, definition, deployed, task, workflow
from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.backfill import PRIORITY_DROP
from tidewheel.core.deadlines import AT_ONCE, armed_by, due_at, own_work_due, timers_of
from tidewheel.core.decide import decide
from tidewheel.core.state import Dag
from tidewheel.core.workflow import Concurrency, Input, Schedule, Workflow
from tidewheel.testing.playbook import Given, Outcome, given

HOUR = 3_600_000
HOURLY = Schedule(cron=("0 * * * *",))
FIRE = c.FireSchedule(dag="d")


def dag(*events: e.Event, **more: Any) -> Given:
    """An hourly DAG, first deployed now."""
    of = workflow(task("a"), **{"schedule": HOURLY, **more})
    return given(Dag(dag="d"), deployed(of, cursor=NOW), *events, rules=RULES)


def start(hours: int = 4, **more: Any) -> c.StartBackfill:
    """Over the last hours, the present one included."""
    return c.StartBackfill(**{"dag": "d", "since": NOW - (hours - 1) * HOUR, "until": NOW, "actor": "user:ann", **more})


def backfilling(hours: int = 4, **more: Any) -> Outcome:
    """Started, and its first runs made."""
    return dag().when(start(hours, **more), at=NOW).when(FIRE, at=NOW)


def made(outcome: Outcome) -> list[int]:
    """The hours before now of the runs that were created."""
    runs = [event for event in outcome.decision.events if isinstance(event, e.RunCreated)]
    return [(NOW - run.logical_date) // HOUR for run in runs if run.logical_date is not None]


def ended(outcome: Outcome, hours: int) -> Outcome:
    """Its run is cancelled before anything of it was leased, and so has ended; the backfill goes on."""
    run_id = next(run for run, found in outcome.decision.state.runs.items() if found.logical_date == NOW - hours * HOUR)
    return outcome.when(c.CancelRun(dag="d", run_id=run_id), at=NOW).when(FIRE, at=NOW)


# --- what they make ------------------------------------------------------------------------------------------------


def test_the_range_is_taken_with_both_its_ends_and_the_runs_are_the_slots_own() -> None:
    started = dag().when(start(width=2), at=NOW)
    started.then(
        e.BackfillStarted(
            dag="d",
            at=NOW,
            actor="user:ann",
            backfill_id="backfill-1",
            first=NOW - 3 * HOUR,
            last=NOW,
            slots=4,
            width=2,
        )
    )
    runs = started.when(FIRE, at=NOW)
    runs.then(e.RunCreated, e.RunCreated, e.RunStarted, e.TaskQueued, e.RunStarted, e.TaskQueued)
    run = runs.decision.events[0]
    assert isinstance(run, e.RunCreated)
    assert (run.run_id, run.kind, run.backfill_id) == ("scheduled__2026-01-04T21:00:00Z", "backfill", "backfill-1")
    assert (run.interval_start, run.interval_end) == (NOW - 4 * HOUR, NOW - 3 * HOUR)


def test_parallel_keeps_so_many_going() -> None:
    outcome = backfilling(width=2)
    assert made(outcome) == [3, 2]
    outcome.when(FIRE, at=NOW).then()
    assert made(ended(outcome, 2)) == [1]


def test_sequential_makes_one_after_the_other() -> None:
    outcome = backfilling(3)
    assert made(outcome) == [2]
    outcome = ended(outcome, 2)
    assert made(outcome) == [1]
    assert made(ended(outcome, 1)) == [0]


def test_backward_begins_with_the_latest() -> None:
    outcome = backfilling(3, order="backward")
    assert made(outcome) == [0]
    assert made(ended(outcome, 0)) == [1]


def test_a_chunk_begins_when_all_of_the_one_before_have_ended() -> None:
    outcome = backfilling(5, mode="chunked", width=2)
    assert made(outcome) == [4, 3]
    outcome = ended(outcome, 4)
    assert made(outcome) == []
    outcome = ended(outcome, 3)
    assert made(outcome) == [2, 1]
    outcome = ended(ended(outcome, 1), 2)
    assert made(outcome) == [0]


def test_it_is_finished_when_its_last_run_has_ended() -> None:
    outcome = ended(backfilling(2, width=5), 1)
    outcome.then()
    outcome = ended(outcome, 0).then(e.BackfillFinished(dag="d", at=NOW, backfill_id="backfill-1"))
    assert outcome.decision.state.backfills == ()
    assert list(timers_of(outcome.decision.state, RULES.backlog_runs)) == [(NOW + HOUR, FIRE)]


def test_slots_that_have_a_run_are_passed_and_counted() -> None:
    outcome = backfilling(2, width=5)
    outcome = ended(ended(outcome, 0), 1)
    again = outcome.when(start(6, width=10), at=NOW).when(FIRE, at=NOW)
    assert made(again) == [5, 4, 3, 2]
    skipped = next(event for event in again.decision.events if isinstance(event, e.BackfillSlotsSkipped))
    assert (skipped.first, skipped.last, skipped.count) == (NOW - HOUR, NOW, 2)
    assert skipped.answered and skipped.backfill_id == "backfill-2"


def test_a_slot_of_the_schedule_is_passed_by_a_backfill_and_the_other_way_round() -> None:
    later = NOW + 2 * HOUR
    scheduled = dag().when(FIRE, at=NOW + HOUR)
    both = scheduled.when(start(since=NOW, until=NOW + HOUR, width=9), at=NOW + HOUR).when(FIRE, at=NOW + HOUR)
    both.then(e.RunCreated, e.BackfillSlotsSkipped, e.RunStarted, e.TaskQueued)
    paused = dag(e.DagPaused(dag="d", at=NOW)).when(start(since=NOW + HOUR, until=later, width=9), at=later)
    going = paused.when(FIRE, at=later).when(c.UnpauseDag(dag="d"), at=later)
    assert [type(event) for event in going.decision.events][:2] == [e.DagUnpaused, e.SlotsSkipped]
    assert made(going) == []
    assert len(going.decision.state.runs) == 2
    all_ = workflow(task("a"), schedule=replace(HOURLY, catchup="all"))
    scene = given(Dag(dag="d"), deployed(all_, cursor=NOW), e.DagPaused(dag="d", at=NOW), rules=RULES)
    made_first = scene.when(start(since=NOW + HOUR, until=NOW + HOUR), at=later).when(FIRE, at=later)
    unpaused = made_first.when(c.UnpauseDag(dag="d"), at=later)
    reasons = [event.reason for event in unpaused.decision.events if isinstance(event, e.SlotsSkipped)]
    assert reasons == ["a backfill has made the slot's run"]
    assert made(unpaused) == [-2]


def test_a_slot_whose_inputs_can_not_be_filled_is_passed_with_the_reason() -> None:
    scene = dag(inputs={"day": Input(type="date")})
    outcome = scene.when(start(1), at=NOW).when(FIRE, at=NOW).then(e.BackfillSlotsSkipped, e.BackfillFinished)
    skipped = outcome.decision.events[0]
    assert isinstance(skipped, e.BackfillSlotsSkipped)
    assert "day" in skipped.reason and not skipped.answered


def test_a_long_range_is_worked_off_in_steps_and_costs_no_memory() -> None:
    outcome = dag().when(start(100_000, width=1_000), at=NOW).when(FIRE, at=NOW)
    assert len(made(outcome)) == 100
    assert own_work_due(outcome.decision.state, RULES.backlog_runs) == AT_ONCE, "it goes on with the next turn"
    assert len(made(outcome.when(FIRE, at=NOW))) == 100
    state = outcome.decision.state
    assert state.backfill("backfill-1").slots == 100_000
    assert len(state.runs) == 100


# --- beside the schedule -------------------------------------------------------------------------------------------


def test_its_runs_take_no_room_from_others_and_stand_in_nobodys_way() -> None:
    limits = Concurrency(max_runs=1)
    no_overlap = replace(HOURLY, overlap="skip")
    outcome = dag(concurrency=limits, schedule=no_overlap).when(start(3, width=3), at=NOW).when(FIRE, at=NOW)
    assert len(outcome.decision.state.runs) == 3
    scheduled = outcome.when(FIRE, at=NOW + HOUR).then(e.RunCreated, e.RunStarted, e.TaskQueued)
    scheduled.when(c.StartRun(dag="d", run_id="m"), at=NOW + HOUR).then(e.RunCreated)


def test_its_tasks_wait_behind_all_others() -> None:
    outcome = dag(priority=1_000).when(start(1), at=NOW).when(FIRE, at=NOW)
    assert [ask.priority for ask in outcome.decision.commands if isinstance(ask, c.EnqueueTask)] == [
        1_000 - PRIORITY_DROP
    ]


def test_within_max_tasks_they_come_last() -> None:
    outcome = dag(concurrency=Concurrency(max_tasks=1)).when(start(2, width=2), at=NOW).when(FIRE, at=NOW)
    outcome = outcome.when(c.StartRun(dag="d", run_id="m"), at=NOW)
    first = next(run for run, found in outcome.decision.state.runs.items() if found.logical_date == NOW - HOUR)
    freed = outcome.when(c.CancelRun(dag="d", run_id=first), at=NOW)
    assert [event.run_id for event in freed.decision.events if isinstance(event, e.TaskQueued)] == ["m"]


def test_while_the_dag_is_paused_its_runs_wait_and_start_afterwards() -> None:
    paused = dag(e.DagPaused(dag="d", at=NOW)).when(start(3, width=2), at=NOW)
    outcome = paused.when(FIRE, at=NOW).then(e.RunCreated, e.RunCreated)
    outcome.when(c.UnpauseDag(dag="d"), at=NOW).then(
        e.DagUnpaused, e.RunStarted, e.TaskQueued, e.RunStarted, e.TaskQueued
    )


# --- held and ended ------------------------------------------------------------------------------------------------


def test_paused_it_makes_nothing_and_resumed_it_goes_on_where_it_was() -> None:
    by = {"dag": "d", "backfill_id": "backfill-1"}
    outcome = backfilling(3).when(c.PauseBackfill(**by, reason="busy"), at=NOW)
    outcome.then(e.BackfillPaused(**by, at=NOW, reason="busy"))  # type: ignore[arg-type]
    outcome.when(c.PauseBackfill(**by), at=NOW).then()
    held = ended(outcome, 2).then()
    resumed = held.when(c.ResumeBackfill(**by), at=NOW).then(e.BackfillResumed)
    resumed.when(c.ResumeBackfill(**by), at=NOW).then()
    assert due_at(resumed.decision.state, FIRE, RULES.backlog_runs) == AT_ONCE
    event = resumed.decision.events[0]
    assert armed_by(event, resumed.decision.state, RULES.backlog_runs) == (AT_ONCE, FIRE)
    assert made(resumed.when(FIRE, at=NOW)) == [1]


def test_cancelled_its_waiting_runs_end_and_the_others_go_on() -> None:
    cancel = c.CancelBackfill(dag="d", backfill_id="backfill-1", reason="wrong")
    waiting = dag(e.DagPaused(dag="d", at=NOW)).when(start(3, width=2), at=NOW).when(FIRE, at=NOW)
    outcome = waiting.when(cancel, at=NOW)
    assert outcome.decision.events[0] == e.BackfillCancelled(dag="d", at=NOW, backfill_id="backfill-1", reason="wrong")
    assert len(outcome.decision.state.runs) == 0
    assert len(outcome.decision.state.queued_backfill) == 0 and not outcome.decision.state.live_of
    going = backfilling(3).when(cancel, at=NOW).then(e.BackfillCancelled)
    assert len(going.decision.state.runs) == 1
    both = backfilling(3).when(replace(cancel, running=True), at=NOW)
    assert len(both.decision.state.runs) == 0
    both.when(cancel, at=NOW).then().rejected("backfill-1 of 'd' is over")
    both.when(replace(cancel, backfill_id="backfill-2"), at=NOW).then().rejected("has no backfill 'backfill-2'")
    both.when(replace(cancel, backfill_id="x"), at=NOW).then().rejected("has no backfill 'x'")


def test_slots_of_a_cancelled_backfill_that_it_had_not_come_to_are_free() -> None:
    cancelled = backfilling(3).when(c.CancelBackfill(dag="d", backfill_id="backfill-1", running=True), at=NOW)
    again = cancelled.when(start(3, width=9), at=NOW).when(FIRE, at=NOW)
    assert made(again) == [1, 0]


def test_it_ends_with_its_schedule_and_with_its_dag() -> None:
    outcome = backfilling(3)
    other = definition(workflow(task("a"), schedule=Schedule(cron=("30 * * * *",))))
    replaced = outcome.when(c.DeployDag(dag="d", version="v2", definition=other, actor="user:ann"), at=NOW)
    assert [type(event) for event in replaced.decision.events] == [e.BackfillCancelled, e.DagDeployed]
    same = definition(workflow(task("b"), schedule=HOURLY))
    kept = outcome.when(c.DeployDag(dag="d", version="v2", definition=same), at=NOW).then(e.DagDeployed)
    assert kept.decision.state.backfill("backfill-1").created == 1
    outcome.when(c.RemoveDag(dag="d"), at=NOW).then(e.BackfillCancelled, e.DagRemoved)


# --- what is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("of", "command", "said"),
    [
        (workflow(task("a")), start(), "has no schedule"),
        (workflow(task("a"), schedule=HOURLY), start(since=NOW, until=NOW - 1), "ends (2026-01-04T23:59:59.999Z)"),
        (workflow(task("a"), schedule=HOURLY), start(width=0), "1 to 1,000 slots at a time, not 0"),
        (workflow(task("a"), schedule=HOURLY), start(since=NOW + 1, until=NOW + 2 * HOUR), "that has come due"),
        (workflow(task("a"), schedule=HOURLY), start(since=NOW - 5, until=NOW - 3), "that has come due"),
        (workflow(task("a"), schedule=Schedule(every_ms=1_000)), start(1_000), "takes 1,000,000 at most"),
    ],
)
def test_what_can_not_be_is_refused_with_the_reason(of: Workflow, command: c.StartBackfill, said: str) -> None:
    given(Dag(dag="d"), deployed(of), rules=RULES).when(command, at=NOW).then().rejected(said)


def test_a_dag_that_is_not_there_has_no_backfills() -> None:
    given(Dag(dag="d"), rules=RULES).when(start(), at=NOW).then().rejected("no DAG 'd' is deployed")
    dag(e.DagRemoved(dag="d", at=NOW)).when(start(), at=NOW).then().rejected("was removed")


def test_the_same_request_again_is_the_same_backfill_and_another_over_its_slots_is_refused() -> None:
    outcome = backfilling(4)
    same = outcome.when(start(4), at=NOW).then()
    answer = same.decision.answer
    assert answer is not None
    assert (answer.ok, answer.created, answer.backfill_id) == (True, False, "backfill-1")
    outcome.when(start(4, width=2), at=NOW).then().rejected("cancel it, or choose another range")
    beside = outcome.when(start(since=NOW - 9 * HOUR, until=NOW - 5 * HOUR), at=NOW)
    beside.then(e.BackfillStarted)


def test_so_many_may_live_at_once() -> None:
    outcome = dag().when(start(1), at=NOW)
    for number in range(1, 16):
        slot = NOW - 2 * number * HOUR
        outcome = outcome.when(start(since=slot, until=slot), at=NOW).then(e.BackfillStarted)
    outcome.when(start(since=NOW - 99 * HOUR, until=NOW - 90 * HOUR), at=NOW).then().rejected("16 backfills")


def test_the_end_is_the_newest_slot_that_has_come_due() -> None:
    outcome = dag().when(start(2, until=NOW + 9 * HOUR), at=NOW)
    started = outcome.decision.events[0]
    assert isinstance(started, e.BackfillStarted)
    assert (started.last, started.slots) == (NOW, 2)


def test_an_ended_run_of_a_backfill_is_known_by_its_id() -> None:
    outcome = ended(backfilling(1), 0)
    run_id = "scheduled__2026-01-05T00:00:00Z"
    outcome.when(c.CancelRun(dag="d", run_id=run_id), at=NOW).then().rejected("it has ended")
    beyond = c.CancelRun(dag="d", run_id="scheduled__2026-01-05T09:00:00Z")
    decision = decide(outcome.decision.state, beyond, NOW, RULES)
    assert decision.answer is not None and decision.answer.code == "not_found"
