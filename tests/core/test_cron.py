"""Cron fields: what is read, what is refused and how, and which days match."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cronsim import CronSim
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tidewheel.core.cron import CronError, check_cron, count_minutes, parse_cron

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def minute(text: str) -> int:
    return int(datetime.fromisoformat(text + "+00:00").timestamp()) // 60


def walls(expression: str, after: str, count: int) -> list[str]:
    cron = parse_cron(expression)
    found = []
    at = minute(after)
    for _ in range(count):
        at = cron.at_or_after(at + 1)
        found.append((EPOCH + timedelta(minutes=at)).strftime("%Y-%m-%dT%H:%M"))
    return found


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("", "has 0 fields; write 5"),
        ("0 6 * *", "has 4 fields; write 5 (minute, hour, day of month, month, day of week)"),
        ("0 0 6 * * *", "has 6 fields: seconds and years are not supported"),
        ("0 0 6 * * * 2026", "has 7 fields: seconds and years are not supported"),
        ("60 * * * *", "minute 60 is not in 0-59"),
        ("0 24 * * *", "hour 24 is not in 0-23"),
        ("0 0 0 * *", "day of month 0 is not in 1-31"),
        ("0 0 32 * *", "day of month 32 is not in 1-31"),
        ("0 0 * 13 *", "month 13 is not in 1-12"),
        ("0 0 * 0 *", "month 0 is not in 1-12"),
        ("0 0 * * 8", "day of week 8 is not in 0-7"),
        ("0 99999999999999999999 * * *", "hour 99999999999999999999 is not in 0-23"),
        ("0 0 * janu *", "month 'janu' cannot be read: expected *, a number 1-12, or jan-dec"),
        ("0 0 * mon *", "month 'mon' cannot be read"),
        ("0 0 * * mo", "day of week 'mo' cannot be read: expected *, a number 0-7, or sun-sat"),
        ("-1 * * * *", "minute '-1' cannot be read"),
        ("*-5 * * * *", "minute '*-5' cannot be read"),
        ("1-2-3 * * * *", "minute '1-2-3' cannot be read"),
        ("1.5 * * * *", "minute '1.5' cannot be read"),
        ("? * * * *", "minute '?' cannot be read"),
        ("1,,2 * * * *", "minute has an empty item: a comma too many"),
        ("*/0 * * * *", "minute '*/0': a step is 1 to 60 here"),
        ("*/90 * * * *", "every: 90m"),
        ("H * * * *", "jitter"),
        ("R(0-10) * * * *", "jitter"),
        ("0 0 15W * *", "'W' (nearest weekday) is not supported"),
        ("0 0 * * L", "write 6 for every Saturday or 6L for the last one of the month"),
        ("0 0 * * fri#6", "# takes 1 to 5"),
        ("0 0 * * 1#0", "# takes 1 to 5"),
        ("0 0 * * 9#1", "day of week 9 is not in 0-7"),
        ("0 0 30 2 *", "never comes"),
        ("0 0 31 4,6,9,11 *", "never comes"),
        ("0 0 31 feb *", "never comes"),
        ("@reboot", "unknown alias; there are @hourly"),
        ("@every 5m", "unknown alias"),
        ("every day at six", "has 4 fields"),
        ("٥ * * * *", "minute '٥' cannot be read"),
        ("0 0 " + ",".join("1" for _ in range(300)) + " * *", "at most 500 are read"),
    ],
)
def test_mistakes_are_named(expression: str, says: str) -> None:
    message = check_cron(expression)
    assert message is not None
    assert says in message
    with pytest.raises(CronError):
        parse_cron(expression)


@pytest.mark.parametrize(
    ("expression", "same_as"),
    [
        ("@hourly", "0 * * * *"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@weekly", "0 0 * * 0"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 1 *"),
        ("@ANNUALLY", "0 0 1 1 *"),
        ("0 0 * * 7", "0 0 * * 0"),
        ("0 0 * * Sun", "0 0 * * 0"),
        ("0 0 * * 5-7", "0 0 * * 0,5,6"),
        ("0 0 * * fri-sun", "0 0 * * 0,5,6"),
        ("0 0 * * fri-mon", "0 0 * * 0,1,5,6"),
        ("0 0 * * 7-2", "0 0 * * 0-2"),
        ("0 0 * * 1-5/2", "0 0 * * 1,3,5"),
        ("0 0 * JAN-mar *", "0 0 * 1,2,3 *"),
        ("0 0 * nov-feb *", "0 0 * 1,2,11,12 *"),
        ("0 0 * nov-mar/2 *", "0 0 * 1,3,11 *"),
        ("0 22-2 * * *", "0 22,23,0,1,2 * * *"),
        ("0 22-4/3 * * *", "0 22,1,4 * * *"),
        ("0 9-9 * * *", "0 9 * * *"),
        ("50/5 * * * *", "50,55 * * * *"),
        ("*/20,7 * * * *", "0,7,20,40 * * * *"),
        ("0 0 ? * ?", "0 0 * * *"),
        ("  0\t6  * * *  ", "0 6 * * *"),
        ("007 06 * * *", "7 6 * * *"),
        ("0 0 * * L5", "0 0 * * friL"),
        ("0 0 * * 5L", "0 0 * * friL"),
        ("0 0 * * 7L", "0 0 * * sunL"),
    ],
)
def test_spellings_of_one_schedule(expression: str, same_as: str) -> None:
    assert check_cron(expression) is None
    left, right = parse_cron(expression), parse_cron(same_as)
    start = minute("2026-01-01T00:00")
    for probe in range(start, start + 500 * 1440, 1009):
        assert left.at_or_after(probe) == right.at_or_after(probe)
        assert left.at_or_before(probe) == right.at_or_before(probe)


def test_six_fields_are_refused_for_what_they_would_mean_elsewhere() -> None:
    """P03: the sixth field is seconds, last in one library and first in another."""
    assert check_cron("30 2 * * * 0") is not None


@pytest.mark.parametrize(
    ("expression", "after", "expected"),
    [
        # C018: both day fields restricted: either matches.
        ("0 2 29 2 0", "2026-01-01T00:00", ["2026-02-01T02:00", "2026-02-08T02:00", "2026-02-15T02:00"]),
        ("0 2 29 2 0", "2028-02-27T02:00", ["2028-02-29T02:00", "2029-02-04T02:00"]),
        ("0 0 13 * fri", "2026-02-01T00:00", ["2026-02-06T00:00", "2026-02-13T00:00", "2026-02-20T00:00"]),
        # C019: a list of weekdays on a leap day.
        ("0 * * * 1-5", "2024-02-29T11:00", ["2024-02-29T12:00", "2024-02-29T13:00"]),
        ("0 0 29 2 *", "2026-01-01T00:00", ["2028-02-29T00:00", "2032-02-29T00:00"]),
        ("0 0 29 2 *", "2096-02-29T00:00", ["2104-02-29T00:00"]),
        ("0 0 31 * *", "2026-01-31T00:00", ["2026-03-31T00:00", "2026-05-31T00:00"]),
        ("0 0 L * *", "2026-01-01T00:00", ["2026-01-31T00:00", "2026-02-28T00:00", "2026-03-31T00:00"]),
        ("0 0 L 2 *", "2026-03-01T00:00", ["2027-02-28T00:00", "2028-02-29T00:00"]),
        ("0 0 1,L * *", "2026-01-01T00:00", ["2026-01-31T00:00", "2026-02-01T00:00", "2026-02-28T00:00"]),
        ("0 0 * * fri#2", "2026-01-01T00:00", ["2026-01-09T00:00", "2026-02-13T00:00"]),
        ("0 0 * * 1#1,3#3", "2026-06-01T00:00", ["2026-06-17T00:00", "2026-07-06T00:00", "2026-07-15T00:00"]),
        ("0 0 * * friL", "2026-01-01T00:00", ["2026-01-30T00:00", "2026-02-27T00:00", "2026-03-27T00:00"]),
        ("0 0 * * mon#5", "2026-01-01T00:00", ["2026-03-30T00:00", "2026-06-29T00:00"]),
        # The rarest date there is: a fifth Monday in February, 40 years apart around 2100.
        ("0 0 * 2 mon#5", "2072-01-01T00:00", ["2072-02-29T00:00", "2112-02-29T00:00"]),
        ("59 23 31 12 *", "2037-12-31T23:59", ["2038-12-31T23:59", "2039-12-31T23:59"]),
    ],
)
def test_days_that_match(expression: str, after: str, expected: list[str]) -> None:
    assert walls(expression, after, len(expected)) == expected


@pytest.mark.parametrize(
    ("expression", "fixed"),
    [
        ("30 2 * * *", True),
        ("0,30 2-4 * * *", True),
        ("0 0-23 * * *", True),
        ("@daily", True),
        ("@hourly", False),
        ("* 2 * * *", False),
        ("30 * * * *", False),
        ("*/15 2 * * *", False),
        ("0 */2 * * *", False),
        ("10-50/20 2 * * *", False),
        ("0 2 */2 * *", True),
    ],
)
def test_a_job_is_fixed_when_minute_and_hour_hold_no_star_and_no_step(expression: str, fixed: bool) -> None:
    assert parse_cron(expression).fixed is fixed


def item(low: int, high: int, name: int | None = None) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    pair = st.tuples(number, number).map(sorted)
    return st.one_of(
        number.map(str),
        pair.map(lambda p: f"{p[0]}-{p[1]}"),
        # cronsim reads 3-3/2 as 3-59/2, so ranges with a step are of two values at least.
        st.tuples(pair.filter(lambda p: p[0] < p[1]), st.integers(1, high)).map(
            lambda p: f"{p[0][0]}-{p[0][1]}/{p[1]}"
        ),
        st.integers(1, high - low + 1).map(lambda n: f"*/{n}"),
    )


def field(low: int, high: int, *extra: str) -> st.SearchStrategy[str]:
    some = st.lists(st.one_of(item(low, high), *(st.just(e) for e in extra)), min_size=1, max_size=3)
    return st.one_of(st.just("*"), some.map(",".join))


def ambiguous_days(day: str, weekday: str) -> bool:
    """Debian cron, and so cronsim, ANDs day fields that only begin with ``*``; POSIX and we look for a bare ``*``."""
    return any(f.startswith("*") and f != "*" for f in (day, weekday))


@settings(deadline=None)
@given(
    field(0, 59),
    field(0, 23),
    field(1, 31, "L"),
    field(1, 12, "jan", "Feb", "dec"),
    field(0, 6, "7", "sun", "Fri", "mon#2", "5L"),
    st.integers(minute("1970-01-02T00:00"), minute("2100-01-01T00:00")),
)
@example("0", "0", "*", "2", "mon#5", minute("2072-03-01T00:00"))
def test_wall_times_agree_with_cronsim(m: str, h: str, dom: str, month: str, dow: str, start: int) -> None:
    expression = f"{m} {h} {dom} {month} {dow}"
    if ambiguous_days(dom, dow) or check_cron(expression) is not None:
        return
    cron = parse_cron(expression)
    oracle = CronSim(expression, EPOCH + timedelta(minutes=start))
    at = start
    for _ in range(4):
        at = cron.at_or_after(at + 1)
        assert EPOCH + timedelta(minutes=at) == next(oracle)
    back = CronSim(expression, EPOCH + timedelta(minutes=start), reverse=True)
    at = start
    for _ in range(4):
        at = cron.at_or_before(at - 1)
        assert EPOCH + timedelta(minutes=at) == next(back)


def test_a_day_field_that_only_begins_with_a_star_is_restricted() -> None:
    """Where cronsim (Debian) wants an odd day that is also a Monday, we run on either, as POSIX says."""
    assert walls("0 0 */2 * mon", "2026-06-01T00:00", 4) == [
        "2026-06-03T00:00",
        "2026-06-05T00:00",
        "2026-06-07T00:00",
        "2026-06-08T00:00",
    ]


@settings(deadline=None)
@given(
    st.lists(
        st.sampled_from(["* * * * *", "*/7 1,5 * * *", "0 0 * * mon", "0 12 29 2 *", "30 */3 1-7 * fri"]),
        min_size=1,
        max_size=3,
        unique=True,
    ),
    st.integers(minute("2023-12-30T00:00"), minute("2024-03-02T00:00")),
    st.integers(0, 6000),
)
def test_counting_agrees_with_walking(expressions: list[str], low: int, length: int) -> None:
    crons = [parse_cron(e) for e in expressions]
    walked = {m for cron in crons for m in walk(expressions[crons.index(cron)], low, low + length)}
    assert count_minutes(crons, low, low + length) == len(walked)


def walk(expression: str, low: int, high: int) -> list[int]:
    cron = parse_cron(expression)
    found = []
    at = cron.at_or_after(low)
    while at < high:
        found.append(at)
        at = cron.at_or_after(at + 1)
    return found
