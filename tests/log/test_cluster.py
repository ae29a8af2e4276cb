"""Questions to a cluster that does not answer, and what is said of that; without a broker."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from confluent_kafka import KafkaError, KafkaException

from tidewheel.log.interface import LogUnavailable
from tidewheel.log.kafka import cluster
from tidewheel.log.kafka.client import base_config, consumer_config


class Answer:
    """What a client says of a partition."""

    def __init__(self, topic: str, partition: int, code: int | None) -> None:
        self.topic, self.partition, self.offset = topic, partition, 7
        self.error = None if code is None else KafkaError(code)


class Client:
    """A consumer that has not heard of the partition; ``answers`` are what it says of it, one after another."""

    answers: ClassVar[list[int | None]] = []
    reachable = False

    def __init__(self, config: Any) -> None:
        pass

    def offsets_for_times(self, asked: list[Any], timeout: float) -> list[Answer]:
        code = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return [Answer(one.topic, one.partition, code) for one in asked]

    def list_topics(self, timeout: float) -> None:
        if not self.reachable:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    def close(self) -> None:
        pass


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(cluster, "Consumer", Client)
    monkeypatch.setattr(cluster, "CONTACT_S_MAX", 0.1)
    monkeypatch.setattr(Client, "reachable", False)
    servers = "kafka.example:9092"
    return cluster.Cluster(consumer_config(servers, {}, "g"), base_config(servers, {}), servers, "x.")


def test_a_client_that_knows_no_partition_since_no_broker_is_there_says_that(
    asked: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Client, "answers", [KafkaError._UNKNOWN_PARTITION])
    with pytest.raises(
        LogUnavailable, match=r"Kafka at kafka\.example:9092 is not reachable \(asking for offsets\)"
    ) as told:
        asked.ends([("events", 0)])
    assert "nknown partition" not in str(told.value)


def test_a_broker_that_answers_and_knows_no_such_partition_is_not_said_to_be_away(
    asked: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Client, "answers", [KafkaError._UNKNOWN_PARTITION])
    monkeypatch.setattr(Client, "reachable", True)
    with pytest.raises(LogUnavailable, match=r"cannot be used .* Unknown partition"):
        asked.ends([("events", 0)])


def test_a_partition_that_is_heard_of_meanwhile_is_no_fault(asked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Client, "answers", [KafkaError._UNKNOWN_PARTITION, None])
    monkeypatch.setattr(cluster, "CONTACT_S_MAX", 5.0)
    assert asked.ends([("events", 0)]) == {("events", 0): 7}
