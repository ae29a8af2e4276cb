"""Folding a backfill's events: where it stands, and whether it goes on."""

from __future__ import annotations

from msgspec.structs import replace

from tidewheel.core import events as e
from tidewheel.core.backfill import Backfill
from tidewheel.core.state import Dag
from tidewheel.core.transitions import next_backfill_phase


def fold_backfill_started(state: Dag, event: e.BackfillStarted) -> Dag:
    """It stands before its first slot."""
    backfill = Backfill(
        backfill_id=event.backfill_id,
        first=event.first,
        last=event.last,
        slots=event.slots,
        order=event.order,
        mode=event.mode,
        width=event.width,
        reprocess=event.reprocess,
    )
    return replace(
        state,
        seq=state.seq + 1,
        backfills=(*state.backfills, backfill),
        backfills_started=state.backfills_started + 1,
    )


def fold_backfill_slots_skipped(state: Dag, event: e.BackfillSlotsSkipped) -> Dag:
    """It passes the slots."""
    backfill = state.backfill(event.backfill_id)
    return _with(state, replace(backfill, cursor=event.first if backfill.backward else event.last))


def fold_backfill_switched(state: Dag, event: e.BackfillPaused | e.BackfillResumed) -> Dag:
    """It holds, or goes on."""
    backfill = state.backfill(event.backfill_id)
    phase = next_backfill_phase("paused" if backfill.paused else "running", event)
    return _with(state, replace(backfill, paused=phase == "paused"))


def fold_backfill_ended(state: Dag, event: e.BackfillCancelled | e.BackfillFinished) -> Dag:
    """It leaves memory; its runs that live go on."""
    ended = state.backfill(event.backfill_id)
    next_backfill_phase("paused" if ended.paused else "running", event)
    rest = tuple(one for one in state.backfills if one is not ended)
    return replace(state, seq=state.seq + 1, backfills=rest)


def with_run_of_backfill(state: Dag, backfill_id: str, slot: int) -> Dag:
    """The run of ``slot`` is made: the backfill's cursor is there."""
    backfill = state.backfill(backfill_id)
    moved = replace(backfill, cursor=slot, created=backfill.created + 1)
    return replace(state, backfills=tuple(moved if one is backfill else one for one in state.backfills))


def _with(state: Dag, backfill: Backfill) -> Dag:
    others = tuple(backfill if one.backfill_id == backfill.backfill_id else one for one in state.backfills)
    return replace(state, seq=state.seq + 1, backfills=others)
