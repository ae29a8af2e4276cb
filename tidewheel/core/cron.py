"""Cron expressions as sets of wall times: parsing, the next and previous match, and counting. No zones here.

Five fields (minute, hour, day of month, month, day of week) or an ``@alias``. A field is a list of ``*``, ``n``,
``a-b``, each with an optional ``/step``; ``n/step`` runs to the end of the field, and ``a-b`` with ``a > b`` goes
round (``22-2``, ``fri-mon``). Months and weekdays may be names; Sunday is 0 and 7. ``L`` is the last day of the
month, ``fri#2`` the second Friday, ``friL`` (or ``5L``, ``L5``) the last one. When both day fields are restricted,
that is other than ``*`` or ``?``, either matches (POSIX).

A wall time is an integer: minutes since 1970-01-01 00:00 on the clock on the wall. ``core.calendar`` gives it an
instant.

We parse the fields ourselves because croniter 7.0.0 reads ``9-9`` as the whole field, ``22-4/3`` as ``22,2``, and
``R`` as a random value, different at each look; see docs/decisions.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from datetime import date
from functools import lru_cache

import msgspec

DAY_MINUTES = 1440
#: Longest expression we look at; nobody writes one by hand, and a bound keeps parsing cheap.
LENGTH_MAX = 500
#: How far a match is searched: the rarest date of all (a fifth weekday in February, around 2100) is 40 years away.
SEARCH_MONTHS = 50 * 12

_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
#: Shared, so that a thousand minutely schedules do not hold a thousand copies of the same numbers.
_MINUTES = tuple(range(DAY_MINUTES))
#: Days 1, 8, 15, 22, 29 as bits.
_WEEKS = 1 << 1 | 1 << 8 | 1 << 15 | 1 << 22 | 1 << 29
_LAST = -1

ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


class CronError(ValueError):
    """An expression that cannot be a schedule; the message says which part, why and what to write."""


class _Field(msgspec.Struct, frozen=True):
    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        return self.high - self.low + 1


_MINUTE = _Field("minute", 0, 59)
_HOUR = _Field("hour", 0, 23)
_DAY = _Field("day of month", 1, 31)
_MONTH = _Field("month", 1, 12, ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"))
_WEEKDAY = _Field("day of week", 0, 6, ("sun", "mon", "tue", "wed", "thu", "fri", "sat"))

_ITEM = re.compile(r"(\*|[0-9a-z]+)(?:-([0-9a-z]+))?(?:/([0-9]{1,4}))?", re.ASCII)
_NTH = re.compile(r"([0-9a-z]+)#([0-9]+)", re.ASCII)
_LAST_WEEKDAY = re.compile(r"(?:l([0-7]|[a-z]{3})|([0-7]|[a-z]{3})l)", re.ASCII)
_HASHED = re.compile(r"[hr](?:[(/].*)?", re.ASCII)


class Cron(msgspec.Struct, frozen=True):
    """A parsed expression."""

    text: str
    #: Minutes of the day, ascending.
    times: tuple[int, ...]
    months: frozenset[int]
    #: Bit ``d`` stands for day ``d`` of the month.
    days: int
    last_day: bool
    #: (weekday with Sunday 0, n-th of the month; 0: every one, -1: the last)
    weekdays: tuple[tuple[int, int], ...]
    #: Both day fields are restricted: either matches.
    either: bool
    #: Minute and hour are both fixed (no ``*``, no step): one run per wanted wall time, whatever the clock does.
    fixed: bool

    def days_of(self, year: int, month: int) -> int:
        """The matching days of a month as bits."""
        if month not in self.months:
            return 0
        first = date(year, month, 1)
        length = _month_length(year, month)
        monday_based = first.weekday()
        every = (2 << length) - 2
        days = self.days & every
        if self.last_day:
            days |= 1 << length
        matching = 0
        for weekday, nth in self.weekdays:
            start = (weekday - 1 - monday_based) % 7
            if nth == 0:
                matching |= _WEEKS << start
            elif nth == _LAST:
                matching |= 1 << (start + 1 + (length - start - 1) // 7 * 7)
            else:
                matching |= 1 << (start + 1 + 7 * (nth - 1))
        matching &= every
        return days | matching if self.either else days & matching

    def at_or_after(self, minute: int) -> int:
        """The first matching wall time not before ``minute``."""
        day, time = divmod(minute, DAY_MINUTES)
        found = self._day_from(day)
        if found == day:
            index = bisect_left(self.times, time)
            if index < len(self.times):
                return day * DAY_MINUTES + self.times[index]
            found = self._day_from(day + 1)
        return found * DAY_MINUTES + self.times[0]

    def at_or_before(self, minute: int) -> int:
        """The last matching wall time not after ``minute``."""
        day, time = divmod(minute, DAY_MINUTES)
        found = self._day_until(day)
        if found == day:
            index = bisect_right(self.times, time)
            if index:
                return day * DAY_MINUTES + self.times[index - 1]
            found = self._day_until(day - 1)
        return found * DAY_MINUTES + self.times[-1]

    def _day_from(self, day: int) -> int:
        start = date.fromordinal(day + _EPOCH_ORDINAL)
        year, month = start.year, start.month
        mask = self.days_of(year, month) >> start.day
        if mask:
            return day + _lowest(mask)
        for _ in range(SEARCH_MONTHS):
            year, month = (year, month + 1) if month < 12 else (year + 1, 1)
            mask = self.days_of(year, month)
            if mask:
                return date(year, month, _lowest(mask)).toordinal() - _EPOCH_ORDINAL
        raise CronError(_never(self.text))

    def _day_until(self, day: int) -> int:
        start = date.fromordinal(day + _EPOCH_ORDINAL)
        year, month = start.year, start.month
        mask = self.days_of(year, month) & ((2 << start.day) - 1)
        for _ in range(SEARCH_MONTHS):
            if mask:
                return date(year, month, mask.bit_length() - 1).toordinal() - _EPOCH_ORDINAL
            year, month = (year, month - 1) if month > 1 else (year - 1, 12)
            mask = self.days_of(year, month)
        raise CronError(_never(self.text))


def check_cron(expression: str) -> str | None:
    """Why ``expression`` is not a schedule, or None if it is one."""
    try:
        parse_cron(expression)
    except CronError as error:
        return str(error)
    return None


@lru_cache(maxsize=4096)
def parse_cron(expression: str) -> Cron:
    """Parse, or raise ``CronError``."""
    text = expression.strip().lower()
    if len(text) > LENGTH_MAX:
        raise CronError(f"the cron expression is {len(text)} characters long; at most {LENGTH_MAX} are read")
    if text.startswith("@"):
        if text not in ALIASES:
            raise CronError(f"'{expression}': unknown alias; there are {', '.join(ALIASES)}")
        text = ALIASES[text]
    fields = text.split()
    if len(fields) != 5:
        raise CronError(_wrong_count(expression, len(fields)))
    try:
        minutes, _ = _parse_field(_MINUTE, fields[0])
        hours, _ = _parse_field(_HOUR, fields[1])
        days, special_days = _parse_field(_DAY, "*" if fields[2] == "?" else fields[2])
        months, _ = _parse_field(_MONTH, fields[3])
        weekdays, special_weekdays = _parse_field(_WEEKDAY, "*" if fields[4] == "?" else fields[4])
    except CronError as error:
        raise CronError(f"'{expression}': {error}") from None
    wild = [field in ("*", "?", "*/1") for field in (fields[2], fields[4])]
    cron = Cron(
        text=expression,
        times=tuple(_MINUTES[hour * 60 + minute] for hour in sorted(hours) for minute in sorted(minutes)),
        months=frozenset(months),
        days=sum(1 << day for day in days),
        last_day=bool(special_days),
        weekdays=tuple(sorted({(weekday, 0) for weekday in weekdays} | special_weekdays)),
        either=not any(wild),
        fixed=not set("*/") & set(fields[0] + fields[1]),
    )
    # 28 years hold every kind of year: leap or not, beginning on each weekday.
    if not any(cron.days_of(year, month) for year in range(2000, 2028) for month in cron.months):
        raise CronError(_never(expression))
    return cron


def count_minutes(crons: Sequence[Cron], low: int, high: int) -> int:
    """How many different wall times in ``[low, high)`` match at least one of ``crons``."""
    if not crons or low >= high:
        return 0
    first, last = low // DAY_MINUTES, (high - 1) // DAY_MINUTES
    if first == last:
        return len(_times(_matching(crons, first), low % DAY_MINUTES, (high - 1) % DAY_MINUTES))
    return (
        len(_times(_matching(crons, first), low % DAY_MINUTES, DAY_MINUTES))
        + _count_whole_days(crons, first + 1, last)
        + len(_times(_matching(crons, last), 0, (high - 1) % DAY_MINUTES))
    )


def _count_whole_days(crons: Sequence[Cron], first: int, end: int) -> int:
    """As ``count_minutes`` for the days in ``[first, end)``, a month at a time."""
    total = 0
    #: Wall times of a day, by which of the crons match it.
    sizes: dict[tuple[int, ...], int] = {}
    day = first
    while day < end:
        start = date.fromordinal(day + _EPOCH_ORDINAL)
        length = _month_length(start.year, start.month)
        stop = min(end, day + length - start.day + 1)
        window = ((1 << (stop - day)) - 1) << start.day
        masks = [cron.days_of(start.year, start.month) & window for cron in crons]
        if len(crons) == 1:
            total += masks[0].bit_count() * len(crons[0].times)
        else:
            for number in range(start.day, start.day + stop - day):
                which = tuple(mask >> number & 1 for mask in masks)
                if which not in sizes:
                    matching = [cron for cron, on in zip(crons, which, strict=True) if on]
                    sizes[which] = len(_times(matching, 0, DAY_MINUTES))
                total += sizes[which]
        day = stop
    return total


def _matching(crons: Sequence[Cron], day: int) -> tuple[Cron, ...]:
    on = date.fromordinal(day + _EPOCH_ORDINAL)
    return tuple(cron for cron in crons if cron.days_of(on.year, on.month) >> on.day & 1)


def _times(crons: Sequence[Cron], low: int, high: int) -> set[int]:
    return {time for cron in crons for time in cron.times if low <= time <= high}


def _parse_field(field: _Field, text: str) -> tuple[set[int], set[tuple[int, int]]]:
    """The plain values of a field, and its special ones: ``L`` of a month as (0, -1), ``fri#2`` as (5, 2)."""
    values: set[int] = set()
    special: set[tuple[int, int]] = set()
    for item in text.split(","):
        if field is _DAY and item == "l":
            special.add((0, _LAST))
        elif field is _WEEKDAY and (match := _NTH.fullmatch(item)):
            nth = int(match[2])
            if not 1 <= nth <= 5:
                raise CronError(f"day of week '{item}': a month has a first to a fifth weekday, so # takes 1 to 5")
            special.add((_value(field, match[1]) % 7, nth))
        elif field is _WEEKDAY and (match := _LAST_WEEKDAY.fullmatch(item)):
            special.add((_value(field, match[1] or match[2]) % 7, _LAST))
        else:
            values.update(_parse_item(field, item))
    return values, special


