"""A courier goes on whatever befalls it, and says what did."""

from __future__ import annotations

import contextlib
import threading

import psycopg
import pytest
from structlog.testing import capture_logs

from tidewheel.log.memory import MemoryLog
from tidewheel_services.notifier import couriers
from tidewheel_services.notifier.couriers import Courier
from tidewheel_services.notifier.dead_letters import DeadLetters
from tidewheel_services.notifier.outbox import Outbox, Waiting


@pytest.mark.parametrize(
    ("fault", "heard"),
    [
        (psycopg.OperationalError("the server is away"), "debug"),
        (psycopg.errors.UndefinedColumn("no such column"), "error"),
        (RuntimeError("a fault nobody foresaw"), "error"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_courier_says_what_keeps_it_from_delivering(
    fault: Exception, heard: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever Postgres refused was taken for its absence, of which the notifier tells; here nobody did."""
    stop = threading.Event()
    tries: list[Outbox] = []

    def claim(outbox: Outbox) -> Waiting | None:
        tries.append(outbox)
        if len(tries) == 2:
            stop.set()
        raise fault

    monkeypatch.setattr(couriers, "AWAY_S", 0.01)
    monkeypatch.setattr(couriers, "connect", lambda _: contextlib.nullcontext(None))
    letters = DeadLetters(MemoryLog())
    courier = Courier("", claim, None, letters, life="l", fault=lambda target: target, link=lambda notice: "")
    with capture_logs() as lines:
        courier.run(stop)
    assert [line["log_level"] for line in lines] == [heard] * 2
    assert str(fault) in lines[0]["why"]
