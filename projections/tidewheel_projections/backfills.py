"""Backfills: what their events leave in ``backfills``. How far their runs have come is counted from ``runs``."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from tidewheel.core import events as e

#: A backfill in one of these is over.
BACKFILL_ENDED = frozenset({"finished", "cancelled"})

BackfillChange: TypeAlias = (
    e.BackfillSlotsSkipped
    | e.BackfillPaused
    | e.BackfillResumed
    | e.BackfillCancelled
    | e.BackfillFinished
    | e.RunCreated
    | e.RunRestarted
)


class Backfill(msgspec.Struct):
    """A row of ``backfills``."""

    dag: str
    backfill_id: str
    state: str
    first_slot: int
    last_slot: int
    slot_order: str
    mode: str
    width: int
    reprocess: str
    slots: int
    skipped: int
    runs: int
    slot_cursor: int | None
    reason: str
    actor: str
    started_at: int
    ended_at: int | None
    updated_at: int
    shard_seq: int


def fold_backfill_started(event: e.BackfillStarted, shard_seq: int) -> Backfill:
    """A new one."""
    return Backfill(
        dag=event.dag,
        backfill_id=event.backfill_id,
        state="running",
        first_slot=event.first,
        last_slot=event.last,
        slot_order=event.order,
        mode=event.mode,
        width=event.width,
        reprocess=event.reprocess,
        slots=event.slots,
        skipped=0,
        runs=0,
        slot_cursor=None,
        reason="",
        actor=event.actor,
        started_at=event.at,
        ended_at=None,
        updated_at=event.at,
        shard_seq=shard_seq,
    )


def fold_backfill_changed(row: Backfill, event: BackfillChange, shard_seq: int) -> None:
    """It came to slots, was held or let go on, or is over."""
    match event:
        case e.RunCreated() | e.RunRestarted():
            row.runs += 1
            row.slot_cursor = event.logical_date
        case e.BackfillSlotsSkipped():
            row.skipped += event.count
            row.slot_cursor = event.first if row.slot_order == "backward" else event.last
        case e.BackfillPaused():
            row.state, row.reason = "paused", event.reason
        case e.BackfillResumed():
            row.state, row.reason = "running", event.reason
        case e.BackfillCancelled():
            row.state, row.reason, row.ended_at = "cancelled", event.reason, event.at
        case e.BackfillFinished():
            row.state, row.ended_at = "finished", event.at
    row.updated_at = event.at
    row.shard_seq = shard_seq