def _parse_item(field: _Field, item: str) -> list[int]:
    match = _ITEM.fullmatch(item)
    if match is None or (match[1] == "*" and match[2] is not None):
        raise CronError(_unreadable(field, item))
    if match[1] == "*":
        low, high = field.low, field.high
    else:
        low = _value(field, match[1])
        high = low if match[2] is None and match[3] is None else field.high
        if match[2] is not None:
            high = _value(field, match[2])
    step = int(match[3] or 1)
    if not 1 <= step <= field.size:
        raise CronError(
            f"{field.name} '{item}': a step is 1 to {field.size} here; a cron field starts over in each larger unit, "
            f"so write longer intervals as 'every: 90m'"
        )
    if field is _WEEKDAY and low == 7 and high != 7:
        low = 0
    if low > high:
        high += field.size
    return [(value - field.low) % field.size + field.low for value in range(low, high + 1, step)]


def _value(field: _Field, text: str) -> int:
    if text in field.names:
        return field.names.index(text) + field.low
    if not text.isdecimal():
        raise CronError(_unreadable(field, text))
    high = 7 if field is _WEEKDAY else field.high
    value = int(text) if len(text) <= 4 else high + 1
    if not field.low <= value <= high:
        raise CronError(f"{field.name} {text} is not in {field.low}-{high}")
    return value


