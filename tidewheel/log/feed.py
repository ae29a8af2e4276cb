"""A feed: topics of the user's own, which triggers name, and the members that share reading them.

These topics are not the engine's. On Kafka they are whatever topics the cluster has, with any number of partitions,
written by anybody; embedded, they are made by ``tidewheel publish``. A ``Follower`` is one member of the group of
listeners. It is told the topics, gets records of the partitions it holds, and says how far each of them has been dealt
with; whoever holds the partition next goes on from there. A record may be given twice (who committed too late is not
told), never is one passed over.

A topic that nobody has followed begins with the first record written at the instant given, or later. A partition that
comes to be later begins with its first record, and so does one that was made anew under its old name.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol, TypeAlias

import msgspec

from tidewheel.log.interface import Record

#: Topic and partition.
Place: TypeAlias = tuple[str, int]


class Stand(msgspec.Struct, frozen=True):
    """How far a partition has been dealt with.

    ``offset`` is the next record. Who came to the topic at ``known`` (ms since the epoch) or earlier has been given
    all before it; who came later has its own beginning yet to be found.
    """

    offset: int
    known: int


class Taken(msgspec.Struct, frozen=True):
    """What one ``Follower.poll`` gave: records of partitions held now, each partition's in order.

    ``fresh`` are those that came since the last poll, with where they begin; ``held`` are all of them.
    """

    records: tuple[Record, ...]
    fresh: Mapping[Place, Stand]
    held: frozenset[Place]


class Follower(Protocol):
    """One member; not thread-safe. Everything raises ``LogUnavailable`` when the server cannot be reached in time."""

    @property
    def missing(self) -> Mapping[str, str]:
        """Topics that cannot be followed now, with the reason; they are looked for again and again."""

    def follow(self, topics: Mapping[str, int]) -> None:
        """Read exactly these from now on. The value is where one begins that nobody has followed (ms)."""

    def poll(self, max_records: int, timeout_s: float) -> Taken:
        """Wait up to ``timeout_s`` for a first record, then take what is there."""

    def offsets_at(self, places: Collection[Place], timestamp: int) -> Mapping[Place, int]:
        """Of each place the offset of its first record written at ``timestamp`` (ms) or later; the end, if none is."""

    def behind(self) -> int:
        """Records from where it reads up to the ends last seen, of what it holds."""

    def commit(self, stands: Mapping[Place, Stand]) -> None:
        """Remember these. What is not held any more is somebody else's to say, and left out."""

    def close(self) -> None:
        """Leave the group at once."""


class Scanner(Protocol):
    """Reads partitions outside of the group, from anywhere; not thread-safe. Raises ``LogUnavailable`` as a follower
    does."""

    def offsets_at(self, topic: str, timestamp: int) -> Mapping[int, int]:
        """Of each partition of a topic the offset of its first record written at ``timestamp`` (ms) or later; the end,
        if none is. Empty: there is no such topic, or it cannot be seen."""

    def scan(self, positions: Mapping[Place, int]) -> None:
        """Read exactly these from now on, each from this offset."""

    def read(self, max_records: int, timeout_s: float) -> list[Record]:
        """Wait up to ``timeout_s`` for a first record, then take what is there."""

    def close(self) -> None:
        """Let go."""


class Feed(Protocol):
    """One cluster's topics, or those of an embedded engine."""

    def follower(self, instance: str) -> Follower:
        """Join the group of listeners."""

    def scanner(self, instance: str) -> Scanner:
        """Read beside the group."""

    def publish(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes]] = ()
    ) -> tuple[int, int]:
        """Write one record; gives its partition and offset once it is durable.

        Raises ``LogMisconfigured`` if there is no such topic.
        """

    def members(self) -> Sequence[str] | None:
        """Who is in the group of listeners now; None: that is not known here. One that died counts for some seconds."""

    def missing(self, topics: Collection[str]) -> Mapping[str, str]:
        """Which of these cannot be followed now, with the reason."""

    def close(self) -> None:
        """Let go of everything opened through this feed that its user has not closed."""
