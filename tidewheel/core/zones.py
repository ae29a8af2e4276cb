"""Time zones: the offset at an instant, and the instants where it changes. Over zoneinfo; seconds since the epoch.

zoneinfo does not show its transitions, so they are found by looking at offsets: at most one change lies within
``APART_S``.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from difflib import get_close_matches
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

#: Two changes of one zone lie further apart than this: summer time suspended for Ramadan leaves weeks between them.
APART_S = 2 * 86_400
#: The calendar begins and ends here: well inside what ``datetime`` can hold, in every zone.
START_S = -2_208_988_800  # 1900-01-01T00:00Z
END_S = 250_246_627_200  # 9900-01-01T00:00Z


class ZoneError(ValueError):
    """The name is not an IANA time zone; the message says what to write."""


def check_zone(name: str) -> str | None:
    """Why ``name`` is not a time zone, or None if it is one."""
    try:
        zone_of(name)
    except ZoneError as error:
        return str(error)
    return None


@lru_cache(maxsize=1024)
def zone_of(name: str) -> tzinfo:
    """The zone called ``name`` (IANA). Raises ``ZoneError``."""
    if name == "UTC":
        return UTC
    # "localtime" is the server's zone, "right/…" counts leap seconds, "Factory" means nobody has chosen one.
    if name == "localtime" or name == "Factory" or name.startswith(("right/", "posix/")):
        raise ZoneError(f"timezone '{name}' is not a place: use an IANA name, such as Europe/Berlin, or UTC")
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        near = get_close_matches(name, sorted(available_timezones()), n=1)
        hint = f"; did you mean {near[0]}?" if near else ": use an IANA name, such as Europe/Berlin, or UTC"
        raise ZoneError(f"unknown timezone '{name}'{hint}") from None


def offset_at(zone: tzinfo, instant: int) -> int:
    """Seconds that the zone's clock is ahead of UTC at ``instant``."""
    return _seconds(datetime.fromtimestamp(instant, zone).utcoffset())


def offset_and_fold(zone: tzinfo, instant: int) -> tuple[int, bool]:
    """The offset, and whether the clock shows this wall time for the second time."""
    local = datetime.fromtimestamp(instant, zone)
    return _seconds(local.utcoffset()), local.fold == 1


def change_between(zone: tzinfo, low: int, high: int) -> int | None:
    """The first instant in ``(low, high]`` with another offset than at ``low``; they are at most ``APART_S`` apart."""
    before = offset_at(zone, low)
    if offset_at(zone, high) == before:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if offset_at(zone, middle) == before:
            low = middle
        else:
            high = middle
    return high


def changes(zone: tzinfo, low: int, high: int) -> Iterator[int]:
    """Every instant in ``(low, high]`` where the offset changes, ascending."""
    while low < high:
        step = min(high, low + APART_S // 2)
        change = change_between(zone, low, step)
        if change is not None:
            yield change
        low = step


def _seconds(offset: timedelta | None) -> int:
    assert offset is not None
    return offset.days * 86_400 + offset.seconds
