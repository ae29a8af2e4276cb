"""The topics on Kafka: their settings, with reasons, how they are created and what is checked."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from tidewheel.log.interface import (
    COMMANDS,
    DEAD_LETTERS,
    EVENTS,
    LOGS,
    MAIL,
    POOL_EVENTS,
    SNAPSHOTS,
    TOPICS,
    TRIGGERS,
    LogMisconfigured,
)
from tidewheel.log.kafka.client import CONTACT_S_MAX, MESSAGE_BYTES_MAX, fault_of, unavailable

_DAY_MS = 86_400_000
_FOR_EVER = -1

#: Days each topic keeps. Journals are the truth and stay; snapshots are compacted; what has been answered may go.
_RETENTION_MS: Mapping[str, int] = {
    TRIGGERS: 7 * _DAY_MS,
    COMMANDS: 7 * _DAY_MS,
    EVENTS: _FOR_EVER,
    POOL_EVENTS: _FOR_EVER,
    SNAPSHOTS: _FOR_EVER,
    MAIL: _DAY_MS,
    LOGS: 30 * _DAY_MS,
    DEAD_LETTERS: 30 * _DAY_MS,
}
#: Replicas when the cluster has as many brokers.
_REPLICATION = 3
_CREATE_S_MAX = 30.0


def wanted_config(topic: str, replication: int) -> dict[str, str]:
    """The settings a topic is created with."""
    return {
        "cleanup.policy": "compact" if topic == SNAPSHOTS else "delete",
        "retention.ms": str(_RETENTION_MS[topic]),
        "retention.bytes": str(_FOR_EVER),
        "max.message.bytes": str(MESSAGE_BYTES_MAX),
        # With three replicas one may be away; fewer cannot promise anything when a broker is lost.
        "min.insync.replicas": "2" if replication >= _REPLICATION else "1",
    }


class KafkaTopics:
    """Creates and checks the topics of one prefix."""

    def __init__(
        self,
        new_admin: Callable[[], AdminClient],
        servers: str,
        prefix: str,
        partitions: int,
        replication: int | None,
    ) -> None:
        self._new_admin = new_admin
        self._servers = servers
        self._prefix = prefix
        self._partitions = partitions
        self._replication = replication

    def create(self) -> list[str]:
        """Create what is missing, then check everything; gives the short names created."""
        admin = self._new_admin()
        present, brokers = existing(admin, self._servers, self._prefix)
        self._check_partitions(present)
        missing = [topic for topic in TOPICS if topic not in present]
        replication = self._replication or min(_REPLICATION, brokers)
        wanted = [
            NewTopic(
                self._prefix + topic,
                num_partitions=self._partitions,
                replication_factor=replication,
                config=wanted_config(topic, replication),
            )
            for topic in missing
        ]
        created = []
        if wanted:
            futures = admin.create_topics(wanted, operation_timeout=_CREATE_S_MAX, request_timeout=_CREATE_S_MAX)
            for name, future in futures.items():
                if self._was_created(name, future.result):
                    created.append(name.removeprefix(self._prefix))
            self._wait_until_seen()
        self.check()
        return created

    def check(self) -> None:
        """Raise ``LogMisconfigured`` naming the first topic and setting that do not fit."""
        present, _ = existing(self._new_admin(), self._servers, self._prefix)
        missing = [self._prefix + topic for topic in TOPICS if topic not in present]
        if missing:
            raise LogMisconfigured(
                f"no topic '{missing[0]}' on Kafka at {self._servers} ({len(missing)} missing): "
                "run `tidewheel topics create`, or give the right prefix in the log's URL"
            )
        self._check_partitions(present)
        for topic, config in self._describe(TOPICS).items():
            self._check_config(topic, config)

    def _wait_until_seen(self) -> None:
        """A created topic takes a moment to reach the metadata that brokers answer with."""
        deadline = time.monotonic() + _CREATE_S_MAX
        admin = self._new_admin()
        while time.monotonic() < deadline:
            present, _ = existing(admin, self._servers, self._prefix)
            if len(present) == len(TOPICS):
                return
            time.sleep(0.02)

    def _was_created(self, name: str, result: object) -> bool:
        assert callable(result)
        try:
            result()
        except KafkaException as error:
            if fault_of(error).code() == KafkaError.TOPIC_ALREADY_EXISTS:  # someone else was first
                return False
            raise LogMisconfigured(f"Kafka refused to create topic '{name}': {fault_of(error).str()}") from error
        return True

    def _check_partitions(self, present: Mapping[str, int]) -> None:
        for topic in TOPICS:
            found = present.get(topic, self._partitions)
            if found != self._partitions:
                raise LogMisconfigured(
                    f"topic '{self._prefix}{topic}' has {found} partitions, expected {self._partitions}: all "
                    "topics must have the same number; set partitions= in the log's URL to it, or use another prefix"
                )

    def _describe(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        resources = [ConfigResource(ResourceType.TOPIC, self._prefix + topic) for topic in topics]
        described = {}
        admin = self._new_admin()
        try:
            for resource, future in admin.describe_configs(resources, request_timeout=CONTACT_S_MAX).items():
                entries = future.result()
                described[resource.name.removeprefix(self._prefix)] = {
                    name: str(entry.value) for name, entry in entries.items()
                }
        except KafkaException as error:
            raise unavailable(self._servers, "reading topic settings", error) from error
        return described

    def _check_config(self, topic: str, config: Mapping[str, str]) -> None:
        wanted = wanted_config(topic, 1)
        exact = ["cleanup.policy"]
        if _RETENTION_MS[topic] == _FOR_EVER and topic != SNAPSHOTS:
            exact += ["retention.ms", "retention.bytes"]
        for setting in exact:
            if config.get(setting) != wanted[setting]:
                raise _wrong_setting(self._prefix + topic, setting, config.get(setting), wanted[setting])
        if int(config.get("max.message.bytes", "0")) < MESSAGE_BYTES_MAX:
            found = config.get("max.message.bytes")
            raise _wrong_setting(self._prefix + topic, "max.message.bytes", found, wanted["max.message.bytes"])


def existing(admin: AdminClient, servers: str, prefix: str) -> tuple[dict[str, int], int]:
    """Our topics by short name with their partition counts, and the number of brokers."""
    try:
        metadata = admin.list_topics(timeout=CONTACT_S_MAX)
    except KafkaException as error:
        raise unavailable(servers, "asking for its topics", error) from error
    present = {topic: metadata.topics[prefix + topic] for topic in TOPICS if prefix + topic in metadata.topics}
    return {topic: len(found.partitions) for topic, found in present.items()}, len(metadata.brokers)


def _wrong_setting(topic: str, setting: str, found: str | None, wanted: str) -> LogMisconfigured:
    return LogMisconfigured(
        f"topic '{topic}' has {setting}={found}, expected {wanted}. Fix: kafka-configs.sh --bootstrap-server … "
        f"--alter --entity-type topics --entity-name {topic} --add-config {setting}={wanted}"
    )
