"""``KafkaLog``: the cluster as a log."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Mapping, Sequence

from tidewheel.log.interface import DEFAULT_PARTITIONS, INPUTS, LogMisconfigured, LogUnavailable, TopicSetting
from tidewheel.log.kafka.client import CONTACT_S_MAX, Config, base_config, consumer_config, unique_client_id
from tidewheel.log.kafka.cluster import Cluster, Start
from tidewheel.log.kafka.owner import KafkaOwner, check_instance
from tidewheel.log.kafka.producer import KafkaProducer
from tidewheel.log.kafka.reader import KafkaReader
from tidewheel.log.kafka.topics import KafkaTopics, existing
from tidewheel.log.kafka.transaction import Transactions
from tidewheel.log.kafka.watchdog import Watchdog, end_process

DEFAULT_PREFIX = "tidewheel."

#: How long positions under way are waited for by those who only ask.
_SETTLE_S_MAX = 1.0


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
        self._opened: weakref.WeakSet[KafkaProducer | KafkaReader | KafkaOwner] = weakref.WeakSet()
        self._cluster = Cluster(self._consumer_config(self._group), self._base(), servers, prefix)
        present, _ = existing(self._cluster.new_admin(), servers, prefix)
        self.partitions = partitions or next(iter(present.values()), DEFAULT_PARTITIONS)
        self._topics = KafkaTopics(self._cluster.new_admin, servers, prefix, self.partitions, replication)

    def create_topics(self, *, repair: bool = False) -> Sequence[str]:
        """Create what is missing."""
        return self._topics.create(repair)

    def check_topics(self) -> None:
        """Raise unless every topic is there and set as the engine needs it."""
        self._topics.check()

    def inspect_topics(self) -> Sequence[TopicSetting]:
        """The topics' settings."""
        return self._topics.inspect()

    def producer(self) -> KafkaProducer:
        """A new idempotent producer."""
        producer = KafkaProducer(self._servers, self._options, self._prefix, self._linger_ms)
        self._opened.add(producer)
        return producer

    def reader(self, starts: Mapping[tuple[str, int], int]) -> KafkaReader:
        """A reader of these partitions from these offsets."""
        reader = KafkaReader(self._consumer_config(self._prefix + "readers"), self._prefix, starts, self._cluster.clamp)
        self._opened.add(reader)
        return reader

    def owner(self, instance: str) -> KafkaOwner:
        """Join the group; aborts at once what an earlier process of this name left open."""
        check_instance(instance)
        present, _ = existing(self._cluster.new_admin(), self._servers, self._prefix)
        for topic in INPUTS:
            if topic not in present:
                raise LogMisconfigured(f"no topic '{self._prefix}{topic}': run `tidewheel topics create`")
        dog = Watchdog(self._stuck_s, self._on_stuck)
        names = self._cluster.group_metadata
        transactions = Transactions(
            self._base(), self._servers, self._prefix, instance, self._call_s_max, dog, group_metadata=names
        )
        config = {**self._consumer_config(self._group), "client.id": unique_client_id(instance)}
        owner = KafkaOwner(config, self._prefix, self.partitions, instance, self._cluster, transactions)
        weakref.finalize(owner, dog.close)
        self._opened.add(owner)
        return owner

    def end_offset(self, topic: str, partition: int) -> int:
        """The high watermark."""
        return self._cluster.ends([(topic, partition)])[topic, partition]

    def end_offsets(self, places: Collection[tuple[str, int]]) -> Mapping[tuple[str, int], int]:
        """The high watermarks of many, in one request to each broker."""
        return self._cluster.ends(places)

    def start_offset(self, topic: str, partition: int) -> int:
        """The low watermark."""
        return self._cluster.start(topic, partition)

    def start_offsets(self, places: Collection[tuple[str, int]]) -> Mapping[tuple[str, int], int]:
        """The low watermarks of many."""
        return self._cluster.starts(places)

    def offsets_at(self, places: Collection[tuple[str, int]], timestamp: int) -> Mapping[tuple[str, int], int]:
        """The first records of this time or later, by the timestamps of the topic."""
        return self._cluster.offsets_at(places, timestamp)

    def trim(self, topic: str, partition: int, before: int) -> None:
        """``DeleteRecords``."""
        self._cluster.delete_before(topic, partition, before)

    def owners(self) -> Sequence[str]:
        """The group's members."""
        return self._cluster.members()

    def committed(self, partition: int) -> Mapping[str, int | None]:
        """The group's committed positions of this shard.

        A commit returns before its positions are to be seen, so what is under way is waited for, briefly.
        """
        start = self._settled(partition)
        return {topic: offset if offset >= 0 else None for (topic, _), offset in start.offsets.items()}

    def noted(self, partition: int) -> str:
        """The metadata of the committed position on triggers."""
        return self._settled(partition).note

    def close(self) -> None:
        """Close what was opened and not closed."""
        for opened in list(self._opened):
            opened.close()
        self._cluster.close()

    def _settled(self, partition: int) -> Start:
        try:
            return self._cluster.committed(partition, stable=True, timeout_s=_SETTLE_S_MAX)
        except LogUnavailable:
            return self._cluster.committed(partition, stable=False, timeout_s=CONTACT_S_MAX)

    def _base(self) -> Config:
        return base_config(self._servers, self._options)

    def _consumer_config(self, group: str) -> Config:
        return consumer_config(self._servers, self._options, group)
