"""When a cron expression comes in a zone: the instants behind its wall times. Seconds since the epoch.

What a change of the zone's clock means is said by ``ClockChanges``:

* minute and hour both fixed (no ``*``, no step): one run per wanted wall time. Unless the schedule says otherwise, a
  time that the clock jumps over runs at the first instant after the gap, and a time shown twice runs at the first.
* otherwise: elapsed time. Every minute that really passes is looked at once, by the wall time it bears: a time jumped
  over never was, a repeated hour runs again, no instant comes twice.

Between two changes a zone is a constant offset, so we walk stretches of constant offset and do cron in wall time
within them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import tzinfo
from typing import Literal

import msgspec

from tidewheel.core.cron import Cron, count_minutes
from tidewheel.core.zones import APART_S, START_S, change_between, changes, offset_and_fold, offset_at


class ClockChanges(msgspec.Struct, frozen=True):
    """What becomes of wall times that a clock change jumps over or shows twice."""

    gap: Literal["run_after", "skip"]
    repeat: Literal["once", "twice"]


#: For a fixed minute and hour, unless the schedule says otherwise.
FIXED = ClockChanges(gap="run_after", repeat="once")
ELAPSED = ClockChanges(gap="skip", repeat="twice")


def next_instant(cron: Cron, zone: tzinfo, instant: int, fixed: ClockChanges = FIXED) -> int:
    """The first instant of ``cron`` not before ``instant``."""
    rule = _rule(cron, fixed)
    while True:
        offset = offset_at(zone, instant)
        if rule.gap == "run_after":
            before = offset_at(zone, instant - 1)
            if before < offset and _within_gap(cron, instant, before, offset):
                return instant
        match = _wall_from(cron, instant + offset) - offset
        near = min(match, instant + APART_S)
        change = change_between(zone, instant, near)
        if change is not None:
            instant = change
        elif match > near:
            # No wall time matches until shortly before it, whatever the clock does in between.
            instant = match - APART_S
        elif rule.repeat == "once" and offset_and_fold(zone, match)[1]:
            instant = match + 1
        else:
            return match


def previous_instant(cron: Cron, zone: tzinfo, instant: int, fixed: ClockChanges = FIXED) -> int:
    """The last instant of ``cron`` not after ``instant``."""
    rule = _rule(cron, fixed)
    while True:
        offset = offset_at(zone, instant)
        match = cron.at_or_before((instant + offset) // 60) * 60 - offset
        near = max(match, instant - APART_S)
        change = change_between(zone, near, instant)
        if change is not None:
            before = offset_at(zone, change - 1)
            if rule.gap == "run_after" and before < offset and _within_gap(cron, change, before, offset):
                return change
            instant = change - 1
        elif match < near:
            instant = match + APART_S
        elif rule.repeat == "once" and offset_and_fold(zone, match)[1]:
            instant = match - 1
        else:
            return match


def count_instants(crons: Sequence[Cron], zone: tzinfo, low: int, high: int, fixed: ClockChanges = FIXED) -> int:
    """How many different instants of ``crons`` lie in ``[low, high)``, without visiting each."""
    total = 0
    start = max(low - APART_S, START_S)
    offset = offset_at(zone, start)
    for end in (*changes(zone, start, high - 1), high):
        total += _count_stretch(crons, max(start, low), end, offset)
        if end == high:
            break
        before, offset, start = offset, offset_at(zone, end), end
        if offset < before:
            start = min(end + before - offset, high)
            again = [cron for cron in crons if _rule(cron, fixed).repeat == "twice"]
            total += _count_stretch(again, max(end, low), start, offset)
        elif end >= low:
            total += _comes_after_gap(crons, end, before, offset, fixed)
    return total


def _rule(cron: Cron, fixed: ClockChanges) -> ClockChanges:
    return fixed if cron.fixed else ELAPSED


def _wall_from(cron: Cron, wall: int) -> int:
    """The first matching wall time, in seconds, not before ``wall``."""
    return cron.at_or_after(-(-wall // 60)) * 60


def _within_gap(cron: Cron, change: int, before: int, after: int) -> bool:
    """Whether a wall time that the clock jumps over at ``change`` matches."""
    return _wall_from(cron, change + before) < change + after


def _count_stretch(crons: Sequence[Cron], low: int, high: int, offset: int) -> int:
    """Matches in the instants ``[low, high)``, all of them at ``offset``."""
    return count_minutes(crons, -(-(low + offset) // 60), -(-(high + offset) // 60))


def _comes_after_gap(crons: Sequence[Cron], change: int, before: int, after: int, fixed: ClockChanges) -> bool:
    """Whether something runs at ``change`` only for wall times jumped over."""
    if _count_stretch(crons, change, change + 1, after):
        return False
    return any(_rule(cron, fixed).gap == "run_after" and _within_gap(cron, change, before, after) for cron in crons)
