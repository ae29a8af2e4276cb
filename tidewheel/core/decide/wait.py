"""How a deferred attempt ends: what it waited for came, or its time ran out."""

from __future__ import annotations

import msgspec

from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.decide.decision import Decision, last_attempt
from tidewheel.core.decide.flow import advance
from tidewheel.core.state import Dag
from tidewheel.core.waits import FAULT, Wait
from tidewheel.core.workflow import WaitFor


def decide_resume_task(d: Decision[Dag], command: c.ResumeTask) -> None:
    """The instant has come, or the end of the time it had."""
    run = d.state.runs.get(command.run_id)
    wait = None if run is None else run.task(command.task).waiting(command.attempt)
    if wait is None or wait.wakes_at is None or wait.wakes_at > d.now:
        return
    fault = msgspec.json.decode(wait.detail, type=dict[str, object]).get(FAULT)
    if fault is not None:
        fail_wait(d, command.run_id, command.task, "expression", str(fault))
    elif wait.wakes_at == wait.resume_at:
        end_wait(d, command.run_id, command.task)
    else:
        _time_out(d, command.run_id, command.task, wait)


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
    d.record(
        e.TaskFailed(
            **last_attempt(d, run_id, name),
            at=d.now,
            actor=actor,
            worker="",
            started_at=d.state.runs[run_id].task(name).started_at,
            ended_at=d.now,
            kind=kind,
            message=message,
        )
    )
    advance(d, run_id, name)


def _time_out(d: Decision[Dag], run_id: str, name: str, wait: Wait) -> None:
    run = d.state.runs[run_id]
    action = d.state.definitions[run.version].task(name).action
    assert isinstance(action, WaitFor), f"{name} has a time-out and waits for nothing"
    message = f"it waited for longer than its timeout, {(action.timeout_ms or 0) / 1000:g} s"
    if action.on_timeout == "fail":
        fail_wait(d, run_id, name, "wait_timeout", message)
    else:
        d.record(e.TaskSkipped(**last_attempt(d, run_id, name), at=d.now, reason=message))
        advance(d, run_id, name)
