"""A producer that the broker refuses for good, as after a hard kill of a broker that forgot what it had taken."""

from __future__ import annotations

import os

import pytest
from confluent_kafka import KafkaError, KafkaException

from tidewheel.log.interface import COMMANDS
from tidewheel.log.kafka import KafkaLog
from tidewheel.testing.log_contract.driver import PARTITIONS, command, read_all, texts

pytestmark = pytest.mark.kafka


class Placed:
    """A record that was handed over and not placed."""

    def __init__(self, topic: str, partition: int, key: bytes, value: bytes) -> None:
        self._parts = topic, partition, key, value

    def topic(self) -> str:
        return self._parts[0]

    def partition(self) -> int:
        return self._parts[1]

    def key(self) -> bytes:
        return self._parts[2]

    def value(self) -> bytes:
        return self._parts[3]

    def headers(self) -> None:
        return None


class Refused:
    """Takes nothing; told to give up, it says what it had not placed."""

    def __init__(self, delivered: object, waiting: Placed) -> None:
        self._delivered = delivered
        self._waiting = waiting

    def produce(self, *_: object, **__: object) -> None:
        raise KafkaException(KafkaError(KafkaError._FATAL))

    def purge(self) -> None:
        """Nothing yet: ``flush`` tells."""

    def flush(self, _: float) -> int:
        assert callable(self._delivered)
        self._delivered(KafkaError(KafkaError._PURGE_INFLIGHT), self._waiting)
        return 0


@pytest.fixture
def log(kafka_address: str) -> KafkaLog:
    log = KafkaLog(kafka_address, f"producer{os.getpid()}.", PARTITIONS)
    log.create_topics()
    return log


def test_a_producer_refused_for_good_is_replaced_and_loses_nothing(log: KafkaLog) -> None:
    producer = log.producer()
    first, second = command("first"), command("second")
    assert first.value is not None
    waiting = Placed(f"producer{os.getpid()}.{COMMANDS}", first.partition or 0, first.key, first.value)
    producer._producer = Refused(producer._delivered, waiting)  # type: ignore[assignment]
    producer.send(second)
    producer.flush(20)
    assert texts(read_all(log, COMMANDS)) == ["first", "second"]
    log.close()
