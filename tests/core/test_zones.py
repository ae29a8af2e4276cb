"""Zones: names, offsets, and where they change."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tidewheel.core.zones import changes, check_zone, offset_and_fold, offset_at, zone_of


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())


def found(name: str, low: str, high: str) -> list[str]:
    return [datetime.fromtimestamp(c, UTC).isoformat() for c in changes(zone_of(name), at(low), at(high))]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("America/NewYork", "did you mean America/New_York?"),
        ("Mars/Olympus_Mons_Station_Seven", "use an IANA name"),
        ("", "unknown timezone ''"),
        ("../../etc/passwd", "unknown timezone"),
        ("/etc/localtime", "unknown timezone"),
        ("Europe", "unknown timezone 'Europe'"),
        ("localtime", "is not a place"),
        ("right/UTC", "is not a place"),
        ("+02:00", "unknown timezone"),
        ("a\0b", "unknown timezone"),
    ],
)
def test_a_name_that_is_no_zone_is_refused_with_a_hint(name: str, says: str) -> None:
    message = check_zone(name)
    assert message is not None
    assert says in message


@pytest.mark.parametrize("name", ["UTC", "Etc/UTC", "America/New_York", "Asia/Kathmandu", "Etc/GMT+5"])
def test_iana_names_are_zones(name: str) -> None:
    assert check_zone(name) is None


def test_offsets_with_odd_minutes() -> None:
    assert offset_at(zone_of("Asia/Kathmandu"), at("2026-06-01T00:00Z")) == 5 * 3600 + 45 * 60
    assert offset_at(zone_of("America/St_Johns"), at("2026-01-01T00:00Z")) == -(3 * 3600 + 30 * 60)
    assert offset_at(zone_of("UTC"), 0) == 0


def test_the_second_showing_of_a_wall_time_is_told_from_the_first() -> None:
    zone = zone_of("America/New_York")
    assert offset_and_fold(zone, at("2026-11-01T05:30Z")) == (-4 * 3600, False)
    assert offset_and_fold(zone, at("2026-11-01T06:30Z")) == (-5 * 3600, True)


@pytest.mark.parametrize(
    ("name", "year", "expected"),
    [
        ("America/New_York", 2026, ["2026-03-08T07:00:00+00:00", "2026-11-01T06:00:00+00:00"]),
        ("Australia/Lord_Howe", 2026, ["2026-04-04T15:00:00+00:00", "2026-10-03T15:30:00+00:00"]),
        ("America/Santiago", 2026, ["2026-04-05T03:00:00+00:00", "2026-09-06T04:00:00+00:00"]),
        ("Asia/Kathmandu", 2026, []),
        # Beyond the 32-bit tables the zone's rule goes on.
        ("Europe/Zurich", 2060, ["2060-03-28T01:00:00+00:00", "2060-10-31T01:00:00+00:00"]),
        # A whole day left out.
        ("Pacific/Apia", 2011, ["2011-04-02T14:00:00+00:00", "2011-09-24T14:00:00+00:00", "2011-12-30T10:00:00+00:00"]),
    ],
)
def test_changes_of_a_year(name: str, year: int, expected: list[str]) -> None:
    assert found(name, f"{year}-01-01T00:00Z", f"{year + 1}-01-01T00:00Z") == expected


def test_the_bounds_of_changes_are_open_below_and_closed_above() -> None:
    change = "2026-03-08T07:00:00+00:00"
    assert found("America/New_York", change, "2026-04-01T00:00Z") == []
    assert found("America/New_York", "2026-03-01T00:00Z", change) == [change]
