"""Kafka's wire format, as much of it as a proxy needs: whose request this is, of which kind, how it was answered."""

from __future__ import annotations

import struct
from enum import IntEnum

import msgspec

#: Larger than any message of ours; a length beyond it is no Kafka.
FRAME_BYTES_MAX = 64 * 1024 * 1024


class Api(IntEnum):
    """The kinds of request that tests wait for, by Kafka's own numbers."""

    PRODUCE = 0
    FETCH = 1
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    JOIN_GROUP = 11
    HEARTBEAT = 12
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    TXN_OFFSET_COMMIT = 28


#: From which version on a kind of request has tagged fields; those here begin with their transactional id.
_TRANSACTIONAL = {
    Api.PRODUCE: 9,
    Api.INIT_PRODUCER_ID: 2,
    Api.ADD_PARTITIONS_TO_TXN: 3,
    Api.ADD_OFFSETS_TO_TXN: 3,
    Api.END_TXN: 3,
    Api.TXN_OFFSET_COMMIT: 3,
}


class Request(msgspec.Struct, frozen=True):
    """One request. ``transactional_id`` is empty where there is none."""

    api: int
    version: int
    correlation: int
    client: str
    transactional_id: str
    body: bytes


def read_request(frame: bytes) -> Request:
    """The request in a frame, its length not included."""
    api, version, correlation, length = struct.unpack_from(">hhih", frame)
    at = 10
    client = ""
    if length > 0:
        client = frame[at : at + length].decode(errors="replace")
        at += length
    transactional_id = ""
    flexible_from = _TRANSACTIONAL.get(api)
    if flexible_from is not None:
        transactional_id = _text(frame, at, flexible=version >= flexible_from)
    return Request(api, version, correlation, client, transactional_id, frame)


def correlation_of(frame: bytes) -> int:
    """Which request a response answers."""
    (correlation,) = struct.unpack_from(">i", frame)
    return int(correlation)


def end_error(request: Request, frame: bytes) -> int:
    """The error code in the response to an ``END_TXN``; 0: done as asked."""
    # Correlation id, tagged fields in newer versions, throttle time.
    at = 4 + (1 if request.version >= _TRANSACTIONAL[Api.END_TXN] else 0) + 4
    (error,) = struct.unpack_from(">h", frame, at)
    return int(error)


def commits(request: Request) -> bool:
    """Whether an ``END_TXN`` asks for a commit and not for an abort."""
    flexible = request.version >= _TRANSACTIONAL[Api.END_TXN]
    return request.body[-2 if flexible else -1] == 1


def _text(frame: bytes, at: int, *, flexible: bool) -> str:
    if not flexible:
        (length,) = struct.unpack_from(">h", frame, at)
        start = at + 2
    else:
        # No tagged fields in the header: no client sends any. The length is a varint, one more than it counts.
        length, start, shift = 0, at + 1, 0
        while True:
            byte = frame[start]
            start += 1
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        length -= 1
    return frame[start : start + length].decode(errors="replace") if length > 0 else ""
