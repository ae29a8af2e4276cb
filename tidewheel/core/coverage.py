"""Which slots of a schedule have a run and how it ended, in a size that does not grow with them.

A run's data interval goes from the slot before it to its own. So the runs of neighbouring slots touch, and a stretch of
slots whose runs ended alike is a *span*: the instant before its first slot, its last slot, and what is true of their
runs. A DAG whose runs all succeeded has a single span, however old it is; each gap and each run that ended otherwise
adds one or two. No calendar is needed to keep them.

Spans belong to the schedule that named their slots: within the span of a daily schedule, the slots of an hourly one
have no runs, but for those that fall together. A DAG that changes its schedule has one *era* for each.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from tidewheel.core.calendar import latest_slot, next_slot, previous_slot, same_slots
from tidewheel.core.ordered import Ordered
from tidewheel.core.workflow import Schedule

#: How the run of a slot ended, if it did.
Outcome: TypeAlias = Literal["live", "success", "failed", "cancelled"]

#: Spans an era remembers; beyond this the oldest are forgotten.
SPANS_MAX = 10_000
#: Eras a DAG remembers: so many different schedules in its life.
ERAS_MAX = 20
#: Spans that one look passes over: a decision takes so long at most.
HOPS_MAX = 100
_BEYOND = 2**62


class Span(NamedTuple):
    """Neighbouring slots whose runs ended alike: after ``before``, up to ``last``."""

    before: int
    last: int
    outcome: Outcome = "live"
    #: The highest attempt of any of their tasks: more than that none has made.
    attempts: int = 0

    def continues(self, other: Span) -> bool:
        """Whether ``other`` ends where it begins, and is alike."""
        return self.before == other.last and self[2:] == other[2:]


class Era(msgspec.Struct, frozen=True):
    """The runs of one schedule's slots."""

    schedule: Schedule
    spans: Ordered[Span] = Ordered()
    #: Whether slots up to here have a run is not known any more; they count as if they had.
    forgotten: int = -_BEYOND

    def with_slot(self, one: Span) -> Era:
        """The era with ``one``, the span of a single slot, in place of what it said of that slot before."""
        spans = self.spans
        if (around := self.span_at(one.last)) is not None:
            spans = spans.remove(around)
            if around.before < one.before:
                spans = spans.add(around._replace(last=one.before))
            if one.last < around.last:
                spans = spans.add(around._replace(before=one.last))
        left = spans.at_most(Span(one.before, _BEYOND))
        if left is not None and left.last > one.before:
            one = one._replace(before=left.last)  # the zone's rules have changed since: a slot is in one span only
        if left is not None and one.continues(left):
            spans, one = spans.remove(left), one._replace(before=left.before)
        right = spans.after(Span(one.last, -_BEYOND))
        if right is not None and right.continues(one):
            spans, one = spans.remove(right), one._replace(last=right.last)
        spans = spans.add(one)
        if len(spans) <= SPANS_MAX:
            return replace(self, spans=spans)
        oldest = spans.first()
        return replace(self, spans=spans.remove(oldest), forgotten=max(self.forgotten, oldest.last))

    def span_at(self, instant: int) -> Span | None:
        """The span within which ``instant`` lies; None: it lies in a gap."""
        span = self.spans.at_most(Span(instant - 1, _BEYOND))
        return span if span is not None and span.last >= instant else None

    def span_of(self, slot: int) -> Span | None:
        """The same if ``slot``, which need not be one of this schedule, is a slot of it."""
        span = self.span_at(slot)
        return span if span is not None and previous_slot(self.schedule, slot + 1) == slot else None


Coverage: TypeAlias = tuple[Era, ...]


def with_run(coverage: Coverage, schedule: Schedule, before: int | None, slot: int) -> Coverage:
    """The coverage with a run of a slot of ``schedule``, whose interval begins at ``before``; the era last changed
    stands last."""
    era = era_of(coverage, schedule) or Era(schedule=schedule)
    return _with_era(coverage, era.with_slot(_single(before, slot, "live", 0)))


