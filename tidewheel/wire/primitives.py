"""Avro's numbers and strings, as ``wire.compiled`` needs them: fast for what is common, strict about what is not allowed.

Readers of numbers take the position *after* the first byte, which the compiled code has looked at already.
"""

from __future__ import annotations

from typing import Final, NoReturn

from tidewheel.wire.faults import DecodeError

#: Numbers up to here take at most two bytes, and nearly all lengths, attempts and counts are among them.
SMALL_MAX: Final = 8191


def _varint(unsigned: int) -> bytes:
    out = bytearray()
    while unsigned > 127:
        out.append(unsigned & 127 | 128)
        unsigned >>= 7
    out.append(unsigned)
    return bytes(out)


#: Encoded forms of 0 … SMALL_MAX.
SMALL: Final = tuple(_varint(number << 1) for number in range(SMALL_MAX + 1))


def int_bytes(number: int) -> bytes:
    """An Avro int, of 32 bits."""
    if not -0x8000_0000 <= number <= 0x7FFF_FFFF:
        raise OverflowError(f"{number} does not fit into 32 bits")
    return _varint(number << 1 ^ number >> 31)


def long_bytes(number: int) -> bytes:
    """An Avro long, of 64 bits."""
    if not -0x8000_0000_0000_0000 <= number <= 0x7FFF_FFFF_FFFF_FFFF:
        raise OverflowError(f"{number} does not fit into 64 bits")
    return _varint(number << 1 ^ number >> 63)


def string_bytes(text: str) -> bytes:
    """An Avro string, its length in front."""
    raw = text.encode()
    return long_bytes(len(raw)) + raw


def bytes_bytes(raw: bytes) -> bytes:
    """An Avro bytes value, its length in front."""
    return long_bytes(len(raw)) + raw


def read_long(data: bytes, position: int, first: int) -> tuple[int, int]:
    """The long whose first byte is ``first`` and whose others begin at ``position``; and where it ends."""
    unsigned = first & 127
    shift = 7
    byte = first
    while byte > 127:
        byte = data[position]
        position += 1
        unsigned |= (byte & 127) << shift
        shift += 7
        if shift > 63 and (byte > 1 or shift > 70):
            raise DecodeError("malformed", f"the number that ends at byte {position} is longer than 64 bits")
    if not byte and shift > 7:
        raise DecodeError("malformed", f"the number that ends at byte {position} is not in its shortest form")
    return unsigned >> 1 ^ -(unsigned & 1), position


def read_int(data: bytes, position: int, first: int) -> tuple[int, int]:
    """Like ``read_long``, for 32 bits."""
    number, position = read_long(data, position, first)
    if not -0x8000_0000 <= number <= 0x7FFF_FFFF:
        raise DecodeError("malformed", f"the number that ends at byte {position} is longer than 32 bits")
    return number, position


def read_size(data: bytes, position: int, first: int) -> tuple[int, int]:
    """Where a string or bytes value begins and where it ends; no byte of it is touched before it is known to be there."""
    size, position = read_long(data, position, first)
    if size < 0:
        raise DecodeError("malformed", f"the length that ends at byte {position} is negative")
    if position + size > len(data):
        raise DecodeError("truncated", f"{size} bytes announced at byte {position}, {len(data) - position} are there")
    return position, position + size


def bad_branch(position: int, index: int) -> NoReturn:
    """An optional value's first byte says neither null (00) nor present (02)."""
    raise DecodeError("malformed", f"byte {position - 1} should say null (0) or present (2), but it is {index}")


def bad_boolean(position: int, value: int) -> NoReturn:
    """A boolean is one byte, 0 or 1."""
    raise DecodeError("malformed", f"byte {position - 1} should be a boolean (0 or 1), but it is {value}")
