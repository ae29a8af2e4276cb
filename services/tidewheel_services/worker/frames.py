"""Messages over a stream socket: four bytes of length, then MessagePack. Light: supervisor and runners use it too."""

from __future__ import annotations

import struct

import msgspec

_LENGTH = struct.Struct("<I")


def frame(message: msgspec.Struct) -> bytes:
    """``message`` as it travels."""
    body = msgspec.msgpack.encode(message)
    return _LENGTH.pack(len(body)) + body


class Frames:
    """Puts the frames of a stream together again."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def take(self, data: bytes) -> list[bytes]:
        """Add what was received; gives the bodies that are complete."""
        buffer = self._buffer
        buffer += data
        bodies: list[bytes] = []
        while len(buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(buffer)
            end = _LENGTH.size + length
            if len(buffer) < end:
                break
            bodies.append(bytes(buffer[_LENGTH.size : end]))
            del buffer[:end]
        return bodies
