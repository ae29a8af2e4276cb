"""Waits: a task whose action is ``wait_for`` is ``deferred`` until something comes, without a worker and without slots.

Each wait is an attempt with a number of its own, so that an answer to an earlier one is known as such.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Final

import msgspec

from tidewheel.core.events import TaskDeferred, WaitsFor
from tidewheel.core.expressions import ExpressionError
from tidewheel.core.workflow import ApprovalWait, Awaited, HttpWait, KafkaWait, RunWait, TimeWait

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_INSTANT: Final = re.compile(
    r"\d{4}-\d{2}-\d{2}([Tt ]\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?([Zz]|[+-]\d{2}:\d{2})?)?", re.ASCII
)
#: What somebody outside of the DAG watches and reports.
WATCHED: Final[frozenset[WaitsFor]] = frozenset({"kafka", "http", "run"})
#: In a wait's ``detail``: why it can not be waited for; the attempt fails at its next turn.
FAULT: Final = "fault"


_WAITS_FOR: Final[dict[type, WaitsFor]] = {
    TimeWait: "time",
    ApprovalWait: "approval",
    RunWait: "run",
    HttpWait: "http",
    KafkaWait: "kafka",
}


def waits_for_of(what: Awaited) -> WaitsFor:
    """The word for what a ``wait_for`` names."""
    return _WAITS_FOR[type(what)]


class Watcher(msgspec.Struct, frozen=True):
    """An attempt, perhaps of another DAG, that is told when a run has ended."""

    dag: str
    run_id: str
    task: str
    attempt: int


class Wait(msgspec.Struct, frozen=True):
    """What a deferred attempt waits for, as its ``TaskDeferred`` says it. Milliseconds since the epoch."""

    waits_for: WaitsFor
    resume_at: int | None = None
    timeout_at: int | None = None
    detail: str = "{}"
    #: Of an attempt that asks for a run where there is no room: when it asks again, and how often it was put off.
    ask_at: int | None = None
    postponed: int = 0

    @property
    def asked(self) -> dict[str, Any]:
        """The details, decoded."""
        return msgspec.json.decode(self.detail, type=dict[str, Any])

    @property
    def wakes_at(self) -> int | None:
        """When the attempt does something by itself: ends, one way or the other, or asks again; None: never."""
        instants = [at for at in (self.resume_at, self.timeout_at, self.ask_at) if at is not None]
        return min(instants, default=None)


def wait_of(event: TaskDeferred) -> Wait:
    """The wait that the event begins."""
    return Wait(event.waits_for, event.resume_at, event.timeout_at, event.detail)


def instant_ms(value: Any, zone: tzinfo) -> int:
    """The instant of an RFC 3339 text; on the clock of ``zone`` if it has no offset, or is but a date.

    Raises ``ExpressionError``.
    """
    if isinstance(value, str) and _INSTANT.fullmatch(value):
        try:
            moment = datetime.fromisoformat(value.upper())
            moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=zone)
            return (moment - _EPOCH) // timedelta(milliseconds=1)
        except (ValueError, OverflowError) as error:
            raise ExpressionError(f"{value!r} is no time: {error}") from error
    shown = msgspec.json.encode(value).decode()[:80]
    raise ExpressionError(f"expected an RFC 3339 time like 2026-01-31T06:00:00Z, or a date; got {shown}")
