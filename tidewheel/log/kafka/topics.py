"""The topics on Kafka: how they are created, checked and put right (``kafka.settings`` says what is right)."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future

import structlog
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ClusterMetadata,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
    TopicMetadata,
)

from tidewheel.log.interface import TOPICS, LogMisconfigured, LogUnavailable, TopicSetting
from tidewheel.log.kafka.client import CONTACT_S_MAX, NO_ANSWER, NOT_REACHABLE, answer, fault_of, unavailable
from tidewheel.log.kafka.settings import REPLICATION, judge, wanted_config

_CREATE_S_MAX = 30.0
_PAUSE_S = 0.05
#: Faults that one message names.
_SHOWN_MAX = 5

_log = structlog.get_logger("tidewheel.kafka")


class _Missing(LogMisconfigured):
    """A topic is not there, or the broker that was asked has not heard of it yet."""


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

    def create(self, repair: bool = False) -> list[str]:
        """Create what is missing, then check everything; gives the short names created.

        ``repair`` puts right the settings of those that are there.
        """
        admin = self._new_admin()
        present, brokers = existing(admin, self._servers, self._prefix)
        self._check_partitions(present)
        missing = [topic for topic in TOPICS if topic not in present]
        replication = self._replication or min(REPLICATION, brokers)
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
                if self._was_created(name, future):
                    created.append(name.removeprefix(self._prefix))
        deadline = time.monotonic() + (_CREATE_S_MAX if wanted else 0.0)
        if repair:
            _once_seen(self._repair, deadline)
        _once_seen(self.check, deadline)
        return created

    def check(self) -> None:
        """Raise ``LogMisconfigured`` naming what does not fit and the commands that mend it; warn of the rest."""
        settings = self.inspect()
        wrong = [setting for setting in settings if setting.verdict == "wrong"]
        if wrong:
            said = "\n".join(f"{setting.explain(self._prefix)}. Fix: {setting.fix}" for setting in wrong[:_SHOWN_MAX])
            more = f"\n(and {len(wrong) - _SHOWN_MAX} more)" if len(wrong) > _SHOWN_MAX else ""
            raise LogMisconfigured(f"{said}{more}\n`tidewheel topics create --repair` mends them all")
        for setting in settings:
            if setting.verdict == "warning":
                _log.warning("a topic is set in a risky way", what=setting.explain(self._prefix), fix=setting.fix)

    def inspect(self) -> list[TopicSetting]:
        """Every setting that matters, of every topic. Raises ``LogMisconfigured`` if a topic is missing."""
        admin = self._new_admin()
        present, brokers = existing(admin, self._servers, self._prefix)
        self._check_all_there(present)
        self._check_partitions(present)
        copies = self._copies(admin)
        return [
            setting
            for topic, config in self._describe(TOPICS).items()
            for setting in judge(topic, config, copies[topic], brokers, self._prefix, self._servers)
        ]

    def _copies(self, admin: AdminClient) -> dict[str, int]:
        """The least number of replicas of a partition, by topic."""
        try:
            metadata = admin.list_topics(timeout=CONTACT_S_MAX)
        except KafkaException as error:
            raise unavailable(self._servers, "asking for its topics", error) from error
        present = _present(metadata, self._prefix)
        self._check_all_there(present)
        return {topic: min(len(one.replicas) for one in found.partitions.values()) for topic, found in present.items()}

    def _repair(self) -> None:
        wrong: dict[str, list[TopicSetting]] = {}
        for setting in self.inspect():
            if setting.verdict != "ok" and setting.alterable:
                wrong.setdefault(setting.topic, []).append(setting)
        resources = [
            ConfigResource(
                ResourceType.TOPIC,
                self._prefix + topic,
                incremental_configs=[
                    ConfigEntry(setting.name, setting.wanted, incremental_operation=AlterConfigOpType.SET)
                    for setting in settings
                ],
            )
            for topic, settings in wrong.items()
        ]
        if not resources:
            return
        admin = self._new_admin()
        for changed in admin.incremental_alter_configs(resources, request_timeout=CONTACT_S_MAX).values():
            answer(changed, self._servers, "changing topic settings")
        deadline = time.monotonic() + CONTACT_S_MAX  # what the controller knows reaches the brokers a moment later
        while time.monotonic() < deadline and any(s.verdict != "ok" and s.alterable for s in self.inspect()):
            time.sleep(_PAUSE_S)

    def _was_created(self, name: str, asked: Future[None]) -> bool:
        try:
            asked.result(2 * _CREATE_S_MAX)
        except KafkaException as error:
            fault = fault_of(error)
            if fault.code() == KafkaError.TOPIC_ALREADY_EXISTS:  # someone else was first
                return False
            if fault.code() in NOT_REACHABLE | NO_ANSWER:
                raise unavailable(self._servers, f"creating topic {name}", error) from error
            raise LogMisconfigured(f"Kafka refused to create topic '{name}': {fault.str()}") from error
        except TimeoutError:
            raise LogUnavailable(f"Kafka at {self._servers} does not answer (creating topic {name})") from None
        return True

    def _check_all_there(self, present: Collection[str]) -> None:
        missing = [self._prefix + topic for topic in TOPICS if topic not in present]
        if missing:
            raise _Missing(
                f"no topic '{missing[0]}' on Kafka at {self._servers} ({len(missing)} missing): "
                "run `tidewheel topics create`, or give the right prefix in the log's URL"
            )

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
        for resource, asked in admin.describe_configs(resources, request_timeout=CONTACT_S_MAX).items():
            entries = answer(asked, self._servers, "reading topic settings")
            described[resource.name.removeprefix(self._prefix)] = {
                name: str(entry.value) for name, entry in entries.items()
            }
        return described


def existing(admin: AdminClient, servers: str, prefix: str) -> tuple[dict[str, int], int]:
    """Our topics by short name with their partition counts, and the number of brokers."""
    try:
        metadata = admin.list_topics(timeout=CONTACT_S_MAX)
    except KafkaException as error:
        raise unavailable(servers, "asking for its topics", error) from error
    return {topic: len(found.partitions) for topic, found in _present(metadata, prefix).items()}, len(metadata.brokers)


def _present(metadata: ClusterMetadata, prefix: str) -> dict[str, TopicMetadata]:
    """Our topics by short name; one that the broker knows by name only is not there yet."""
    found = {topic: metadata.topics[prefix + topic] for topic in TOPICS if prefix + topic in metadata.topics}
    return {topic: about for topic, about in found.items() if about.partitions}


def _once_seen(look: Callable[[], None], deadline: float) -> None:
    """Look at topics just created: each broker hears of them a moment later, and any of them may be asked."""
    while True:
        try:
            return look()
        except _Missing:
            if time.monotonic() >= deadline:
                raise
        time.sleep(_PAUSE_S)
