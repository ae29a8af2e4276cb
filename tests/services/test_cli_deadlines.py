"""The deadlines that `show` prints of a live run."""

from __future__ import annotations

from typing import Any

from tidewheel_services.cli.deadlines import upcoming

DEFINITION = {
    "deadlines": [
        {"within_ms": 6_600_000, "notify": "chat", "before_ms": 600_000},
        {"within_ms": 7_200_000},
        {"within_ms": 21_600_000, "from": "started", "action": "fail"},
    ]
}


def run(**more: Any) -> dict[str, Any]:
    times = {"logical_date": "2026-01-05T06:00:00.000Z", "created_at": "2026-01-05T06:05:00.000Z", "started_at": None}
    return {"kind": "scheduled", "deadlines_missed": [], **times, **more}


def test_each_says_when_and_what_follows() -> None:
    lines = list(upcoming(run(started_at="2026-01-05T06:06:00.000Z"), DEFINITION))
    assert lines == [
        "deadline: a warning at 2026-01-05T07:50:00Z, 1h50m after 2026-01-05T06:00:00.000Z",
        "deadline: an alert at 2026-01-05T08:00:00Z, 2h after 2026-01-05T06:00:00.000Z",
        "deadline: it fails at 2026-01-05T12:06:00Z, 6h after 2026-01-05T06:06:00.000Z",
    ]


def test_what_was_missed_or_has_not_begun_is_left_out() -> None:
    waiting = run(kind="manual", logical_date=None, deadlines_missed=[{"deadline": 0}])
    assert list(upcoming(waiting, DEFINITION)) == [
        "deadline: an alert at 2026-01-05T08:05:00Z, 2h after 2026-01-05T06:05:00.000Z"
    ]
