"""Deadlines: each fires once, at its instant, whatever becomes of the run, and one that fails the run ends it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.core.scenes import (
    NOW,
    RULES,
    created,
    definition,
    deployed,
    in_run,
    leased,
    queued,
    started,
    succeeded,
    task,
    workflow,
)
from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.deadlines import deadline_armed_by, due_at, timers_of
from tidewheel.core.mail import StopAttempt
from tidewheel.core.overdue import duration_text, next_deadline, open_deadlines
from tidewheel.core.state import Dag
from tidewheel.core.workflow import Concurrency, Deadline, Schedule, Workflow
from tidewheel.testing.playbook import Given, given

HOUR = 3_600_000
TIMER = c.FireDeadline(dag="d", run_id="r")


def dag(of: Workflow, *events: e.Event) -> Given:
    return given(Dag(dag="d"), deployed(of), *events, rules=RULES)


def late(*deadlines: Deadline, **more: Any) -> Workflow:
    return workflow(task("a"), task("b", "a"), deadlines=deadlines, **more)


def missed(index: int, deadline: Deadline, due: int, at: int, reason: str = "") -> e.DeadlineMissed:
    return e.DeadlineMissed(
        dag="d",
        run_id="r",
        at=at,
        deadline=index,
        counted_from=deadline.from_,
        within_ms=deadline.within_ms,
        due_at=due,
        action=deadline.action,
        reason=reason or f"deadline missed: the run had not ended {duration_text(deadline.within_ms)} after its start",
        before_ms=deadline.before_ms,
    )


ALERT = Deadline(within_ms=HOUR, from_="started")
FAIL = Deadline(within_ms=2 * HOUR, from_="started", action="fail")


@pytest.mark.parametrize(("kind", "scheduled"), [("manual", NOW), ("backfill", NOW), ("scheduled", NOW - 5 * HOUR)])
def test_each_counts_from_its_own_instant(kind: Any, scheduled: int) -> None:
    of = late(Deadline(within_ms=1), Deadline(within_ms=2, from_="queued"), Deadline(within_ms=3, from_="started"))
    slot = None if kind == "manual" else NOW - 5 * HOUR
    born = replace(created(), kind=kind, logical_date=slot)
    state = dag(of, born).state
    assert list(open_deadlines(state, state.runs["r"])) == [(scheduled + 1, 0), (NOW + 2, 1)]
    state = given(state, replace(started(), at=NOW + HOUR), rules=RULES).state
    assert list(open_deadlines(state, state.runs["r"]))[2] == (NOW + HOUR + 3, 2)
    assert next_deadline(state, state.runs["r"]) == scheduled + 1


def test_an_alert_is_told_once_and_the_run_goes_on() -> None:
    scene = in_run(late(ALERT), queued("a"), leased("a"))
    early = scene.when(TIMER, at=NOW + HOUR - 1).then()
    told = early.when(TIMER, at=NOW + HOUR).then(missed(0, ALERT, NOW + HOUR, NOW + HOUR))
    told.when(TIMER, at=NOW + 9 * HOUR).then()
    state = told.decision.state
    assert state.runs["r"].missed == (0,)
    assert not state.runs["r"].cancel_requested


def test_it_fires_also_when_the_run_never_starts() -> None:
    waiting = Deadline(within_ms=HOUR, from_="queued")
    reason = "deadline missed: the run had not ended 1h after its creation"
    for never in (e.DagPaused(dag="d", at=NOW), e.DagRemoved(dag="d", at=NOW)):
        scene = dag(late(waiting), created(), never)
        assert list(timers_of(scene.state, 100)) == [(NOW + HOUR, TIMER)]
        scene.when(TIMER, at=NOW + HOUR).then(missed(0, waiting, NOW + HOUR, NOW + HOUR, reason))


def test_one_that_fails_a_run_that_waits_ends_it_at_once_and_makes_room() -> None:
    hard = Deadline(within_ms=HOUR, action="fail")
    of = late(hard, concurrency=Concurrency(max_runs=1))
    scene = dag(of, created("first"), started("first"), created())
    outcome = scene.when(TIMER, at=NOW + HOUR)
    outcome.then(e.DeadlineMissed, e.TaskCancelled, e.TaskCancelled, e.RunFailed)
    assert outcome.decision.events[-1] == e.RunFailed(
        dag="d", run_id="r", at=NOW + HOUR, reason="deadline missed: the run had not ended 1h after its creation"
    )
    assert "r" not in outcome.decision.state.runs
    first = outcome.when(c.FireDeadline(dag="d", run_id="first"), at=NOW + HOUR).decision.state
    assert not first.queued_runs


def test_one_that_fails_a_run_at_work_tells_the_workers_and_ends_it_when_they_have() -> None:
    scene = in_run(late(FAIL), queued("a"), leased("a"))
    outcome = scene.when(TIMER, at=NOW + 2 * HOUR).then(
        missed(0, FAIL, NOW + 2 * HOUR, NOW + 2 * HOUR), e.TaskCancelRequested, e.TaskCancelled
    )
    (mail,) = outcome.decision.mail
    assert isinstance(mail, StopAttempt)
    assert mail.cancel
    report = c.ReportCancelled(dag="d", run_id="r", task="a", attempt=1, worker="w1", started_at=NOW, ended_at=NOW)
    outcome.when(report, at=NOW + 2 * HOUR + 5).then(e.TaskCancelled, e.RunFailed)


def test_no_retry_and_no_task_follows_a_failing_deadline() -> None:
    scene = in_run(late(FAIL), queued("a"), leased("a")).when(TIMER, at=NOW + 2 * HOUR)
    report = c.ReportSuccess(dag="d", run_id="r", task="a", attempt=1, worker="w1", started_at=NOW, ended_at=NOW)
    scene.when(report, at=NOW + 2 * HOUR + 1).then(e.TaskSucceeded, e.RunFailed)


def test_a_cancel_that_came_first_stays_a_cancel() -> None:
    scene = in_run(late(FAIL), queued("a"), leased("a")).when(c.CancelRun(dag="d", run_id="r"), at=NOW)
    told = scene.when(TIMER, at=NOW + 2 * HOUR).then(e.DeadlineMissed)
    report = c.ReportCancelled(dag="d", run_id="r", task="a", attempt=1, worker="w1", started_at=NOW, ended_at=NOW)
    told.when(report, at=NOW + 2 * HOUR).then(e.TaskCancelled, e.RunCancelled)


def test_a_late_end_says_what_was_missed_before_it() -> None:
    """Nobody was there when the time came, and the last report is read before the timer."""
    of = workflow(task("a"), deadlines=(ALERT, FAIL))
    report = c.ReportSuccess(dag="d", run_id="r", task="a", attempt=1, worker="w1", started_at=NOW, ended_at=NOW)
    scene = in_run(of, queued("a"), leased("a"))
    scene.when(report, at=NOW + HOUR).then(e.TaskSucceeded, e.DeadlineMissed, e.RunSucceeded)
    scene.when(report, at=NOW + 3 * HOUR).then(e.TaskSucceeded, e.DeadlineMissed, e.DeadlineMissed, e.RunFailed)
    scene.when(report, at=NOW + HOUR - 1).then(e.TaskSucceeded, e.RunSucceeded)


def test_the_version_of_the_run_counts() -> None:
    newer = deployed(late(), version="v2")
    scene = given(in_run(late(ALERT), queued("a")).state, newer, rules=RULES)
    scene.when(TIMER, at=NOW + HOUR).then(e.DeadlineMissed)


def test_timers_are_armed_by_what_sets_the_instant_and_found_again_from_the_state() -> None:
    of = late(Deadline(within_ms=HOUR, from_="queued"), replace(FAIL, action="alert"))
    waiting = dag(of, created())
    assert deadline_armed_by(created(), waiting.state) == (NOW + HOUR, TIMER)
    late_start = replace(started(), at=NOW + 10)
    running = given(waiting.state, late_start, rules=RULES)
    assert deadline_armed_by(late_start, running.state) == (NOW + HOUR, TIMER)
    assert (NOW + HOUR, TIMER) in list(timers_of(running.state, 100))
    told = running.when(TIMER, at=NOW + HOUR).decision
    assert deadline_armed_by(told.events[0], told.state) == (NOW + 10 + 2 * HOUR, TIMER)
    assert due_at(told.state, TIMER, 100) == NOW + 10 + 2 * HOUR
    ended = given(
        told.state, queued("a"), leased("a"), succeeded("a"), queued("b"), leased("b"), succeeded("b"), rules=RULES
    ).state
    assert due_at(ended, TIMER, 100) is not None
    over = given(ended, e.RunSucceeded(dag="d", run_id="r", at=NOW), rules=RULES).state
    assert due_at(over, TIMER, 100) is None
    assert deadline_armed_by(e.RunSucceeded(dag="d", run_id="r", at=NOW), over) is None
    assert deadline_armed_by(created(), over) is None


def test_an_old_slot_is_late_as_soon_as_it_has_a_run() -> None:
    of = late(Deadline(within_ms=HOUR), schedule=Schedule(every_ms=HOUR, catchup="all"))
    scene = given(Dag(dag="d"), deployed(of, cursor=NOW - 5 * HOUR), rules=RULES)
    outcome = scene.when(c.FireSchedule(dag="d"), at=NOW)
    first = next(event for event in outcome.decision.events if isinstance(event, e.RunCreated))
    due = deadline_armed_by(first, outcome.decision.state)
    assert due is not None
    assert due[0] == NOW - 3 * HOUR


def test_a_warning_says_that_it_is_one() -> None:
    warning = Deadline(within_ms=50 * 60_000, from_="started", before_ms=10 * 60_000)
    at = NOW + 50 * 60_000
    reason = "10m before its deadline, 1h after its start, the run has not ended"
    in_run(late(warning), queued("a")).when(TIMER, at=at).then(missed(0, warning, at, at, reason))


def test_a_deadline_before_its_beginning_is_refused() -> None:
    command = c.DeployDag(dag="d", version="v1", definition=definition(late(Deadline(within_ms=-1))))
    given(Dag(dag="d"), rules=RULES).when(command, at=NOW).then().rejected("0 to ten years")


@pytest.mark.parametrize(("length", "text"), [(5_400_000, "1h30m"), (86_400_000, "1d"), (250, "250ms"), (0, "0s")])
def test_lengths_read_as_they_are_written(length: int, text: str) -> None:
    assert duration_text(length) == text
