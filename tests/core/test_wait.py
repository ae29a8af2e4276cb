"""How deferred attempts end."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.core.mapped import WHERE, begun, kinds
from tests.core.scenes import NOW, RULES, task
from tests.core.waiting import HOUR, LATER, resume, wait
from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.deadlines import armed_by, due_at, timers_of
from tidewheel.core.workflow import ApprovalWait, Task, WaitFor
from tidewheel.testing.playbook import Outcome


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


def ask(*roles: str, **more: Any) -> Task:
    """A task that waits for an approval."""
    return Task(id="w", action=WaitFor(what=ApprovalWait(roles=roles), **more))


def decide(outcome: Outcome, approve: bool = True, **more: Any) -> Outcome:
    """Ann decides."""
    return outcome.when(c.DecideApproval(**WHERE, task="w", actor="user:ann", approve=approve, **more), at=LATER)


def test_a_yes_is_the_output_and_says_whose_it_is() -> None:
    outcome = decide(begun(ask("boss", "operator"), task("b", "w")), role="boss", reason="looks right")
    assert kinds(outcome) == [("TaskSucceeded", "w"), ("TaskQueued", "b")]
    success = outcome.decision.events[0]
    assert isinstance(success, e.TaskSucceeded)
    assert success.actor == "user:ann"
    assert json.loads(success.output or "") == {
        "approved": True,
        "by": "user:ann",
        "role": "boss",
        "reason": "looks right",
        "at": "2026-01-05T01:00:00Z",
    }
    assert outcome.decision.answer is not None and outcome.decision.answer.ok


def test_a_no_fails_the_task_with_who_and_why() -> None:
    outcome = decide(begun(ask("boss")), approve=False, reason="wrong figures", role="boss")
    failed = outcome.decision.events[0]
    assert isinstance(failed, e.TaskFailed)
    assert (failed.kind, failed.actor, failed.retry_at) == ("rejected", "user:ann", None)
    assert failed.message == "rejected by user:ann as boss: wrong figures"
    assert kinds(outcome)[-1] == ("RunFailed", "")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"role": "clerk"}, "w is to be decided by boss or operator, not by clerk"),
        ({"attempt": 2}, "attempt 2 of w waits for no approval: attempt 1 is deferred"),
    ],
)
def test_not_everybody_may_decide_and_not_everything(more: dict[str, Any], words: str) -> None:
    decide(begun(ask("boss", "operator")), **more).rejected(words).then()


def test_what_is_decided_is_not_decided_again() -> None:
    outcome = begun(ask(), task("b", "w"))
    decide(decide(outcome), approve=False).rejected("w waits for no approval: attempt 1 is success").then()
    decide(begun(wait("w"))).rejected("w waits for no approval").then()
    no_run = c.DecideApproval(dag="d", run_id="gone", task="w", approve=True)
    outcome.when(no_run, at=NOW).rejected("no live run gone")
    no_task = c.DecideApproval(**WHERE, task="x", approve=True)
    outcome.when(no_task, at=NOW).rejected("no task 'x'")
    near = c.DecideApproval(**WHERE, task="bb", approve=True)
    outcome.when(near, at=NOW).rejected("no task 'bb'; did you mean 'b'?")
    decide(decide(begun(ask()))).rejected("is not live: it has ended").then()


def test_nobody_decides_in_time() -> None:
    outcome = resume(begun(ask("boss", timeout_ms=HOUR, on_timeout="skip"), task("b", "w")))
    assert kinds(outcome)[:2] == [("TaskSkipped", "w"), ("TaskSkipped", "b")]


def test_a_report_ends_no_wait_that_nobody_outside_watches() -> None:
    report = c.ReportWait(**WHERE, task="w", attempt=1, output="1")
    begun(wait("w")).when(report, at=LATER).rejected("waits for nothing that is reported").then()
    begun(ask()).when(report, at=LATER).rejected("waits for nothing that is reported").then()
