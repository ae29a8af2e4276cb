"""What is asked of the cluster: offsets, the group's positions, who is a member.

An ``AdminClient`` does not survive everything: it goes on asking by a leader it remembers, and after a broker's restart
its requests to the group's coordinator have been seen to time out for good. So it is told to look again, or replaced.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import cast

from confluent_kafka import ConsumerGroupTopicPartitions, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from tidewheel.log.interface import INPUTS, LogUnavailable
from tidewheel.log.kafka.client import CONTACT_S_MAX, Config, fault_of, log_replaced, unavailable

#: An owner asks between polls; it can ask again.
_ASK_S_MAX = 2.0

#: What a broker answers while a partition's leader is being made or moves.
_LEADER_MOVES = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
}

#: Short topic name and partition.
Place = tuple[str, int]


class Cluster:
    """Questions to one cluster about one prefix."""

    def __init__(self, config: Config, servers: str, prefix: str, group: str) -> None:
        self._config = config
        self._servers = servers
        self._prefix = prefix
        self._group = group
        self._lock = threading.Lock()
        self._admin = self.new_admin()

    def new_admin(self) -> AdminClient:
        """An admin client of one's own."""
        return AdminClient(cast("dict[str, str | int | float | bool]", self._config))

    def committed(self, shards: frozenset[int], *, stable: bool) -> list[TopicPartition]:
        """The group's positions; of those that an open transaction may still move, an error if they must be stable."""
        asked = [TopicPartition(self._prefix + topic, shard) for topic in INPUTS for shard in shards]
        request = [ConsumerGroupTopicPartitions(self._group, asked)]
        with self._asking("asking for committed positions") as admin:
            futures = admin.list_consumer_group_offsets(request, require_stable=stable, request_timeout=_ASK_S_MAX)
            return list(futures[self._group].result().topic_partitions)

    def stable(self, shards: frozenset[int]) -> dict[int, dict[Place, int]]:
        """Where to read these shards from, of those with settled positions; none if the cluster cannot tell now."""
        try:
            answer = self.committed(shards, stable=True)
            unsettled = {found.partition for found in answer if found.error is not None}
            starts = {
                (found.topic[len(self._prefix) :], found.partition): max(found.offset, 0)
                for found in answer
                if found.partition not in unsettled
            }
            clamped = self.clamp(starts, patience_s=0)
        except LogUnavailable:
            return {}
        settled: dict[int, dict[Place, int]] = {}
        for place, offset in clamped.items():
            settled.setdefault(place[1], {})[place] = offset
        return settled

    def holder(self, instance: str) -> str:
        """Client id of the group's member of this name; nothing if there is none."""
        with self._asking("asking for the group's members") as admin:
            group = admin.describe_consumer_groups([self._group], request_timeout=_ASK_S_MAX)[self._group]
            members = group.result().members
        name = self._prefix + instance
        return next((str(member.client_id) for member in members if member.group_instance_id == name), "")

    def clamp(self, starts: Mapping[Place, int], patience_s: float = CONTACT_S_MAX) -> dict[Place, int]:
        """Raise starts to the oldest offsets kept; refuse those beyond the end."""
        if not starts:
            return {}
        lows = self._offsets(starts, OffsetSpec.earliest(), patience_s)  # type: ignore[no-untyped-call]
        highs = self._offsets(starts, OffsetSpec.latest(), patience_s)  # type: ignore[no-untyped-call]
        for (topic, partition), start in starts.items():
            if start > highs[topic, partition]:
                raise log_replaced(topic, partition, start, highs[topic, partition])
        return {place: max(start, lows[place]) for place, start in starts.items()}

    def start(self, topic: str, partition: int) -> int:
        """The low watermark."""
        place = (topic, partition)
        return self._offsets([place], OffsetSpec.earliest(), CONTACT_S_MAX)[place]  # type: ignore[no-untyped-call]

    def ends(self, places: Iterable[Place]) -> dict[Place, int]:
        """The high watermarks."""
        return self._offsets(places, OffsetSpec.latest(), CONTACT_S_MAX)  # type: ignore[no-untyped-call]

    def _offsets(self, places: Iterable[Place], at: OffsetSpec, patience_s: float) -> dict[Place, int]:
        """Offsets of many partitions at once; patient with leaders that are new or moving."""
        asked = {TopicPartition(self._prefix + topic, partition): at for topic, partition in places}
        length = len(self._prefix)
        deadline = time.monotonic() + patience_s
        while True:
            try:
                with self._asking("asking for offsets") as admin:
                    # Uncommitted, for an end counts open transactions.
                    futures = admin.list_offsets(
                        asked, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=_ASK_S_MAX
                    )
                    return {(tp.topic[length:], tp.partition): found.result().offset for tp, found in futures.items()}
            except LogUnavailable as error:
                cause = error.__cause__
                moves = isinstance(cause, KafkaException) and fault_of(cause).code() in _LEADER_MOVES
                if not moves or time.monotonic() >= deadline:
                    raise
                time.sleep(0.02)

    @contextmanager
    def _asking(self, doing: str) -> Iterator[AdminClient]:
        admin = self._admin
        try:
            yield admin
        except KafkaException as error:
            self._renew(admin)
            raise unavailable(self._servers, doing, error) from error

    def _renew(self, failed: AdminClient) -> None:
        """Ask through a new client from now on."""
        with self._lock:
            if self._admin is failed:
                self._admin = self.new_admin()
