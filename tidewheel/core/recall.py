"""What a run came to that its DAG does not keep any more: folded again, from its own events and nothing else.

How a run ends follows from its events and its definitions alone; other runs and the DAG only say when. So whoever has
those, out of the journal or the read model, can tell the DAG what the run came to, in the same bytes that it had.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec
from msgspec.structs import replace

from tidewheel.core import events as e
from tidewheel.core.backfill import Backfill
from tidewheel.core.ended import packed
from tidewheel.core.fold import fold
from tidewheel.core.graph import define
from tidewheel.core.state import Dag

#: A run and its definition travel in one command and one event, beside the names of 1,000 tasks to clear; a larger run
#: can be repeated as a new one only.
RECALLED_BYTES_MAX = 750_000


class CannotRecall(Exception):
    """What the run came to can not be told, and why."""


class Recalled(msgspec.Struct, frozen=True):
    """What a run came to (``core.ended.packed``), and the definition by which it ended."""

    run: bytes
    definition: str


def recall(dag: str, events: Iterable[e.RunEvent], source_of: Callable[[str], str]) -> Recalled:
    """What a run of ``dag`` came to by all its ``events``; ``source_of`` gives the definition of a version.

    Raises ``CannotRecall``.
    """
    state = Dag(dag=dag)
    try:
        for event in events:
            state = fold(_with_surroundings(state, event, source_of), _alone(event))
    except (AssertionError, LookupError, ValueError, msgspec.MsgspecError) as error:
        raise CannotRecall(f"its events do not follow one another: {error}") from error
    if state.runs or not state.kept:
        raise CannotRecall("it has not ended, or is too large" if state.seq else "nothing is known of it")
    (ended,) = state.kept
    recalled = Recalled(packed(ended), source_of(ended.version))
    size = len(recalled.run) + len(recalled.definition)
    if size > RECALLED_BYTES_MAX:
        raise CannotRecall(f"with its definition it has {size:,} bytes; the limit is {RECALLED_BYTES_MAX:,}")
    return recalled


def _with_surroundings(state: Dag, event: e.RunEvent, source_of: Callable[[str], str]) -> Dag:
    """The DAG with what the event takes for granted: its definition, its backfill, and room for one ended run."""
    if not isinstance(event, e.RunCreated | e.RunRestarted | e.RunReopened):
        return state
    definition = define(event.version, source_of(event.version))
    roomy = replace(definition, workflow=replace(definition.workflow, keep_runs=1))
    backfills = state.backfills
    if not isinstance(event, e.RunReopened) and event.backfill_id:
        backfills = (_stand_in(event.backfill_id, event.logical_date or 0),)
    return replace(
        state,
        version=event.version,
        definitions=state.definitions.set(event.version, roomy),
        backfills=backfills,
    )


def _stand_in(backfill_id: str, slot: int) -> Backfill:
    return Backfill(
        backfill_id=backfill_id,
        first=slot,
        last=slot,
        slots=1,
        order="forward",
        mode="parallel",
        width=1,
        reprocess="all",
    )


def _alone(event: e.RunEvent) -> e.RunEvent:
    """The event without what it repeats: here the run is always kept."""
    return replace(event, recalled=None, definition="") if isinstance(event, e.RunReopened) else event
