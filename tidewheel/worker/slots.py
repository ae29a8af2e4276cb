"""The threads in which attempts run: as many as are needed at once, never more than the worker has slots."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

import structlog

from tidewheel.worker.attempt import Attempt

_log = structlog.get_logger(__name__)


class SlotThreads:
    """Threads that take attempts from one queue.

    Unlike an executor of the standard library's they are daemons, so that a function that never returns cannot hold up
    the end of the process, and there is no future or lock per attempt.
    """

    def __init__(self, slots: int, work: Callable[[Attempt], None]) -> None:
        self._slots = slots
        self._work = work
        self._queue: queue.SimpleQueue[Attempt | None] = queue.SimpleQueue()
        self._threads = 0
        #: Attempts in a thread or waiting for one.
        self.occupied: set[Attempt] = set()

    def submit(self, attempt: Attempt) -> None:
        """Run the attempt in a thread soon. Called from one thread only."""
        self.occupied.add(attempt)
        self._queue.put(attempt)
        if self._threads < self._slots and self._threads < len(self.occupied):
            try:
                threading.Thread(target=self._run, name=f"tidewheel-slot-{self._threads + 1}", daemon=True).start()
            except RuntimeError as error:
                _log.error("no thread can be started; an attempt waits for one", attempt=attempt.key, why=str(error))
            else:
                self._threads += 1

    def close(self) -> None:
        """Let the threads end when they have nothing to do."""
        for _ in range(self._threads):
            self._queue.put(None)

    def _run(self) -> None:
        while (attempt := self._queue.get()) is not None:
            try:
                self._work(attempt)
            except Exception:
                # Not reported, it runs again when its lease is over; the slot is for others meanwhile.
                _log.exception("an attempt's end could not be reported", attempt=attempt.key)
            finally:
                self.occupied.discard(attempt)
