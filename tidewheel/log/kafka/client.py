"""What every Kafka client here shares: configuration, where its log lines go, records and faults in our terms."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import TypeVar, cast

import structlog
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from tidewheel.log.interface import LogError, LogUnavailable, Record

#: How long a first contact may take. A broker on the same machine answers in milliseconds.
CONTACT_S_MAX = 5.0
#: How late an answer may be: about a session, for who takes over must be able to read.
ANSWER_MS_MAX = 6000
#: Largest message, framing included; room for ``limits.RECORD_BYTES_MAX``. Topics are created with the same number.
MESSAGE_BYTES_MAX = 2 * 1024 * 1024
#: librdkafka repeats itself several times a second while a broker is away.
_REPEAT_S_MIN = 10.0

#: What the client says when it has no connection to a broker, and when nothing came in time over one that it may have.
NOT_REACHABLE = frozenset({KafkaError._TRANSPORT, KafkaError._RESOLVE, KafkaError._ALL_BROKERS_DOWN})
NO_ANSWER = frozenset({KafkaError._TIMED_OUT, KafkaError.REQUEST_TIMED_OUT})

#: An owner's client id is this, its instance and what tells its processes apart.
CLIENT_ID_PREFIX = "tidewheel-"

#: Values of a client's configuration.
Config = dict[str, object]

T = TypeVar("T")

_log = structlog.get_logger("tidewheel.kafka")


class LogLines:
    """Takes librdkafka's log lines, which otherwise go to stderr.

    What it says of one matter is told once in a while.
    """

    def __init__(self, listener: Callable[[str], None] | None = None) -> None:
        self._listener = listener
        self._told: dict[str, float] = {}

    def log(self, level: int, template: str, *arguments: object) -> None:
        """Called by confluent-kafka as a ``logging.Logger`` would be: level, template, the template's arguments."""
        matter = str(arguments[0]) if arguments else template
        line = (template % arguments) if arguments else template
        if self._listener is not None:
            self._listener(line)
        now = time.monotonic()
        if now - self._told.get(matter, -_REPEAT_S_MIN) < _REPEAT_S_MIN:
            return
        self._told[matter] = now
        if level < logging.ERROR:
            _log.debug("librdkafka", line=line)
        else:
            _log.warning("librdkafka", line=line)


def base_config(servers: str, extra: Mapping[str, str]) -> Config:
    """The settings of every client. ``extra`` are librdkafka's own names, for TLS and SASL."""
    return {
        "bootstrap.servers": servers,
        "client.id": "tidewheel",
        "logger": LogLines(),
        "socket.keepalive.enable": True,
        "socket.nagle.disable": True,
        # A connection that died unnoticed is given up when an answer is so late, that of a fetch included. The defaults
        # are a minute, and half a minute for connecting.
        "socket.timeout.ms": ANSWER_MS_MAX,
        "socket.connection.setup.timeout.ms": ANSWER_MS_MAX,
        # The default grows to 10 s, which is all the time a takeover has.
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 1000,
        **extra,
    }


def consumer_config(servers: str, extra: Mapping[str, str], group: str) -> Config:
    """The settings of every consumer: committed records only, positions kept by us, small local queues."""
    return {
        **base_config(servers, extra),
        "group.id": group,
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "allow.auto.create.topics": False,
        "fetch.min.bytes": 1,
        "fetch.error.backoff.ms": 50,
        # The default of 1 s is how long a full local queue stalls a replay.
        "fetch.queue.backoff.ms": 10,
        "queued.max.messages.kbytes": 16_384,
    }


def unique_client_id(instance: str) -> str:
    """A client id that tells this process's clients from those of another one of the same name."""
    return f"{CLIENT_ID_PREFIX}{instance}-{secrets.token_hex(6)}"


def fault_of(error: KafkaException) -> KafkaError:
    """The error inside the exception."""
    return cast(KafkaError, error.args[0])


def unavailable(servers: str, doing: str, error: KafkaException) -> LogUnavailable:
    """A fault of reaching the broker, as the user should read it."""
    fault = fault_of(error)
    code = fault.code()
    what = "is not reachable" if code in NOT_REACHABLE else "does not answer" if code in NO_ANSWER else "cannot be used"
    return LogUnavailable(
        f"Kafka at {servers} {what} ({doing}): {fault.str()}. "
        "Is the broker running and the address right? `make kafka` starts a local one; TIDEWHEEL_LOG names another"
    )


def answer(asked: Future[T], servers: str, doing: str) -> T:
    """What an admin client's call gives. Without an answer the client itself gives up first, and then says why."""
    try:
        return asked.result(2 * CONTACT_S_MAX)
    except KafkaException as error:
        raise unavailable(servers, doing, error) from error
    except TimeoutError:
        raise LogUnavailable(f"Kafka at {servers} does not answer ({doing})") from None


def record_of(message: Message[bytes, bytes], topic: str) -> Record:
    """A message as the engine sees it; ``topic`` is its name without the prefix."""
    headers = message.headers()
    return Record(
        topic,
        cast(int, message.partition()),
        cast(int, message.offset()),
        message.key(),
        message.value(),
        _headers_of(headers) if headers else (),
        message.timestamp()[1],
    )


def _headers_of(headers: object) -> tuple[tuple[str, bytes], ...]:
    """A header may have no value in Kafka; we make no difference between none and an empty one."""
    return tuple((name, value or b"") for name, value in cast(Iterable[tuple[str, bytes | None]], headers))


def place_of(message: Message[bytes, bytes]) -> tuple[str, int]:
    """Full topic name and partition."""
    return cast(str, message.topic()), cast(int, message.partition())


def partitions_at(positions: Mapping[tuple[str, int], int]) -> list[TopicPartition]:
    """Positions in the client's terms."""
    return [TopicPartition(topic, partition, offset) for (topic, partition), offset in positions.items()]


def log_replaced(topic: str, partition: int, start: int, end: int) -> LogError:
    """A position that this log cannot have given."""
    return LogError(f"cannot read {topic}/{partition} from offset {start}: it ends at {end}; was the log replaced?")
