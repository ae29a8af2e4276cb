"""Notices that are given up, as records among the dead letters."""

from __future__ import annotations

import threading
import time

import msgspec

from tidewheel.log.interface import DEAD_LETTERS, EVENTS, Append, Log, Producer
from tidewheel.wire.codec import encode
from tidewheel.wire.messages import DeadLetter
from tidewheel_services.notifier.outbox import Waiting

#: The letters' code.
UNDELIVERED = "undelivered"
_FLUSH_S = 10.0


class DeadLetters:
    """Writes them, from any thread."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._producer: Producer | None = None

    def write(self, notice: Waiting, reason: str) -> None:
        """It points at the event that was to be told of. Returns when it is durable; raises ``LogError``."""
        said = {
            "notification": notice.notification,
            "target": notice.target,
            "title": notice.title,
            "body": notice.body,
        }
        key = notice.dag.encode()
        letter = DeadLetter(
            at=time.time_ns() // 1_000_000,
            topic=EVENTS,
            partition=notice.partition,
            offset=notice.log_offset,
            key=key,
            value=msgspec.json.encode(said),
            code=UNDELIVERED,
            reason=f"notification {notice.notification} was not delivered: {reason}"[:10_000],
        )
        with self._lock:
            if self._producer is None:
                self._producer = self._log.producer()
            self._producer.send(Append(DEAD_LETTERS, key, encode(letter)))
            self._producer.flush(_FLUSH_S)

    def close(self) -> None:
        """Let go."""
        with self._lock:
            if self._producer is not None:
                self._producer.close()
                self._producer = None
