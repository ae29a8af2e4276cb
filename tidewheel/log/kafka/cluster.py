"""What is asked of the cluster: offsets, the group's positions, who is a member.

All of it goes through consumers that never join, not through ``AdminClient``: librdkafka 2.16 sends an admin client's
requests for the group's coordinator to a handle that it drops when a broker leaves the metadata for a moment. From then
on they time out, and giving such a client up has been seen to end the process (``rd_kafka_enq_once_del_source_return:
Assertion``).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from tidewheel.log.interface import INPUTS, TRIGGERS
from tidewheel.log.kafka.client import (
    CLIENT_ID_PREFIX,
    CONTACT_S_MAX,
    NO_ANSWER,
    NOT_REACHABLE,
    Config,
    answer,
    fault_of,
    log_replaced,
    unavailable,
)
from tidewheel.log.kafka.identity import Holder

#: Enough for a busy broker; where positions are unstable, the whole of it is waited out.
_COMMITTED_S_MAX = 0.3
#: For positions known to have been unstable a moment ago.
_AGAIN_S_MAX = 0.03
#: How long one question for offsets may take before it is asked in another way.
_ANSWER_S_MAX = 2.0
#: ``offsets_for_times`` takes these for times.
_EARLIEST, _LATEST = -2, -1

#: What a broker answers while a partition's leader is being made or moves, or what is heard of one that is very busy.
_ASK_AGAIN = {
    KafkaError._TIMED_OUT,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
}

#: Nobody answered at all, or the client believes that there is nobody to ask: it will not look for a leader itself.
_ASKS_IN_VAIN = NO_ANSWER | NOT_REACHABLE | {KafkaError.LEADER_NOT_AVAILABLE, KafkaError._UNKNOWN_PARTITION}
#: How long to look whether a broker is there at all.
_REACH_S_MAX = 2.0
#: What a broker answers that has just become the group's coordinator, or is about to.
_COORDINATOR_STARTS = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
}
_PAUSE_COORDINATOR_S = 0.1

#: Between two questions; a new client's first one costs some connections.
_PAUSE_S, _PAUSE_NEW_CLIENT_S = 0.02, 0.2

_UUID_LENGTH = 36

#: Short topic name and partition.
Place = tuple[str, int]


class Start(NamedTuple):
    """Where an owner begins a shard: an offset of each input, and what stands beside the one on triggers."""

    offsets: dict[Place, int]
    note: str


class Cluster:
    """Questions to one cluster about one prefix. ``config`` is that of a consumer of the owners' group."""

    def __init__(self, config: Config, admin_config: Config, servers: str, prefix: str) -> None:
        self._config = config
        self._admin_config = admin_config
        self._servers = servers
        self._prefix = prefix
        self._lock = threading.Lock()
        self._consumers: dict[str, Consumer] = {}

    def new_admin(self) -> AdminClient:
        """An admin client, for topics only."""
        return AdminClient(cast("dict[str, str | int | float | bool]", self._admin_config))

    def close(self) -> None:
        """Let go."""
        with self._lock:
            for consumer in self._consumers.values():
                consumer.close()
            self._consumers.clear()

    def committed(self, shard: int, *, stable: bool, timeout_s: float) -> Start:
        """The group's positions on a shard, below zero where there is none; stable ones may have to be waited for."""
        with self._lock:
            consumer = self._consumer("read_committed" if stable else "read_uncommitted")
            try:
                found = self._ask_committed(consumer, frozenset({shard}), timeout_s)
            except KafkaException as error:
                raise unavailable(self._servers, "asking for committed positions", error) from error
        return Start(self._short(found), _notes(found, self._prefix)[shard])

    def stable(self, consumer: Consumer, shards: frozenset[int], *, each: bool) -> dict[int, Start]:
        """Where to read these shards from, of those whose positions no open transaction may still move.

        ``consumer`` is the owner's. One unsettled position makes the answer for all wait; ``each`` then asks shard by
        shard.
        """
        found: list[TopicPartition] = []
        try:
            found = self._ask_committed(consumer, shards, _COMMITTED_S_MAX if each else _AGAIN_S_MAX)
        except KafkaException:
            for shard in shards if each else ():
                try:
                    found += self._ask_committed(consumer, frozenset({shard}), _AGAIN_S_MAX)
                except KafkaException:
                    continue
        starts = {place: max(offset, 0) for place, offset in self._short(found).items()}
        try:
            with self._lock:
                clamped = self._clamped(starts)
        except KafkaException:
            return {}
        notes = _notes(found, self._prefix)
        settled: dict[int, Start] = {}
        for place, offset in clamped.items():
            settled.setdefault(place[1], Start({}, notes[place[1]])).offsets[place] = offset
        return settled

    def holder(self, instance: str) -> Holder | None:
        """The group's member of this name, if there is one.

        The client id is that of the first process of this name that joined: Kafka keeps it when a restart takes the
        place, and gives that one a new member id, which for a static member is its name and a UUID. The newer
        ``describe_consumer_groups`` asks the coordinator.
        """
        name = f"{self._prefix}{instance}-"
        for member_id, client_id in self._client_ids().items():
            if member_id.startswith(name) and len(member_id) == len(name) + _UUID_LENGTH:
                return Holder(member_id, client_id)
        return None

    def _client_ids(self) -> dict[str, str]:
        """The group's members, by member id. Patient with a coordinator that has just started."""
        admin = self.new_admin()
        deadline = time.monotonic() + CONTACT_S_MAX
        while True:
            try:
                groups = admin.list_groups(str(self._config["group.id"]), timeout=_left(deadline))
                for group in groups:
                    if group.error is not None:
                        raise KafkaException(group.error)
                return {str(member.id): str(member.client_id) for group in groups for member in group.members}
            except KafkaException as error:
                if fault_of(error).code() not in _COORDINATOR_STARTS or time.monotonic() >= deadline:
                    raise unavailable(self._servers, "asking for the group's members", error) from error
            time.sleep(_PAUSE_COORDINATOR_S)

    def group_metadata(self) -> object:
        """What names the owners' group in a transaction of somebody who is no member of it.

        Waits until the group has a coordinator: on a new cluster that takes a moment, and librdkafka's transactions
        may wait for it for ever.
        """
        with self._lock:
            consumer = self._consumer("read_uncommitted")
            try:
                self._ask_committed(consumer, frozenset({0}), CONTACT_S_MAX)
            except KafkaException as error:
                raise unavailable(self._servers, "asking for the group's coordinator", error) from error
            return consumer.consumer_group_metadata()

    def clamp(self, starts: Mapping[Place, int]) -> dict[Place, int]:
        """Raise starts to the oldest offsets kept; refuse those beyond the end. Patient with leaders that move."""
        return self._patiently(lambda: self._clamped(starts))

    def members(self) -> list[str]:
        """The instances in the group, by their client ids."""
        found = []
        for client_id in self._client_ids().values():
            name = client_id.removeprefix(CLIENT_ID_PREFIX)
            found.append(name.rpartition("-")[0] or name)
        return sorted(found)

    def start(self, topic: str, partition: int) -> int:
        """The low watermark."""
        return self._patient_offsets([(topic, partition)], _EARLIEST)[topic, partition]

    def starts(self, places: Iterable[Place]) -> dict[Place, int]:
        """The low watermarks."""
        return self._patient_offsets(places, _EARLIEST)

    def offsets_at(self, places: Iterable[Place], timestamp: int) -> dict[Place, int]:
        """The first offsets at or after a time, else the ends."""
        found = self._patient_offsets(places, timestamp)
        without = [place for place, offset in found.items() if offset < 0]
        return found | self.ends(without) if without else found

    def delete_before(self, topic: str, partition: int, before: int) -> None:
        """Let the brokers delete records."""
        at = TopicPartition(self._prefix + topic, partition, before)
        admin = self.new_admin()  # a client that nobody holds never answers
        for deleted in admin.delete_records([at], request_timeout=CONTACT_S_MAX).values():
            answer(deleted, self._servers, f"deleting records of {topic}/{partition}")

    def ends(self, places: Iterable[Place]) -> dict[Place, int]:
        """The high watermarks."""
        return self._patient_offsets(places, _LATEST)

    def _patient_offsets(self, places: Iterable[Place], at: int) -> dict[Place, int]:
        """Offsets, also while leaders move."""
        asked = list(places)
        return self._patiently(lambda: self._offsets(asked, at))

    def _patiently(self, ask: Callable[[], dict[Place, int]]) -> dict[Place, int]:
        deadline = time.monotonic() + CONTACT_S_MAX
        while True:
            try:
                with self._lock:
                    return ask()
            except KafkaException as error:
                if time.monotonic() >= deadline or fault_of(error).code() not in _ASK_AGAIN:
                    raise unavailable(self._servers, "asking for offsets", self._behind(error)) from error
                time.sleep(_PAUSE_NEW_CLIENT_S if fault_of(error).code() in _ASKS_IN_VAIN else _PAUSE_S)

    def _behind(self, error: KafkaException) -> KafkaException:
        """What is behind an error: a client that knows nothing of a partition may have heard of no broker at all."""
        if fault_of(error).code() != KafkaError._UNKNOWN_PARTITION:
            return error
        with self._lock:
            try:
                self._consumer("read_uncommitted").list_topics(timeout=_REACH_S_MAX)
            except KafkaException as unreached:
                return unreached
        return error

    # Callers below hold the lock.

    def _clamped(self, starts: Mapping[Place, int]) -> dict[Place, int]:
        if not starts:
            return {}
        lows, highs = self._offsets(starts, _EARLIEST), self._offsets(starts, _LATEST)
        for (topic, partition), start in starts.items():
            if start > highs[topic, partition]:
                raise log_replaced(topic, partition, start, highs[topic, partition])
        return {place: max(start, lows[place]) for place, start in starts.items()}

    def _offsets(self, places: Iterable[Place], at: int) -> dict[Place, int]:
        """First or last offsets of many partitions in one round; uncommitted, for an end counts open transactions."""
        asked = [TopicPartition(self._prefix + topic, partition, at) for topic, partition in places]
        if not asked:
            return {}
        consumer = self._consumer("read_uncommitted")
        try:
            return self._short(_sound(consumer.offsets_for_times(asked, timeout=_ANSWER_S_MAX)))
        except KafkaException as error:
            if fault_of(error).code() in _ASKS_IN_VAIN:
                self._replace("read_uncommitted")
            raise

    def _consumer(self, isolation: str) -> Consumer:
        if isolation not in self._consumers:
            self._consumers[isolation] = Consumer({**self._config, "isolation.level": isolation})
        return self._consumers[isolation]

    def _replace(self, isolation: str) -> None:
        """Ask by a new consumer from now on.

        librdkafka 2.16 asks whom it knew as a partition's leader, and a question without answer does not make it look
        for a new one: after the death of one of several brokers the old consumer would ask that one for minutes. Nor
        does it look again once it was told, amid an election, that a partition has no leader: it takes that for
        permanent (``rd_kafka_topic_partition_list_get_leaders``) and repeats it from its cache.
        """
        consumer = self._consumers.pop(isolation)
        # That can wait for the broker that is gone.
        threading.Thread(target=consumer.close, name="kafka-discard", daemon=True).start()

    def _ask_committed(self, consumer: Consumer, shards: frozenset[int], timeout_s: float) -> list[TopicPartition]:
        return _sound(consumer.committed(self._inputs(shards), timeout=timeout_s))

    def _inputs(self, shards: frozenset[int]) -> list[TopicPartition]:
        return [TopicPartition(self._prefix + topic, shard) for topic in INPUTS for shard in shards]

    def _short(self, answer: list[TopicPartition]) -> dict[Place, int]:
        length = len(self._prefix)
        return {(found.topic[length:], found.partition): found.offset for found in answer}


def _left(deadline: float) -> float:
    """Seconds until then, and enough for an answer that is on its way."""
    return max(0.1, deadline - time.monotonic())


def _sound(answer: list[TopicPartition]) -> list[TopicPartition]:
    for found in answer:
        if found.error is not None:
            raise KafkaException(found.error)
    return answer


def _notes(answer: list[TopicPartition], prefix: str) -> dict[int, str]:
    return {found.partition: found.metadata or "" for found in answer if found.topic == prefix + TRIGGERS}
