"""What the death of one broker of three may not do: `tests/chaos` does the rest, in its long form."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tidewheel.log.interface import EVENTS, LogUnavailable
from tidewheel.log.kafka import KafkaLog
from tidewheel.testing.kafka_broker import KafkaBroker
from tidewheel.testing.kafka_cluster import replicated, start_all

pytestmark = pytest.mark.kafka

PARTITIONS = 4


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[list[KafkaBroker]]:
    found = replicated(tmp_path, 3, short_lived=True)
    try:
        start_all(found)
        yield found
    finally:
        for broker in found:
            broker.kill()


def test_offsets_are_to_be_had_after_the_death_of_their_leader(brokers: list[KafkaBroker]) -> None:
    prefix = f"replicated{os.getpid()}."
    log = KafkaLog(",".join(broker.address for broker in brokers), prefix, PARTITIONS)
    log.create_topics()
    places = [(EVENTS, partition) for partition in range(PARTITIONS)]
    before = log.end_offsets(places)
    admin = AdminClient({"bootstrap.servers": brokers[0].address})
    leader = admin.list_topics(prefix + EVENTS, timeout=20).topics[prefix + EVENTS].partitions[0].leader
    brokers[leader - 1].kill()
    deadline = time.monotonic() + 60
    while True:
        try:
            assert log.end_offsets(places) == before
            break
        except LogUnavailable:
            assert time.monotonic() < deadline, "nobody answers for the partitions of a dead broker"
    log.close()


def test_offsets_are_to_be_had_once_a_partition_has_a_leader_again(brokers: list[KafkaBroker]) -> None:
    """A client that was told of no leader goes on saying so; nobody may go on asking it."""
    prefix = f"leaderless{os.getpid()}."
    admin = AdminClient({"bootstrap.servers": brokers[0].address})
    unreplicated = NewTopic(prefix + EVENTS, PARTITIONS, 1)
    admin.create_topics([unreplicated])[prefix + EVENTS].result(20)
    log = KafkaLog(",".join(broker.address for broker in brokers), prefix, PARTITIONS)
    places = [(EVENTS, partition) for partition in range(PARTITIONS)]
    before = log.end_offsets(places)
    leader = admin.list_topics(prefix + EVENTS, timeout=20).topics[prefix + EVENTS].partitions[0].leader
    brokers[leader - 1].kill()
    deadline = time.monotonic() + 60
    while True:
        assert time.monotonic() < deadline, "a partition whose only replica is dead has no leader"
        try:
            log.end_offsets(places)
        except LogUnavailable as error:
            if "Leader not available" in str(error):
                break
    brokers[leader - 1].start()
    assert log.end_offsets(places) == before
    log.close()
