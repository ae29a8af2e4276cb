"""A backfill: runs for slots of the schedule that have none, made as earlier ones of them end.

It keeps a place in the calendar and two counts, never a list of slots: a range of a hundred thousand costs what one of
ten does. Its first and last slot are slots themselves, so it has come to its end when its cursor is there.
"""

from __future__ import annotations

import msgspec

from tidewheel.core.calendar import count_slots, fires_at, latest_slot, next_slot, previous_slot
from tidewheel.core.commands import BackfillMode, BackfillOrder, Reprocess
from tidewheel.core.workflow import Schedule

#: Slots of one backfill, runs of it at a time, and backfills of one DAG that live at once.
SLOTS_MAX = 1_000_000
WIDTH_MAX = 1_000
BACKFILLS_MAX = 16
#: Tasks of backfills wait in a pool with their DAG's priority less this: behind all others, whatever priority an author
#: may write (at most 1,000).
PRIORITY_DROP = 1_000_000


class SlotRange(msgspec.Struct, frozen=True):
    """Slots of a schedule from ``first`` to ``last``, both included and slots themselves: ``slots`` of them."""

    first: int
    last: int
    slots: int


def due_slots(schedule: Schedule, dag: str, since: int, until: int, now: int) -> SlotRange | None:
    """The slots from ``since`` to ``until``, both included, whose runs are due by ``now``; None: there are none."""
    due_by = now - fires_at(schedule, dag, 0)  # the jitter, which is the same for every slot
    first = next_slot(schedule, since - 1)
    last = latest_slot(schedule, since - 1, min(until, due_by))
    if first is None or last is None:
        return None
    return SlotRange(first, last, count_slots(schedule, first - 1, last))


class Backfill(msgspec.Struct, frozen=True, kw_only=True):
    """One that lives."""

    backfill_id: str
    first: int
    last: int
    slots: int
    order: BackfillOrder
    mode: BackfillMode
    width: int
    reprocess: Reprocess
    #: The slot that it came to last.
    cursor: int | None = None
    paused: bool = False
    #: Runs that it made.
    created: int = 0

    @property
    def backward(self) -> bool:
        """Whether it goes from the latest slot to the earliest."""
        return self.order == "backward"

    @property
    def exhausted(self) -> bool:
        """Whether it has come to every slot."""
        return self.cursor == (self.first if self.backward else self.last)

    def next(self, schedule: Schedule) -> int | None:
        """The slot that it comes to next."""
        if self.exhausted:
            return None
        if self.backward:
            return self.last if self.cursor is None else previous_slot(schedule, self.cursor)
        return self.first if self.cursor is None else next_slot(schedule, self.cursor)

    def may_create(self, live: int) -> bool:
        """Whether it may make a run while ``live`` of its runs have not ended."""
        if self.paused or self.exhausted:
            return False
        if self.mode == "parallel":
            return live < self.width
        return live == 0 or self.created % self.width != 0

    def is_due(self, live: int) -> bool:
        """Whether it has something to do now: make a run, pass a slot, or finish."""
        return self.may_create(live) or (self.exhausted and live == 0)
