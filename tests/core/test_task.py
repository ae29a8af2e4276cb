"""Reports, fencing, retries: one task's life by the DAG's decisions."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.core.scenes import NOW, RULES, created, in_run, leased, queued, started, succeeded, task, workflow
from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.mail import LeaseRenewed, StopAttempt
from tidewheel.core.state import Dag
from tidewheel.core.workflow import Concurrency, Retry
from tidewheel.testing.playbook import given

PLACE = {"dag": "d", "run_id": "r", "task": "load", "worker": "w1", "actor": "worker:w1"}


def success(attempt: int = 1, **more: object) -> c.ReportSuccess:
    return c.ReportSuccess(**{**PLACE, "attempt": attempt, "started_at": NOW, "ended_at": NOW, **more})  # type: ignore[arg-type]


def failure(attempt: int = 1, kind: c.FailureKind = "exit_code", **more: object) -> c.ReportFailure:
    fields = {**PLACE, "attempt": attempt, "started_at": NOW, "ended_at": NOW, "kind": kind, **more}
    return c.ReportFailure(**fields)  # type: ignore[arg-type]


def test_success_of_the_last_task_ends_the_run() -> None:
    in_run(workflow(task("load")), queued("load"), leased("load")).when(success(output="3"), at=NOW).then(
        succeeded("load", output="3"), e.RunSucceeded(dag="d", run_id="r", at=NOW)
    )


def test_downstream_joins_the_queue_before_the_slot_is_given_back() -> None:
    outcome = in_run(workflow(task("load"), task("check", "load")), queued("load"), leased("load")).when(
        success(), at=NOW
    )
    outcome.then(succeeded("load"), queued("check"))
    assert [type(command) for command in outcome.decision.commands] == [c.EnqueueTask, c.ReleaseSlot]


def test_a_late_report_loses_to_the_newer_attempt() -> None:
    lost = e.LeaseExpired(dag="d", run_id="r", task="load", attempt=1, at=NOW, worker="w1", message="", retry_at=NOW)
    scene = in_run(
        workflow(task("load")), queued("load"), leased("load"), lost, queued("load", 2), leased("load", 2, worker="w2")
    )
    outcome = scene.when(success(), at=NOW + 9_000).then(e.ReportRefused)
    outcome.rejected("attempt 1 was replaced by attempt 2")
    assert not outcome.decision.commands


def test_the_right_attempt_from_the_wrong_worker_is_refused() -> None:
    scene = in_run(workflow(task("load")), queued("load"), leased("load", worker="w2"))
    scene.when(success(), at=NOW).rejected("attempt 1 is leased to w2, not to w1")


def test_the_same_result_twice_is_refused_the_second_time() -> None:
    scene = in_run(workflow(task("load"), task("other")), queued("load"), leased("load"))
    first = scene.when(failure(message="one"), at=NOW)
    first.when(failure(message="another"), at=NOW).then(e.ReportRefused).rejected("but attempt 1 is failed")


@pytest.mark.parametrize(
    ("run_id", "name", "reason"),
    [("other", "load", "run other is not live"), ("r", "nope", "run r has no task 'nope'"), ("r", "load", "is queued")],
)
def test_reports_about_nothing_we_leased_are_refused(run_id: str, name: str, reason: str) -> None:
    scene = in_run(workflow(task("load")), queued("load"))
    scene.when(success(run_id=run_id, task=name), at=NOW).then(e.ReportRefused).rejected(reason)


def test_a_report_about_a_dag_that_never_was_leaves_no_history() -> None:
    outcome = given(Dag(dag="d"), rules=RULES).when(success(), at=NOW).then().rejected("no DAG 'd' is deployed")
    assert isinstance(outcome.decision.mail[0], StopAttempt)


def test_a_refused_heartbeat_tells_the_worker_to_stop() -> None:
    beat = c.ReportHeartbeat(**PLACE, attempt=1, beat=3)  # type: ignore[arg-type]
    outcome = in_run(workflow(task("load")), queued("load")).when(beat, at=NOW).then(e.ReportRefused)
    (mail,) = outcome.decision.mail
    assert isinstance(mail, StopAttempt)
    assert not mail.cancel


def test_start_and_heartbeat_renew_the_lease_and_are_acknowledged() -> None:
    start = c.ReportStarted(**PLACE, attempt=1, started_at=NOW, beat=0)  # type: ignore[arg-type]
    beat = c.ReportHeartbeat(**PLACE, attempt=1, beat=1)  # type: ignore[arg-type]
    outcome = in_run(workflow(task("load")), queued("load"), leased("load")).when(start, at=NOW + 1_000)
    assert outcome.decision.state.runs["r"].task("load").expires_at == NOW + 31_000
    renewed = outcome.when(beat, at=NOW + 11_000).then(e.TaskHeartbeat)
    assert renewed.decision.state.runs["r"].task("load").expires_at == NOW + 41_000
    (mail,) = renewed.decision.mail
    assert isinstance(mail, LeaseRenewed)
    assert (mail.beat, mail.lease_ms) == (1, 30_000)


def test_a_start_reported_twice_only_renews() -> None:
    start = c.ReportStarted(**PLACE, attempt=1, started_at=NOW)  # type: ignore[arg-type]
    scene = in_run(workflow(task("load")), queued("load"), leased("load"))
    scene.when(start, at=NOW).when(start, at=NOW).then(e.TaskHeartbeat)


def test_failures_are_retried_while_the_budget_lasts() -> None:
    retry = Retry(max=1, delay_ms=1_000, jitter=False)
    outcome = in_run(workflow(task("load", retry=retry)), queued("load"), leased("load")).when(failure(), at=NOW)
    outcome.then(e.TaskFailed)
    assert outcome.decision.events[0].retry_at == NOW + 1_000  # type: ignore[attr-defined]
    timer = c.RetryTask(dag="d", run_id="r", task="load")
    outcome.when(timer, at=NOW + 999).then()
    again = outcome.when(timer, at=NOW + 1_000)
    again.then(replace(queued("load", 2), at=NOW + 1_000))
    granted = again.when(
        c.GrantSlot(dag="d", run_id="r", task="load", attempt=2, pool="default", worker="w1", mail_partition=0),
        at=NOW + 1_000,
    )
    granted.when(failure(2), at=NOW + 1_000).then(e.TaskFailed, e.RunFailed)


def test_a_lost_worker_draws_on_its_own_budget() -> None:
    scene = in_run(workflow(task("load", retry=Retry(max=0), infra_retries=1)), queued("load"), leased("load"))
    outcome = scene.when(failure(kind="worker_lost"), at=NOW).then(e.TaskFailed)
    state = outcome.decision.state.runs["r"].task("load")
    assert (state.failures, state.losses, state.phase) == (0, 1, "retrying")


def test_only_the_listed_exit_codes_are_retried() -> None:
    of = workflow(task("load", retry=Retry(max=3, only_on_exit_codes=(75,))))
    scene = in_run(of, queued("load"), leased("load"))
    scene.when(failure(exit_code=1), at=NOW).then(e.TaskFailed, e.RunFailed)
    scene.when(failure(exit_code=75), at=NOW).then(e.TaskFailed)


@pytest.mark.parametrize(("status", "again"), [(503, True), (404, False)])
def test_only_the_listed_statuses_are_retried_and_the_event_says_which_it_was(status: int, again: bool) -> None:
    of = workflow(task("load", retry=Retry(max=3, only_on_http_status=(429, 503))))
    outcome = in_run(of, queued("load"), leased("load")).when(failure(kind="http_status", http_status=status), at=NOW)
    event = outcome.decision.events[0]
    assert isinstance(event, e.TaskFailed)
    assert (event.http_status, event.retry_at is not None) == (status, again)


@pytest.mark.parametrize(
    ("output", "said"), [("{", "not JSON"), ('"' + "x" * 70_000 + '"', "65,536"), ("[" * 70_000, "65,536")]
)
def test_an_output_that_can_not_travel_is_a_failure_that_says_so(output: str, said: str) -> None:
    scene = in_run(workflow(task("load")), queued("load"), leased("load"))
    outcome = scene.when(success(output=output), at=NOW).then(e.TaskFailed, e.RunFailed)
    event = outcome.decision.events[0]
    assert isinstance(event, e.TaskFailed)
    assert event.kind == "output"
    assert said in event.message


def test_cancelled_unasked_counts_as_a_lost_attempt() -> None:
    report = c.ReportCancelled(**PLACE, attempt=1, started_at=NOW, ended_at=NOW)  # type: ignore[arg-type]
    outcome = in_run(workflow(task("load")), queued("load"), leased("load")).when(report, at=NOW)
    outcome.then(e.TaskFailed)
    assert outcome.decision.events[0].kind == "worker_lost"  # type: ignore[attr-defined]


def test_an_if_that_does_not_evaluate_fails_the_task_and_says_why() -> None:
    scene = in_run(workflow(task("load"), task("next", "load", if_="nope")), queued("load"), leased("load"))
    outcome = scene.when(success(), at=NOW).then(succeeded("load"), e.TaskFailed, e.RunFailed)
    failed = outcome.decision.events[1]
    assert isinstance(failed, e.TaskFailed)
    assert (failed.attempt, failed.kind, failed.message) == (0, "expression", "if: nope: no such name")


def test_an_if_that_is_false_skips_the_task_and_what_needs_it() -> None:
    of = workflow(task("load"), task("a", "load", if_="false"), task("b", "a"), task("c", "b", trigger_rule="all_done"))
    outcome = in_run(of, queued("load"), leased("load")).when(success(), at=NOW)
    outcome.then(succeeded("load"), e.TaskSkipped, e.TaskSkipped, queued("c"))


def test_max_tasks_holds_ready_tasks_back_in_order() -> None:
    of = workflow(task("load"), task("b"), task("c"), concurrency=Concurrency(max_tasks=1))
    held = [e.TaskReady(dag="d", run_id="r", task=name, attempt=1, at=NOW) for name in ("b", "c")]
    outcome = in_run(of, queued("load"), *held, leased("load")).when(success(), at=NOW)
    outcome.then(succeeded("load"), queued("b"))
    assert outcome.decision.state.active_tasks == 1


def test_a_run_that_goes_on_does_not_pass_by_an_older_one_that_waits_for_max_tasks() -> None:
    of = workflow(task("load"), task("next", "load"), concurrency=Concurrency(max_tasks=1))
    older = [created("old", logical_date=1), started("old")]
    held = e.TaskReady(dag="d", run_id="old", task="load", attempt=1, at=NOW)
    outcome = in_run(of, queued("load"), leased("load"), *older, held).when(success(), at=NOW)
    waits = e.TaskReady(dag="d", run_id="r", task="next", attempt=1, at=NOW)
    outcome.then(succeeded("load"), waits, queued("load", run_id="old"))


def test_runs_that_start_one_after_the_other_do_not_starve_one_that_waits_for_max_tasks() -> None:
    of = workflow(task("load"), concurrency=Concurrency(max_tasks=1, max_runs=2))
    waiting = [created("old", logical_date=1), started("old")]
    held = e.TaskReady(dag="d", run_id="old", task="load", attempt=1, at=NOW)
    scene = in_run(of, queued("load"), leased("load"), *waiting, held, created("new"))
    outcome = scene.when(success(), at=NOW)
    new = e.TaskReady(dag="d", run_id="new", task="load", attempt=1, at=NOW)
    ended = e.RunSucceeded(dag="d", run_id="r", at=NOW)
    outcome.then(succeeded("load"), ended, started("new"), new, queued("load", run_id="old"))
