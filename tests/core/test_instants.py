"""Instants of cron jobs around clock changes, against a walk minute by minute and against cronsim."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given, settings
from hypothesis import strategies as st

from tidewheel.core.cron import parse_cron
from tidewheel.core.instants import FIXED, ClockChanges, count_instants, next_instant, previous_instant

#: Zones, with days around their clock changes (and one where nothing happens).
PLACES = [
    ("America/New_York", "2026-03-08"),
    ("America/New_York", "2026-11-01"),
    ("Europe/London", "2026-03-29"),
    ("Europe/London", "2026-10-25"),
    ("Europe/Zurich", "2041-10-27"),
    ("Europe/Dublin", "2026-10-25"),
    ("Australia/Sydney", "2026-04-05"),
    ("Australia/Sydney", "2026-10-04"),
    ("Australia/Lord_Howe", "2026-04-05"),
    ("Australia/Lord_Howe", "2026-10-04"),
    ("America/Santiago", "2026-04-05"),
    ("America/Santiago", "2026-09-06"),
    ("Africa/Casablanca", "2026-02-15"),
    ("Pacific/Apia", "2011-12-30"),
    ("Asia/Kathmandu", "2026-06-01"),
    ("UTC", "2026-06-01"),
]
FIXED_JOBS = ["30 2 * * *", "0,30 2,3 * * *", "59 1 * * *", "0 0 * * *", "15 0-4 * * *", "0 23 * * 6", "45 23,0 30 * *"]
ELAPSED_JOBS = [
    "*/15 * * * *",
    "0 * * * *",
    "0 */2 * * *",
    "7-50/20 1,2 * * *",
    "* 2 * * *",
    "30 * 1 * *",
    "*/30 0 * * 7",
]


def instant(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())


def matches(expression: str, wall: datetime) -> bool:
    """Whether a wall time is wanted, asked of the parser one minute at a time."""
    minute = int((wall - datetime(1970, 1, 1)).total_seconds()) // 60
    return parse_cron(expression).at_or_after(minute) == minute


@lru_cache
def showing(place: str, low: int, high: int) -> dict[int, datetime]:
    """What the clock of ``place`` shows at each minute in ``[low, high)``."""
    zone = ZoneInfo(place)
    return {m: datetime.fromtimestamp(m, zone).replace(tzinfo=None, fold=0) for m in range(low, high, 60)}


def walked(expression: str, shown: dict[int, datetime], fixed: ClockChanges) -> list[int]:
    """Every instant by looking at each minute: once as it passes, or once per wanted wall time."""
    if not parse_cron(expression).fixed:
        return [m for m, wall in shown.items() if matches(expression, wall)]
    again = [m for m, wall in shown.items() if matches(expression, wall)] if fixed.repeat == "twice" else []
    first: dict[datetime, int] = {}
    for m, wall in shown.items():
        first.setdefault(wall, m)
    found: set[int] = set()
    wall, end = min(first), max(first)
    while wall <= end:
        if matches(expression, wall) and (wall in first or fixed.gap == "run_after"):
            found.add(first[wall] if wall in first else next(m for m in shown if shown[m] > wall))
        wall += timedelta(minutes=1)
    return sorted(found.union(again))


CHOICES = [ClockChanges(gap=gap, repeat=repeat) for gap in ("run_after", "skip") for repeat in ("once", "twice")]
assert CHOICES[0] == FIXED


@pytest.mark.parametrize(
    ("expression", "fixed"),
    [(job, FIXED) for job in FIXED_JOBS + ELAPSED_JOBS]
    + [(job, rule) for job in FIXED_JOBS[:3] for rule in CHOICES[1:]],
)
@pytest.mark.parametrize(("place", "day"), PLACES)
def test_walking_minute_by_minute_gives_the_same(place: str, day: str, expression: str, fixed: ClockChanges) -> None:
    zone = ZoneInfo(place)
    low, high = (instant(f"{day}T00:00:00+00:00") + shift for shift in (-86_400, 86_400))
    cron = parse_cron(expression)
    # Margins, because the walk cannot see what lies before and after it.
    expected = [m for m in walked(expression, showing(place, low - 90_000, high + 90_000), fixed) if low <= m < high]
    forward, at = [], next_instant(cron, zone, low, fixed)
    while at < high:
        forward.append(at)
        at = next_instant(cron, zone, at + 1, fixed)
    assert forward == expected
    backward, at = [], previous_instant(cron, zone, high - 1, fixed)
    while at >= low:
        backward.append(at)
        at = previous_instant(cron, zone, at - 1, fixed)
    assert backward[::-1] == expected
    assert count_instants([cron], zone, low, high, fixed) == len(expected)
    for cut in range(low, high, 2 * 3600 + 900):
        assert count_instants([cron], zone, low, cut, fixed) == len([m for m in expected if m < cut])


@settings(deadline=None)
@given(
    st.sampled_from(PLACES),
    st.lists(st.sampled_from(FIXED_JOBS + ELAPSED_JOBS), min_size=1, max_size=3, unique=True),
    st.integers(-30, 30),
    st.integers(1, 40),
)
def test_counting_several_crons_counts_each_instant_once(
    where: tuple[str, str], expressions: list[str], start: int, hours: int
) -> None:
    place, day = where
    zone = ZoneInfo(place)
    low = instant(f"{day}T00:00:00+00:00") + start * 1800
    high = low + hours * 3600
    crons = [parse_cron(e) for e in expressions]
    found = set()
    for cron in crons:
        at = next_instant(cron, zone, low)
        while at < high:
            found.add(at)
            at = next_instant(cron, zone, at + 1)
    assert count_instants(crons, zone, low, high) == len(found)


@settings(deadline=None)
@given(
    st.sampled_from(sorted({place for place, _ in PLACES})),
    st.sampled_from(FIXED_JOBS + ELAPSED_JOBS + ["0 0 29 2 *", "0 3 L * *", "30 1 * * sun#1", "0 12 1 1 *"]),
    st.integers(instant("1971-01-01T00:00+00:00"), instant("2100-01-01T00:00+00:00")),
)
def test_next_and_previous_are_each_other_backwards(place: str, expression: str, start: int) -> None:
    zone, cron = ZoneInfo(place), parse_cron(expression)
    after = next_instant(cron, zone, start)
    assert after >= start
    assert next_instant(cron, zone, after) == after
    assert previous_instant(cron, zone, after) == after
    before = previous_instant(cron, zone, start - 1)
    assert before < start
    assert next_instant(cron, zone, before + 1) == after
    assert previous_instant(cron, zone, after - 1) == before


#: Jobs that cronsim and we class alike: it looks for a leading ``*`` only, we for any ``*`` or step in minute and hour.
SAME_CLASS = [*FIXED_JOBS, "*/15 * * * *", "0 * * * *", "0 */2 * * *", "* 2 * * *", "30 * 1 * *"]


@settings(deadline=None, max_examples=150)
@given(st.sampled_from(PLACES), st.sampled_from(SAME_CLASS), st.integers(0, 400), st.integers(0, 1439))
def test_cronsim_agrees(where: tuple[str, str], expression: str, days: int, minutes: int) -> None:
    place, day = where
    zone = ZoneInfo(place)
    start = datetime.fromisoformat(f"{day}T00:00:00+00:00") - timedelta(days=days, minutes=minutes)
    local = start.astimezone(zone)
    if local.fold:
        return  # cronsim forgets which of the two it was asked from
    oracle = CronSim(expression, local)
    at, cron = int(start.timestamp()), parse_cron(expression)
    for _ in range(30):
        at = next_instant(cron, zone, at + 1)
        ours, theirs = datetime.fromtimestamp(at, zone), next(oracle)
        if place == "Australia/Lord_Howe" and ours < theirs:
            # Where the clock goes back by half an hour, cronsim passes over the first wanted minute behind it.
            assert matches(expression, ours.replace(tzinfo=None, fold=0))
            return
        assert ours.astimezone(UTC) == theirs.astimezone(UTC)


def test_an_hour_that_midnight_lost_is_no_hour_for_a_job_with_a_step() -> None:
    """Where the clock goes from 23:59 to 01:00, cronsim runs the job at 01:00; by our rule that day has no hour 0."""
    zone = ZoneInfo("America/Santiago")
    at = next_instant(parse_cron("*/30 0 * * 7"), zone, instant("2026-09-06T00:00+00:00"))
    assert datetime.fromtimestamp(at, UTC).isoformat() == "2026-09-13T03:00:00+00:00"
    oracle = CronSim("*/30 0 * * 7", datetime(2026, 9, 5, 12, tzinfo=zone))
    assert next(oracle).astimezone(UTC).isoformat() == "2026-09-06T04:00:00+00:00"


def test_a_step_written_as_a_range_is_elapsed_time_for_us_and_fixed_for_cronsim() -> None:
    """The one difference in class: a step without a leading star. We run in both repeated hours, cronsim in one."""
    zone = ZoneInfo("America/New_York")
    expression = "0-59/30 1 * * *"
    at, ours = instant("2026-11-01T04:00+00:00"), []
    for _ in range(5):
        at = next_instant(parse_cron(expression), zone, at + 1)
        ours.append(datetime.fromtimestamp(at, UTC).strftime("%dT%H:%M"))
    oracle = CronSim(expression, datetime(2026, 11, 1, tzinfo=zone))
    theirs = [next(oracle).astimezone(UTC).strftime("%dT%H:%M") for _ in range(3)]
    assert ours == ["01T05:00", "01T05:30", "01T06:00", "01T06:30", "02T06:00"]
    assert theirs == ["01T05:00", "01T05:30", "02T06:00"]
