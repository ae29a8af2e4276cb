"""Creating and cancelling runs."""

from __future__ import annotations

from typing import Any

import msgspec

from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.child import CHILD_PREFIXES
from tidewheel.core.decide.cancel import cancel_task
from tidewheel.core.decide.decision import Decision, expects_reply
from tidewheel.core.decide.flow import end_if_done, miss_deadlines, start_runs
from tidewheel.core.decide.queue import queue_held
from tidewheel.core.expressions import Scope
from tidewheel.core.graph import Definition
from tidewheel.core.inputs import check_inputs
from tidewheel.core.parent import Parent
from tidewheel.core.room import why_no_room
from tidewheel.core.rules import INPUTS_BYTES_MAX
from tidewheel.core.run_ids import is_past_slot
from tidewheel.core.scope import SCHEDULED, rfc3339, run_names
from tidewheel.core.state import Dag, RunState

#: Why a definition is not at hand.
NOT_KEPT = "not kept any more (it is while it is current, and while runs of it are live or among the last that ended)"


def decide_start_run(d: Decision[Dag], command: c.StartRun) -> None:
    """Create the run, unless its id exists already: then that one is meant."""
    if not d.state.version:
        d.refuse("not_found", f"no DAG '{command.dag}' is deployed")
        return
    run_id = command.run_id or f"{command.kind}__{rfc3339(d.now)}__{d.state.seq + 1}"
    if run_id in d.state.runs or run_id in d.state.finished:
        d.accept(f"run {run_id} exists already", run_id=run_id, created=False)
        return
    if run_id.startswith(SCHEDULED):
        d.refuse("invalid", f"run ids that begin with '{SCHEDULED}' are the schedule's own; choose another")
        return
    if run_id.startswith(CHILD_PREFIXES):
        begin = run_id.partition("__")[0]
        d.refuse("invalid", f"run ids that begin with '{begin}__' are for runs that tasks ask for; choose another")
        return
    if command.logical_date is not None:
        d.refuse("invalid", "a logical date belongs to the runs of the schedule; pass what the run is for as an input")
        return
    if d.state.removed:
        d.refuse("conflict", f"DAG '{command.dag}' was removed; deploy it again to run it")
        return
    version = command.version or d.state.version
    if version not in d.state.definitions:
        d.refuse("conflict", f"version {version} of '{command.dag}' is {NOT_KEPT}; take the latest, or deploy it again")
        return
    if not command.rerun_of and (command.interval_start is not None or command.interval_end is not None):
        d.refuse("invalid", "an interval belongs to the runs of the schedule, and to those that repeat one")
        return
    if expects_reply(command) and (why := overloaded(d)):
        d.refuse("overloaded", why)
        return
    given, fault = parsed_inputs(command.inputs)
    if fault:
        d.refuse("invalid", fault)
        return
    mistakes = create_run(
        d,
        run_id=run_id,
        kind=command.kind,
        actor=command.actor,
        logical_date=None,
        interval=(command.interval_start, command.interval_end),
        given=given,
        answers=(command.trigger, command.origin),
        version=version,
        rerun_of=command.rerun_of,
        reason=command.reason,
    )
    if mistakes:
        d.refuse("invalid", "; ".join(mistakes))
        return
    d.accept(run_id=run_id)
    start_runs(d)


def overloaded(d: Decision[Dag]) -> str:
    """Why somebody who can ask again should do so later. Triggers are held back before they come here, and a schedule
    holds back its own."""
    if d.rules.shard_full:
        return f"the shard of DAG '{d.state.dag}' holds as many runs as it may ({d.rules.shard_runs_max:,}); ask later"
    why = why_no_room(d.state, d.rules)
    return f"{why}; ask later" if why else ""


def has_been(state: Dag, run_id: str) -> bool:
    """Whether the id is that of a run that has ended, or of a slot that has passed."""
    return run_id in state.finished or is_past_slot(state, run_id)


def parsed_inputs(inputs: str) -> tuple[dict[str, Any], str]:
    """The inputs of a request, or what is wrong with their text."""
    size = len(inputs.encode())
    if size > INPUTS_BYTES_MAX:
        return {}, f"the inputs have {size:,} bytes; the limit is {INPUTS_BYTES_MAX:,}"
    try:
        return msgspec.json.decode(inputs, type=dict[str, Any]), ""
    except (msgspec.DecodeError, RecursionError) as error:
        return {}, f"the inputs are no JSON object: {error}"


