"""Topics of a Kafka cluster read from anywhere, beside the group of listeners."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from tidewheel.log.feed import Place
from tidewheel.log.interface import Record
from tidewheel.log.kafka.client import CONTACT_S_MAX, Config, partitions_at, place_of, record_of, unavailable

#: ``offsets_for_times`` takes this for a time: the end, as of committed records.
_LATEST: Final = -1


class KafkaScanner:
    """Reads without a group."""

    def __init__(self, config: Config, servers: str) -> None:
        self._servers = servers
        self._consumer = Consumer(config)
        self._closed = False

    def offsets_at(self, topic: str, timestamp: int) -> Mapping[int, int]:
        """``ListOffsets`` by time."""
        try:
            found = self._consumer.list_topics(topic, CONTACT_S_MAX).topics[topic]
            if found.error is not None:
                return {}
            offsets = self._asked(topic, [*found.partitions], max(0, timestamp))
            without = [partition for partition, offset in offsets.items() if offset < 0]
            return offsets | (self._asked(topic, without, _LATEST) if without else {})
        except KafkaException as error:
            raise unavailable(self._servers, f"asking for offsets of {topic}", error) from error

    def scan(self, positions: Mapping[Place, int]) -> None:
        """Assign them."""
        self._consumer.assign(partitions_at(positions))

    def read(self, max_records: int, timeout_s: float) -> list[Record]:
        """Wait for a first record, then take what is here."""
        deadline = time.monotonic() + timeout_s
        records: list[Record] = []
        while not records:
            remaining = deadline - time.monotonic()
            message = self._consumer.poll(max(0.0, remaining))
            if message is not None:
                self._take(message, records)
                for more in self._consumer.consume(max_records - 1, 0):
                    self._take(more, records)
            elif remaining <= 0:
                break
        return records

    def close(self) -> None:
        """Let go."""
        if not self._closed:
            self._closed = True
            self._consumer.close()

    def _asked(self, topic: str, partitions: list[int], at: int) -> dict[int, int]:
        answer = self._consumer.offsets_for_times(
            [TopicPartition(topic, partition, at) for partition in partitions], timeout=CONTACT_S_MAX
        )
        for one in answer:
            if one.error is not None:
                raise KafkaException(one.error)
        return {one.partition: one.offset for one in answer}

    def _take(self, message: Message[bytes, bytes], records: list[Record]) -> None:
        error = message.error()
        if error is None:
            records.append(record_of(message, place_of(message)[0]))
        elif error.code() != KafkaError._PARTITION_EOF and not error.retriable():
            # Its place is gone, or its topic: whoever scans asks anew where to begin.
            raise unavailable(self._servers, "reading records that tasks wait for", KafkaException(error))
