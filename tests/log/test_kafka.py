"""The Kafka log against a real broker: the contract, and what only Kafka can do to us."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tidewheel.log.interface import Append, Log, Owner
from tidewheel.log.kafka import KafkaLog
from tidewheel.testing.kafka_group import expel_member
from tidewheel.testing.log_contract import PARTITIONS, LogContract

pytestmark = pytest.mark.kafka

_number = itertools.count()


def _fresh_prefix() -> str:
    return f"t{os.getpid()}-{next(_number)}."


class TestKafkaLog(LogContract):
    @pytest.fixture(autouse=True)
    def broker(self, kafka_address: str) -> None:
        self.address = kafka_address

    def open(self, path: Path) -> Log:
        self.prefix = _fresh_prefix()
        return KafkaLog(self.address, self.prefix, PARTITIONS)

    def expel(self, log: Log, owner: Owner, instance: str) -> None:
        expel_member(self.address, self.prefix + "schedulers", self.prefix + instance)

    def hold_open(self, log: Log, record: Append) -> Callable[[], None]:
        producer = Producer({"bootstrap.servers": self.address, "transactional.id": self.prefix + "other"})
        producer.init_transactions(20)
        producer.begin_transaction()
        assert record.partition is not None
        producer.produce(self.prefix + record.topic, record.value, record.key, record.partition)
        producer.flush(20)
        return lambda: producer.abort_transaction(20)
