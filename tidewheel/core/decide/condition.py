"""How a wait begins: what its ``wait_for`` says, with expressions evaluated."""

from __future__ import annotations

from typing import Any

from tidewheel.core.decide.decision import Decision
from tidewheel.core.decide.defer import defer
from tidewheel.core.expressions import ExpressionError
from tidewheel.core.scope import rfc3339, scope_of
from tidewheel.core.state import Dag
from tidewheel.core.waits import FAULT, instant_ms, waits_for_of
from tidewheel.core.workflow import ApprovalWait, TimeWait, WaitFor
from tidewheel.core.zones import zone_of


def begin_wait(d: Decision[Dag], run_id: str, name: str, action: WaitFor) -> None:
    """The task's next attempt waits for what ``action`` says."""
    what = action.what
    waits_for = waits_for_of(what)
    timeout_at = None if action.timeout_ms is None else d.now + action.timeout_ms
    resume_at = None
    detail: dict[str, Any] = {}
    try:
        match what:
            case TimeWait():
                resume_at = _instant(d, run_id, name, what)
                detail = {"time": rfc3339(resume_at)}
            case ApprovalWait():
                detail = {"roles": what.roles}
    except ExpressionError as error:
        # Within a fan-out hundreds may begin, and fail, in one turn: each ends in a turn of its own.
        resume_at, timeout_at, detail = d.now, None, {FAULT: f"wait_for: {error}"}
    defer(d, run_id, name, waits_for, detail, resume_at=resume_at, timeout_at=timeout_at)


def _instant(d: Decision[Dag], run_id: str, name: str, wait: TimeWait) -> int:
    if wait.after_ms is not None:
        return d.now + wait.after_ms
    run = d.state.runs[run_id]
    schedule = d.state.definitions[run.version].workflow.schedule
    zone = zone_of("UTC" if schedule is None else schedule.timezone)
    scope = scope_of(d.state, run, name, run.task(name).attempt + 1)
    return instant_ms(d.rules.evaluator.render(wait.at, scope), zone)
