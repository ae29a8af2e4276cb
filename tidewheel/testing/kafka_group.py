"""Throws a member out of a Kafka consumer group by its name, which client libraries offer only for oneself.

For tests of fencing: to the group this is a scheduler that was stopped past its session time-out, without the wait.
"""

from __future__ import annotations

import socket
import struct

from confluent_kafka.admin import AdminClient

_LEAVE_GROUP = 13
_VERSION = 1


def expel_member(address: str, group: str, instance: str) -> None:
    """Expel the static member ``instance`` of ``group``; the broker at ``address`` must be the group's coordinator."""
    admin = AdminClient({"bootstrap.servers": address})
    members = admin.describe_consumer_groups([group])[group].result(timeout=20).members
    (member_id,) = [member.member_id for member in members if member.group_instance_id == instance]
    body = _text(group) + _text(member_id)
    header = struct.pack(">hhi", _LEAVE_GROUP, _VERSION, 1) + _text("tidewheel-test")
    request = header + body
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        answer = connection.makefile("rb")
        (length,) = struct.unpack(">i", answer.read(4))
        # correlation id, throttle time, error code
        _, _, error = struct.unpack(">iih", answer.read(length))
    if error:
        raise RuntimeError(f"the broker did not expel '{instance}' from '{group}': error {error}")


def _text(value: str) -> bytes:
    encoded = value.encode()
    return struct.pack(">h", len(encoded)) + encoded
