"""The log, as little of it as the engine needs; drivers are ``memory``, ``sqlite`` and ``kafka``.

A log has topics of ``partitions`` partitions each. Records are read in offset order; an offset only grows, and may
have gaps (Kafka's transaction markers). Three kinds of access:

* a ``Producer`` appends without transactions (workers, API, mail);
* a ``Reader`` reads given partitions from given offsets, committed records only, and belongs to no group;
* an ``Owner`` shares the *shards* with the other owners: shard ``p`` is partition ``p`` of ``commands`` and
  ``triggers`` to read and of the journals and snapshots to write. Its ``commit`` is one atomic step: records appended,
  input positions moved, refused if the shards have changed hands since the batch was polled. That fence is the whole
  safety of the engine.

Everything raises ``LogUnavailable`` when the server cannot be reached in time. No driver retries a commit by itself.
``tidewheel.testing.log_contract`` holds the tests every driver must pass.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

import msgspec

TRIGGERS = "triggers"
COMMANDS = "commands"
EVENTS = "events"
POOL_EVENTS = "pool-events"
SNAPSHOTS = "snapshots"
MAIL = "mail"
LOGS = "logs"
DEAD_LETTERS = "dead-letters"

#: What an owner reads, co-partitioned, in the order a batch is decided.
INPUTS = (COMMANDS, TRIGGERS)
#: What only a shard's owner writes.
JOURNALS = (EVENTS, POOL_EVENTS)
TOPICS = (TRIGGERS, COMMANDS, EVENTS, POOL_EVENTS, SNAPSHOTS, MAIL, LOGS, DEAD_LETTERS)

DEFAULT_PARTITIONS = 32
#: Kafka takes 4,096 bytes beside a position (``offset.metadata.max.bytes``).
NOTE_BYTES_MAX = 4_000

#: What a closed reader's ``read`` says.
CLOSED = "this reader was closed"


class Record(msgspec.Struct, frozen=True):
    """A record as it was read. ``value`` is None for a tombstone; ``timestamp`` is the log's, ms since the epoch."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp: int = 0


class Append(msgspec.Struct, frozen=True):
    """A record to write. Without ``partition`` the key decides it (``log.partition.partition_of``)."""

    topic: str
    key: bytes
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()
    partition: int | None = None


class Batch(msgspec.Struct, frozen=True):
    """What one ``Owner.poll`` gave.

    ``shards`` maps each shard owned *now* to its epoch: a number that differs whenever the shard was taken away in
    between, even if it came back. ``notes`` is what stands beside each shard's position on ``triggers``
    (``Owner.note``). ``token`` is the driver's proof of ownership for ``commit``. Records are only of owned shards.
    """

    records: tuple[Record, ...]
    shards: Mapping[int, int]
    token: Any = None
    notes: Mapping[int, str] = msgspec.field(default_factory=dict)


class TopicSetting(msgspec.Struct, frozen=True, kw_only=True):
    """One setting of a topic, as ``Log.inspect_topics`` finds it.

    ``verdict``: ``ok``, ``warning`` (it works, at a risk) or ``wrong`` (the engine cannot keep its promises).
    """

    topic: str
    name: str
    found: str
    wanted: str
    verdict: str
    #: The command that mends it.
    fix: str = ""
    #: Whether ``create_topics(repair=True)`` can.
    alterable: bool = True

    def explain(self, prefix: str = "") -> str:
        """The difference in words."""
        return f"topic '{prefix}{self.topic}' has {self.name}={self.found}, expected {self.wanted}"


class LogError(Exception):
    """Base of the log's faults. The message says what, where and what to do."""


class LogUnavailable(LogError):
    """The log's server or file cannot be reached or used now; trying again may help."""


class LogMisconfigured(LogError):
    """A topic is missing or has settings the engine cannot work with; the message names the fix."""


class Fenced(LogError):
    """The commit was refused because a shard has changed hands. Nothing of it is visible, nor ever will be."""


class CommitAborted(LogError):
    """The commit failed and certainly did not happen."""


class CommitInDoubt(LogError):
    """It is unknown whether the commit happened. ``Owner.reset`` settles it; then the journal's end tells."""


class Producer(Protocol):
    """Idempotent appends outside transactions."""

    def send(self, record: Append) -> None:
        """Hand over one record; it is written soon, in order per partition.

        Raises ``LogUnavailable`` if the buffer stays full.
        """

    def flush(self, timeout_s: float) -> None:
        """Wait until all that was sent is durable. Raises ``LogUnavailable`` if that takes longer."""

    def close(self) -> None:
        """Flush what can be flushed within a few seconds and let go."""


