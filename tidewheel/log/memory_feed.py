"""A feed in memory, for tests and simulation: topics of any number of partitions, and followers that share them.

It does what makes Kafka's harder than a list. A partition passes to another member at once, and who held it does not
know before it polls next; until then both read it. A member that dies holds its partitions until it is expelled.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import count

from tidewheel.log.feed import Place, Stand, Taken
from tidewheel.log.interface import LogError, LogUnavailable, Record
from tidewheel.log.limits import RECORD_BYTES_MAX
from tidewheel.log.partition import partition_of


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class MemoryFeed:
    """Topics that live and die with the object. ``clock`` stamps the records (ms); a topic has one partition unless it
    was made with more. Without ``patient`` nobody waits for a record that is not there: virtual time does not pass
    meanwhile."""

    def __init__(self, clock: Callable[[], int] = _wall_clock_ms, *, patient: bool = True) -> None:
        self._clock = clock
        self._patient = patient
        self._changed = threading.Condition()
        self._topics: dict[str, list[list[Record]]] = {}
        self._stands: dict[Place, Stand] = {}
        self._members: dict[int, MemoryFollower] = {}
        self._numbers = count(1)

    def create(self, topic: str, partitions: int = 1) -> None:
        """Make a topic, unless it is there."""
        with self._changed:
            self._topics.setdefault(topic, [[] for _ in range(partitions)])
            self._changed.notify_all()

    def follower(self, instance: str) -> MemoryFollower:
        """Join the group of listeners; a member of the same name loses its place."""
        with self._changed:
            for number in [number for number, member in self._members.items() if member.instance == instance]:
                del self._members[number]
            member = MemoryFollower(self, instance, next(self._numbers))
            self._members[member.number] = member
            self._changed.notify_all()
            return member

    def scanner(self, instance: str) -> MemoryScanner:
        """Read beside the group."""
        return MemoryScanner(self)

    def publish(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes]] = ()
    ) -> tuple[int, int]:
        """Write one record."""
        if (size := len(key or b"") + len(value or b"")) > RECORD_BYTES_MAX:
            raise LogError(f"a record of {size} bytes is over the limit of {RECORD_BYTES_MAX}")
        self.create(topic)
        with self._changed:
            partitions = self._topics[topic]
            partition = partition_of(key or b"", len(partitions))
            offset = len(partitions[partition])
            record = Record(topic, partition, offset, key, value, tuple(headers), timestamp=self._clock())
            partitions[partition].append(record)
            self._changed.notify_all()
        return partition, offset

    def members(self) -> Sequence[str]:
        """Who is in the group."""
        return sorted(member.instance for member in self._members.values())

    def missing(self, topics: Collection[str]) -> Mapping[str, str]:
        """None: a topic nobody has published to is an empty one."""
        return {}

    def close(self) -> None:
        """Nothing to let go of; the records stay readable."""

    # What only tests and simulations ask for.

    def expel(self, instance: str) -> None:
        """Treat the member as dead: its partitions are others'."""
        with self._changed:
            self._members = {n: member for n, member in self._members.items() if member.instance != instance}
            self._changed.notify_all()

    def records_of(self, topic: str) -> list[Record]:
        """All of a topic, partition by partition."""
        return [record for partition in self._topics.get(topic, ()) for record in partition]

    # Shared with followers and scanners; callers hold the lock.

    def _partitions(self, topic: str) -> list[list[Record]]:
        return self._topics.setdefault(topic, [[]])

    def _offset_at(self, place: Place, timestamp: int) -> int:
        records = self._partitions(place[0])[place[1]]
        return next((record.offset for record in records if record.timestamp >= timestamp), len(records))

    def _due(self, member: MemoryFollower) -> frozenset[Place]:
        """The partitions that the member holds from now on, of the topics that it follows."""
        if self._members.get(member.number) is not member:
            self._members[member.number] = member  # it was expelled, and joins again
        due = set()
        for topic in member.topics:
            sharing = sorted(number for number, other in self._members.items() if topic in other.topics)
            mine = sharing.index(member.number)
            partitions = range(len(self._partitions(topic)))
            due |= {(topic, partition) for partition in partitions if partition % len(sharing) == mine}
        return frozenset(due)

    def _begin(self, place: Place, since: int) -> Stand:
        """Where a partition goes on; what was never begun begins at ``since``, for good."""
        if place not in self._stands:
            self._stands[place] = Stand(self._offset_at(place, since), since)
        return self._stands[place]


