"""How deferred attempts end."""

from __future__ import annotations

from typing import Any

import pytest
from mapped import WHERE, begun, kinds
from scenes import NOW, RULES, task
from waiting import HOUR, LATER, resume, wait

from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.deadlines import armed_by, due_at, timers_of
from tidewheel.core.workflow import Task


def test_the_time_has_come() -> None:
    outcome = resume(begun(wait("w"), task("b", "w")))
    success = e.TaskSucceeded(**WHERE, task="w", attempt=1, at=LATER, worker="", started_at=NOW, ended_at=LATER)
    outcome.then(success, e.TaskQueued)
    assert outcome.decision.state.runs["r"].task("w").wait is None


def test_nothing_happens_before_its_time_or_to_another_attempt() -> None:
    outcome = begun(wait("w"))
    resume(outcome, at=LATER - 1).then()
    outcome.when(c.ResumeTask(**WHERE, task="w", attempt=2), at=LATER).then()
    outcome.when(c.ResumeTask(dag="d", run_id="gone", task="w", attempt=1), at=LATER).then()
    again = resume(outcome)
    resume(again).then()


def test_it_waits_no_longer_than_its_timeout() -> None:
    outcome = resume(begun(wait("w", after_ms=2 * HOUR, timeout_ms=HOUR), task("b", "w")))
    assert kinds(outcome) == [("TaskFailed", "w"), ("TaskUpstreamFailed", "b"), ("RunFailed", "")]
    failed = outcome.decision.events[0]
    assert isinstance(failed, e.TaskFailed)
    assert (failed.kind, failed.message) == ("wait_timeout", "it waited for longer than its timeout, 3600 s")


def test_on_timeout_skip_is_a_skip() -> None:
    skipping = wait("w", after_ms=2 * HOUR, timeout_ms=HOUR, on_timeout="skip")
    outcome = resume(begun(skipping, task("b", "w"), task("c", "w", trigger_rule="none_failed")))
    assert kinds(outcome) == [("TaskSkipped", "w"), ("TaskSkipped", "b"), ("TaskQueued", "c")]


@pytest.mark.parametrize("more", [{}, {"for_each": [1, 2], "fail_fast": True}])
def test_a_time_that_does_not_evaluate_fails_the_task_in_a_turn_of_its_own(more: dict[str, Any]) -> None:
    outcome = begun(wait("w", at="${{ inputs.nothing }}", **more))
    assert outcome.decision.events[-1].__class__ is e.TaskDeferred
    outcome = resume(outcome, "w[0]" if more else "w", at=NOW)
    failed = outcome.decision.events[0]
    assert isinstance(failed, e.TaskFailed)
    assert failed.kind == "expression" and failed.message.startswith("wait_for: ${{ inputs.nothing }}")
    assert kinds(outcome)[-1] == ("RunFailed", "")


def test_a_thousand_instances_that_can_not_wait_end_one_by_one() -> None:
    outcome = begun(wait("w", at="${{ 1 }}", for_each=list(range(150)), max_parallel=1))
    for index in range(150):
        outcome = resume(outcome, f"w[{index}]", at=NOW)
    assert kinds(outcome)[-2:] == [("TaskFailed", "w"), ("RunFailed", "")]


@pytest.mark.parametrize("of", [wait("w"), wait("w", for_each=[1])])
def test_a_cancelled_run_waits_for_nothing(of: Task) -> None:
    outcome = begun(of).when(c.CancelRun(dag="d", run_id="r"), at=NOW)
    assert kinds(outcome)[-2:] == [("TaskCancelled", "w"), ("RunCancelled", "")]
    assert list(timers_of(outcome.decision.state, RULES.backlog_runs)) == []


def test_a_wait_has_one_timer_for_whichever_end_comes_first() -> None:
    outcome = begun(wait("w", timeout_ms=5), wait("forever", after_ms=7))
    state, backlog = outcome.decision.state, RULES.backlog_runs
    first, second = (c.ResumeTask(**WHERE, task=name, attempt=1) for name in ("w", "forever"))
    assert sorted(timers_of(state, backlog), key=lambda timer: timer[0]) == [(NOW + 5, first), (NOW + 7, second)]
    assert [armed_by(event, state, backlog) for event in outcome.decision.events[-2:]] == [
        (NOW + 5, first),
        (NOW + 7, second),
    ]
    assert due_at(state, first, backlog) == NOW + 5
    assert due_at(resume(outcome, at=NOW + 5).decision.state, first, backlog) is None