class Reader(Protocol):
    """Reads committed records of fixed partitions."""

    def read(self, max_records: int, timeout_s: float) -> list[Record]:
        """Wait up to ``timeout_s`` for a first record, then take what is there, at most ``max_records``."""

    def positions(self) -> Mapping[tuple[str, int], int]:
        """The next offset to read of each partition: past the last record read, and past markers known to follow it."""

    def close(self) -> None:
        """Let go, also from another thread than the one that reads: its ``read`` raises ``LogUnavailable``."""


class Owner(Protocol):
    """One member of the group of schedulers that share the shards."""

    def poll(self, max_records: int, timeout_s: float) -> Batch:
        """Wait up to ``timeout_s`` for a first input record, then take what is there.

        Returns early when the owned shards change. A newly owned shard is read from its committed position; one
        never committed from its start.
        """

    def commit(self, batch: Batch, appends: Sequence[Append]) -> Mapping[tuple[str, int], int]:
        """Atomically append, and move the input positions of every owned shard past what has been polled so far;
        those of held shards stay.

        Gives the last offset written to each partition. Raises ``Fenced``, ``CommitAborted`` or ``CommitInDoubt``;
        after any of them call ``reset`` before anything else.
        """

    def reset(self) -> None:
        """Settle what an earlier commit left open and read every owned shard again from its committed position.

        Every shard still owned gets a new epoch at the next ``poll``.
        """

    def note(self, notes: Mapping[int, str]) -> None:
        """From the next commit on this stands beside the positions on ``triggers`` of these owned shards.

        At most ``NOTE_BYTES_MAX`` bytes each. Whoever owns the shard next finds it in ``Batch.notes``. A ``reset``
        goes back to what was committed.
        """

    def pause_triggers(self, shards: frozenset[int]) -> None:
        """Read no ``triggers`` of exactly these shards until called again; ``commands`` are always read."""

    def hold(self, shards: frozenset[int]) -> None:
        """Keep exactly these shards, until called again, without reading their inputs or moving their positions.

        What was polled of them and not committed is read again once they are let go. Through ``reset``, and for a
        shard that goes and comes back, it holds on.
        """

    def close(self) -> None:
        """Leave the group at once, so that others take over without waiting."""


class Log(Protocol):
    """One log: a directory of topics with a common number of partitions."""

    @property
    def partitions(self) -> int:
        """Partitions of every topic: the number of shards."""

    def create_topics(self, *, repair: bool = False) -> Sequence[str]:
        """Create what is missing; gives the names created. ``repair`` puts right the settings of what is there.

        Raises ``LogMisconfigured`` if existing topics do not fit.
        """

    def check_topics(self) -> None:
        """Raise ``LogMisconfigured`` if a topic is missing or its settings are wrong, naming topic, setting and fix."""

    def inspect_topics(self) -> Sequence[TopicSetting]:
        """Every setting that matters, right or wrong; a log whose topics have none gives none.

        Raises ``LogMisconfigured`` if a topic is missing.
        """

    def producer(self) -> Producer:
        """A new producer."""

    def reader(self, starts: Mapping[tuple[str, int], int]) -> Reader:
        """A reader of these (topic, partition) pairs from these offsets.

        An offset below the log's start means its start.
        """

    def owner(self, instance: str) -> Owner:
        """Join the group of owners.

        ``instance`` names this process across restarts: a restart takes its old place at once.
        """

    def end_offset(self, topic: str, partition: int) -> int:
        """One past the last record, open transactions included (Kafka's high watermark)."""

    def end_offsets(self, places: Collection[tuple[str, int]]) -> Mapping[tuple[str, int], int]:
        """``end_offset`` of many (topic, partition) pairs, asked for at once."""

    def start_offset(self, topic: str, partition: int) -> int:
        """The offset of the oldest record kept."""

    def start_offsets(self, places: Collection[tuple[str, int]]) -> Mapping[tuple[str, int], int]:
        """``start_offset`` of many (topic, partition) pairs, asked for at once."""

    def offsets_at(self, places: Collection[tuple[str, int]], timestamp: int) -> Mapping[tuple[str, int], int]:
        """Of each place the offset of its first record written at ``timestamp`` (ms since the epoch) or later.

        The end, if there is none.
        """

    def trim(self, topic: str, partition: int, before: int) -> None:
        """Forget the records below this offset, for good; the newest record may be kept all the same."""

    def committed(self, partition: int) -> Mapping[str, int | None]:
        """Per input topic, the owners' committed position on this shard (None: never committed); for lag and checks."""

    def owners(self) -> Sequence[str]:
        """Who is in the group of owners now: instances by name, or as well as the log knows them.

        A member that died counts until its session is over.
        """

    def noted(self, partition: int) -> str:
        """What stands beside the committed position on ``triggers`` of this shard; empty if nothing does."""

    def close(self) -> None:
        """Let go of everything opened through this log that its user has not closed."""
