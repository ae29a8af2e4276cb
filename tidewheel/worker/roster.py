"""The attempts this worker runs, and the ones it had: mail comes at least once, an attempt runs at most once."""

from __future__ import annotations

from tidewheel.core.attempt import AttemptKey
from tidewheel.worker.attempt import Attempt

#: Mail is repeated only around a takeover, within a lease or so; this covers a minute at 1,000 attempts a second.
REMEMBERED = 65_536


class Roster:
    """Written by the mail's thread and by those that end attempts; each step is one atomic operation of a dict."""

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self.running: dict[AttemptKey, Attempt] = {}
        # Hashes instead of keys: a tenth of the memory. Two attempts with one 64-bit hash cost an expired lease.
        self._seen: dict[int, None] = {}
        self._remembered = remembered

    def first_sight(self, key: AttemptKey) -> bool:
        """Whether this attempt is new here; it is not the next time."""
        mark = hash(key)
        if mark in self._seen:
            return False
        self._seen[mark] = None
        if len(self._seen) > self._remembered:
            del self._seen[next(iter(self._seen))]
        return True

    def add(self, attempt: Attempt) -> None:
        """The attempt is here."""
        self.running[attempt.key] = attempt

    def settle(self, attempt: Attempt) -> bool:
        """Decide the attempt's end; True for the one caller who reports it."""
        if not attempt.settle():
            return False
        self.running.pop(attempt.key, None)
        return True
