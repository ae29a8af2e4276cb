"""``KafkaLog``: the cluster as a log."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import cast

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from tidewheel.log.interface import DEFAULT_PARTITIONS, INPUTS, LogMisconfigured, LogUnavailable
from tidewheel.log.kafka.client import (
    CONTACT_S_MAX,
    Config,
    base_config,
    consumer_config,
    fault_of,
    log_replaced,
    unavailable,
    unique_client_id,
)
from tidewheel.log.kafka.owner import KafkaOwner, check_instance
from tidewheel.log.kafka.producer import KafkaProducer
from tidewheel.log.kafka.reader import KafkaReader
from tidewheel.log.kafka.topics import KafkaTopics, existing
from tidewheel.log.kafka.transaction import Transactions
from tidewheel.log.kafka.watchdog import Watchdog, end_process

DEFAULT_PREFIX = "tidewheel."

#: How long positions under way are waited for by those who only ask.
_SETTLE_S_MAX = 1.0
#: What a broker answers while a partition's leader is being made or moves.
_LEADER_MOVES = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
}


class KafkaLog:
    """Tidewheel's topics on one Kafka cluster, all under one prefix.

    ``partitions`` is what new topics get; where topics exist and none is given, theirs counts. ``options`` are
    librdkafka's own settings (TLS, SASL). ``call_s_max`` bounds each step of a commit; one that takes ``stuck_s``
    altogether calls ``on_stuck``.
    """

    def __init__(
        self,
        servers: str,
        prefix: str = DEFAULT_PREFIX,
        partitions: int | None = None,
        *,
        replication: int | None = None,
        linger_ms: float = 0.5,
        call_s_max: float = 6.0,
        stuck_s: float = 20.0,
        on_stuck: Callable[[str, float], None] = end_process,
        options: Mapping[str, str] | None = None,
    ) -> None:
        self._servers = servers
        self._prefix = prefix
        self._group = prefix + "schedulers"
        self._linger_ms = linger_ms
        self._call_s_max = call_s_max
        self._stuck_s = stuck_s
        self._on_stuck = on_stuck
        self._options = options or {}
        self._replication = replication
        self._lock = threading.Lock()
        self._query: Consumer | None = None
        self._opened: weakref.WeakSet[KafkaProducer | KafkaReader | KafkaOwner] = weakref.WeakSet()
        self._admin = AdminClient(cast("dict[str, str | int | float | bool]", self._base()))
        present, _ = existing(self._admin, servers, prefix)
        self.partitions = partitions or next(iter(present.values()), DEFAULT_PARTITIONS)
        self._topics = KafkaTopics(self._admin, servers, prefix, self.partitions, replication)

    def create_topics(self) -> Sequence[str]:
        """Create what is missing."""
        return self._topics.create()

    def check_topics(self) -> None:
        """Raise unless every topic is there and set as the engine needs it."""
        self._topics.check()

    def producer(self) -> KafkaProducer:
        """A new idempotent producer."""
        producer = KafkaProducer(self._servers, self._options, self._prefix, self._linger_ms)
        self._opened.add(producer)
        return producer

    def reader(self, starts: Mapping[tuple[str, int], int]) -> KafkaReader:
        """A reader of these partitions from these offsets."""
        reader = KafkaReader(self._consumer_config(self._prefix + "readers"), self._prefix, starts, self._clamp)
        self._opened.add(reader)
        return reader

    def owner(self, instance: str) -> KafkaOwner:
        """Join the group; aborts at once what an earlier process of this name left open."""
        check_instance(instance)
        present, _ = existing(self._admin, self._servers, self._prefix)
        for topic in INPUTS:
            if topic not in present:
                raise LogMisconfigured(f"no topic '{self._prefix}{topic}': run `tidewheel topics create`")
        dog = Watchdog(self._stuck_s, self._on_stuck)
        transactions = Transactions(self._base(), self._servers, self._prefix + instance, self._call_s_max, dog)
        config = {**self._consumer_config(self._group), "client.id": unique_client_id(instance)}
        owner = KafkaOwner(config, self._prefix, self.partitions, instance, self, transactions)
        weakref.finalize(owner, dog.close)
        self._opened.add(owner)
        return owner

    def end_offset(self, topic: str, partition: int) -> int:
        """The high watermark."""
        return self._watermarks(topic, partition)[1]

    def start_offset(self, topic: str, partition: int) -> int:
        """The low watermark."""
        return self._watermarks(topic, partition)[0]

    def committed(self, partition: int) -> Mapping[str, int | None]:
        """The group's committed positions of this shard.

        A commit returns before its positions are to be seen, so what is under way is waited for, briefly.
        """
        shard = frozenset({partition})
        deadline = time.monotonic() + _SETTLE_S_MAX
        try:
            answer = self._committed(shard, stable=True)
            while any(found.error for found in answer) and time.monotonic() < deadline:
                time.sleep(0.01)
                answer = self._committed(shard, stable=True)
            if any(found.error for found in answer):
                answer = self._committed(shard, stable=False)
        except KafkaException as error:
            raise unavailable(self._servers, "asking for committed positions", error) from error
        length = len(self._prefix)
        return {found.topic[length:]: found.offset if found.offset >= 0 else None for found in answer}

    def close(self) -> None:
        """Close what was opened and not closed."""
        for opened in list(self._opened):
            opened.close()
        with self._lock:
            if self._query is not None:
                self._query.close()
                self._query = None

    def stable(self, shards: frozenset[int]) -> dict[int, dict[tuple[str, int], int]]:
        """Where to read these shards from, of those with settled positions (``InputPositions``)."""
        try:
            answer = self._committed(shards, stable=True)
        except KafkaException:
            return {}
        starts: dict[int, dict[tuple[str, int], int]] = {}
        unsettled: set[int] = set()
        for found in answer:
            if found.error is not None:
                unsettled.add(found.partition)
            else:
                place = (found.topic[len(self._prefix) :], found.partition)
                starts.setdefault(found.partition, {})[place] = max(found.offset, 0)
        for shard in unsettled:
            starts.pop(shard, None)
        try:
            clamped = self._clamp({place: offset for shard in starts.values() for place, offset in shard.items()}, 0)
        except LogUnavailable:
            return {}
        return {shard: {place: clamped[place] for place in places} for shard, places in starts.items()}

    def holder(self, instance: str) -> str:
        """Client id of the group's member of this name; nothing if there is none (``InputPositions``)."""
        try:
            group = self._admin.describe_consumer_groups([self._group], request_timeout=CONTACT_S_MAX)[self._group]
            members = group.result().members
        except KafkaException as error:
            raise unavailable(self._servers, "asking for the group's members", error) from error
        name = self._prefix + instance
        return next((member.client_id for member in members if member.group_instance_id == name), "")

    def _committed(self, shards: frozenset[int], *, stable: bool) -> list[TopicPartition]:
        """The group's positions; of those that an open transaction may still move, an error if they must be stable."""
        asked = [TopicPartition(self._prefix + topic, shard) for topic in INPUTS for shard in shards]
        futures = self._admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(self._group, asked)], require_stable=stable, request_timeout=CONTACT_S_MAX
        )
        return list(futures[self._group].result().topic_partitions)

    def _base(self) -> Config:
        return base_config(self._servers, self._options)

    def _consumer_config(self, group: str) -> Config:
        return consumer_config(self._servers, self._options, group)

    def _query_consumer(self) -> Consumer:
        """For questions only; it never joins. Uncommitted reads, for a high watermark is not the last stable offset."""
        if self._query is None:
            self._query = Consumer({**self._consumer_config(self._group), "isolation.level": "read_uncommitted"})
        return self._query

    def _watermarks(self, topic: str, partition: int) -> tuple[int, int]:
        with self._lock:
            try:
                low, high = self._query_consumer().get_watermark_offsets(
                    TopicPartition(self._prefix + topic, partition), timeout=CONTACT_S_MAX, cached=False
                )
            except KafkaException as error:
                raise unavailable(self._servers, f"asking for the end of {topic}/{partition}", error) from error
        return low, high

    def _clamp(
        self, starts: Mapping[tuple[str, int], int], patience_s: float = CONTACT_S_MAX
    ) -> dict[tuple[str, int], int]:
        """Raise starts to the oldest offsets kept; refuse those beyond the end."""
        if not starts:
            return {}
        lows = self._offsets(starts, OffsetSpec.earliest(), patience_s)  # type: ignore[no-untyped-call]
        highs = self._offsets(starts, OffsetSpec.latest(), patience_s)  # type: ignore[no-untyped-call]
        for (topic, partition), start in starts.items():
            if start > highs[topic, partition]:
                raise log_replaced(topic, partition, start, highs[topic, partition])
        return {place: max(start, lows[place]) for place, start in starts.items()}

    def _offsets(
        self, places: Iterable[tuple[str, int]], at: OffsetSpec, patience_s: float
    ) -> dict[tuple[str, int], int]:
        """Offsets of many partitions at once; patient with leaders that are new or moving."""
        asked = {TopicPartition(self._prefix + topic, partition): at for topic, partition in places}
        length = len(self._prefix)
        deadline = time.monotonic() + patience_s
        while True:
            futures = self._admin.list_offsets(
                asked, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=CONTACT_S_MAX
            )
            try:
                return {(tp.topic[length:], tp.partition): future.result().offset for tp, future in futures.items()}
            except KafkaException as error:
                moves = fault_of(error).code() in _LEADER_MOVES
                if moves:
                    # The client keeps asking by the leader it knows; only this makes it learn of another.
                    existing(self._admin, self._servers, self._prefix)
                if not moves or time.monotonic() >= deadline:
                    raise unavailable(self._servers, "asking for offsets", error) from error
                time.sleep(0.02)
