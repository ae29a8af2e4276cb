"""Folding a DAG's own events: its definition, its schedule's cursor, whether it is paused."""

from __future__ import annotations

from msgspec.structs import replace

from tidewheel.core import events as e
from tidewheel.core.graph import define
from tidewheel.core.state import Dag
from tidewheel.core.triggers import takes_since


def fold_dag_deployed(state: Dag, event: e.DagDeployed) -> Dag:
    """The definition becomes current; one that no live run needs any more is dropped."""
    definition = state.definitions.get(event.version) or define(event.version, event.definition)
    before = {} if state.removed or not state.version else state.definition.workflow.trigger_by_id
    deployed = replace(
        state,
        seq=state.seq + 1,
        version=event.version,
        definitions=state.definitions.set(event.version, definition),
        paused=event.paused,
        removed=False,
        trigger_since=takes_since(before, state.trigger_since, definition.workflow.trigger_by_id, event.at),
        cursor=event.cursor,
    )
    return without_unused_version(deployed, state.version)


def without_unused_version(state: Dag, version: str) -> Dag:
    """Forget ``version`` if it is neither current nor that of a live run."""
    if version == state.version or version not in state.definitions or state.runs_of.get(version, 0):
        return state
    return replace(state, definitions=state.definitions.delete(version))


def fold_dag_removed(state: Dag, event: e.DagRemoved) -> Dag:
    """No more runs."""
    return replace(state, seq=state.seq + 1, removed=True)


def fold_dag_paused(state: Dag, event: e.DagPaused) -> Dag:
    """Nothing starts by itself."""
    return replace(state, seq=state.seq + 1, paused=True)


def fold_dag_unpaused(state: Dag, event: e.DagUnpaused) -> Dag:
    """It goes on."""
    return replace(state, seq=state.seq + 1, paused=False)


def fold_slots_skipped(state: Dag, event: e.SlotsSkipped) -> Dag:
    """The cursor passes the slots."""
    return replace(state, seq=state.seq + 1, cursor=event.last, answered=event.last)
