"""The run that a person wants to change: a live one, or one that has ended and goes on by that.

Of one that ended too long ago to be kept, whoever asks says what it came to, and is believed only if that is what the
DAG remembers the digest of.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.decide.decision import Decision
from tidewheel.core.decide.run import checked_inputs, has_been, overloaded
from tidewheel.core.digests import RECALLABLE_RUNS, digest_in, digest_of
from tidewheel.core.ended import restored, unpacked
from tidewheel.core.graph import Definition, define
from tidewheel.core.nearest import did_you_mean
from tidewheel.core.state import KEPT_BYTES, Dag, EndedRun, RunState


class Target(msgspec.Struct, frozen=True):
    """The run as it is, or as it would go on if it has ended; and by which definition."""

    run: RunState
    definition: Definition
    #: What it had come to, if it is not kept.
    recalled: bytes | None = None


def changeable(d: Decision[Dag], command: c.MarkTask | c.ClearTasks, *, latest: bool = False) -> Target | None:
    """The run that the command is about; one that has ended goes on with the current definition if ``latest``. None,
    and refused, if nothing of it can be changed."""
    run = d.state.runs.get(command.run_id)
    if run is not None:
        return _live(d, run, latest=latest)
    ended = next((one for one in d.state.kept if one.run_id == command.run_id), None)
    if ended is None and digest_in(d.state.digests, command.run_id) is None:
        _refuse_absent(d, command.run_id)
        return None
    if d.state.removed:
        d.refuse("conflict", f"DAG '{d.state.dag}' was removed; deploy it again to let a run of it go on")
        return None
    if why := overloaded(d):
        d.refuse("overloaded", why)
        return None
    if ended is None:
        return _recalled(d, command, latest=latest)
    return _restored(d, ended, d.state.definition if latest else d.state.definitions[ended.version])


def reopen(d: Decision[Dag], target: Target, command: c.MarkTask | c.ClearTasks) -> None:
    """If the run has ended, it is live again, and waits for its turn."""
    run, definition = target.run, target.definition
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
            recalled=target.recalled,
            definition="" if definition.version in d.state.definitions else definition.source,
        )
    )


def unknown_task(d: Decision[Dag], target: Target, name: str) -> bool:
    """Whether the run has no such task or instance, which is then refused."""
    run, tasks = target.run, target.definition.tasks
    if name in tasks or name in run.tasks:
        return False
    d.refuse("not_found", f"run {run.run_id} has no task '{name}'{did_you_mean(name, tasks)}")
    return True


def _live(d: Decision[Dag], run: RunState, *, latest: bool) -> Target | None:
    if run.cancel_requested:
        d.refuse("conflict", f"run {run.run_id} is being ended; once it has, it can be changed")
    elif latest and run.version != d.state.version:
        d.refuse("conflict", f"run {run.run_id} is live and keeps its version; let it end first")
    else:
        return Target(run, d.state.definitions[run.version])
    return None


def _refuse_absent(d: Decision[Dag], run_id: str) -> None:
    if not d.state.version:
        d.refuse("not_found", f"no DAG '{d.state.dag}' is deployed")
    elif has_been(d.state, run_id):
        why = f"what it came to is remembered of a DAG's last {RECALLABLE_RUNS:,} runs"
        told = f"run {run_id} has ended too long ago to go on ({why}), or was skipped"
        d.refuse("conflict", f"{told}; {_again(d, run_id)}")
    else:
        d.refuse("not_found", f"DAG '{d.state.dag}' has no run {run_id}")


def _recalled(d: Decision[Dag], command: c.MarkTask | c.ClearTasks, *, latest: bool) -> Target | None:
    """The run by what the command says of it."""
    run_id = command.run_id
    if command.recalled is None:
        number = d.state.definition.workflow.keep_runs
        kept = f"its DAG keeps the last {number} ended runs, up to {KEPT_BYTES >> 20} MiB of them"
        d.refuse("not_kept", f"run {run_id} must be recalled by what it came to ({kept}); {_again(d, run_id)}")
        return None
    try:
        ended = unpacked(command.recalled)
        own = d.state.definitions.get(ended.version) or define(ended.version, command.definition)
    except (msgspec.DecodeError, RecursionError) as error:
        d.refuse("conflict", f"what is said of run {run_id} can not be read: {error}; {_again(d, run_id)}")
        return None
    if ended.run_id != run_id or digest_of(command.recalled, own) != digest_in(d.state.digests, run_id):
        d.refuse("conflict", f"what is said of run {run_id} is not what it came to; {_again(d, run_id)}")
        return None
    target = _restored(d, ended, d.state.definition if latest else own)
    return None if target is None else msgspec.structs.replace(target, recalled=command.recalled)


def _again(d: Decision[Dag], run_id: str) -> str:
    return f"`tidewheel rerun {d.state.dag} {run_id}` repeats it as a new run"


def _restored(d: Decision[Dag], ended: EndedRun, definition: Definition) -> Target | None:
    run = restored(ended, definition, order=d.state.created, inputs=ended.inputs)
    if definition.version == ended.version:
        return Target(run, definition)
    given = msgspec.json.decode(ended.inputs, type=dict[str, Any])
    inputs, mistakes = checked_inputs(d, run, definition, given)
    if mistakes:
        told = f"its inputs do not fit version {definition.version}: {'; '.join(mistakes)}"
        d.refuse("invalid", f"run {ended.run_id} can not go on with the latest definition, {told}")
        return None
    return Target(msgspec.structs.replace(run, inputs=inputs), definition)
