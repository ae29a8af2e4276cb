"""Reports about an attempt, and its retry. The attempt number is the fencing token: a report of any but the current,
leased attempt is refused, recorded as refused, and the worker told to stop."""

from __future__ import annotations

import msgspec

from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.attempt import attempt_fields
from tidewheel.core.decide.begin import begin_task
from tidewheel.core.decide.cancel import cancelled_as_decided
from tidewheel.core.decide.decision import Decision, failed_here
from tidewheel.core.decide.flow import advance
from tidewheel.core.decide.queue import queue_held, release
from tidewheel.core.mail import LeaseRenewed, StopAttempt
from tidewheel.core.retry import retry_at
from tidewheel.core.rules import OUTPUT_BYTES_MAX
from tidewheel.core.state import Dag, TaskState


def decide_report_started(d: Decision[Dag], command: c.ReportStarted) -> None:
    """The attempt runs; the report also renews the lease."""
    task = holder(d, command)
    if task is None:
        return
    if task.phase == "leased":
        d.record(
            e.TaskStarted(
                dag=command.dag,
                run_id=command.run_id,
                task=command.task,
                attempt=command.attempt,
                at=d.now,
                actor=command.actor,
                worker=command.worker,
                started_at=command.started_at,
                expires_at=d.now + lease_ms_of(d, command),
            )
        )
    else:
        _renew(d, command, None)
    _acknowledge(d, command, command.beat)


def decide_report_heartbeat(d: Decision[Dag], command: c.ReportHeartbeat) -> None:
    """The lease goes on."""
    if holder(d, command) is None:
        return
    _renew(d, command, command.progress)
    _acknowledge(d, command, command.beat)


def _renew(d: Decision[Dag], command: c.Report, progress: str | None) -> None:
    d.record(
        e.TaskHeartbeat(
            dag=command.dag,
            run_id=command.run_id,
            task=command.task,
            attempt=command.attempt,
            at=d.now,
            actor=command.actor,
            worker=command.worker,
            expires_at=d.now + lease_ms_of(d, command),
            progress=progress,
        )
    )


def lease_ms_of(d: Decision[Dag], command: c.AttemptCommand) -> int:
    """How long the attempt's worker may be silent."""
    task = d.state.definitions[d.state.runs[command.run_id].version].task(command.task)
    return task.heartbeat_timeout_ms or d.rules.lease_ms


def _acknowledge(d: Decision[Dag], command: c.Report, beat: int) -> None:
    """Tell the worker how long it may go on; or, once more, that it shall stop."""
    task = d.state.runs[command.run_id].task(command.task)
    d.post(
        LeaseRenewed(
            receiver=command.worker,
            partition=task.mail_partition,
            dag=command.dag,
            run_id=command.run_id,
            task=command.task,
            attempt=command.attempt,
            beat=beat,
            lease_ms=lease_ms_of(d, command),
        )
    )
    if task.cancel_requested:
        _stop(d, command, task.mail_partition, cancel=True, reason="cancelled")


def decide_report_success(d: Decision[Dag], command: c.ReportSuccess) -> None:
    """The attempt is the task's result. An output that is too large or no JSON makes it a failure."""
    task = holder(d, command)
    if task is None or _ended_as_decided(d, command, task):
        return
    fault = output_fault(command.output)
    if fault is not None:
        _fail(d, command, kind="output", message=fault)
        return
    d.record(
        e.TaskSucceeded(
            dag=command.dag,
            run_id=command.run_id,
            task=command.task,
            attempt=command.attempt,
            at=d.now,
            actor=command.actor,
            worker=command.worker,
            started_at=command.started_at,
            ended_at=command.ended_at,
            output=command.output,
        )
    )
    _finish(d, command, "success")


def output_fault(output: str | None) -> str | None:
    """Why ``output`` cannot be a task's output, if so."""
    if output is None:
        return None
    return json_fault(output, "output", OUTPUT_BYTES_MAX, "store it and return where it is")


def json_fault(text: str, what: str, bytes_max: int, instead: str) -> str | None:
    """Why ``text`` cannot travel in an event as JSON, if so."""
    size = len(text.encode())
    if size > bytes_max:
        return f"the {what} has {size:,} bytes; at most {bytes_max:,} travel in an event: {instead}"
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        return f"the {what} is not JSON: {error}"
    return None


def decide_report_failure(d: Decision[Dag], command: c.ReportFailure) -> None:
    """The attempt failed; the retry budget of its kind says whether there is another one."""
    task = holder(d, command)
    if task is not None and not _ended_as_decided(d, command, task):
        codes = {"exit_code": command.exit_code, "http_status": command.http_status}
        _fail(d, command, kind=command.kind, message=command.message, **codes)


def _fail(
    d: Decision[Dag],
    command: c.ClosingReport,
    *,
    kind: c.FailureKind,
    message: str,
    exit_code: int | None = None,
    http_status: int | None = None,
) -> None:
    again = next_try(d, command.run_id, command.task, kind, exit_code=exit_code, http_status=http_status)
    d.record(
        e.TaskFailed(
            **attempt_fields(command),
            at=d.now,
            actor=command.actor,
            worker=command.worker,
            started_at=command.started_at,
            ended_at=command.ended_at,
            kind=kind,
            message=message,
            exit_code=exit_code,
            http_status=http_status,
            retry_at=again,
        )
    )
    _finish(d, command, kind)


