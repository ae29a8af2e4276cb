"""Topics of a Kafka cluster as a feed: any topic of anybody, and the members of the group of listeners.

Positions are committed offsets of the group. Beside each, as its metadata, stand ``Stand.known`` and the id of the
topic, by which one that was made anew under its old name is told from what it was. The first positions of a topic are
committed by whoever holds its partition 0, for all its partitions at once; the others wait for them. So
a partition without a position, in a topic where another has one, is known to have come later, and begins with its
first record.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import cast

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

from tidewheel.log.feed import Place, Stand, Taken
from tidewheel.log.interface import LogMisconfigured, LogUnavailable, Record
from tidewheel.log.kafka.client import (
    CLIENT_ID_PREFIX,
    CONTACT_S_MAX,
    MESSAGE_BYTES_MAX,
    Config,
    answer,
    base_config,
    consumer_config,
    fault_of,
    place_of,
    record_of,
    unavailable,
    unique_client_id,
)
from tidewheel.log.kafka.scanner import KafkaScanner

#: How late a topic, or a partition of one, that was made is noticed.
_LOOK_FOR_TOPICS_MS = 5_000
_SESSION_MS, _HEARTBEAT_MS = 6_000, 1_500
#: Between two looks for positions that another member is to commit.
_BEGIN_RETRY_S = 0.2
_POLL_S_MAX = 0.2
_PUBLISH_S_MAX = 10.0
_LISTENER = "listener-"
_CLIENT_ID = CLIENT_ID_PREFIX + _LISTENER
#: ``offsets_for_times`` takes these for times. The latest is that of committed records: what is in an open transaction
#: now comes behind it.
_EARLIEST, _LATEST = -2, -1

#: What Kafka says when the group has moved on without this member. Who holds the partitions now reads them again.
_MOVED_ON = {
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.FENCED_INSTANCE_ID,
    KafkaError._STATE,
    KafkaError._ASSIGNMENT_LOST,
    KafkaError._NO_OFFSET,
}
_NO_TOPIC = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.TOPIC_EXCEPTION,
}
_LOST_PLACE = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}

_log = structlog.get_logger("tidewheel.kafka")


class KafkaFeed:
    """The topics of the cluster at ``servers``. ``group`` is the consumer group of the listeners."""

    def __init__(self, servers: str, group: str, options: Mapping[str, str] | None = None) -> None:
        self._servers = servers
        self._group = group
        self._options = options or {}
        self._config = consumer_config(servers, self._options, group)
        self._opened: list[KafkaFollower] = []
        self._scanners: list[KafkaScanner] = []

    def follower(self, instance: str) -> KafkaFollower:
        """Join the group."""
        config = {**self._config, "client.id": unique_client_id(f"{_LISTENER}{instance}")}
        follower = KafkaFollower(config, self._servers, self._admin())
        self._opened.append(follower)
        return follower

    def scanner(self, instance: str) -> KafkaScanner:
        """Read beside the group."""
        scanner = KafkaScanner({**self._config, "client.id": unique_client_id(f"waiter-{instance}")}, self._servers)
        self._scanners.append(scanner)
        return scanner

    def publish(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes]] = ()
    ) -> tuple[int, int]:
        """Write one record with the default partitioner of the Java client."""
        told: list[tuple[KafkaError | None, Message[bytes, bytes]]] = []
        producer = Producer(
            {
                **base_config(self._servers, self._options),
                "enable.idempotence": True,
                "partitioner": "murmur2_random",
                "message.max.bytes": MESSAGE_BYTES_MAX,
                "message.timeout.ms": int(_PUBLISH_S_MAX * 1000),
                "on_delivery": lambda error, message: told.append((error, message)),
            }
        )
        try:
            # A producer would wait for a topic that is not there.
            missing = producer.list_topics(topic, CONTACT_S_MAX).topics[topic].error
            if missing is None:
                producer.produce(topic, value, key, headers=[*headers] or None)
        except KafkaException as error:
            raise unavailable(self._servers, f"publishing to {topic}", error) from error
        if missing is not None:
            raise LogMisconfigured(f"Kafka at {self._servers} has no topic '{topic}' for this: {missing.str()}")
        producer.flush(_PUBLISH_S_MAX + 1)
        fault, message = told[0] if told else (None, None)
        if message is None or fault is not None:
            why = "is it up?" if fault is None else fault.str()
            raise LogUnavailable(f"Kafka at {self._servers} took no record for {topic}: {why}")
        return place_of(message)[1], cast(int, message.offset())

    def members(self) -> list[str]:
        """By their client ids, which hold the instance's name."""
        try:
            groups = self._admin().list_groups(self._group, timeout=CONTACT_S_MAX)
        except KafkaException as error:
            raise unavailable(self._servers, "asking for the listeners", error) from error
        names = (str(member.client_id).removeprefix(_CLIENT_ID) for group in groups for member in group.members)
        return sorted(name.rpartition("-")[0] for name in names)

    def missing(self, topics: Collection[str]) -> Mapping[str, str]:
        """As the metadata say."""
        try:
            known = self._admin().list_topics(timeout=CONTACT_S_MAX).topics
        except KafkaException as error:
            raise unavailable(self._servers, "asking for its topics", error) from error
        return {topic: "there is no such topic, or it may not be seen" for topic in topics if topic not in known}

    def _admin(self) -> AdminClient:
        return AdminClient(cast("dict[str, str | int | float | bool]", base_config(self._servers, self._options)))

    def close(self) -> None:
        """Close what was opened and not closed."""
        for follower in self._opened:
            follower.close()
        for scanner in self._scanners:
            scanner.close()


