"""Which slots of a schedule have a run, in a size that does not grow with them.

A run's data interval goes from the slot before it to its own. So the runs of neighbouring slots touch, and a stretch of
slots that all have one is a *span*: the instant before its first slot, and its last slot. A DAG that never skipped
anything has a single span, however old it is; each gap adds one. No calendar is needed to keep them.

Spans belong to the schedule that named their slots: within the span of a daily schedule, the slots of an hourly one
have no runs, but for those that fall together. A DAG that changes its schedule has one *era* for each.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from tidewheel.core.calendar import latest_slot, next_slot, previous_slot, same_slots
from tidewheel.core.ordered import Ordered
from tidewheel.core.workflow import Schedule

#: The instant before the first slot (the slot before it), and the last slot.
Span: TypeAlias = tuple[int, int]

#: Gaps an era remembers. Under ``overlap: skip`` every other slot may be one; beyond this the oldest are forgotten.
SPANS_MAX = 10_000
#: Eras a DAG remembers: so many different schedules in its life.
ERAS_MAX = 20
#: Spans that one look passes over: a decision takes so long at most.
HOPS_MAX = 100
_BEYOND = 2**62


class Era(msgspec.Struct, frozen=True):
    """The runs of one schedule's slots."""

    schedule: Schedule
    spans: Ordered[Span] = Ordered()
    #: Whether slots up to here have a run is not known any more; they count as if they had.
    forgotten: int = -_BEYOND

    def with_slot(self, before: int, slot: int) -> Era:
        """The era with a run of ``slot``, whose interval begins at ``before``."""
        spans = self.spans
        left = spans.at_most((before, _BEYOND))
        if left is not None and left[1] >= before:
            spans, before, slot = spans.remove(left), left[0], max(slot, left[1])
        right = spans.after((before, -_BEYOND))
        while right is not None and right[0] <= slot:
            spans, slot = spans.remove(right), max(slot, right[1])
            right = spans.after((before, -_BEYOND))
        spans = spans.add((before, slot))
        if len(spans) <= SPANS_MAX:
            return replace(self, spans=spans)
        oldest = spans.first()
        return replace(self, spans=spans.remove(oldest), forgotten=max(self.forgotten, oldest[1]))

    def span_at(self, instant: int) -> Span | None:
        """The span within which ``instant`` lies; None: it lies in a gap."""
        span = self.spans.at_most((instant - 1, _BEYOND))
        return span if span is not None and span[1] >= instant else None

    def has(self, slot: int) -> bool:
        """Whether ``slot``, which need not be one of this schedule, has a run of it."""
        return self.span_at(slot) is not None and previous_slot(self.schedule, slot + 1) == slot


Coverage: TypeAlias = tuple[Era, ...]


def with_run(coverage: Coverage, schedule: Schedule, before: int | None, slot: int) -> Coverage:
    """The coverage with a run of a slot of ``schedule``; the era last changed stands last."""
    era = era_of(coverage, schedule) or Era(schedule=schedule)
    others = tuple(one for one in coverage if not same_slots(one.schedule, schedule))
    changed = era.with_slot(slot - 1 if before is None else before, slot)
    if len(others) < ERAS_MAX:
        return (*others, changed)
    # The era that has rested longest goes: what its spans reach over counts as answered from now on.
    reached = max((span[1] for span in others[0].spans), default=-_BEYOND)
    kept = (*others[1:], changed)
    return tuple(replace(one, forgotten=max(one.forgotten, others[0].forgotten, reached)) for one in kept)


def era_of(coverage: Coverage, schedule: Schedule) -> Era | None:
    """The era whose schedule names the same slots."""
    return next((era for era in coverage if same_slots(era.schedule, schedule)), None)


def has_run(coverage: Coverage, schedule: Schedule, slot: int) -> bool:
    """Whether a slot of ``schedule`` has a run, or may have had one."""
    for era in coverage:
        if slot <= era.forgotten:
            return True
        if same_slots(era.schedule, schedule):
            if era.span_at(slot) is not None:
                return True
        elif era.has(slot):
            return True
    return False


def answered_stretch(
    coverage: Coverage, schedule: Schedule, slot: int, first: int, last: int, *, backward: bool
) -> int | None:
    """The far end of the stretch of slots that begins at ``slot``, stays within ``first`` and ``last`` (which are
    slots) and has a run at each of them, as far as ``HOPS_MAX`` spans tell; None: ``slot`` has no run.
    """
    end, far = first if backward else last, None
    for _ in range(HOPS_MAX):
        if not has_run(coverage, schedule, slot):
            break
        far = _hop(coverage, schedule, slot, first, last, backward=backward)
        if far == end:
            break
        following = previous_slot(schedule, far) if backward else next_slot(schedule, far)
        assert following is not None, f"{end} is a slot, and so there is one after {far}"
        slot = following
    return far


def _hop(coverage: Coverage, schedule: Schedule, slot: int, first: int, last: int, *, backward: bool) -> int:
    """The far end of what says that ``slot`` has a run: a span, what is forgotten, or the slot alone."""
    forgotten = max(era.forgotten for era in coverage)
    if slot <= forgotten:
        return first if backward else latest_slot(schedule, slot - 1, min(forgotten, last)) or slot
    era = era_of(coverage, schedule)
    span = None if era is None else era.span_at(slot)
    if span is None:
        return slot
    if not backward:
        return min(span[1], last)
    begin = next_slot(schedule, max(span[0], forgotten))
    return slot if begin is None else max(begin, first)


def is_forgotten(coverage: Coverage, slot: int) -> bool:
    """Whether it is not known any more if the slot has a run."""
    return any(slot <= era.forgotten for era in coverage)
