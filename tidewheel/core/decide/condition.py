"""How a wait begins: what its ``wait_for`` says, with expressions evaluated."""

from __future__ import annotations

from typing import Any

import msgspec

from tidewheel.core.action import render_request
from tidewheel.core.commands import WatchRun
from tidewheel.core.decide.decision import Decision
from tidewheel.core.decide.defer import defer
from tidewheel.core.expressions import ExpressionError, Scope
from tidewheel.core.rules import RUN_ID_LENGTH_MAX
from tidewheel.core.scope import rfc3339, scope_of, slot_run_id
from tidewheel.core.state import Dag
from tidewheel.core.waits import FAULT, instant_ms, waits_for_of
from tidewheel.core.workflow import ApprovalWait, HttpWait, KafkaWait, RunWait, TimeWait, WaitFor
from tidewheel.core.zones import zone_of


def begin_wait(d: Decision[Dag], run_id: str, name: str, action: WaitFor) -> None:
    """The task's next attempt waits for what ``action`` says."""
    what = action.what
    timeout_at = None if action.timeout_ms is None else d.now + action.timeout_ms
    resume_at = None
    try:
        match what:
            case TimeWait():
                resume_at = d.now + what.after_ms if what.after_ms is not None else _instant(d, run_id, name, what.at)
                detail: dict[str, Any] = {"time": rfc3339(resume_at)}
            case ApprovalWait():
                detail = {"roles": what.roles}
            case RunWait():
                detail = {"dag": what.dag, "run_id": _other_run(d, run_id, name, what), "states": what.states}
            case HttpWait():
                detail = _request(d, run_id, name, what)
            case KafkaWait():
                run = d.state.runs[run_id]
                detail = {"topic": what.topic, "since_ms": d.now - what.window_ms}
                detail |= _judged_by(what.match, "match", scope_of(d.state, run, name, run.task(name).attempt + 1))
    except ExpressionError as error:
        # Within a fan-out hundreds may begin, and fail, in one turn: each ends in a turn of its own.
        defer(d, run_id, name, waits_for_of(what), {FAULT: f"wait_for: {error}"}, resume_at=d.now)
        return
    defer(d, run_id, name, waits_for_of(what), detail, resume_at=resume_at, timeout_at=timeout_at)
    if isinstance(what, RunWait):
        attempt = d.state.runs[run_id].task(name).attempt
        watcher = {"watcher_dag": d.state.dag, "watcher_run_id": run_id, "watcher_task": name}
        d.ask(WatchRun(dag=what.dag, run_id=detail["run_id"], **watcher, watcher_attempt=attempt))


def _request(d: Decision[Dag], run_id: str, name: str, wait: HttpWait) -> dict[str, Any]:
    """What a waiter needs: the request, how often, and what its condition sees beside the answer."""
    run = d.state.runs[run_id]
    scope = scope_of(d.state, run, name, run.task(name).attempt + 1)
    request = render_request(wait, scope, d.rules.evaluator)
    return {"request": request, "every_ms": wait.every_ms, **_judged_by(wait.until, "until", scope)}


def _judged_by(source: str | None, key: str, scope: Scope) -> dict[str, Any]:
    """The condition that a waiter looks for, with what it sees of the run."""
    if source is None:
        return {}
    return {key: source, "run": scope.run, **({"inputs": scope.inputs} if "inputs" in source else {})}


def _other_run(d: Decision[Dag], run_id: str, name: str, wait: RunWait) -> str:
    """The id of the run that is waited for."""
    if wait.logical_date is not None:
        return slot_run_id(_instant(d, run_id, name, wait.logical_date))
    found = _rendered(d, run_id, name, wait.run_id)
    if not isinstance(found, str) or not 0 < len(found) <= RUN_ID_LENGTH_MAX or not found.isprintable():
        shown = msgspec.json.encode(found).decode()[:80]
        raise ExpressionError(f"expected the id of a run, 1 to {RUN_ID_LENGTH_MAX} printable characters; got {shown}")
    return found


def _instant(d: Decision[Dag], run_id: str, name: str, text: str | None) -> int:
    schedule = d.state.definitions[d.state.runs[run_id].version].workflow.schedule
    return instant_ms(_rendered(d, run_id, name, text), zone_of("UTC" if schedule is None else schedule.timezone))


def _rendered(d: Decision[Dag], run_id: str, name: str, text: str | None) -> Any:
    run = d.state.runs[run_id]
    return d.rules.evaluator.render(text, scope_of(d.state, run, name, run.task(name).attempt + 1))
