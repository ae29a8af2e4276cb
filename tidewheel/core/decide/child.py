"""What an attempt that asked another DAG for a run is told: that there is one, or why not, or not yet, and later how
it ended.

Whatever comes for an attempt that waits no longer changes nothing; a run that it left behind is called back.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.child import Child, child_of, launched_by
from tidewheel.core.decide.cancel import cancelled_as_decided, recall
from tidewheel.core.decide.decision import Decision, failed_here, last_attempt
from tidewheel.core.decide.flow import advance
from tidewheel.core.decide.launch import postpone
from tidewheel.core.decide.task import next_try
from tidewheel.core.state import Dag
from tidewheel.core.waits import Wait


def decide_report_launch(d: Decision[Dag], command: c.ReportLaunch) -> None:
    """The run exists, which is all that a ``trigger`` wants; or there is none."""
    wait = _wait(d, command)
    child = Child(command.child_dag, command.child_run_id)
    if launched_by(wait) != child:
        if command.kind == "workflow" and not command.refused:
            recall(d, child, "nobody waits for it any more")
        return
    cancelled = d.state.runs[command.run_id].task(command.task).cancel_requested
    if command.refused:
        _fail(d, command.run_id, command.task, "launch_refused", command.refused, again=True)
    elif command.later:
        _put_off(d, command, wait)
    elif command.kind == "triggered":
        _succeed(d, command.run_id, command.task, {"dag": child.dag, "run_id": child.run_id})
    elif cancelled:
        recall(d, child, "the task that waits for it was cancelled")  # the first word may have come before the run was
    elif wait is not None and wait.ask_at is not None:
        d.record(e.LaunchPostponed(**last_attempt(d, command.run_id, command.task), at=d.now))


def _put_off(d: Decision[Dag], command: c.ReportLaunch, wait: Wait | None) -> None:
    """The other DAG has no room: ask again later, unless that is settled already."""
    if d.state.runs[command.run_id].task(command.task).cancel_requested:
        _cancelled(d, command.run_id, command.task, command.later)
    elif wait is not None and wait.ask_at is None:
        postpone(d, command.run_id, command.task, command.later)


def decide_report_run_end(d: Decision[Dag], command: c.ReportRunEnd) -> None:
    """The run that was waited for has ended: the task ends like it."""
    if child_of(_wait(d, command)) != Child(command.child_dag, command.child_run_id):
        return
    child = f"run {command.child_run_id} of '{command.child_dag}'"
    if d.state.runs[command.run_id].task(command.task).cancel_requested:
        _cancelled(d, command.run_id, command.task, f"{child} has ended: {command.state}")
    elif command.state == "success":
        outputs = None if command.outputs is None else msgspec.Raw(command.outputs.encode())
        _succeed(
            d,
            command.run_id,
            command.task,
            {"dag": command.child_dag, "run_id": command.child_run_id, "outputs": outputs},
        )
    else:
        why = f": {command.reason}" if command.reason else ""
        verb = "failed" if command.state == "failed" else "was cancelled"
        # Somebody who cancels a run does not want another one.
        _fail(d, command.run_id, command.task, "run_failed", f"{child} {verb}{why}", again=command.state == "failed")


def time_out_child(d: Decision[Dag], run_id: str, name: str, timeout_ms: int) -> None:
    """The attempt has waited for too long: it fails, and its run is called back."""
    child = child_of(d.state.runs[run_id].task(name).wait)
    if child is not None:
        recall(d, child, f"the task that waits for it has timed out after {timeout_ms / 1000:g} s")
    _fail(d, run_id, name, "timeout", f"it ran for longer than its timeout, {timeout_ms / 1000:g} s", again=True)


def _wait(d: Decision[Dag], command: c.AttemptCommand) -> Wait | None:
    """What the attempt waits for, if it still does."""
    run = d.state.runs.get(command.run_id)
    return None if run is None else run.task(command.task).waiting(command.attempt)


def _succeed(d: Decision[Dag], run_id: str, name: str, output: dict[str, Any]) -> None:
    d.record(
        e.TaskSucceeded(
            **last_attempt(d, run_id, name),
            at=d.now,
            worker="",
            started_at=_began(d, run_id, name),
            ended_at=d.now,
            output=msgspec.json.encode(output).decode(),
        )
    )
    advance(d, run_id, name)


def _cancelled(d: Decision[Dag], run_id: str, name: str, reason: str) -> None:
    cancelled_as_decided(d, run_id, name, actor="scheduler", worker="", reason=reason)
    advance(d, run_id, name)


def _fail(d: Decision[Dag], run_id: str, name: str, kind: c.FailureKind, message: str, *, again: bool) -> None:
    """The attempt fails; of one that is being cancelled it is the end."""
    if d.state.runs[run_id].task(name).cancel_requested:
        _cancelled(d, run_id, name, message)
        return
    retry_at = next_try(d, run_id, name, kind) if again else None
    began = _began(d, run_id, name)
    d.record(failed_here(d, run_id, name, kind, message, started_at=began, retry_at=retry_at))
    if retry_at is None:
        advance(d, run_id, name)


def _began(d: Decision[Dag], run_id: str, name: str) -> int:
    began = d.state.runs[run_id].task(name).started_at
    return d.now if began is None else began
