"""Granting, refusing and expiring leases.

The DAG has the last word: a slot for an attempt nobody wants any more goes back.
"""

from __future__ import annotations

from operator import attrgetter, itemgetter

from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.action import encode_action, render_action
from tidewheel.core.attempt import attempt_fields
from tidewheel.core.decide.cancel import cancelled_as_decided
from tidewheel.core.decide.decision import Decision, failed_here
from tidewheel.core.decide.flow import advance
from tidewheel.core.decide.queue import queue_held, release
from tidewheel.core.decide.task import lease_ms_of, next_try
from tidewheel.core.expressions import ExpressionError
from tidewheel.core.mail import AssignTask, StopAttempt
from tidewheel.core.mapping import written_task
from tidewheel.core.rules import ACTION_BYTES_MAX, Rules
from tidewheel.core.scope import scope_of
from tidewheel.core.state import Dag, RunState, TaskState
from tidewheel.core.workflow import Task


def decide_grant_slot(d: Decision[Dag], command: c.GrantSlot) -> None:
    """Lease the attempt to the worker if it is still wanted."""
    run = d.state.runs.get(command.run_id)
    state = run.task(command.task) if run is not None else None
    if state is not None and state.live and state.attempt == command.attempt:
        return  # said twice: the slot is in use, and comes back when the attempt ends
    if run is None or state is None or state.phase != "queued" or state.attempt != command.attempt:
        d.ask(
            c.ReleaseSlot(
                pool=command.pool,
                **attempt_fields(command),
                reason="the attempt is not wanted any more",
            )
        )
        return
    if run.stops(command.task):
        # The step that cancels it gives the slot back. Given back at once, it would go to the next attempt of the run
        # that is to end, and so on through all of them in one turn.
        return
    try:
        action = _action(d.state, run, command.task, d.rules)
    except ExpressionError as error:
        _fail_unrun(d, command, "expression", str(error))
        return
    d.record(
        e.TaskLeased(
            dag=command.dag,
            run_id=command.run_id,
            task=command.task,
            attempt=command.attempt,
            at=d.now,
            worker=command.worker,
            mail_partition=command.mail_partition,
            expires_at=d.now + lease_ms_of(d, command),
        )
    )
    d.post(_assignment(d.state, d.state.runs[run.run_id], command.task, action, d.rules))


def decide_refuse_slot(d: Decision[Dag], command: c.RefuseSlot) -> None:
    """The pool can never place the attempt: the task fails, with the pool's reason."""
    run = d.state.runs.get(command.run_id)
    if run is None:
        return
    state = run.task(command.task)
    if state.phase == "queued" and state.attempt == command.attempt:
        _fail_unrun(d, command, "unplaceable", command.reason)


def _fail_unrun(d: Decision[Dag], command: c.GrantSlot | c.RefuseSlot, kind: c.FailureKind, message: str) -> None:
    d.record(failed_here(d, command.run_id, command.task, kind, message))
    pool = d.state.definitions[d.state.runs[command.run_id].version].task(command.task).pool
    advance(d, command.run_id, command.task)
    queue_held(d)
    if isinstance(command, c.GrantSlot):
        release(d, pool, command.run_id, command.task, command.attempt, kind)


def decide_expire_lease(d: Decision[Dag], command: c.ExpireLease) -> None:
    """The worker fell silent: the attempt is lost, and followed by another while ``infra_retries`` lasts."""
    run = d.state.runs.get(command.run_id)
    if run is None:
        return
    state = run.task(command.task)
    if not state.live or state.attempt != command.attempt or state.expires_at > d.now:
        return
    pool = d.state.definitions[run.version].task(command.task).pool
    retry_at = next_try(d, command.run_id, command.task, "lease_expired")
    attempt = attempt_fields(command)
    if state.cancel_requested:
        reason = "the lease ended before the worker confirmed the cancel"
        cancelled_as_decided(d, run.run_id, command.task, actor=command.actor, worker=state.worker, reason=reason)
    else:
        message = f"worker {state.worker} was not heard from in time"
        d.record(e.LeaseExpired(**attempt, at=d.now, worker=state.worker, message=message, retry_at=retry_at))
    if retry_at is None:
        advance(d, command.run_id, command.task)
    queue_held(d)
    release(d, pool, command.run_id, command.task, command.attempt, "lease_expired", silent=True)
    d.post(
        StopAttempt(
            receiver=state.worker,
            partition=state.mail_partition,
            **attempt,
            cancel=False,
            reason="the lease has expired",
        )
    )


def resend_leases(state: Dag, rules: Rules) -> list[AssignTask]:
    """The leases that no worker has reported started, for a new owner to send again: their mail may never have gone
    out."""
    again = []
    for run in sorted(state.runs.values(), key=attrgetter("order")):
        for name, task in sorted(run.tasks.items(), key=itemgetter(0)):
            if task.phase == "leased" and not task.cancel_requested and not run.stops(name):
                try:
                    again.append(_assignment(state, run, name, _action(state, run, name, rules), rules))
                except ExpressionError:
                    continue  # it rendered when it was leased; should it not now, the lease simply runs out
    return again


def _action(state: Dag, run: RunState, name: str, rules: Rules) -> str:
    definition = state.definitions[run.version]
    fixed = definition.fixed_actions.get(written_task(name))
    if fixed is not None:
        return fixed
    scope = scope_of(state, run, name)
    try:
        action = encode_action(render_action(definition.task(name), definition.workflow.env, scope, rules.evaluator))
    except (OverflowError, RecursionError, TypeError, ValueError) as error:
        # Whatever the values are, the attempt must end: else it would keep its slot and its run for ever.
        raise ExpressionError(f"the action can not be written with its values filled in: {error}") from error
    if len(action.encode()) > ACTION_BYTES_MAX:
        raise ExpressionError(f"with its values filled in the action has more than {ACTION_BYTES_MAX:,} bytes")
    return action


def _time_left(task: Task, lease: TaskState) -> int | None:
    """How long the attempt may run: its own ``timeout``, or what is left of all attempts' together."""
    if task.total_timeout_ms is None or lease.first_leased_at is None:
        return task.timeout_ms
    left = max(1, lease.first_leased_at + task.total_timeout_ms - lease.leased_at)
    return left if task.timeout_ms is None else min(left, task.timeout_ms)


def _assignment(state: Dag, run: RunState, name: str, action: str, rules: Rules) -> AssignTask:
    task = state.definitions[run.version].task(name)
    lease: TaskState = run.task(name)
    return AssignTask(
        receiver=lease.worker,
        partition=lease.mail_partition,
        dag=state.dag,
        run_id=run.run_id,
        task=name,
        attempt=lease.attempt,
        pool=task.pool,
        action=action,
        lease_ms=task.heartbeat_timeout_ms or rules.lease_ms,
        expires_at=lease.expires_at,
        timeout_ms=_time_left(task, lease),
        logical_date=run.logical_date,
        interval_start=run.interval_start,
        interval_end=run.interval_end,
        checkpoint=lease.checkpoint,
    )
