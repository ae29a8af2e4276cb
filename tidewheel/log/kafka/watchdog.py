"""Ends a process whose Kafka call does not return.

``send_offsets_to_transaction`` has been seen to block past its time-out and ``begin_transaction`` to hang (librdkafka
#5456, #4420). A call stuck in C cannot be interrupted; a process that ends is replaced, and its shards move within a
session time-out.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog

#: EX_SOFTWARE of sysexits.h: a supervisor restarts us.
EXIT_CODE = 70

_log = structlog.get_logger("tidewheel.kafka")


def end_process(doing: str, seconds: float) -> None:
    """Leave without clean-up, which might wait for the same lock."""
    try:
        _log.critical(
            "a Kafka call does not return; ending the process so that others take over", doing=doing, s=seconds
        )
    finally:
        # Also if it cannot be said.
        os._exit(EXIT_CODE)


class Watchdog:
    """Watches one thread's calls; ``on_stuck`` is called from the watchdog's own thread, once per call."""

    def __init__(self, limit_s: float, on_stuck: Callable[[str, float], None]) -> None:
        self._limit_s = limit_s
        self._on_stuck = on_stuck
        self._doing = ""
        self._since = 0.0
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="kafka-watchdog", daemon=True)
        self._thread.start()

    @contextmanager
    def watching(self, doing: str, more_s: float = 0.0) -> Iterator[None]:
        """The body must end within the limit, and ``more_s`` on top."""
        self._since, self._doing = time.monotonic() + more_s, doing
        try:
            yield
        finally:
            self._doing = ""

    def close(self) -> None:
        """Stop watching."""
        self._closed.set()

    def _watch(self) -> None:
        reported = 0.0
        while not self._closed.wait(min(1.0, self._limit_s / 4)):
            doing, since = self._doing, self._since
            stuck_s = time.monotonic() - since
            if doing and stuck_s > self._limit_s and since != reported:
                reported = since
                self._on_stuck(doing, stuck_s)
