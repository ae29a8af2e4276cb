"""Idempotent appends to Kafka outside transactions."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import cast

import structlog
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tidewheel.log.interface import Append, LogError, LogUnavailable
from tidewheel.log.kafka.client import MESSAGE_BYTES_MAX, base_config, fault_of, place_of
from tidewheel.log.limits import oversize

#: Serving delivery reports costs a call into C; a hundred sends may share one.
_SENDS_PER_POLL = 100
_QUEUE_WAIT_S_MAX = 30.0
#: What may wait for a broker that is away, beside 100,000 records.
_QUEUE_KBYTES_MAX = 65_536
_CLOSE_S_MAX = 5.0

Headers = list[tuple[str, str | bytes | None]] | None

_log = structlog.get_logger("tidewheel.kafka")


#: What librdkafka says of records that an idempotent producer could not place, having lost count with the broker.
_LOST_COUNT = {
    KafkaError._FATAL,
    KafkaError._PURGE_QUEUE,
    KafkaError._PURGE_INFLIGHT,
    KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
    KafkaError.UNKNOWN_PRODUCER_ID,
    KafkaError.INVALID_PRODUCER_EPOCH,
}


class KafkaProducer:
    """An idempotent producer. Nothing sent is given up while the process lives.

    A broker that was killed may have forgotten what it had already taken, and then refuses the producer for good. Such
    a one is replaced, and what it had not placed is sent again: it may then be there twice, which readers must bear
    anyhow.
    """

    def __init__(self, servers: str, extra: Mapping[str, str], prefix: str, linger_ms: float) -> None:
        self._servers = servers
        self._prefix = prefix
        self._failure = ""
        self._sends = 0
        self._closing = False
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._unplaced: list[Message[bytes, bytes]] = []
        self._producer = self._new_producer(extra, linger_ms)
        self._renew: Callable[[], Producer] = lambda: self._new_producer(extra, linger_ms)

    def _new_producer(self, extra: Mapping[str, str], linger_ms: float) -> Producer:
        return Producer(
            {
                **base_config(self._servers, extra),
                "enable.idempotence": True,
                "acks": "all",
                # The Java client's partitioner, so that all agree on a key's partition.
                "partitioner": "murmur2_random",
                "linger.ms": linger_ms,
                "message.max.bytes": MESSAGE_BYTES_MAX,
                # Then ``send`` waits. The default is 1 GiB.
                "queue.buffering.max.kbytes": _QUEUE_KBYTES_MAX,
                # For ever: a broker's absence must not lose a worker's report.
                "message.timeout.ms": 0,
                "delivery.report.only.error": True,
                "on_delivery": self._delivered,
            }
        )

    def send(self, record: Append) -> None:
        """Hand over one record. Waits while the queue is full."""
        if problem := oversize((record,)):
            raise LogError(problem)
        if os.getpid() != self._process:
            raise LogError("this producer was made before a fork and its threads are gone: make one in the new process")
        headers: Headers = [*record.headers] if record.headers else None
        partition = -1 if record.partition is None else record.partition
        self._produce(self._prefix + record.topic, record.value, record.key, partition, headers)
        self._sends += 1
        if self._sends % _SENDS_PER_POLL == 0:
            self._producer.poll(0)

    def _produce(self, topic: str, value: bytes | None, key: bytes | None, partition: int, headers: Headers) -> None:
        deadline = 0.0
        while True:
            producer = self._producer
            try:
                producer.produce(topic, value, key, partition, headers=headers)
                return
            except KafkaException as error:
                if fault_of(error).code() != KafkaError._FATAL:
                    raise LogError(f"Kafka at {self._servers} takes no such record: {fault_of(error).str()}") from error
                self._replace(producer)
            except BufferError:
                deadline = deadline or time.monotonic() + _QUEUE_WAIT_S_MAX
                if time.monotonic() > deadline:
                    raise LogUnavailable(
                        f"{len(self._producer)} records wait for Kafka at {self._servers}, which takes none: is it up?"
                    ) from None
                producer.poll(0.1)

    def _replace(self, producer: Producer) -> None:
        """Another producer in place of this one, which takes nothing any more; what it did not place goes first."""
        with self._lock:
            if self._producer is not producer:
                return
            producer.purge()
            producer.flush(1)
            unplaced, self._unplaced = self._unplaced, []
            self._producer = self._renew()
        _log.warning("the broker refuses this producer for good; a new one sends again", records=len(unplaced))
        for message in unplaced:
            topic, partition = place_of(message)
            self._produce(topic, message.value(), message.key(), partition, cast(Headers, message.headers()))

    def flush(self, timeout_s: float) -> None:
        """Wait until everything is acknowledged by all in-sync replicas."""
        producer = self._producer
        waiting = producer.flush(timeout_s)
        if self._unplaced:
            self._replace(producer)
            waiting = self._producer.flush(timeout_s)
        if self._failure:
            failure, self._failure = self._failure, ""
            raise LogUnavailable(f"Kafka at {self._servers} refused a record: {failure}")
        if waiting:
            raise LogUnavailable(
                f"{waiting} records are not durable on Kafka at {self._servers} after {timeout_s:g} s: is it up?"
            )

    def close(self) -> None:
        """Flush for a few seconds; what is left then is lost."""
        if waiting := self._producer.flush(_CLOSE_S_MAX):
            _log.warning("records were not written before the producer closed", records=waiting)
        self._closing = True
        self._producer.purge()
        self._producer.flush(0)

    def _delivered(self, error: KafkaError | None, message: Message[bytes, bytes]) -> None:
        if error is not None and (error.fatal() or error.code() in _LOST_COUNT) and not self._closing:
            self._unplaced.append(message)
        elif error is not None and not self._failure:
            self._failure = error.str()
