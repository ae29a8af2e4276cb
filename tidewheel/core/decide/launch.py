"""Asking another DAG for a run: the attempt is deferred until the other side has answered, or the run has ended."""

from __future__ import annotations

from typing import Any

import msgspec

from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.child import Child, ask_again_in, child_run_id, launched_by
from tidewheel.core.decide.decision import Decision, last_attempt
from tidewheel.core.decide.defer import defer
from tidewheel.core.expressions import ExpressionError
from tidewheel.core.rules import INPUTS_BYTES_MAX
from tidewheel.core.scope import scope_of
from tidewheel.core.state import Dag
from tidewheel.core.waits import FAULT
from tidewheel.core.workflow import SubWorkflow, TriggerDag


def launch(d: Decision[Dag], run_id: str, name: str, action: TriggerDag | SubWorkflow) -> None:
    """Begin the task's next attempt. One whose inputs do not evaluate asks nobody, and fails in a turn of its own."""
    run = d.state.runs[run_id]
    task = d.state.definitions[run.version].task(name)
    attempt = run.task(name).attempt + 1
    kind: c.ChildKind = "workflow" if isinstance(action, SubWorkflow) else "triggered"
    waits_for: e.WaitsFor = "workflow" if isinstance(action, SubWorkflow) else "trigger"
    try:
        inputs = _inputs(d, run_id, name, attempt, action.inputs)
    except ExpressionError as error:
        defer(d, run_id, name, waits_for, {FAULT: f"inputs: {error}"}, resume_at=d.now)
        return
    child = child_run_id(kind, d.state.dag, run_id, name, attempt)
    timeout_at = None if task.timeout_ms is None else d.now + task.timeout_ms
    defer(d, run_id, name, waits_for, {"dag": action.dag, "run_id": child}, timeout_at=timeout_at)
    _ask(d, run_id, name, Child(action.dag, child), kind, inputs)


def postpone(d: Decision[Dag], run_id: str, name: str, reason: str) -> None:
    """The attempt asks for its run again after a while, longer each time."""
    wait = d.state.runs[run_id].task(name).wait
    child = launched_by(wait)
    assert wait is not None and child is not None, f"{name} asks for no run"
    ask_at = d.now + ask_again_in(child.run_id, wait.postponed)
    d.record(e.LaunchPostponed(**last_attempt(d, run_id, name), at=d.now, ask_at=ask_at, reason=reason))


def ask_again(d: Decision[Dag], run_id: str, name: str) -> None:
    """Ask for the same run as before, and once more if no answer comes. Raises ``ExpressionError``."""
    run = d.state.runs[run_id]
    task = run.task(name)
    action = d.state.definitions[run.version].task(name).action
    child = launched_by(task.wait)
    assert isinstance(action, TriggerDag | SubWorkflow) and child is not None, f"{name} asks for no run"
    inputs = _inputs(d, run_id, name, task.attempt, action.inputs)
    postpone(d, run_id, name, f"no room in DAG '{child.dag}' when it asked last")
    _ask(d, run_id, name, child, "workflow" if isinstance(action, SubWorkflow) else "triggered", inputs)


def _ask(d: Decision[Dag], run_id: str, name: str, child: Child, kind: c.ChildKind, inputs: str) -> None:
    run = d.state.runs[run_id]
    d.ask(
        c.LaunchRun(
            actor=f"run:{d.state.dag}/{run_id}",
            dag=child.dag,
            run_id=child.run_id,
            kind=kind,
            parent_dag=d.state.dag,
            parent_run_id=run_id,
            parent_task=name,
            parent_attempt=run.task(name).attempt,
            depth=1 + (0 if run.parent is None else run.parent.depth),
            inputs=inputs,
        )
    )


def _inputs(d: Decision[Dag], run_id: str, name: str, attempt: int, written: dict[str, Any]) -> str:
    """The inputs with expressions evaluated, as JSON. Raises ``ExpressionError``."""
    run = d.state.runs[run_id]
    rendered = d.rules.evaluator.render(written, scope_of(d.state, run, name, attempt))
    try:
        text = msgspec.json.encode(rendered).decode()
    except (OverflowError, RecursionError, TypeError, ValueError) as error:
        raise ExpressionError(f"they can not be written as JSON: {error}") from error
    if len(text.encode()) > INPUTS_BYTES_MAX:
        raise ExpressionError(f"they have more than {INPUTS_BYTES_MAX:,} bytes as JSON")
    return text