def create_run(
    d: Decision[Dag],
    *,
    run_id: str,
    kind: c.RunKind,
    actor: str,
    logical_date: int | None,
    interval: tuple[int | None, int | None],
    given: dict[str, Any],
    answers: tuple[str, str] = ("", ""),
    version: str = "",
    rerun_of: str = "",
    reason: str = "",
    backfill_id: str = "",
    parent: Parent | None = None,
) -> list[str]:
    """Record the run with its inputs checked and defaults filled in; gives the mistakes instead if there are any.

    ``answers`` are the trigger that asked and the record it answered.
    """
    definition = d.state.definitions[version or d.state.version]
    draft = RunState(
        run_id=run_id,
        version=definition.version,
        kind=kind,
        order=0,
        logical_date=logical_date,
        interval_start=interval[0],
        interval_end=interval[1],
    )
    inputs, mistakes = checked_inputs(d, draft, definition, given)
    if mistakes:
        return mistakes
    d.record(
        e.RunCreated(
            dag=d.state.dag,
            run_id=run_id,
            at=d.now,
            actor=actor,
            version=definition.version,
            kind=kind,
            logical_date=logical_date,
            interval_start=interval[0],
            interval_end=interval[1],
            inputs=inputs,
            trigger=answers[0],
            origin=answers[1],
            rerun_of=rerun_of,
            reason=reason,
            backfill_id=backfill_id,
            **({} if parent is None else _asked_by(parent)),
        )
    )
    return []


def checked_inputs(
    d: Decision[Dag], run: RunState, definition: Definition, given: dict[str, Any]
) -> tuple[str, list[str]]:
    """The inputs of the run under ``definition`` with defaults filled in, as JSON, and what is wrong with them."""
    scope = Scope(inputs={}, run=run_names(run), task=lambda name: {}, env=definition.workflow.env)
    inputs, mistakes = check_inputs(definition.workflow, given, d.rules.evaluator, scope)
    return msgspec.json.encode(inputs).decode(), list(mistakes)


def _asked_by(parent: Parent) -> dict[str, Any]:
    """The parent's fields in the run's first event."""
    return {
        "parent_dag": parent.dag,
        "parent_run_id": parent.run_id,
        "parent_task": parent.task,
        "parent_attempt": parent.attempt,
        "depth": parent.depth,
    }


def not_live(d: Decision[Dag], run_id: str) -> None:
    """Refuse: only a live run can be asked for this, and this one has ended, or never was."""
    if has_been(d.state, run_id):
        d.refuse("conflict", f"run {run_id} is not live: it has ended, or its slot was skipped")
    else:
        d.refuse("not_found", f"DAG '{d.state.dag}' has no live run {run_id}")


def decide_cancel_run(d: Decision[Dag], command: c.CancelRun) -> None:
    """Nothing of it begins any more: what waits is cancelled, the workers of what is live are told."""
    run = d.state.runs.get(command.run_id)
    if run is None:
        not_live(d, command.run_id)
        return
    d.accept(run_id=run.run_id, created=not run.cancel_requested)
    cancel_run(d, run.run_id, actor=command.actor, reason=command.reason)
    start_runs(d)


def cancel_run(d: Decision[Dag], run_id: str, *, actor: str, reason: str) -> None:
    """Cancel a live run, unless that was asked before."""
    if d.state.runs[run_id].cancel_requested:
        return
    d.record(e.RunCancelRequested(dag=d.state.dag, run_id=run_id, at=d.now, actor=actor, reason=reason))
    cancel_tasks(d, run_id)


def cancel_tasks(d: Decision[Dag], run_id: str) -> None:
    """Cancel the tasks of a run that is to end, as many as one decision ends; the run ends with the last of them."""
    for name in d.state.definitions[d.state.runs[run_id].version].tasks:
        if not d.may_go_on(run_id):
            break
        cancel_task(d, run_id, name)
    end_if_done(d, run_id)
    queue_held(d)


def decide_fire_deadline(d: Decision[Dag], command: c.FireDeadline) -> None:
    """Say what the run has missed by now. If it is to fail by that, its tasks are ended like those of a cancelled
    run."""
    run = d.state.runs.get(command.run_id)
    if run is None:
        return
    miss_deadlines(d, run.run_id)
    if not run.failure and d.state.runs[run.run_id].failure:
        cancel_tasks(d, run.run_id)
        start_runs(d)
