"""Asking another DAG for a run: the attempt is deferred until the other side has answered, or the run has ended."""

from __future__ import annotations

from typing import Any

import msgspec

from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.child import child_run_id
from tidewheel.core.decide.decision import Decision
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
        inputs = _inputs(d, run_id, name, action.inputs)
    except ExpressionError as error:
        defer(d, run_id, name, waits_for, {FAULT: f"inputs: {error}"}, resume_at=d.now)
        return
    child = child_run_id(kind, d.state.dag, run_id, name, attempt)
    timeout_at = None if task.timeout_ms is None else d.now + task.timeout_ms
    defer(d, run_id, name, waits_for, {"dag": action.dag, "run_id": child}, timeout_at=timeout_at)
    d.ask(
        c.LaunchRun(
            actor=f"run:{d.state.dag}/{run_id}",
            dag=action.dag,
            run_id=child,
            kind=kind,
            parent_dag=d.state.dag,
            parent_run_id=run_id,
            parent_task=name,
            parent_attempt=attempt,
            depth=1 + (0 if run.parent is None else run.parent.depth),
            inputs=inputs,
        )
    )


def _inputs(d: Decision[Dag], run_id: str, name: str, written: dict[str, Any]) -> str:
    """The inputs with expressions evaluated, as JSON. Raises ``ExpressionError``."""
    run = d.state.runs[run_id]
    rendered = d.rules.evaluator.render(written, scope_of(d.state, run, name, run.task(name).attempt + 1))
    try:
        text = msgspec.json.encode(rendered).decode()
    except (OverflowError, RecursionError, TypeError, ValueError) as error:
        raise ExpressionError(f"they can not be written as JSON: {error}") from error
    if len(text.encode()) > INPUTS_BYTES_MAX:
        raise ExpressionError(f"they have more than {INPUTS_BYTES_MAX:,} bytes as JSON")
    return text
