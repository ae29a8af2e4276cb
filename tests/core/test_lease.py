"""Granting and expiring leases."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from tests.core.scenes import (
    NOW,
    PlainEvaluator,
    created,
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
from tidewheel.core.decide import resend_leases
from tidewheel.core.expressions import Scope
from tidewheel.core.mail import AssignTask, LeaseRenewed, StopAttempt
from tidewheel.core.rules import Rules
from tidewheel.core.state import Dag
from tidewheel.core.workflow import Python, Retry, Task
from tidewheel.testing.playbook import given


def grant(attempt: int = 1, **more: Any) -> c.GrantSlot:
    fields = {"dag": "d", "run_id": "r", "task": "load", "attempt": attempt, "pool": "default", "worker": "w1"}
    return c.GrantSlot(**{**fields, "mail_partition": 0, **more})


def test_a_grant_becomes_a_lease_and_mail() -> None:
    outcome = in_run(workflow(task("load", timeout_ms=5_000)), queued("load")).when(grant(), at=NOW)
    outcome.then(leased("load"))
    (mail,) = outcome.decision.mail
    assert isinstance(mail, AssignTask)
    assert mail.action == '{"type":"run","command":"true"}'
    assert (mail.lease_ms, mail.timeout_ms, mail.attempt) == (30_000, 5_000, 1)


def test_a_grant_nobody_wants_any_more_goes_back() -> None:
    ended = succeeded("load")
    other = task("other")
    for scene in (
        in_run(workflow(task("load"))),
        in_run(workflow(task("load"), other), queued("load"), leased("load"), ended),
    ):
        outcome = scene.when(grant(), at=NOW).then()
        (back,) = outcome.decision.commands
        assert isinstance(back, c.ReleaseSlot)
    outcome = in_run(workflow(task("load"))).when(grant(run_id="gone"), at=NOW).then()
    assert isinstance(outcome.decision.commands[0], c.ReleaseSlot)


def test_a_grant_said_twice_does_not_free_the_slot_that_is_in_use() -> None:
    outcome = in_run(workflow(task("load")), queued("load"), leased("load")).when(grant(), at=NOW).then()
    assert not outcome.decision.commands
    assert not outcome.decision.mail


class Bottomless(PlainEvaluator):
    """Finds values nested so deeply that they can be rendered but not written."""

    def render(self, value: Any, scope: Scope) -> Any:
        nested: list[Any] = []
        for _ in range(100_000):
            nested = [nested]
        return nested


def test_an_action_that_can_not_be_written_fails_the_task_and_frees_the_slot() -> None:
    of = workflow(Task(id="load", action=Python(callable="m:f", with_={"x": "${{ tasks.deep.output }}"})))
    scene = given(Dag(dag="d"), deployed(of), created(), started(), queued("load"), rules=Rules(evaluator=Bottomless()))
    outcome = scene.when(grant(), at=NOW).then(e.TaskFailed, e.RunFailed)
    failed = outcome.decision.events[0]
    assert isinstance(failed, e.TaskFailed)
    assert "can not be written" in failed.message
    (back,) = outcome.decision.commands
    assert isinstance(back, c.ReleaseSlot)


def test_a_value_that_does_not_render_fails_the_task_and_frees_the_slot() -> None:
    of = workflow(task("load", env={"X": "${{ boom }}"}, retry=Retry(max=5)))
    outcome = in_run(of, queued("load")).when(grant(), at=NOW).then(e.TaskFailed, e.RunFailed)
    assert outcome.decision.events[0].kind == "expression"  # type: ignore[attr-defined]
    assert [type(command) for command in outcome.decision.commands] == [c.ReleaseSlot]


def test_a_slot_that_can_never_be_had_fails_the_task_with_the_pools_reason() -> None:
    refusal = c.RefuseSlot(
        dag="d", run_id="r", task="load", attempt=1, pool="default", reason="it takes 3 slots, and the pool has 2"
    )
    outcome = in_run(workflow(task("load")), queued("load")).when(refusal, at=NOW).then(e.TaskFailed, e.RunFailed)
    failed = outcome.decision.events[0]
    assert isinstance(failed, e.TaskFailed)
    assert (failed.kind, failed.message) == ("unplaceable", refusal.reason)


def test_silence_loses_the_attempt_and_queues_the_next() -> None:
    scene = in_run(workflow(task("load")), queued("load"), leased("load"))
    expire = c.ExpireLease(dag="d", run_id="r", task="load", attempt=1)
    scene.when(expire, at=NOW + 29_999).then()
    outcome = scene.when(expire, at=NOW + 30_000).then(e.LeaseExpired)
    (release,) = outcome.decision.commands
    assert isinstance(release, c.ReleaseSlot)
    assert release.worker_silent
    assert isinstance(outcome.decision.mail[0], StopAttempt)
    again = outcome.when(c.RetryTask(dag="d", run_id="r", task="load"), at=NOW + 30_000)
    again.then(replace(queued("load", 2), at=NOW + 30_000))


def test_silence_beyond_the_budget_fails_the_task() -> None:
    scene = in_run(workflow(task("load", infra_retries=0)), queued("load"), leased("load"))
    expire = c.ExpireLease(dag="d", run_id="r", task="load", attempt=1)
    scene.when(expire, at=NOW + 30_000).then(e.LeaseExpired, e.RunFailed)


def test_the_timer_of_an_older_attempt_does_nothing() -> None:
    lost = e.LeaseExpired(dag="d", run_id="r", task="load", attempt=1, at=NOW, worker="w1", message="", retry_at=NOW)
    scene = in_run(workflow(task("load")), queued("load"), leased("load"), lost, queued("load", 2), leased("load", 2))
    scene.when(c.ExpireLease(dag="d", run_id="r", task="load", attempt=1), at=NOW + 99_000).then()


def test_a_cancel_that_is_never_confirmed_ends_with_the_lease() -> None:
    scene = in_run(workflow(task("load")), queued("load"), leased("load"))
    outcome = scene.when(c.CancelRun(dag="d", run_id="r", reason="stop it"), at=NOW)
    outcome.then(e.RunCancelRequested, e.TaskCancelRequested)
    expire = c.ExpireLease(dag="d", run_id="r", task="load", attempt=1)
    outcome.when(expire, at=NOW + 30_000).then(e.TaskCancelled, e.RunCancelled)


def test_only_unreported_leases_are_sent_again() -> None:
    of = workflow(task("load"), task("other"))
    scene = in_run(of, queued("load"), queued("other"), leased("load"), leased("other"))
    start = c.ReportStarted(dag="d", run_id="r", task="other", attempt=1, worker="w1", started_at=NOW)
    outcome = scene.when(start, at=NOW)
    assert [mail.task for mail in resend_leases(outcome.decision.state, scene.rules)] == ["load"]


def test_a_silent_worker_is_given_the_tasks_heartbeat_timeout() -> None:
    patient = in_run(workflow(task("load", heartbeat_timeout_ms=300_000)), queued("load")).when(grant(), at=NOW)
    (lease,) = patient.decision.events
    (mail,) = patient.decision.mail
    assert isinstance(lease, e.TaskLeased)
    assert isinstance(mail, AssignTask)
    assert (lease.expires_at, mail.lease_ms) == (NOW + 300_000, 300_000)
    where = {"dag": "d", "run_id": "r", "task": "load", "attempt": 1, "worker": "w1"}
    began = patient.when(c.ReportStarted(**where, started_at=NOW), at=NOW + 1)
    beaten = began.when(c.ReportHeartbeat(**where, beat=1), at=NOW + 100_000)
    for outcome, at in ((began, NOW + 1), (beaten, NOW + 100_000)):
        (event,) = outcome.decision.events
        (renewed,) = outcome.decision.mail
        assert isinstance(event, e.TaskStarted | e.TaskHeartbeat)
        assert isinstance(renewed, LeaseRenewed)
        assert (event.expires_at, renewed.lease_ms) == (at + 300_000, 300_000)
    beaten.when(c.ExpireLease(dag="d", run_id="r", task="load", attempt=1), at=NOW + 399_999).then()


def test_all_attempts_together_have_the_total_timeout() -> None:
    """The second attempt gets what is left; one that would begin too late is not made."""
    bounded = task(
        "load", timeout_ms=40_000, total_timeout_ms=60_000, retry=Retry(max=5, delay_ms=10_000, jitter=False)
    )
    outcome = in_run(workflow(bounded), queued("load")).when(grant(), at=NOW)
    (mail,) = outcome.decision.mail
    assert isinstance(mail, AssignTask)
    assert mail.timeout_ms == 40_000
    where = {"dag": "d", "run_id": "r", "task": "load", "worker": "w1", "started_at": NOW, "ended_at": NOW}
    failure = {**where, "kind": "timeout", "message": "too long"}
    outcome = outcome.when(c.ReportFailure(**failure, attempt=1), at=NOW + 40_000)
    outcome = outcome.when(c.RetryTask(dag="d", run_id="r", task="load"), at=NOW + 50_000)
    outcome = outcome.when(grant(2), at=NOW + 51_000)
    (mail,) = outcome.decision.mail
    assert isinstance(mail, AssignTask)
    assert mail.timeout_ms == 9_000
    outcome.when(c.ReportFailure(**failure, attempt=2), at=NOW + 53_000).then(e.TaskFailed, e.RunFailed)
