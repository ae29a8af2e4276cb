"""A scheduler's membership in the group of owners, on Kafka's classic protocol with eager ``range`` assignment.

Members are static (``group.instance.id``): measured, a scheduler killed and restarted in place is back in 0.1 s instead
of waiting 6 s for its own session. A shard counts as owned once its committed positions are *stable*: while a dead
owner's transaction is open they are not, and asking again does not hold up the other shards.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Mapping, Sequence
from typing import Protocol

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from tidewheel.log.interface import (
    COMMANDS,
    INPUTS,
    TRIGGERS,
    Append,
    Batch,
    CommitAborted,
    Fenced,
    LogMisconfigured,
    LogUnavailable,
    Record,
)
from tidewheel.log.kafka.client import Config, partitions_at, place_of, record_of
from tidewheel.log.kafka.cluster import Start
from tidewheel.log.kafka.identity import Group, Identity
from tidewheel.log.kafka.transaction import GroupFenced, Transactions
from tidewheel.log.limits import oversize
from tidewheel.log.written import written_shards

#: The least the broker allows by default: how long a dead scheduler's shards stand still.
SESSION_TIMEOUT_MS = 6000
_HEARTBEAT_MS = 1500
#: How often unstable positions are asked for again.
_STABLE_RETRY_S = 0.1
#: How often shard by shard, which takes a moment for each that is unstable; one dead owner's become stable together.
_EACH_RETRY_S = 1.0
#: Longer than any dead owner's transaction can live.
_WARN_S = 30.0
_LEAVE_S = 2.0

_INSTANCE = re.compile(r"[A-Za-z0-9._-]{1,200}")

_log = structlog.get_logger("tidewheel.kafka")


class GroupState(Group, Protocol):
    """What the broker knows of the group."""

    def stable(self, consumer: Consumer, shards: frozenset[int], *, each: bool) -> dict[int, Start]:
        """Where to begin those shards whose committed positions are settled."""


class KafkaOwner:
    """One member; not thread-safe."""

    def __init__(
        self,
        config: Config,
        prefix: str,
        partitions: int,
        instance: str,
        group: GroupState,
        transactions: Transactions,
    ) -> None:
        self._partitions = partitions
        self._prefix = prefix
        self._instance = instance
        self._group = group
        self._transactions = transactions
        self._topics = {prefix + topic: topic for topic in INPUTS}
        #: What the group gave us; a subset of it is started.
        self._assigned: frozenset[int] = frozenset()
        self._epochs: dict[int, int] = {}
        self._last_epoch = 0
        #: Next offset by full topic name and partition, of started shards.
        self._next: dict[tuple[str, int], int] = {}
        #: Positions as of our last commit.
        self._sent: dict[tuple[str, int], int] = {}
        #: Positions as they are committed, whoever did it.
        self._settled: dict[tuple[str, int], int] = {}
        #: What stands beside the positions on triggers, and which of it has changed since our last commit.
        self._notes: dict[int, str] = {}
        self._noted: set[int] = set()
        self._paused: frozenset[int] = frozenset()
        self._held: frozenset[int] = frozenset()
        self._rewind = False
        self._must_reset = False
        self._must_rejoin = False
        self._fenced = False
        self._closed = False
        self._retry_at = self._ask_each_at = 0.0
        self._waiting_since = time.monotonic()
        self._identity = Identity(group, instance, str(config["client.id"]))
        self._config: Config = {
            **config,
            "group.instance.id": prefix + instance,
            "group.protocol": "classic",
            "partition.assignment.strategy": "range",
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": _HEARTBEAT_MS,
            "fetch.wait.max.ms": 500,
            # What is queued here stands before a worker's report: a backlog of triggers, half a second of it.
            "queued.max.messages.kbytes": 2_048,
            "fetch.message.max.bytes": 262_144,
        }
        self._consumer = Consumer(self._config)
        self._subscribe()

    def poll(self, max_records: int, timeout_s: float) -> Batch:
        """Wait for a first record or a change of shards, then take what is here."""
        assert not self._must_reset, "a commit failed: reset() first"
        deadline = time.monotonic() + timeout_s
        before = self._last_epoch, len(self._epochs)
        records: list[Record] = []
        while True:
            self._start_shards()
            remaining = max(0.0, deadline - time.monotonic())
            if before != (self._last_epoch, len(self._epochs)):
                remaining = 0.0
            pending = len(self._epochs) < len(self._assigned)
            self._fetch(max_records, min(remaining, _STABLE_RETRY_S) if pending else remaining, records)
            if self._fenced:
                self._join_again()
                records.clear()
            if records or remaining <= 0 or before != (self._last_epoch, len(self._epochs)):
                break
        token = (self._consumer.consumer_group_metadata(), dict(self._epochs))
        kept = tuple(record for record in records if record.partition in self._epochs)
        return Batch(kept, token[1], token, dict(self._notes))

    def commit(self, batch: Batch, appends: Sequence[Append]) -> Mapping[tuple[str, int], int]:
        """One transaction; see ``Owner.commit``."""
        assert not self._must_reset, "a commit failed: reset() first"
        self._must_reset = True
        group, epochs = batch.token
        if not epochs or any(self._epochs.get(shard) != epoch for shard, epoch in epochs.items()):
            raise Fenced(f"instance '{self._instance}' lost shards since it polled this batch")
        if problem := oversize(appends):
            raise CommitAborted(problem)
        positions = self._positions_to_send(written_shards(appends, epochs, self._partitions))
        try:
            last = self._transactions.run(appends, self._with_notes(positions), group)
        except GroupFenced:
            self._must_rejoin = True
            raise
        self._sent.update(positions)
        self._settled.update(positions)
        self._noted.clear()
        self._must_reset = False
        length = len(self._prefix)
        return {(name[length:], partition): offset for (name, partition), offset in last.items()}

    def reset(self) -> None:
        """Settle the last transaction and start over from the committed positions."""
        self._refuse_if_replaced()
        self._transactions.settle()
        self._stop_shards()
        if self._must_rejoin:
            # Otherwise the next heartbeat would tell us, and until then every commit be refused.
            self._must_rejoin = False
            self._assigned = frozenset()
            self._consumer.unsubscribe()
            self._subscribe()
        self._must_reset = False
        self._start_shards()

    def note(self, notes: Mapping[int, str]) -> None:
        """Keep these beside the positions on triggers: Kafka's metadata of a committed offset."""
        self._noted |= {shard for shard, note in notes.items() if self._notes.get(shard) != note}
        self._notes.update(notes)

    def pause_triggers(self, shards: frozenset[int]) -> None:
        """Hold back the triggers of these shards."""
        before, self._paused = self._paused, shards
        owned = self._epochs.keys() - self._held
        if resumed := [self._triggers_of(shard) for shard in (before - shards) & owned]:
            self._consumer.resume(resumed)
        if paused := [self._triggers_of(shard) for shard in (shards - before) & owned]:
            self._consumer.pause(paused)
        if resumed and self._rewind:
            self._assign()

    def hold(self, shards: frozenset[int]) -> None:
        """Read nothing of these shards, and go back to their committed positions."""
        if shards == self._held:
            return
        for place in self._next:
            if place[1] in shards - self._held:
                self._next[place] = self._settled[place]
        self._held = shards
        self._assign()

    def close(self) -> None:
        """Leave the group.

        A static member that merely closes stays a member until its session ends; unsubscribing leaves.
        """
        if self._closed:
            return
        self._closed = True
        with contextlib.suppress(KafkaException):  # a fatal error has ended the membership already
            self._consumer.unsubscribe()
            deadline = time.monotonic() + _LEAVE_S
            while self._assigned and time.monotonic() < deadline:
                self._consumer.poll(0.05)
        self._consumer.close()
        self._transactions.close()

    def _positions_to_send(self, written: set[int]) -> dict[tuple[str, int], int]:
        """What moved, one position of each shard written to, and in any case one.

        Any position carries the fence. One of each shard written to makes that shard's positions unstable until the
        transaction ends, so that an heir does not begin while a paused owner can still flush records into its journal.
        Sending all others too, of 32 shards, was measured to double the time of a commit.
        """
        positions = {
            place: offset
            for place, offset in self._next.items()
            if place[1] not in self._held and self._sent.get(place) != offset
        }
        commands, triggers = self._prefix + COMMANDS, self._prefix + TRIGGERS
        for shard in (self._noted - self._held) & self._epochs.keys():
            positions[triggers, shard] = self._next[triggers, shard]
        for shard in written or (next(iter(self._epochs)),):
            positions[commands, shard] = self._next[commands, shard]
        return positions

    def _with_notes(self, positions: Mapping[tuple[str, int], int]) -> list[TopicPartition]:
        """A position committed without its note would take the note away."""
        triggers = self._prefix + TRIGGERS
        return [
            TopicPartition(topic, shard, offset, metadata=self._notes.get(shard, "") if topic == triggers else "")
            for (topic, shard), offset in positions.items()
        ]

    def _subscribe(self) -> None:
        self._consumer.subscribe(
            list(self._topics), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke
        )

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Note what is ours; reading begins once the positions are known, outside this callback."""
        self._stop_shards()
        self._assigned = frozenset(partition.partition for partition in partitions)

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._assigned = frozenset()
        self._stop_shards()
        consumer.unassign()

    def _stop_shards(self) -> None:
        self._epochs = {}
        self._next = {}
        self._sent = {}
        self._settled = {}
        self._notes = {}
        self._noted = set()
        self._retry_at = self._ask_each_at = 0.0
        self._waiting_since = time.monotonic()
        self._consumer.assign([])

    def _start_shards(self) -> None:
        """Start the shards that are assigned, not yet started, and whose committed positions are settled."""
        wanted = self._assigned - self._epochs.keys()
        if not wanted or time.monotonic() < self._retry_at:
            return
        each = time.monotonic() >= self._ask_each_at
        for shard, start in self._group.stable(self._consumer, wanted, each=each).items():
            self._last_epoch += 1
            self._epochs[shard] = self._last_epoch
            self._notes[shard] = start.note
            for (topic, partition), offset in start.offsets.items():
                self._next[self._prefix + topic, partition] = offset
                self._settled[self._prefix + topic, partition] = offset
        now = time.monotonic()
        self._retry_at = now + _STABLE_RETRY_S
        if each:
            self._ask_each_at = now + _EACH_RETRY_S
        if wanted & self._epochs.keys():
            self._assign()
            self._waiting_since = now
        elif now - self._waiting_since > _WARN_S:
            self._waiting_since = now
            _log.warning(
                "shards wait for a transaction that nobody ends: start the scheduler that owned them once more, or end "
                "what `kafka-transactions.sh find-hanging` shows",
                shards=sorted(wanted),
            )

    def _assign(self) -> None:
        """Read every started shard that is not held from our own positions; what librdkafka had queued is dropped and
        comes again."""
        self._rewind = False
        read = {place: offset for place, offset in self._next.items() if place[1] not in self._held}
        self._consumer.assign(partitions_at(read))
        # Assigning forgets what was paused.
        if paused := [self._triggers_of(shard) for shard in (self._paused - self._held) & self._epochs.keys()]:
            self._consumer.pause(paused)

    def _triggers_of(self, shard: int) -> TopicPartition:
        return TopicPartition(self._prefix + TRIGGERS, shard)

    def _fetch(self, max_records: int, wait_s: float, into: list[Record]) -> None:
        """Wait for one message, then take what librdkafka has queued; a change of shards voids what came before it."""
        message = self._consumer.poll(wait_s)
        if message is None:
            return
        epoch = self._last_epoch, len(self._epochs)
        self._take(message, into)
        if max_records > 1:
            queued = self._consumer.consume(max_records - len(into), 0)
            if epoch != (self._last_epoch, len(self._epochs)):
                into.clear()
            for message in queued:
                self._take(message, into)

    def _take(self, message: Message[bytes, bytes], into: list[Record]) -> None:
        error = message.error()
        if error is not None:
            self._take_fault(message, error)
            return
        place = place_of(message)
        offset = message.offset()
        expected = self._next.get(place)
        if expected is None or offset is None or offset < expected or place[1] in self._held:
            return
        topic = self._topics[place[0]]
        if topic == TRIGGERS and place[1] in self._paused:
            self._rewind = True
            return
        self._next[place] = offset + 1
        into.append(record_of(message, topic))

    def _take_fault(self, message: Message[bytes, bytes], error: KafkaError) -> None:
        code = error.code()
        if code == KafkaError._PARTITION_EOF:
            place, offset = place_of(message), message.offset()
            if place in self._next and offset is not None and offset > self._next[place] and place[1] not in self._held:
                self._next[place] = offset
        elif code == KafkaError.FENCED_INSTANCE_ID or error.fatal() or code == KafkaError._FATAL:
            self._fenced = True
        elif code in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            _log.error("retention deleted inputs before they were read", error=error.str())
            self._stop_shards()
        elif code == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise LogMisconfigured(f"an input topic is gone: {error.str()}; run `tidewheel topics create`")
        elif not error.retriable() and code != KafkaError._MAX_POLL_EXCEEDED:
            raise LogUnavailable(f"cannot read the inputs: {error.str()}")

    def _join_again(self) -> None:
        """The group took our place for another's.

        That may be us: a lost answer to a join makes the broker count us twice.
        """
        self._assigned = frozenset()
        self._epochs, self._next, self._sent, self._settled, self._notes = {}, {}, {}, {}, {}
        try:
            self._refuse_if_replaced()
        except LogUnavailable:
            return  # still fenced; the next poll asks again
        self._consumer.close()
        self._consumer = Consumer(self._config)
        self._subscribe()
        self._fenced = False

    def _refuse_if_replaced(self) -> None:
        """Starting anything anew would throw out another process of our name, and it us, without end."""
        if self._identity.is_taken(self._consumer.memberid() or ""):
            self._fenced = True
            raise Fenced(f"another scheduler has started as instance '{self._instance}'; give each its own name")


def check_instance(instance: str) -> None:
    """Refuse a name that Kafka cannot take."""
    if not _INSTANCE.fullmatch(instance):
        raise LogMisconfigured(
            f"instance name '{instance}' cannot be used: 1 to 200 letters, digits, '.', '_', '-' (TIDEWHEEL_INSTANCE)"
        )
