"""Leaves a transaction's positions unsettled in a group although the transaction is over, as a broker's crash can.

No client library offers that, and a broker does it only when it is killed at a certain moment. Here the positions are
sent without the transaction's coordinator having been told of them, which Kafka refuses unless
``transaction.partition.verification.enable`` is off; so the broker must be one's own.
"""

from __future__ import annotations

import socket
import struct
import time

from confluent_kafka import KafkaError
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from tidewheel.testing.kafka_frames import Api

_INIT_VERSION, _COMMIT_VERSION = 1, 2
_TIMEOUT_MS = 6_000
_ANSWER_S_MAX = 20.0
_AGAIN_S = 0.1
_NO_EPOCH = -1


def leave_unsettled(address: str, group: str, transactional_id: str, topic: str, partition: int, offset: int) -> None:
    """Move a position of ``group`` in a transaction that nobody ends; the broker must be alone in its cluster."""
    _trust_clients(address)
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=_ANSWER_S_MAX) as connection:
        name = _text(transactional_id)
        begun = _ask(connection, Api.INIT_PRODUCER_ID, _INIT_VERSION, name + struct.pack(">i", _TIMEOUT_MS))
        # throttle time, error, producer id and epoch
        _, error, producer, epoch = struct.unpack_from(">ihqh", begun)
        _raise(error, f"begin as '{transactional_id}'")
        place = _text(topic) + struct.pack(">iiqi", 1, partition, offset, _NO_EPOCH) + _text("")
        body = name + _text(group) + struct.pack(">qhi", producer, epoch, 1) + place
        deadline = time.monotonic() + _ANSWER_S_MAX
        while True:
            (error,) = struct.unpack(">h", _ask(connection, Api.TXN_OFFSET_COMMIT, _COMMIT_VERSION, body)[-2:])
            # What was set takes the broker a moment.
            if error != KafkaError.INVALID_TXN_STATE or time.monotonic() > deadline:
                break
            time.sleep(_AGAIN_S)
        _raise(error, f"move a position of '{group}'")


def _trust_clients(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    (number,) = admin.list_topics(timeout=_ANSWER_S_MAX).brokers
    entry = ConfigEntry(
        "transaction.partition.verification.enable", "false", incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ResourceType.BROKER, str(number), incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(_ANSWER_S_MAX)


def _ask(connection: socket.socket, api: Api, version: int, body: bytes) -> bytes:
    request = struct.pack(">hhi", api, version, 1) + _text("tidewheel-test") + body
    connection.sendall(struct.pack(">i", len(request)) + request)
    answer = connection.makefile("rb")
    (length,) = struct.unpack(">i", answer.read(4))
    return answer.read(length)[4:]  # without the correlation id


def _raise(error: int, doing: str) -> None:
    if error:
        raise RuntimeError(f"the broker did not {doing}: error {error}")


def _text(value: str) -> bytes:
    encoded = value.encode()
    return struct.pack(">h", len(encoded)) + encoded
