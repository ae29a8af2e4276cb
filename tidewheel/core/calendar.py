"""The slots of a schedule, and which of them are owed. Pure; milliseconds since the epoch.

A *slot* is an instant that the schedule names, between its ``start`` and its ``end``: the logical date of one run.
``core.instants`` says what clock changes do to cron slots. ``every`` counts multiples from the Unix epoch in UTC
whatever the zone: ``every: 1d`` is 00:00 UTC, ``every: 7d`` Thursday 00:00 UTC. Several crons are one set of slots.

A run is *due* at its slot plus the DAG's jitter (``fires_at``), and all lateness is measured from there. ``due``
applies the catch-up policy:

* ``resumed`` (unpaused, or newly deployed): ``none`` owes nothing that passed, ``latest`` the newest slot, ``all``
  each of them;
* an ordinary tick, also after the scheduler was down or the shard changed hands: the same for ``latest`` and ``all``,
  and under ``none`` the newest slot if it is at most ``misfire_grace_ms`` late.

``catchup_window_ms`` bounds ``latest`` and ``all``: what is later than that is skipped. Skipped slots always lie
before those to run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice

import msgspec

from tidewheel.core.cron import CronError, check_cron, parse_cron
from tidewheel.core.instants import FIXED, ClockChanges, count_instants, next_instant, previous_instant
from tidewheel.core.workflow import Schedule
from tidewheel.core.zones import END_S, START_S, ZoneError, check_zone, zone_of

__all__ = [
    "CronError",
    "Forecast",
    "Owed",
    "ZoneError",
    "begins_at",
    "check_cron",
    "check_zone",
    "count_slots",
    "due",
    "fires_at",
    "forecast",
    "latest_slot",
    "next_slot",
    "plan",
    "previous_slot",
    "same_slots",
    "slots_between",
]

#: Runs that one ``due`` hands out: a backlog of any size is worked off in steps of this.
RUNS_MAX = 100


class Owed(msgspec.Struct, frozen=True):
    """What a DAG owes at an instant."""

    #: Slots to create runs for now, oldest first.
    run: tuple[int, ...] = ()
    #: (first, last, count) of the slots to record as skipped; they lie before ``run``.
    skipped: tuple[int, int, int] | None = None
    #: Why they are skipped.
    reason: str = ""
    #: More slots are owed than ``run`` holds: ask again with the cursor at its last one.
    more: bool = False


class Forecast(msgspec.Struct, frozen=True):
    """What a DAG would owe if it went on now, counted in full."""

    #: Slots that would get runs, and the first and last of them (None: there are none).
    runs: int = 0
    first: int | None = None
    last: int | None = None
    #: Slots that would be recorded as skipped, and why.
    skipped: int = 0
    reason: str = ""


def next_slot(schedule: Schedule, after_ms: int) -> int | None:
    """The first slot strictly after ``after_ms``; None if the schedule, or the calendar in the year 9900, ends."""
    if schedule.start_ms is not None:
        after_ms = max(after_ms, schedule.start_ms - 1)
    slot = _next(schedule, after_ms)
    return None if slot is None or (schedule.end_ms is not None and slot > schedule.end_ms) else slot


def _next(schedule: Schedule, after_ms: int) -> int | None:
    if schedule.every_ms is not None:
        return (after_ms // schedule.every_ms + 1) * schedule.every_ms
    start = max(after_ms // 1000 + 1, START_S)
    if start >= END_S:
        return None
    zone, fixed = zone_of(schedule.timezone), _clock_changes(schedule)
    if len(schedule.cron) == 1:
        return next_instant(parse_cron(schedule.cron[0]), zone, start, fixed) * 1000
    return min(next_instant(parse_cron(text), zone, start, fixed) for text in schedule.cron) * 1000


def previous_slot(schedule: Schedule, before_ms: int) -> int | None:
    """The last slot strictly before ``before_ms``, whatever the bounds: so the first data interval, too, has a
    beginning. None if that would be before 1900."""
    if schedule.every_ms is not None:
        return (before_ms - 1) // schedule.every_ms * schedule.every_ms
    end = min((before_ms - 1) // 1000, END_S)
    if end < START_S:
        return None
    zone, fixed = zone_of(schedule.timezone), _clock_changes(schedule)
    slot = max(previous_instant(parse_cron(text), zone, end, fixed) for text in schedule.cron)
    return slot * 1000 if slot >= START_S else None


def latest_slot(schedule: Schedule, after_ms: int, until_ms: int) -> int | None:
    """The newest slot in ``(after_ms, until_ms]``, at the cost of one step however long that is."""
    after_ms, until_ms = _bounded(schedule, after_ms, until_ms)
    slot = previous_slot(schedule, until_ms + 1)
    return slot if slot is not None and slot > after_ms else None


def slots_between(schedule: Schedule, after_ms: int, until_ms: int, limit: int | None = None) -> Iterator[int]:
    """The slots in ``(after_ms, until_ms]``, oldest first, at most ``limit``."""

    def walk() -> Iterator[int]:
        slot = next_slot(schedule, after_ms)
        while slot is not None and slot <= until_ms:
            yield slot
            slot = next_slot(schedule, slot)

    return islice(walk(), limit)


def count_slots(schedule: Schedule, after_ms: int, until_ms: int) -> int:
    """How many slots lie in ``(after_ms, until_ms]``, without visiting each: ten years of minutes take milliseconds."""
    after_ms, until_ms = _bounded(schedule, after_ms, until_ms)
    if until_ms <= after_ms:
        return 0
    if schedule.every_ms is not None:
        return until_ms // schedule.every_ms - after_ms // schedule.every_ms
    low, high = max(after_ms // 1000 + 1, START_S), min(until_ms // 1000 + 1, END_S)
    crons = tuple(parse_cron(text) for text in dict.fromkeys(schedule.cron))
    zone = zone_of(schedule.timezone)
    return count_instants(crons, zone, low, high, _clock_changes(schedule)) if low < high else 0


def same_slots(one: Schedule | None, other: Schedule | None) -> bool:
    """Whether the two name the same instants, as far as their texts tell."""
    return one is not None and other is not None and _what_names_slots(one) == _what_names_slots(other)


def _what_names_slots(schedule: Schedule) -> tuple[object, ...]:
    clock = (schedule.timezone, schedule.dst_gap, schedule.dst_repeat)
    return (schedule.cron, schedule.every_ms, schedule.start_ms, schedule.end_ms, *clock)


def _bounded(schedule: Schedule, after_ms: int, until_ms: int) -> tuple[int, int]:
    if schedule.start_ms is not None:
        after_ms = max(after_ms, schedule.start_ms - 1)
    if schedule.end_ms is not None:
        until_ms = min(until_ms, schedule.end_ms)
    return after_ms, until_ms


def _clock_changes(schedule: Schedule) -> ClockChanges:
    if schedule.dst_gap == FIXED.gap and schedule.dst_repeat == FIXED.repeat:
        return FIXED
    return ClockChanges(gap=schedule.dst_gap, repeat=schedule.dst_repeat)


def begins_at(schedule: Schedule, now_ms: int) -> int:
    """The cursor of a DAG that had no schedule before: slots count from now on, or from the ``start`` that it is to
    catch up with."""
    if schedule.start_ms is not None and schedule.catchup != "none":
        return min(now_ms, schedule.start_ms - 1)
    return now_ms


def fires_at(schedule: Schedule, dag_id: str, slot_ms: int) -> int:
    """When the run of ``slot_ms`` is due: up to ``jitter_ms`` after it, always by the same amount for one DAG."""
    return slot_ms + _jitter(schedule, dag_id)


def plan(schedule: Schedule, dag_id: str, after_ms: int, count: int) -> list[tuple[int, int]]:
    """The next ``count`` (slot, due instant) whose due instant is after ``after_ms``; fewer if the schedule ends."""
    jitter = _jitter(schedule, dag_id)
    planned: list[tuple[int, int]] = []
    slot = next_slot(schedule, after_ms - jitter)
    while slot is not None and len(planned) < count:
        planned.append((slot, slot + jitter))
        slot = next_slot(schedule, slot)
    return planned


def due(schedule: Schedule, dag_id: str, cursor_ms: int, now_ms: int, *, resumed: bool) -> Owed:
    """What is owed at ``now_ms`` of the slots after ``cursor_ms`` (the last slot that got a run or a recorded skip)."""
    jitter = _jitter(schedule, dag_id)
    horizon = now_ms - jitter
    newest = latest_slot(schedule, cursor_ms, horizon)
    if newest is None:
        return Owed()
    if schedule.catchup == "none":
        if resumed:
            return _owed(schedule, cursor_ms, newest, horizon, "catchup is none: slots that passed are not run")
        grace = schedule.misfire_grace_ms
        reason = "catchup is none: only the newest slot is run"
        if horizon - newest > grace:
            reason = f"catchup is none, and the newest slot is more than misfire_grace ({_shown(grace)}) late"
        return _owed(schedule, cursor_ms, max(newest - 1, cursor_ms), horizon, reason, grace)
    window = schedule.catchup_window_ms
    if schedule.catchup == "latest":
        reason = "catchup is latest: only the newest slot is run"
        if window is not None and horizon - newest > window:
            reason = f"older than catchup_window ({_shown(window)})"
        return _owed(schedule, cursor_ms, newest - 1, horizon, reason, window)
    reason = f"older than catchup_window ({_shown(window)})" if window is not None else ""
    return _owed(schedule, cursor_ms, cursor_ms, horizon, reason, window)


def forecast(schedule: Schedule, dag_id: str, cursor_ms: int, now_ms: int) -> Forecast:
    """What going on at ``now_ms`` would do with the slots after ``cursor_ms``: that of ``due``, over all its steps."""
    owed = due(schedule, dag_id, cursor_ms, now_ms, resumed=True)
    skipped = owed.skipped[2] if owed.skipped is not None else 0
    if not owed.run:
        return Forecast(skipped=skipped, reason=owed.reason)
    first, horizon = owed.run[0], now_ms - _jitter(schedule, dag_id)
    return Forecast(
        runs=count_slots(schedule, first - 1, horizon) if owed.more else len(owed.run),
        first=first,
        last=latest_slot(schedule, first - 1, horizon),
        skipped=skipped,
        reason=owed.reason,
    )


def _owed(
    schedule: Schedule, cursor_ms: int, skip_until: int, horizon: int, reason: str, late_max: int | None = None
) -> Owed:
    """Skip the slots up to ``skip_until`` and those more than ``late_max`` before ``horizon``; run the rest."""
    boundary = skip_until if late_max is None else max(skip_until, horizon - late_max - 1)
    last = latest_slot(schedule, cursor_ms, boundary)
    first = next_slot(schedule, cursor_ms)
    skipped = None
    if first is not None and last is not None:
        skipped = (first, last, count_slots(schedule, cursor_ms, last))
    found = tuple(slots_between(schedule, max(cursor_ms, boundary), horizon, RUNS_MAX + 1))
    return Owed(run=found[:RUNS_MAX], skipped=skipped, reason=reason if skipped else "", more=len(found) > RUNS_MAX)


def _jitter(schedule: Schedule, dag_id: str) -> int:
    return _hash(dag_id) % schedule.jitter_ms if schedule.jitter_ms > 0 else 0


@lru_cache(maxsize=4096)
def _hash(dag_id: str) -> int:
    return int.from_bytes(hashlib.blake2b(dag_id.encode(), digest_size=8).digest(), "big")


def _shown(ms: int) -> str:
    """A duration as workflow files write it, in the largest unit that needs no fraction."""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        if ms % size == 0:
            return f"{ms // size}{unit}"
    return f"{ms}ms"
