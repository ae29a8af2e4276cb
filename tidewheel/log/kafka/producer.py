"""Idempotent appends to Kafka outside transactions."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

import structlog
from confluent_kafka import KafkaError, Producer

from tidewheel.log.interface import Append, LogError, LogUnavailable
from tidewheel.log.kafka.client import MESSAGE_BYTES_MAX, base_config
from tidewheel.log.limits import oversize

#: Serving delivery reports costs a call into C; a hundred sends may share one.
_SENDS_PER_POLL = 100
_QUEUE_WAIT_S_MAX = 30.0
#: What may wait for a broker that is away, beside 100,000 records.
_QUEUE_KBYTES_MAX = 65_536
_CLOSE_S_MAX = 5.0

_log = structlog.get_logger("tidewheel.kafka")


class KafkaProducer:
    """One idempotent producer. Nothing sent is given up while the process lives."""

    def __init__(self, servers: str, extra: Mapping[str, str], prefix: str, linger_ms: float) -> None:
        self._servers = servers
        self._prefix = prefix
        self._failure = ""
        self._sends = 0
        self._process = os.getpid()
        self._producer = Producer(
            {
                **base_config(servers, extra),
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
        deadline = 0.0
        while True:
            try:
                self._producer.produce(
                    self._prefix + record.topic,
                    record.value,
                    record.key,
                    -1 if record.partition is None else record.partition,
                    headers=list(record.headers) if record.headers else None,
                )
                break
            except BufferError:
                deadline = deadline or time.monotonic() + _QUEUE_WAIT_S_MAX
                if time.monotonic() > deadline:
                    raise LogUnavailable(
                        f"{len(self._producer)} records wait for Kafka at {self._servers}, which takes none: is it up?"
                    ) from None
                self._producer.poll(0.1)
        self._sends += 1
        if self._sends % _SENDS_PER_POLL == 0:
            self._producer.poll(0)

    def flush(self, timeout_s: float) -> None:
        """Wait until everything is acknowledged by all in-sync replicas."""
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
        self._producer.purge()
        self._producer.flush(0)

    def _delivered(self, error: KafkaError | None, _: object) -> None:
        if error is not None and not self._failure:
            self._failure = error.str()