def with_outcome(
    coverage: Coverage, schedule: Schedule | None, before: int | None, slot: int, outcome: Outcome, attempts: int
) -> Coverage:
    """The coverage with another word on the run of ``slot``, in the era that has it.

    ``before`` is where the slot's interval begins by ``schedule``. A run may go on under another one than named its
    slot; in the era of that the interval is another, or slots without a run would lie within.
    """
    eras = [era for era in coverage if era.span_at(slot) is not None]
    if len(eras) > 1:
        eras = [era for era in eras if era.span_of(slot) is not None]
    if not eras:
        return coverage
    if schedule is None or not same_slots(eras[0].schedule, schedule):
        before = previous_slot(eras[0].schedule, slot)
    return _with_era(coverage, eras[0].with_slot(_single(before, slot, outcome, attempts)))


def _single(before: int | None, slot: int, outcome: Outcome, attempts: int) -> Span:
    return Span(slot - 1 if before is None else before, slot, outcome, attempts)


def _with_era(coverage: Coverage, changed: Era) -> Coverage:
    others = tuple(one for one in coverage if not same_slots(one.schedule, changed.schedule))
    if len(others) < ERAS_MAX:
        return (*others, changed)
    # The era that has rested longest goes: what its spans reach over counts as answered from now on.
    reached = max((span.last for span in others[0].spans), default=-_BEYOND)
    kept = (*others[1:], changed)
    return tuple(replace(one, forgotten=max(one.forgotten, others[0].forgotten, reached)) for one in kept)


def era_of(coverage: Coverage, schedule: Schedule) -> Era | None:
    """The era whose schedule names the same slots."""
    return next((era for era in coverage if same_slots(era.schedule, schedule)), None)


def has_run(coverage: Coverage, schedule: Schedule, slot: int) -> bool:
    """Whether a slot of ``schedule`` has a run, or may have had one."""
    return is_forgotten(coverage, slot) or span_of(coverage, schedule, slot) is not None


def span_of(coverage: Coverage, schedule: Schedule, slot: int) -> Span | None:
    """What is known of the run of a slot of ``schedule``; None: there is none that is remembered."""
    for era in coverage:
        found = era.span_at(slot) if same_slots(era.schedule, schedule) else era.span_of(slot)
        if found is not None:
            return found
    return None


def answered_stretch(
    coverage: Coverage,
    schedule: Schedule,
    slot: int,
    within: tuple[int, int],
    outcomes: Collection[Outcome],
    *,
    backward: bool,
) -> int | None:
    """The far end of the stretch of slots that begins at ``slot``, stays ``within`` two slots, and has a run with one
    of these ``outcomes`` at each of them (or is forgotten), as far as ``HOPS_MAX`` spans tell; None: ``slot`` has no
    such run.
    """
    end, far = within[0] if backward else within[1], None
    for _ in range(HOPS_MAX):
        found = span_of(coverage, schedule, slot)
        if not is_forgotten(coverage, slot) and (found is None or found.outcome not in outcomes):
            break
        far = _hop(coverage, schedule, slot, within, backward=backward)
        if far == end:
            break
        following = previous_slot(schedule, far) if backward else next_slot(schedule, far)
        assert following is not None, f"{end} is a slot, and so there is one after {far}"
        slot = following
    return far


def _hop(coverage: Coverage, schedule: Schedule, slot: int, within: tuple[int, int], *, backward: bool) -> int:
    """The far end of what says that ``slot`` has a run: a span, what is forgotten, or the slot alone."""
    first, last = within
    forgotten = max(era.forgotten for era in coverage)
    if slot <= forgotten:
        return first if backward else latest_slot(schedule, slot - 1, min(forgotten, last)) or slot
    era = era_of(coverage, schedule)
    span = None if era is None else era.span_at(slot)
    if span is None:
        return slot
    if not backward:
        return min(span.last, last)
    begin = next_slot(schedule, max(span.before, forgotten))
    return slot if begin is None else max(begin, first)


def is_forgotten(coverage: Coverage, slot: int) -> bool:
    """Whether it is not known any more if the slot has a run."""
    return any(slot <= era.forgotten for era in coverage)