def _unreadable(field: _Field, item: str) -> str:
    start = f"{field.name} '{item}' cannot be read"
    if not item:
        return f"{field.name} has an empty item: a comma too many"
    if _HASHED.fullmatch(item):
        return f"{start}: hashed and random values are not part of cron; spread starts with the schedule's 'jitter'"
    if field is _DAY and "w" in item:
        return f"{start}: 'W' (nearest weekday) is not supported"
    if field is _WEEKDAY and item == "l":
        return f"{start}: 'L' alone is ambiguous here; write 6 for every Saturday or 6L for the last one of the month"
    names = f", or {field.names[0]}-{field.names[-1]}" if field.names else ""
    high = 7 if field is _WEEKDAY else field.high
    return f"{start}: expected *, a number {field.low}-{high}{names}, a range a-b, a step /n, or a list of these"


def _wrong_count(expression: str, count: int) -> str:
    order = "minute, hour, day of month, month, day of week"
    if count in (6, 7):
        return f"'{expression}' has {count} fields: seconds and years are not supported; write 5 ({order})"
    return f"'{expression}' has {count} field{'' if count == 1 else 's'}; write 5 ({order}) or an alias such as @daily"


def _never(expression: str) -> str:
    return f"'{expression}' never comes: no year has such a date"


def _lowest(mask: int) -> int:
    return (mask & -mask).bit_length() - 1


def _month_length(year: int, month: int) -> int:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in (4, 6, 9, 11) else 31
