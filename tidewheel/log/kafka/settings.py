"""The settings of the topics on Kafka: what each is created with, what is refused, and what is only warned of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tidewheel.log.interface import (
    COMMANDS,
    DEAD_LETTERS,
    EVENTS,
    INPUTS,
    JOURNALS,
    LOGS,
    MAIL,
    POOL_EVENTS,
    SNAPSHOTS,
    TRIGGERS,
    TopicSetting,
)
from tidewheel.log.kafka.client import MESSAGE_BYTES_MAX

_DAY_MS = 86_400_000
_FOR_EVER = -1

#: How long each topic keeps. Journals are the truth and stay; snapshots are compacted; what has been answered may go.
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
#: Less, and inputs may be gone before a scheduler that was away has read them.
_INPUT_RETENTION_MS_MIN = _DAY_MS
#: Replicas when the cluster has as many brokers.
REPLICATION = 3


def wanted_config(topic: str, replication: int) -> dict[str, str]:
    """The settings a topic is created with."""
    return {
        "cleanup.policy": "compact" if topic == SNAPSHOTS else "delete",
        "retention.ms": str(_RETENTION_MS[topic]),
        "retention.bytes": str(_FOR_EVER),
        "max.message.bytes": str(MESSAGE_BYTES_MAX),
        # With three replicas one may be away; fewer cannot promise anything when a broker is lost.
        "min.insync.replicas": "2" if replication >= REPLICATION else "1",
        # A replica that has missed records must not lead: what was acknowledged would be gone.
        "unclean.leader.election.enable": "false",
    }


def judge(
    topic: str, config: Mapping[str, str], copies: int, brokers: int, prefix: str, servers: str
) -> Iterator[TopicSetting]:
    """What is right, wrong and risky about one topic."""
    wanted = wanted_config(topic, copies)
    verdicts = {name: _verdict(topic, name, config.get(name, ""), copies) for name in wanted}
    for name, verdict in verdicts.items():
        fix = (
            f"kafka-configs.sh --bootstrap-server {servers} --alter --entity-type topics "
            f"--entity-name {prefix}{topic} --add-config {name}={wanted[name]}"
        )
        yield TopicSetting(
            topic=topic,
            name=name,
            found=config.get(name, ""),
            wanted=wanted[name],
            verdict=verdict,
            fix="" if verdict == "ok" else fix,
        )
    enough = min(REPLICATION, brokers)
    yield TopicSetting(
        topic=topic,
        name="replication.factor",
        found=str(copies),
        wanted=str(enough),
        verdict="ok" if copies >= enough else "warning",
        fix="" if copies >= enough else "kafka-reassign-partitions.sh: give each partition more replicas",
        alterable=False,
    )


def _verdict(topic: str, name: str, found: str, copies: int) -> str:
    wanted = wanted_config(topic, copies)[name]
    match name:
        case "cleanup.policy" | "unclean.leader.election.enable":
            return "ok" if found == wanted else "wrong"
        case "max.message.bytes":
            return "ok" if _number(found) >= MESSAGE_BYTES_MAX else "wrong"
        case "min.insync.replicas":
            if _number(found) > copies:
                return "wrong"  # nothing can be written at all
            return "ok" if _number(found) >= int(wanted) else "warning"
        case "retention.bytes" if topic in (*JOURNALS, *INPUTS):
            return "ok" if found == wanted else "wrong"
        case "retention.ms" if topic in JOURNALS:
            return "ok" if found == wanted else "wrong"
        case "retention.ms" if topic in INPUTS:
            kept = _number(found)
            return "ok" if kept == _FOR_EVER or kept >= _INPUT_RETENTION_MS_MIN else "wrong"
        case _:
            return "ok"


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        return 0