def next_try(
    d: Decision[Dag],
    run_id: str,
    name: str,
    kind: c.FailureKind,
    *,
    exit_code: int | None = None,
    http_status: int | None = None,
) -> int | None:
    """When the attempt that now ends as ``kind`` is followed by another; None in a run that is being cancelled."""
    run = d.state.runs[run_id]
    state = run.task(name)
    if run.stops(name) or state.cancel_requested:
        return None
    lost = kind in ("lease_expired", "worker_lost")
    task = d.state.definitions[run.version].task(name)
    again = retry_at(
        task,
        kind=kind,
        exit_code=exit_code,
        http_status=http_status,
        failures=state.failures + (not lost),
        losses=state.losses + lost,
        identity=f"{d.state.dag}/{run_id}/{name}/{state.attempt}",
        now=d.now,
    )
    if again is None or task.total_timeout_ms is None or state.first_leased_at is None:
        return again
    # What begins in the last second has no time to do anything.
    return again if again + 1_000 < state.first_leased_at + task.total_timeout_ms else None


def decide_report_cancelled(d: Decision[Dag], command: c.ReportCancelled) -> None:
    """Nothing of the attempt is left. Unasked, that is a worker giving it up."""
    task = holder(d, command)
    if task is None:
        return
    if not task.cancel_requested:
        message = "the worker ended the attempt without being asked to"
        _fail(d, command, kind="worker_lost", message=message)
        return
    _end_cancelled(d, command, "the worker ended it as asked")


def _ended_as_decided(d: Decision[Dag], command: c.ClosingReport, task: TaskState) -> bool:
    """A person decided about the task while the attempt was live: whatever its worker reports, that counts."""
    if task.then:
        what = type(command).__name__.removeprefix("Report").lower()
        _end_cancelled(d, command, f"the worker reported {what}, after a person had decided about the task")
    return bool(task.then)


def _end_cancelled(d: Decision[Dag], command: c.ClosingReport, reason: str) -> None:
    cancelled_as_decided(d, command.run_id, command.task, actor=command.actor, worker=command.worker, reason=reason)
    _finish(d, command, "cancelled")


def _finish(d: Decision[Dag], command: c.Report, reason: str) -> None:
    """The attempt ended: whoever is ready joins the queue, then its slots are given back."""
    run = d.state.runs[command.run_id]
    definition = d.state.definitions[run.version]
    if run.task(command.task).phase != "retrying":
        advance(d, command.run_id, command.task)
    queue_held(d)
    release(d, definition.task(command.task).pool, command.run_id, command.task, command.attempt, reason)


def holder(d: Decision[Dag], command: c.Report) -> TaskState | None:
    """The task, if the report is of its current, leased attempt; else the refusal is recorded."""
    run = d.state.runs.get(command.run_id)
    if run is None:
        reason = f"run {command.run_id} is not live"
    elif command.task not in run.tasks and command.task not in d.state.definitions[run.version].tasks:
        reason = f"run {command.run_id} has no task '{command.task}'"
    else:
        task = run.task(command.task)
        if task.live and task.attempt == command.attempt and task.worker == command.worker:
            return task
        if task.attempt > command.attempt:
            reason = f"attempt {command.attempt} was replaced by attempt {task.attempt}"
        elif task.live and task.attempt == command.attempt:
            reason = f"attempt {command.attempt} is leased to {task.worker}, not to {command.worker}"
        else:
            reason = f"expected attempt {command.attempt} to be leased, but attempt {task.attempt} is {task.phase}"
    if not d.state.version:
        # Of a DAG that never was there is no history to write into.
        d.refuse("not_found", f"no DAG '{command.dag}' is deployed")
        _stop(d, command, -1, cancel=False, reason=reason)
        return None
    record_refusal(d, command, reason)
    if not isinstance(command, c.ClosingReport):
        _stop(d, command, -1, cancel=False, reason=reason)
    d.refuse("stale", reason)
    return None


def record_refusal(d: Decision[Dag], command: c.Report, reason: str) -> None:
    """The report changes nothing, and the journal says why."""
    d.record(
        e.ReportRefused(
            **attempt_fields(command),
            at=d.now,
            actor=command.actor,
            worker=command.worker,
            report=type(command).__name__,
            reason=reason,
        )
    )


def _stop(d: Decision[Dag], command: c.Report, partition: int, *, cancel: bool, reason: str) -> None:
    d.post(
        StopAttempt(
            receiver=command.worker,
            partition=partition,
            **attempt_fields(command),
            cancel=cancel,
            reason=reason,
        )
    )


def decide_expire_queued(d: Decision[Dag], command: c.ExpireQueued) -> None:
    """Nobody took it in time: the task fails, with where it waited."""
    run = d.state.runs.get(command.run_id)
    if run is None:
        return
    state = run.task(command.task)
    task = d.state.definitions[run.version].task(command.task)
    queued = state.phase == "queued"
    if not queued and state.ready_order is None:
        return
    if command.attempt != state.attempt + (not queued) or state.ready_at + (task.queue_timeout_ms or 0) > d.now:
        return
    where = f"in pool '{task.pool}'" if queued else "for a place within max_tasks"
    message = f"it waited {where} for longer than its queue_timeout, {(task.queue_timeout_ms or 0) / 1000:g} s"
    d.record(failed_here(d, command.run_id, command.task, "queue_timeout", message))
    advance(d, command.run_id, command.task)
    queue_held(d)
    if queued:
        release(d, task.pool, command.run_id, command.task, command.attempt, "queue_timeout")


def decide_retry_task(d: Decision[Dag], command: c.RetryTask) -> None:
    """The back-off is over."""
    run = d.state.runs.get(command.run_id)
    if run is None:
        return
    state = run.task(command.task)
    if run.stops(command.task):
        return
    if state.phase == "retrying" and state.retry_at is not None and state.retry_at <= d.now:
        begin_task(d, run.run_id, command.task)
