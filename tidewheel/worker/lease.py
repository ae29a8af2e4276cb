"""One attempt's lease as its worker counts it, on the monotonic clock, always on the safe side.

The scheduler counts the lease from when it handled a beat, the worker from when it *made* that beat, which is
earlier. So the worker's deadline comes first, whatever the clocks and the network do, and the margin before it is the
time to kill.
"""

from __future__ import annotations

#: Part of the lease between two beats.
BEATS_PER_LEASE = 3
#: Time left for killing before the lease ends: this many seconds or this part of the lease, whichever is longer …
MARGIN_S = 2.0
MARGIN_PART = 5
#: … but never more than this part, or a short lease would be over before its first beat.
MARGIN_PART_MAX = 2


class Lease:
    """Deadline and beats of one lease. Not thread-safe by itself: the attempt's lock guards it."""

    __slots__ = ("_acknowledged", "_sent", "beat", "beat_due", "deadline", "last_beat", "lease_s")

    def __init__(self, lease_ms: int, received: float) -> None:
        self.lease_s = lease_ms / 1000
        self.deadline = received + self.lease_s
        #: Number of the last beat made; -1: none yet.
        self.beat = -1
        self.last_beat = received
        self.beat_due = received + self.lease_s / BEATS_PER_LEASE
        self._sent: dict[int, float] = {}
        self._acknowledged = -1

    @property
    def fence_at(self) -> float:
        """From this instant the attempt must be killed if the lease has not been renewed."""
        margin = max(MARGIN_S, self.lease_s / MARGIN_PART)
        return self.deadline - min(margin, self.lease_s / MARGIN_PART_MAX)

    def make_beat(self, now: float) -> int:
        """Count a beat that is made now; gives its number, from 0."""
        self.beat += 1
        self.last_beat = now
        self._sent[self.beat] = now
        self.beat_due = now + self.lease_s / BEATS_PER_LEASE
        return self.beat

    def acknowledge(self, beat: int, lease_ms: int) -> bool:
        """The scheduler has renewed the lease by ``beat``. False: an old acknowledgement, or of a beat never made."""
        sent = self._sent.get(beat)
        if sent is None or beat <= self._acknowledged:
            return False
        self._acknowledged = beat
        self._sent = {number: at for number, at in self._sent.items() if number > beat}
        self.lease_s = lease_ms / 1000
        self.deadline = sent + self.lease_s
        self.beat_due = min(self.beat_due, self.last_beat + self.lease_s / BEATS_PER_LEASE)
        return True
