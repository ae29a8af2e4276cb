"""How the next attempt of a task begins: in the queue of its pool, or deferred, if no worker is needed for it."""

from __future__ import annotations

from typing import Any

import msgspec

from tidewheel.core import events as e
from tidewheel.core.decide.decision import Decision
from tidewheel.core.decide.queue import queue_task
from tidewheel.core.expressions import ExpressionError
from tidewheel.core.scope import rfc3339, scope_of
from tidewheel.core.state import Dag
from tidewheel.core.waits import FAULT, instant_ms
from tidewheel.core.workflow import TimeWait, WaitFor
from tidewheel.core.zones import zone_of


def begin_task(d: Decision[Dag], run_id: str, name: str) -> None:
    """Begin the task's next attempt. Whatever it meets, it ends the task in another turn, never in this one."""
    action = d.state.definitions[d.state.runs[run_id].version].task(name).action
    if isinstance(action, WaitFor):
        _wait(d, run_id, name, action)
    else:
        queue_task(d, run_id, name)


def defer(
    d: Decision[Dag],
    run_id: str,
    name: str,
    waits_for: e.WaitsFor,
    detail: dict[str, Any],
    *,
    resume_at: int | None = None,
    timeout_at: int | None = None,
) -> None:
    """The task's next attempt waits, without a worker."""
    d.record(
        e.TaskDeferred(
            dag=d.state.dag,
            run_id=run_id,
            task=name,
            attempt=d.state.runs[run_id].task(name).attempt + 1,
            at=d.now,
            waits_for=waits_for,
            resume_at=resume_at,
            timeout_at=timeout_at,
            detail=msgspec.json.encode(detail).decode(),
        )
    )


def _wait(d: Decision[Dag], run_id: str, name: str, action: WaitFor) -> None:
    timeout_at = None if action.timeout_ms is None else d.now + action.timeout_ms
    try:
        at = _instant(d, run_id, name, action.what)
    except ExpressionError as error:
        # Within a fan-out hundreds may begin, and fail, in one turn: each ends in a turn of its own.
        defer(d, run_id, name, "time", {FAULT: f"wait_for: {error}"}, resume_at=d.now)
        return
    defer(d, run_id, name, "time", {"time": rfc3339(at)}, resume_at=at, timeout_at=timeout_at)


def _instant(d: Decision[Dag], run_id: str, name: str, wait: TimeWait) -> int:
    if wait.after_ms is not None:
        return d.now + wait.after_ms
    run = d.state.runs[run_id]
    schedule = d.state.definitions[run.version].workflow.schedule
    zone = zone_of("UTC" if schedule is None else schedule.timezone)
    scope = scope_of(d.state, run, name, run.task(name).attempt + 1)
    return instant_ms(d.rules.evaluator.render(wait.at, scope), zone)
