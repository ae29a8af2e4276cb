"""The run that a person wants to change: a live one, or one that has ended and goes on by that."""

from __future__ import annotations

from typing import Any

import msgspec

from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.decide.decision import Decision
from tidewheel.core.decide.run import checked_inputs, has_been, overloaded
from tidewheel.core.ended import restored
from tidewheel.core.nearest import did_you_mean
from tidewheel.core.state import KEPT_BYTES, Dag, EndedRun, RunState


def changeable(d: Decision[Dag], command: c.MarkTask | c.ClearTasks, *, latest: bool = False) -> RunState | None:
    """The run as it is, or as it would go on if it has ended; with the current definition if ``latest``. None, and
    refused, if nothing of it can be changed."""
    run = d.state.runs.get(command.run_id)
    if run is not None:
        return _live(d, run, latest=latest)
    ended = next((one for one in d.state.kept if one.run_id == command.run_id), None)
    if ended is None:
        _refuse_absent(d, command.run_id)
        return None
    if d.state.removed:
        d.refuse("conflict", f"DAG '{d.state.dag}' was removed; deploy it again to let a run of it go on")
        return None
    if why := overloaded(d):
        d.refuse("overloaded", why)
        return None
    return _restored(d, ended, latest=latest)


def reopen(d: Decision[Dag], run: RunState, command: c.MarkTask | c.ClearTasks) -> None:
    """If the run has ended, it is live again, and waits for its turn."""
    if run.run_id in d.state.runs:
        return
    d.record(
        e.RunReopened(
            dag=d.state.dag,
            run_id=run.run_id,
            at=d.now,
            actor=command.actor,
            version=run.version,
            inputs=run.inputs,
            reason=command.reason,
        )
    )


def unknown_task(d: Decision[Dag], run: RunState, name: str) -> bool:
    """Whether the run has no such task or instance, which is then refused."""
    tasks = d.state.definitions[run.version].tasks
    if name in tasks or name in run.tasks:
        return False
    d.refuse("not_found", f"run {run.run_id} has no task '{name}'{did_you_mean(name, tasks)}")
    return True


def _live(d: Decision[Dag], run: RunState, *, latest: bool) -> RunState | None:
    if run.cancel_requested:
        d.refuse("conflict", f"run {run.run_id} is being ended; once it has, it can be changed")
    elif latest and run.version != d.state.version:
        d.refuse("conflict", f"run {run.run_id} is live and keeps its version; let it end first")
    else:
        return run
    return None


def _refuse_absent(d: Decision[Dag], run_id: str) -> None:
    if not d.state.version:
        d.refuse("not_found", f"no DAG '{d.state.dag}' is deployed")
    elif has_been(d.state, run_id):
        number = d.state.definition.workflow.keep_runs
        why = f"its DAG keeps the last {number} ended runs for that, up to {KEPT_BYTES >> 20} MiB of them"
        again = f"`tidewheel rerun {d.state.dag} {run_id}` repeats it as a new run"
        d.refuse("conflict", f"run {run_id} has ended too long ago to go on ({why}), or was skipped; {again}")
    else:
        d.refuse("not_found", f"DAG '{d.state.dag}' has no run {run_id}")


def _restored(d: Decision[Dag], ended: EndedRun, *, latest: bool) -> RunState | None:
    definition = d.state.definition if latest else d.state.definitions[ended.version]
    run = restored(ended, definition, order=d.state.created, inputs=ended.inputs)
    if definition.version == ended.version:
        return run
    given = msgspec.json.decode(ended.inputs, type=dict[str, Any])
    inputs, mistakes = checked_inputs(d, run, definition, given)
    if mistakes:
        told = f"its inputs do not fit version {definition.version}: {'; '.join(mistakes)}"
        d.refuse("invalid", f"run {ended.run_id} can not go on with the latest definition, {told}")
        return None
    return msgspec.structs.replace(run, inputs=inputs)
