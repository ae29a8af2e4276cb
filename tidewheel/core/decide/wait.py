"""How a deferred attempt ends: what it waited for came, or its time ran out; or it asks again."""

from __future__ import annotations

import msgspec

from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.decide.child import time_out_child
from tidewheel.core.decide.decision import Decision, failed_here, last_attempt
from tidewheel.core.decide.flow import advance
from tidewheel.core.decide.launch import ask_again
from tidewheel.core.decide.run import not_live
from tidewheel.core.decide.task import output_fault
from tidewheel.core.expressions import ExpressionError
from tidewheel.core.nearest import did_you_mean
from tidewheel.core.scope import rfc3339
from tidewheel.core.state import Dag
from tidewheel.core.waits import FAULT, WATCHED, Wait
from tidewheel.core.workflow import SubWorkflow, TriggerDag, WaitFor


def decide_resume_task(d: Decision[Dag], command: c.ResumeTask) -> None:
    """The instant has come, or the end of the time it had."""
    run = d.state.runs.get(command.run_id)
    wait = None if run is None or run.stops(command.task) else run.task(command.task).waiting(command.attempt)
    if wait is None or wait.wakes_at is None or wait.wakes_at > d.now:
        return
    fault = wait.asked.get(FAULT)
    if fault is not None:
        fail_wait(d, command.run_id, command.task, "expression", str(fault))
    elif wait.wakes_at == wait.resume_at:
        end_wait(d, command.run_id, command.task)
    elif wait.timeout_at is not None and wait.timeout_at <= d.now:
        _time_out(d, command.run_id, command.task, wait)
    else:
        try:
            ask_again(d, command.run_id, command.task)
        except ExpressionError as error:
            fail_wait(d, command.run_id, command.task, "expression", f"inputs: {error}")


def decide_approval(d: Decision[Dag], command: c.DecideApproval) -> None:
    """Somebody said yes, and the task succeeds, or no, and it fails. Who, when and why is in its output or its end."""
    wait = _open_approval(d, command)
    if wait is None:
        return
    roles = wait.asked.get("roles", [])
    if command.role and roles and command.role not in roles:
        d.refuse("conflict", f"{command.task} is to be decided by {' or '.join(roles)}, not by {command.role}")
        return
    d.accept(run_id=command.run_id)
    if command.approve:
        said = {"approved": True, "by": command.actor, "role": command.role, "reason": command.reason}
        output = msgspec.json.encode({**said, "at": rfc3339(d.now)}).decode()
        end_wait(d, command.run_id, command.task, output=output, actor=command.actor)
    else:
        role = f" as {command.role}" if command.role else ""
        message = f"rejected by {command.actor}{role}" + (f": {command.reason}" if command.reason else "")
        fail_wait(d, command.run_id, command.task, "rejected", message, actor=command.actor)


def _open_approval(d: Decision[Dag], command: c.DecideApproval) -> Wait | None:
    """The wait that the command decides, or None with the refusal said."""
    run = d.state.runs.get(command.run_id)
    if run is None:
        not_live(d, command.run_id)
        return None
    known = d.state.definitions[run.version].tasks
    if command.task not in run.tasks and command.task not in known:
        d.refuse("not_found", f"run {command.run_id} has no task '{command.task}'{did_you_mean(command.task, known)}")
        return None
    task = run.task(command.task)
    if run.stops(command.task):
        d.refuse("conflict", f"{command.task} is being ended")
        return None
    wait = task.waiting(command.attempt or task.attempt)
    if wait is None or wait.waits_for != "approval":
        which = f"attempt {command.attempt} of {command.task}" if command.attempt else command.task
        now = f"attempt {task.attempt} is {task.phase}" if task.attempt else f"it is {task.phase}"
        d.refuse("conflict", f"{which} waits for no approval: {now}")
        return None
    return wait


def decide_report_wait(d: Decision[Dag], command: c.ReportWait) -> None:
    """Somebody who watched says that it came, or never will. Of a wait that is over this changes nothing."""
    run = d.state.runs.get(command.run_id)
    wait = None if run is None else run.task(command.task).waiting(command.attempt)
    if wait is None or wait.waits_for not in WATCHED:
        d.refuse("stale", f"attempt {command.attempt} of {command.task} waits for nothing that is reported")
    elif command.fault:
        fail_wait(d, command.run_id, command.task, "wait_failed", command.fault, actor=command.actor)
    elif (mistake := output_fault(command.output)) is not None:
        fail_wait(d, command.run_id, command.task, "output", mistake, actor=command.actor)
    elif wait.waits_for == "run" and (unwanted := _unwanted(wait, command.output)):
        fail_wait(d, command.run_id, command.task, "wait_failed", unwanted, actor=command.actor)
    else:
        end_wait(d, command.run_id, command.task, output=command.output, actor=command.actor)


def _unwanted(wait: Wait, output: str | None) -> str:
    """Why the end of the run is none that was waited for; empty if it is."""
    wanted = wait.asked
    try:
        run = msgspec.json.decode(output or "{}", type=dict[str, str])
    except msgspec.ValidationError as error:
        return f"the report on run {wanted['run_id']} of '{wanted['dag']}' does not say how it ended: {error}"
    if run.get("state") in wanted["states"]:
        return ""
    return f"run {wanted['run_id']} of '{wanted['dag']}' is {run.get('state')}, not {' or '.join(wanted['states'])}"


def end_wait(d: Decision[Dag], run_id: str, name: str, *, output: str | None = None, actor: str = "scheduler") -> None:
    """What the task waited for has come: it succeeds."""
    state = d.state.runs[run_id].task(name)
    d.record(
        e.TaskSucceeded(
            **last_attempt(d, run_id, name),
            at=d.now,
            actor=actor,
            worker="",
            started_at=state.started_at or d.now,
            ended_at=d.now,
            output=output,
        )
    )
    advance(d, run_id, name)


def fail_wait(
    d: Decision[Dag], run_id: str, name: str, kind: c.FailureKind, message: str, *, actor: str = "scheduler"
) -> None:
    """It can not come any more: the task fails."""
    began = d.state.runs[run_id].task(name).started_at
    d.record(failed_here(d, run_id, name, kind, message, started_at=began, actor=actor))
    advance(d, run_id, name)


def _time_out(d: Decision[Dag], run_id: str, name: str, wait: Wait) -> None:
    run = d.state.runs[run_id]
    task = d.state.definitions[run.version].task(name)
    action = task.action
    if isinstance(action, TriggerDag | SubWorkflow):
        time_out_child(d, run_id, name, task.timeout_ms or 0)
        return
    assert isinstance(action, WaitFor), f"{name} has a time-out and waits for nothing"
    message = f"it waited for longer than its timeout, {(action.timeout_ms or 0) / 1000:g} s"
    if action.on_timeout == "fail":
        fail_wait(d, run_id, name, "wait_timeout", message)
    else:
        d.record(e.TaskSkipped(**last_attempt(d, run_id, name), at=d.now, reason=message))
        advance(d, run_id, name)