class KafkaFollower:
    """One member of the group, on the classic protocol with eager assignment; not thread-safe."""

    def __init__(self, config: Config, servers: str, admin: AdminClient) -> None:
        self._servers = servers
        self._admin = admin
        #: The topics with the instants at which they begin.
        self._topics: dict[str, int] = {}
        self._missing: dict[str, str] = {}
        #: What Kafka calls each topic that has begun.
        self._ids: dict[str, str] = {}
        #: What the group gave us; a part of it has begun.
        self._assigned: frozenset[Place] = frozenset()
        self._next: dict[Place, int] = {}
        self._fresh: dict[Place, Stand] = {}
        self._begin_at = 0.0
        self._closed = False
        self._consumer = Consumer(
            {
                **config,
                "partition.assignment.strategy": "roundrobin",
                "session.timeout.ms": _SESSION_MS,
                "heartbeat.interval.ms": _HEARTBEAT_MS,
                "topic.metadata.refresh.interval.ms": _LOOK_FOR_TOPICS_MS,
            }
        )

    @property
    def missing(self) -> Mapping[str, str]:
        """Topics that Kafka does not have, or does not let us see."""
        return dict(self._missing)

    def follow(self, topics: Mapping[str, int]) -> None:
        """Subscribe, if these are others than before."""
        before, self._topics = self._topics.keys(), dict(topics)
        if before == topics.keys():
            return
        self._missing = {topic: why for topic, why in self._missing.items() if topic in topics}
        if topics:
            self._consumer.subscribe(
                sorted(topics), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke
            )
        else:
            self._consumer.unsubscribe()
            self._drop()

    def poll(self, max_records: int, timeout_s: float) -> Taken:
        """Wait for a first record, then take what is here."""
        deadline = time.monotonic() + timeout_s
        records: list[Record] = []
        while True:
            self._begin()
            pending = len(self._next) < len(self._assigned)
            remaining = max(0.0, deadline - time.monotonic())
            message = self._consumer.poll(min(remaining, _POLL_S_MAX if not pending else _BEGIN_RETRY_S))
            if message is not None:
                self._take(message, records)
                if len(records) < max_records:
                    for more in self._consumer.consume(max_records - len(records), 0):
                        self._take(more, records)
            if records or self._fresh or remaining <= 0:
                break
        fresh, self._fresh = self._fresh, {}
        held = frozenset(self._next)
        kept = tuple(record for record in records if (record.topic, record.partition) in held)
        return Taken(kept, {place: stand for place, stand in fresh.items() if place in held}, held)

    def offsets_at(self, places: Collection[Place], timestamp: int) -> Mapping[Place, int]:
        """``ListOffsets`` by time."""
        found = self._offsets(places, timestamp)
        without = [place for place, offset in found.items() if offset < 0]
        return found | self._offsets(without, _LATEST) if without else found

    def behind(self) -> int:
        """By the high watermarks that came with what was fetched."""
        total = 0
        for place, offset in self._next.items():
            marks = self._consumer.get_watermark_offsets(TopicPartition(*place), cached=True)
            total += max(0, marks[1] - offset) if marks is not None else 0
        return total

    def commit(self, stands: Mapping[Place, Stand]) -> None:
        """Commit offsets with ``known`` as their metadata; a refusal means that others read on from earlier ones."""
        mine = {place: stand for place, stand in stands.items() if place in self._next}
        if mine:
            self._commit(mine)

    def close(self) -> None:
        """Leave the group."""
        if not self._closed:
            self._closed = True
            self._consumer.close()

    def _on_assign(self, consumer: Consumer, given: list[TopicPartition]) -> None:
        """Where to begin is asked for outside of this callback; until then nothing is read."""
        self._assigned = frozenset((one.topic, one.partition) for one in given)
        self._next.clear()
        self._fresh.clear()
        self._begin_at = 0.0
        consumer.assign([])

    def _on_revoke(self, consumer: Consumer, taken: list[TopicPartition]) -> None:
        self._drop()
        consumer.unassign()

    def _drop(self) -> None:
        self._assigned = frozenset()
        self._next.clear()
        self._fresh.clear()

    def _begin(self) -> None:
        """Find out where to read from what the group gave us, as far as that can be said now."""
        waiting = self._assigned - self._next.keys()
        if not waiting or time.monotonic() < self._begin_at:
            return
        self._begin_at = time.monotonic() + _BEGIN_RETRY_S
        begun: dict[Place, Stand] = {}
        for topic in sorted({topic for topic, _ in waiting}):
            stands = self._stands(topic)
            begun |= {place: stand for place, stand in stands.items() if place in waiting}
        if begun:
            self._fresh |= begun
            self._next |= {place: stand.offset for place, stand in begun.items()}
            self._consumer.assign(_in_kafkas_terms(self._next))

    def _stands(self, topic: str) -> dict[Place, Stand]:
        """Where each partition of the topic stands; empty: that is not known yet."""
        places = [(topic, number) for number in range(self._partitions(topic))]
        if not places or topic not in self._topics:
            return {}
        self._ids[topic] = self._id_of(topic)
        stands = self._committed(places)
        if not stands:
            return self._begin_topic(topic, places)
        known = max(stand.known for stand in stands.values())
        lows, highs = self._offsets(places, _EARLIEST), self._offsets(places, _LATEST)
        for place in places:
            stand = stands.get(place, Stand(lows[place], known))
            if stand.offset > highs[place]:
                _log.warning("a partition ends before what was read of it; it is read from its beginning", place=place)
                stand = Stand(lows[place], stand.known)
            elif stand.offset < lows[place]:
                gone = f"{stand.offset} to {lows[place] - 1}"
                _log.error("retention deleted records that no listener had read", place=place, offsets=gone)
                stand = Stand(lows[place], stand.known)
            stands[place] = stand
        return stands

    def _begin_topic(self, topic: str, places: list[Place]) -> dict[Place, Stand]:
        """Commit the first positions, if that is ours to do."""
        if (topic, 0) not in self._assigned:
            return {}
        since = self._topics[topic]
        stands = {place: Stand(offset, since) for place, offset in self.offsets_at(places, since).items()}
        return stands if self._commit(stands) else {}

    def _partitions(self, topic: str) -> int:
        try:
            found = self._consumer.list_topics(topic, CONTACT_S_MAX).topics[topic]
        except KafkaException as error:
            raise unavailable(self._servers, f"asking for the partitions of {topic}", error) from error
        if found.error is not None:
            self._note_missing(topic, found.error)
            return 0
        return len(found.partitions)

    def _id_of(self, topic: str) -> str:
        """Empty if the broker is so old that its topics have none."""
        found = self._admin.describe_topics(TopicCollection([topic]), request_timeout=CONTACT_S_MAX)[topic]
        return str(answer(found, self._servers, f"asking for the id of {topic}").topic_id or "")

    def _offsets(self, places: Collection[Place], at: int) -> dict[Place, int]:
        """Asked by the consumer itself: it has learnt of new partitions by ``_partitions``."""
        asked = [TopicPartition(*place, at) for place in places]
        try:
            answer = self._consumer.offsets_for_times(asked, timeout=CONTACT_S_MAX)
            for one in answer:
                if one.error is not None:
                    raise KafkaException(one.error)
        except KafkaException as error:
            raise unavailable(self._servers, "asking for offsets", error) from error
        return {(one.topic, one.partition): one.offset for one in answer}

    def _committed(self, places: list[Place]) -> dict[Place, Stand]:
        asked = [TopicPartition(*place) for place in places]
        try:
            answer = self._consumer.committed(asked, timeout=CONTACT_S_MAX)
        except KafkaException as error:
            raise unavailable(self._servers, "asking for the listeners' positions", error) from error
        stands = {}
        for one in answer:
            if one.error is not None:
                raise unavailable(self._servers, "asking for the listeners' positions", KafkaException(one.error))
            if one.offset >= 0:
                known, _, topic_id = (one.metadata or "").partition(" ")
                anew = topic_id not in ("", self._ids[one.topic])
                if anew:
                    _log.warning("a topic was made anew; it is read from its beginning", topic=one.topic)
                stands[one.topic, one.partition] = Stand(
                    0 if anew else one.offset, int(known) if known.isdecimal() else 0
                )
        return stands

    def _commit(self, stands: Mapping[Place, Stand]) -> bool:
        offsets = [
            TopicPartition(*place, stand.offset, f"{stand.known} {self._ids[place[0]]}")
            for place, stand in stands.items()
        ]
        try:
            done = self._consumer.commit(offsets=offsets, asynchronous=False) or []
            for one in done:
                if one.error is not None:
                    raise KafkaException(one.error)
        except KafkaException as error:
            if fault_of(error).code() in _MOVED_ON:
                _log.info("positions were not committed: the group has moved on", why=fault_of(error).str())
                return False
            raise unavailable(self._servers, "committing the listeners' positions", error) from error
        return True

    def _take(self, message: Message[bytes, bytes], into: list[Record]) -> None:
        error = message.error()
        if error is not None:
            self._take_error(error, message)
            return
        topic, partition = place_of(message)
        self._missing.pop(topic, None)
        record = record_of(message, topic)
        if (topic, partition) in self._next:
            self._next[topic, partition] = record.offset + 1
            into.append(record)

    def _take_error(self, error: KafkaError, message: Message[bytes, bytes]) -> None:
        topic, partition = message.topic() or "", message.partition()
        if error.code() == KafkaError._PARTITION_EOF:
            self._missing.pop(topic, None)
        elif error.code() in _NO_TOPIC:
            self._note_missing(topic, error)
        elif error.code() in _LOST_PLACE and partition is not None:
            # Retention overtook us, or the topic was made anew: where it stands is found again.
            self._next.pop((topic, partition), None)
            self._consumer.assign(_in_kafkas_terms(self._next))
        elif error.fatal():
            raise LogUnavailable(f"Kafka at {self._servers} ends this member of the listeners: {error.str()}")

    def _note_missing(self, topic: str, error: KafkaError) -> None:
        if topic and topic not in self._missing:
            _log.warning("a topic of a trigger cannot be followed", topic=topic, why=error.str())
        self._missing[topic] = error.str()


def _in_kafkas_terms(positions: Mapping[Place, int]) -> list[TopicPartition]:
    return [TopicPartition(*place, offset) for place, offset in positions.items()]