class MemoryFollower:
    """One member."""

    def __init__(self, feed: MemoryFeed, instance: str, number: int) -> None:
        self.instance = instance
        self.number = number
        self.topics: dict[str, int] = {}
        self._feed = feed
        self._next: dict[Place, int] = {}
        self._closed = False

    @property
    def missing(self) -> Mapping[str, str]:
        """A topic nobody has published to is an empty one."""
        return {}

    def follow(self, topics: Mapping[str, int]) -> None:
        """Read these."""
        with self._feed._changed:
            self.topics = dict(topics)

    def poll(self, max_records: int, timeout_s: float) -> Taken:
        """Wait for a first record, then take what is there."""
        deadline = time.monotonic() + timeout_s * self._feed._patient
        with self._feed._changed:
            while True:
                if self._closed:
                    raise LogUnavailable("this follower is closed")
                held = self._feed._due(self)
                fresh = {
                    place: self._feed._begin(place, self.topics[place[0]]) for place in sorted(held - self._next.keys())
                }
                self._next = {place: offset for place, offset in self._next.items() if place in held}
                self._next |= {place: stand.offset for place, stand in fresh.items()}
                records = self._take(max_records)
                remaining = deadline - time.monotonic()
                if records or fresh or remaining <= 0:
                    return Taken(tuple(records), fresh, held)
                self._feed._changed.wait(remaining)

    def offsets_at(self, places: Collection[Place], timestamp: int) -> Mapping[Place, int]:
        """By the records' times."""
        with self._feed._changed:
            return {place: self._feed._offset_at(place, timestamp) for place in places}

    def behind(self) -> int:
        """Up to the ends of now."""
        with self._feed._changed:
            ends = {place: len(self._feed._partitions(place[0])[place[1]]) for place in self._next}
            return sum(ends[place] - offset for place, offset in self._next.items())

    def commit(self, stands: Mapping[Place, Stand]) -> None:
        """Keep those of what is held."""
        with self._feed._changed:
            if not self._closed and self._feed._members.get(self.number) is self:
                held = self._feed._due(self)
                self._feed._stands.update({place: stand for place, stand in stands.items() if place in held})

    def close(self) -> None:
        """Leave the group."""
        with self._feed._changed:
            self._closed = True
            if self._feed._members.get(self.number) is self:
                del self._feed._members[self.number]
            self._feed._changed.notify_all()

    def _take(self, most: int) -> list[Record]:
        records: list[Record] = []
        for place in sorted(self._next):
            fresh = self._feed._partitions(place[0])[place[1]][self._next[place] :][: most - len(records)]
            records += fresh
            self._next[place] += len(fresh)
        return records


class MemoryScanner:
    """Reads topics from anywhere."""

    def __init__(self, feed: MemoryFeed) -> None:
        self._feed = feed
        self._next: dict[Place, int] = {}

    def offsets_at(self, topic: str, timestamp: int) -> Mapping[int, int]:
        """By the records' times; a topic nobody has published to is an empty one."""
        with self._feed._changed:
            partitions = range(len(self._feed._partitions(topic)))
            return {number: self._feed._offset_at((topic, number), timestamp) for number in partitions}

    def scan(self, positions: Mapping[Place, int]) -> None:
        """Read these."""
        self._next = dict(positions)

    def read(self, max_records: int, timeout_s: float) -> list[Record]:
        """Wait for a first record, then take what is there."""
        deadline = time.monotonic() + timeout_s * self._feed._patient
        with self._feed._changed:
            while True:
                records: list[Record] = []
                for place, begin in self._next.items():
                    fresh = self._feed._partitions(place[0])[place[1]][begin:][: max_records - len(records)]
                    records += fresh
                    self._next[place] = begin + len(fresh)
                remaining = deadline - time.monotonic()
                if records or remaining <= 0:
                    return records
                self._feed._changed.wait(remaining)

    def close(self) -> None:
        """Let go."""
        self._next.clear()
