"""The deadlines that a live run still has to meet, as `show` prints them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from tidewheel.core.overdue import duration_text


def upcoming(run: Mapping[str, Any], definition: Mapping[str, Any]) -> Iterator[str]:
    """A line for each deadline whose instant is known and has not been found passed."""
    missed = {one["deadline"] for one in run.get("deadlines_missed", ())}
    for index, written in enumerate(definition.get("deadlines", ())):
        begin = run[_counted_from(run, written.get("from", "scheduled"))]
        if index in missed or begin is None:
            continue
        within_ms = written["within_ms"]
        due = datetime.fromisoformat(begin).astimezone(UTC) + timedelta(milliseconds=within_ms)
        yield f"{_meaning(written)} at {due:%Y-%m-%dT%H:%M:%SZ}, {duration_text(within_ms)} after {begin}"


def _counted_from(run: Mapping[str, Any], name: str) -> str:
    """The run's column that holds the beginning."""
    if name == "started":
        return "started_at"
    return "logical_date" if name == "scheduled" and run["kind"] == "scheduled" else "created_at"


def _meaning(written: Mapping[str, Any]) -> str:
    if written.get("before_ms"):
        return "deadline: a warning"
    return "deadline: it fails" if written.get("action") == "fail" else "deadline: an alert"
