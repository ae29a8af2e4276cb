"""Committed records of fixed partitions, and positions that reach the end.

A consumer's own position stays on the last record, so a partition that ends in transaction markers would look unread
for ever (librdkafka #3918). The end-of-partition event carries the offset behind the markers; we take the position from
there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from confluent_kafka import Consumer, KafkaError, Message

from tidewheel.log.interface import CLOSED, LogUnavailable, Record
from tidewheel.log.kafka.client import Config, partitions_at, place_of, record_of

#: librdkafka never comes back from closing a consumer that another thread polls, and a poll cannot be woken: it is
#: short, and closing waits for it.
POLL_S_MAX = 0.2
#: How long the broker holds a fetch that finds nothing: how late an end behind markers is noticed, against idle work.
FETCH_WAIT_MS = 100


class KafkaReader:
    """Reads without a group. ``clamp`` gives the starts the log really has, or raises."""

    def __init__(
        self,
        config: Config,
        prefix: str,
        starts: Mapping[tuple[str, int], int],
        clamp: Callable[[Mapping[tuple[str, int], int]], dict[tuple[str, int], int]],
    ) -> None:
        self._prefix = prefix
        self._closed = False
        #: Held while the consumer is used.
        self._using = threading.Lock()
        self._clamp = clamp
        self._positions = clamp(starts)
        self._consumer = Consumer({**config, "fetch.wait.max.ms": FETCH_WAIT_MS})
        self._assign()

    def read(self, max_records: int, timeout_s: float) -> list[Record]:
        """Wait for a first record, then take what is already here."""
        deadline = time.monotonic() + timeout_s
        records: list[Record] = []
        while True:
            with self._using:
                self._poll(max_records, deadline, records)
            if records or time.monotonic() >= deadline:
                return records

    def positions(self) -> Mapping[tuple[str, int], int]:
        """The next offset of each partition."""
        return dict(self._positions)

    def close(self) -> None:
        """Let go."""
        if not self._closed:
            self._closed = True
            with self._using:
                self._consumer.close()

    def _poll(self, max_records: int, deadline: float, into: list[Record]) -> None:
        if self._closed:
            raise LogUnavailable(CLOSED)
        message = self._consumer.poll(min(POLL_S_MAX, max(0.0, deadline - time.monotonic())))
        if message is not None:
            self._take(message, into)
            if len(into) < max_records:
                for more in self._consumer.consume(max_records - len(into), 0):
                    self._take(more, into)

    def _assign(self) -> None:
        full = {(self._prefix + topic, partition): offset for (topic, partition), offset in self._positions.items()}
        self._consumer.assign(partitions_at(full))

    def _take(self, message: Message[bytes, bytes], into: list[Record]) -> None:
        name, partition = place_of(message)
        topic = name[len(self._prefix) :]
        error = message.error()
        if error is None:
            record = record_of(message, topic)
            self._positions[topic, partition] = record.offset + 1
            into.append(record)
        elif error.code() == KafkaError._PARTITION_EOF:
            offset = message.offset()
            if offset is not None and offset > self._positions[topic, partition]:
                self._positions[topic, partition] = offset
        elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            # Retention overtook us: go on at the oldest record, from our own positions everywhere else.
            self._positions = self._clamp(self._positions)
            self._assign()
        elif error.fatal() or not error.retriable():
            raise LogUnavailable(f"cannot read {topic}/{partition}: {error.str()}")
