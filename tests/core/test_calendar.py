"""Slots of schedules and the catch-up policy, with the field reports on clocks and missed ticks as exact instants."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from time import perf_counter

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidewheel.core.calendar import (
    RUNS_MAX,
    Owed,
    count_slots,
    due,
    fires_at,
    latest_slot,
    next_slot,
    plan,
    previous_slot,
    slots_between,
)
from tidewheel.core.workflow import Catchup, Schedule

MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def utc(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%dT%H:%MZ")


def cron(*expressions: str, tz: str = "UTC", catchup: Catchup = "none", **rest: int) -> Schedule:
    return Schedule(cron=expressions, timezone=tz, catchup=catchup, **rest)


def upcoming(schedule: Schedule, after: str, count: int) -> list[str]:
    return [utc(slot) for slot, _ in plan(schedule, "some_dag", ms(after), count)]


# --- clock changes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schedule", "after", "expected"),
    [
        pytest.param(
            cron("30 2 * * *", tz="America/New_York"),
            "2026-03-07T12:00:00-05:00",
            ["2026-03-08T07:00Z", "2026-03-09T06:30Z", "2026-03-10T06:30Z"],
            id="C002",
        ),
        pytest.param(
            cron("30 1 * * *", tz="America/New_York"),
            "2026-10-31T12:00:00-04:00",
            ["2026-11-01T05:30Z", "2026-11-02T06:30Z"],
            id="C006-P01",
        ),
        pytest.param(
            cron("*/15 * * * *", tz="Europe/London"),
            "2026-10-25T00:30:00+01:00",
            [
                "2026-10-24T23:45Z",
                "2026-10-25T00:00Z",
                "2026-10-25T00:15Z",
                "2026-10-25T00:30Z",
                "2026-10-25T00:45Z",
                "2026-10-25T01:00Z",
                "2026-10-25T01:15Z",
                "2026-10-25T01:30Z",
            ],
            id="C009",
        ),
        pytest.param(
            cron("0 9 * * *", tz="America/Toronto"),
            "2026-03-06T12:00:00-05:00",
            ["2026-03-07T14:00Z", *(f"2026-03-{day:02}T13:00Z" for day in range(8, 15))],
            id="C015-daily",
        ),
        pytest.param(
            Schedule(every_ms=2 * HOUR, timezone="America/Toronto"),
            "2026-03-08T05:00:00Z",
            ["2026-03-08T06:00Z", "2026-03-08T08:00Z", "2026-03-08T10:00Z"],
            id="C015-every",
        ),
        pytest.param(cron("0 2 29 2 0"), "2026-01-01T00:00Z", ["2026-02-01T02:00Z", "2026-02-08T02:00Z"], id="C018"),
        pytest.param(cron("0 * * * 1-5"), "2024-02-29T11:00Z", ["2024-02-29T12:00Z"], id="C019"),
        pytest.param(
            cron("0 0 * * *", tz="America/Santiago"),
            "2026-09-05T12:00Z",
            ["2026-09-06T04:00Z", "2026-09-07T03:00Z"],
            id="midnight-missing",
        ),
        pytest.param(
            cron("0 0 * * *", tz="Asia/Kathmandu"),
            "2026-06-01T00:00Z",
            ["2026-06-01T18:15Z", "2026-06-02T18:15Z"],
            id="offset-of-45-minutes",
        ),
        pytest.param(
            cron("15 2 * * *", tz="Australia/Lord_Howe"),
            "2026-10-02T20:00Z",
            ["2026-10-03T15:30Z", "2026-10-04T15:15Z"],
            id="gap-of-30-minutes",
        ),
        pytest.param(
            cron("45 1 * * *", tz="Australia/Lord_Howe"),
            "2026-04-03T20:00Z",
            ["2026-04-04T14:45Z", "2026-04-05T15:15Z"],
            id="repeat-of-30-minutes",
        ),
        pytest.param(
            cron("0 12 29 2 *", tz="Europe/Zurich"),
            "2038-01-20T00:00Z",
            ["2040-02-29T11:00Z", "2044-02-29T11:00Z"],
            id="leap-days-after-2038",
        ),
        pytest.param(
            cron("0 6 * * *", "30 6 * * mon", "0 6 1 * *"),
            "2026-05-31T12:00Z",
            ["2026-06-01T06:00Z", "2026-06-01T06:30Z", "2026-06-02T06:00Z"],
            id="several-crons-one-set",
        ),
    ],
)
def test_slots(schedule: Schedule, after: str, expected: list[str]) -> None:
    assert upcoming(schedule, after, len(expected)) == expected


def test_c021_every_hour_of_the_first_stays_on_the_first() -> None:
    schedule = cron("30 * 1 * *", tz="Europe/Berlin")
    slots = list(slots_between(schedule, ms("2026-03-30T00:00:00+02:00"), ms("2026-04-30T00:00:00+02:00")))
    assert [utc(s) for s in (slots[0], slots[-1])] == ["2026-03-31T22:30Z", "2026-04-01T21:30Z"]
    assert len(slots) == 24


def test_c011_next_is_always_later_in_the_repeated_hour() -> None:
    rng = random.Random(11)
    repeated = {
        "America/New_York": "2026-11-01T05:00Z",
        "Europe/London": "2026-10-25T00:00Z",
        "Australia/Sydney": "2026-04-04T15:00Z",
        "Australia/Lord_Howe": "2026-04-04T14:30Z",
        "America/Santiago": "2026-04-05T02:00Z",
    }
    expressions = ["30 1 * * *", "*/10 * * * *", "0 */2 * * *", "59 23 * * *", "0-59 1,2 * * *", "15 * * * sun"]
    for _ in range(10_000):
        zone = rng.choice(list(repeated))
        at = ms(repeated[zone]) + rng.randrange(2 * HOUR)
        slot = next_slot(cron(rng.choice(expressions), tz=zone), at)
        assert at < slot <= at + 8 * DAY


def test_c014_a_fixed_job_runs_once_also_when_asked_again_between_the_two_showings() -> None:
    schedule = cron("59 1 * * *", tz="America/New_York", misfire_grace_ms=HOUR)
    first = ms("2026-11-01T05:59Z")
    ran: list[int] = []
    cursor = ms("2026-10-31T05:59Z")
    for now in range(ms("2026-11-01T04:00Z"), ms("2026-11-01T12:00Z"), MINUTE):
        owed = due(schedule, "d", cursor, now, resumed=False)
        ran.extend(owed.run)
        cursor = max(owed.run, default=cursor)
        assert owed.skipped is None
    assert ran == [first]
    # A scheduler restarted between the two 01:59 knows the cursor alone, also if it is resumed then.
    for resumed in (True, False):
        assert due(schedule, "d", first, ms("2026-11-01T06:59:30Z"), resumed=resumed) == Owed()


def test_c022_one_run_a_day_whenever_the_scheduler_comes_back() -> None:
    schedule = cron("35 5 * * *", tz="Europe/Berlin", misfire_grace_ms=2 * HOUR)
    slot = ms("2026-01-15T04:35Z")
    assert due(schedule, "d", slot - DAY, slot, resumed=False).run == (slot,)
    assert due(schedule, "d", slot, slot + 65 * MINUTE, resumed=False) == Owed()


def test_every_counts_from_the_epoch_in_utc() -> None:
    assert upcoming(Schedule(every_ms=DAY, timezone="Asia/Tokyo"), "2026-06-01T01:00Z", 1) == ["2026-06-02T00:00Z"]
    assert upcoming(Schedule(every_ms=7 * DAY), "2026-06-01T00:00Z", 1) == ["2026-06-04T00:00Z"]
    seven = Schedule(every_ms=7 * MINUTE)
    assert next_slot(seven, 0) == 7 * MINUTE
    assert next_slot(seven, 7 * MINUTE - 1) == 7 * MINUTE
    assert next_slot(seven, 7 * MINUTE) == 14 * MINUTE
    assert previous_slot(seven, 14 * MINUTE) == 7 * MINUTE
    assert previous_slot(seven, 14 * MINUTE + 1) == 14 * MINUTE
    assert count_slots(seven, 7 * MINUTE, 21 * MINUTE) == 2


def test_strictly_after_and_strictly_before_to_the_millisecond() -> None:
    schedule = cron("0 6 * * *")
    slot = ms("2026-06-01T06:00Z")
    assert next_slot(schedule, slot - 1) == slot
    assert next_slot(schedule, slot) == slot + DAY
    assert previous_slot(schedule, slot + 1) == slot
    assert previous_slot(schedule, slot) == slot - DAY
    assert latest_slot(schedule, slot - 1, slot) == slot
    assert latest_slot(schedule, slot, slot + DAY - 1) is None


def test_c030_intervals_of_one_schedule_touch() -> None:
    schedule = cron("*/5 * * * *", tz="America/New_York")
    slot = ms("2026-11-01T05:00Z")
    for _ in range(40):
        following = next_slot(schedule, slot)
        assert previous_slot(schedule, following) == slot
        assert following - slot == 5 * MINUTE
        slot = following


def test_the_calendar_has_an_end_and_says_so() -> None:
    assert next_slot(cron("0 6 * * *"), ms("9900-01-01T00:00Z")) is None
    assert previous_slot(cron("0 6 * * *"), ms("1900-01-01T00:00Z")) is None
    assert next_slot(cron("0 6 * * *"), ms("9899-12-30T07:00Z")) == ms("9899-12-31T06:00Z")


# --- bounds ------------------------------------------------------------------------------------------------------


def test_slots_lie_between_start_and_end_both_included() -> None:
    daily = cron("0 6 * * *", start_ms=ms("2026-03-01T06:00Z"), end_ms=ms("2026-03-03T06:00Z"))
    assert upcoming(daily, "2020-01-01T00:00Z", 10) == ["2026-03-01T06:00Z", "2026-03-02T06:00Z", "2026-03-03T06:00Z"]
    assert upcoming(daily, "2026-03-03T06:00Z", 10) == []
    assert count_slots(daily, 0, ms("2030-01-01T00:00Z")) == 3
    assert latest_slot(daily, 0, ms("2026-02-28T23:00Z")) is None
    assert latest_slot(daily, 0, ms("2030-01-01T00:00Z")) == ms("2026-03-03T06:00Z")
    # The first data interval has a beginning like any other.
    assert previous_slot(daily, ms("2026-03-01T06:00Z")) == ms("2026-02-28T06:00Z")


@given(st.integers(0, 60), st.integers(0, 60), st.integers(-5, 65), st.integers(0, 70))
def test_bounds_cut_the_same_slots_out_of_every_question(start: int, length: int, after: int, span: int) -> None:
    free = Schedule(every_ms=7 * MINUTE)
    bound = Schedule(every_ms=7 * MINUTE, start_ms=start * MINUTE, end_ms=(start + length) * MINUTE)
    low, high = after * MINUTE, (after + span) * MINUTE
    expected = [slot for slot in slots_between(free, low, high) if start * MINUTE <= slot <= (start + length) * MINUTE]
    assert list(slots_between(bound, low, high)) == expected
    assert count_slots(bound, low, high) == len(expected)
    assert latest_slot(bound, low, high) == (expected[-1] if expected else None)
    owed = due(msgspec.structs.replace(bound, catchup="all"), "d", low, high, resumed=True)
    assert list(owed.run) == expected


# --- what clock changes do to a fixed wall time, by choice ---------------------------------------------------------


def test_a_wall_time_in_the_gap_may_be_skipped() -> None:
    schedule = Schedule(cron=("30 2 * * *",), timezone="America/New_York", dst_gap="skip")
    assert upcoming(schedule, "2026-03-07T12:00:00-05:00", 2) == ["2026-03-09T06:30Z", "2026-03-10T06:30Z"]


def test_a_wall_time_shown_twice_may_run_twice() -> None:
    schedule = Schedule(cron=("30 1 * * *",), timezone="America/New_York", dst_repeat="twice")
    twice = ["2026-11-01T05:30Z", "2026-11-01T06:30Z", "2026-11-02T06:30Z"]
    assert upcoming(schedule, "2026-10-31T12:00:00-04:00", 3) == twice


# --- jitter ------------------------------------------------------------------------------------------------------


def test_jitter_is_fixed_per_dag_and_below_its_bound() -> None:
    schedule = cron("0 6 * * *", jitter_ms=5 * MINUTE)
    slot = ms("2026-06-01T06:00Z")
    delays = {fires_at(schedule, f"dag_{n}", slot) - slot for n in range(500)}
    assert min(delays) >= 0
    assert max(delays) < 5 * MINUTE
    assert len(delays) > 450
    # A literal, so that a changed hash, which would move every start after an upgrade, is seen.
    assert fires_at(schedule, "daily_orders", slot) - slot == 160_491
    assert fires_at(schedule, "daily_orders", slot + DAY) - slot == DAY + 160_491
    assert fires_at(cron("0 6 * * *"), "daily_orders", slot) == slot


def test_a_slot_is_not_owed_before_it_fires() -> None:
    schedule = cron("0 6 * * *", jitter_ms=5 * MINUTE, misfire_grace_ms=0)
    slot = ms("2026-06-01T06:00Z")
    fires = fires_at(schedule, "d", slot)
    assert due(schedule, "d", slot - DAY, fires - 1, resumed=False) == Owed()
    assert due(schedule, "d", slot - DAY, fires, resumed=False).run == (slot,)
    assert plan(schedule, "d", fires - 1, 1) == [(slot, fires)]
    assert plan(schedule, "d", fires, 1) == [(slot + DAY, fires + DAY)]


def test_a_window_shorter_than_the_jitter_still_runs_what_is_on_time() -> None:
    schedule = cron("0 6 * * *", catchup="all", catchup_window_ms=1000, jitter_ms=HOUR)
    slot = ms("2026-06-01T06:00Z")
    fires = fires_at(schedule, "d", slot)
    assert fires - slot > 1000
    assert due(schedule, "d", slot - DAY, fires + 1000, resumed=False).run == (slot,)
    assert due(schedule, "d", slot - DAY, fires + 1001, resumed=False).run == ()


# --- catch-up ----------------------------------------------------------------------------------------------------


def test_c025_catchup_off_runs_nothing_on_resume() -> None:
    start = ms("2026-06-01T10:00Z")
    owed = due(cron("* * * * *"), "d", start, start + 20 * MINUTE + 10, resumed=True)
    assert owed.run == ()
    assert owed.skipped == (start + MINUTE, start + 20 * MINUTE, 20)
    assert owed.reason == "catchup is none: slots that passed are not run"


@pytest.mark.parametrize(("catchup", "runs"), [("none", 0), ("latest", 1), ("all", 6)])
def test_c028_a_paused_hour_of_a_ten_minute_schedule(catchup: Catchup, runs: int) -> None:
    start = ms("2026-06-01T10:00Z")
    owed = due(cron("*/10 * * * *", catchup=catchup), "d", start, start + HOUR, resumed=True)
    slots = tuple(start + n * 10 * MINUTE for n in range(1, 7))
    assert owed.run == slots[6 - runs :]
    skipped = slots[: 6 - runs]
    assert owed.skipped == ((skipped[0], skipped[-1], len(skipped)) if skipped else None)
    assert not owed.more


def test_a_scheduler_that_was_down_owes_the_newest_slot_under_none() -> None:
    schedule = cron("*/10 * * * *")
    start = ms("2026-06-01T10:00Z")
    owed = due(schedule, "d", start, start + HOUR + 3 * MINUTE, resumed=False)
    assert owed.run == (start + HOUR,)
    assert owed.skipped == (start + 10 * MINUTE, start + 50 * MINUTE, 5)


def test_under_none_a_slot_is_owed_up_to_misfire_grace() -> None:
    schedule = cron("0 6 * * *", misfire_grace_ms=HOUR)
    slot = ms("2026-06-01T06:00Z")
    assert due(schedule, "d", slot - DAY, slot + HOUR, resumed=False) == Owed(run=(slot,))
    late = due(schedule, "d", slot - DAY, slot + HOUR + 1, resumed=False)
    assert late.run == ()
    assert late.skipped == (slot, slot, 1)
    assert "misfire_grace" in late.reason


def test_latest_and_all_are_owed_however_late_but_for_the_window() -> None:
    start = ms("2026-06-01T06:00Z")
    now = start + 10 * DAY + HOUR
    slots = tuple(start + n * DAY for n in range(1, 11))
    for resumed in (True, False):
        latest = due(cron("0 6 * * *", catchup="latest"), "d", start, now, resumed=resumed)
        assert latest == Owed(
            run=slots[-1:],
            skipped=(slots[0], slots[-2], 9),
            reason="catchup is latest: only the newest slot is run",
        )
        assert due(cron("0 6 * * *", catchup="all"), "d", start, now, resumed=resumed) == Owed(run=slots)
        windowed = due(cron("0 6 * * *", catchup="all", catchup_window_ms=2 * DAY), "d", start, now, resumed=resumed)
        assert windowed.run == slots[-2:]
        assert windowed.skipped == (slots[0], slots[-3], 8)
        assert "catchup_window" in windowed.reason
        short = cron("0 6 * * *", catchup="latest", catchup_window_ms=HOUR - 1)
        dropped = due(short, "d", start, now, resumed=resumed)
        assert dropped.run == ()
        assert dropped.skipped == (slots[0], slots[-1], 10)
        assert "catchup_window" in dropped.reason


def test_a_backlog_of_ten_years_of_minutes_is_handed_out_in_steps_and_stays_cheap() -> None:
    start, now = ms("2016-01-01T00:00Z"), ms("2026-01-01T00:00Z")
    everything = cron("* * * * *", tz="America/New_York", catchup="all")
    began = perf_counter()
    first = due(everything, "d", start, now, resumed=True)
    second = due(everything, "d", first.run[-1], now, resumed=False)
    assert count_slots(everything, start, now) == (now - start) // MINUTE
    none = due(cron("* * * * *", tz="America/New_York"), "d", start, now, resumed=True)
    assert perf_counter() - began < 2  # a walk of five million slots takes half a minute
    assert len(first.run) == len(second.run) == RUNS_MAX
    assert first.more
    assert second.run[0] == first.run[-1] + MINUTE
    assert none.skipped == (start + MINUTE, now, (now - start) // MINUTE)


@settings(deadline=None)
@given(
    st.sampled_from(
        [("*/10 * * * *",), ("30 1 * * *",), ("0 */2 * * *", "30 1 * * *"), ("0,30 0-4 * * *",), ("15 2 * * sun",)]
    ),
    st.sampled_from(["UTC", "America/New_York", "Australia/Lord_Howe", "America/Santiago"]),
    st.sampled_from(["none", "latest", "all"]),
    st.sampled_from([None, 0, HOUR, DAY]),
    st.sampled_from([0, 5 * MINUTE]),
    st.sampled_from(["2026-03-08T00:00Z", "2026-11-01T00:00Z", "2026-04-05T00:00Z", "2026-09-06T00:00Z"]),
    st.lists(st.tuples(st.integers(1, 40 * HOUR), st.booleans()), min_size=1, max_size=6),
)
def test_every_slot_is_run_or_skipped_exactly_once_and_in_order(
    expressions: tuple[str, ...],
    zone: str,
    catchup: Catchup,
    window: int | None,
    jitter: int,
    day: str,
    steps: list[tuple[int, bool]],
) -> None:
    """Invariant 4, whatever the waits between two looks at the schedule and the pauses among them."""
    schedule = Schedule(cron=expressions, timezone=zone, catchup=catchup, catchup_window_ms=window, jitter_ms=jitter)
    start = cursor = now = ms(day) - DAY
    covered: list[int] = []
    for wait, resumed in steps:
        now += wait
        owed = due(schedule, "d", cursor, now, resumed=resumed)
        if owed.skipped is not None:
            first, last, count = owed.skipped
            skipped = list(slots_between(schedule, cursor, last))
            assert (first, last, count) == (skipped[0], skipped[-1], len(skipped))
            assert owed.reason
            covered += skipped
        covered += owed.run
        assert len(owed.run) <= RUNS_MAX
        cursor = covered[-1] if covered else cursor
        assert owed.more == (len(list(slots_between(schedule, cursor, now - jitter_of(schedule)))) > 0)
    assert covered == list(slots_between(schedule, start, cursor))
    assert count_slots(schedule, start, cursor) == len(covered)


def jitter_of(schedule: Schedule) -> int:
    return fires_at(schedule, "d", 0)


def test_next_takes_less_than_a_millisecond() -> None:
    at = ms("2026-10-31T00:00Z")
    for schedule in (
        cron("* * * * *", tz="America/New_York"),
        cron("30 2 * * *", tz="Australia/Lord_Howe"),
        cron("0 0 29 2 *", tz="Europe/Zurich"),
        cron("0 0 * 2 mon#5", tz="America/Santiago"),
        cron("0,15,30,45 0-23 * * *", "0 3 1 1 *", tz="Europe/London"),
    ):
        next_slot(schedule, at)  # the first call parses and loads the zone
        rounds = []
        for _ in range(5):
            began = perf_counter()
            for n in range(20):
                next_slot(schedule, at + n * HOUR)
            rounds.append((perf_counter() - began) / 20)
        assert min(rounds) < 0.001
