"""Avro's numbers and strings, as ``wire.compiled`` needs them: fast for the common, strict about what is not allowed.

A number is cut into groups of 7 bits, the lowest first; every byte but the last has its top bit set. Readers take the
position *after* the first byte, which the compiled code has looked at already. Most numbers are small or times of
day (6 bytes); both have a short way here, and the tests hold all ways against fastavro.
"""

from __future__ import annotations

from typing import Final, NoReturn

from tidewheel.wire.faults import DecodeError

#: One group, by its 7 bits: the last of a number, and one that more follow.
_END: Final = tuple(bytes((group,)) for group in range(128))
_MORE: Final = tuple(bytes((group | 128,)) for group in range(128))
#: The one or two groups that end a number, by their 14 bits; and two that more follow.
_LAST: Final = _END + tuple(low + high for high in _END[1:] for low in _MORE)
_OPEN: Final = tuple(low + high for high in _MORE for low in _MORE)
#: Encoded forms of 0 … SMALL_MAX: nearly all lengths, attempts and counts.
SMALL: Final = _LAST[::2]
SMALL_MAX: Final = len(SMALL) - 1

#: Last four bytes of a six-byte number → what they add to it. In a time these change every 8 s, so few are ever needed.
_tails: Final[dict[bytes, int]] = {}
_TAILS_MAX: Final = 4096


def int_bytes(number: int) -> bytes:
    """An Avro int, of 32 bits."""
    if not -0x8000_0000 <= number <= 0x7FFF_FFFF:
        raise OverflowError(f"{number} does not fit into 32 bits")
    return _groups(number << 1 ^ number >> 31)


def long_bytes(number: int) -> bytes:
    """An Avro long, of 64 bits."""
    if not -0x8000_0000_0000_0000 <= number <= 0x7FFF_FFFF_FFFF_FFFF:
        raise OverflowError(f"{number} does not fit into 64 bits")
    return _groups(number << 1 ^ number >> 63)


def string_bytes(text: str) -> bytes:
    """An Avro string, its length in front."""
    return bytes_bytes(text.encode())


def bytes_bytes(raw: bytes) -> bytes:
    """An Avro bytes value, its length in front."""
    return long_bytes(len(raw)) + raw


def _groups(unsigned: int) -> bytes:
    if unsigned < 1 << 14:
        return _LAST[unsigned]
    if unsigned < 1 << 28:
        return _OPEN[unsigned & 0x3FFF] + _LAST[unsigned >> 14]
    return _OPEN[unsigned & 0x3FFF] + _OPEN[unsigned >> 14 & 0x3FFF] + _groups(unsigned >> 28)


def read_long(data: bytes, position: int, first: int) -> tuple[int, int]:
    """The long whose first byte is ``first`` and whose others begin at ``position``; and where it ends."""
    second = data[position]
    unsigned = first & 127 | (second & 127) << 7
    if second > 127:
        tail = _tails.get(data[position + 1 : position + 5])
        if tail is None:
            return _read_long_number(data, position, unsigned)
        unsigned |= tail
        position += 4
    elif not second:
        raise DecodeError("malformed", f"the number that ends before byte {position + 1} is not in its shortest form")
    return unsigned >> 1 ^ -(unsigned & 1), position + 1


def _read_long_number(data: bytes, position: int, unsigned: int) -> tuple[int, int]:
    """A number of three groups or more, of which ``unsigned`` holds two; the second is at ``position``."""
    end, shift, group = position + 1, 14, 128
    while group > 127:
        group = data[end]
        end += 1
        unsigned |= (group & 127) << shift
        shift += 7
        if shift > 63 and (group > 1 or shift > 70):
            raise DecodeError("malformed", f"the number that holds byte {end - 1} is longer than 64 bits")
    if not group:
        raise DecodeError("malformed", f"the number that ends before byte {end} is not in its shortest form")
    if end == position + 5:
        if len(_tails) >= _TAILS_MAX:
            _tails.clear()
        _tails[data[position + 1 : end]] = unsigned >> 14 << 14
    return unsigned >> 1 ^ -(unsigned & 1), end


def read_int(data: bytes, position: int, first: int) -> tuple[int, int]:
    """Like ``read_long``, for 32 bits."""
    number, position = read_long(data, position, first)
    if not -0x8000_0000 <= number <= 0x7FFF_FFFF:
        raise DecodeError("malformed", f"the number that ends before byte {position} is longer than 32 bits")
    return number, position


def read_size(data: bytes, position: int, first: int) -> tuple[int, int]:
    """Where a string or bytes value begins and where it ends; none of it is touched before it is known to be there."""
    size, position = (first >> 1 ^ -(first & 1), position) if first < 128 else read_long(data, position, first)
    if size < 0:
        raise DecodeError("malformed", f"the length that ends before byte {position} is negative")
    if position + size > len(data):
        missing = position + size - len(data)
        raise DecodeError(
            "truncated", f"{size} bytes are announced from byte {position} on, {missing} of them are missing"
        )
    return position, position + size


def bad_branch(position: int, index: int) -> NoReturn:
    """An optional value's first byte says neither null (00) nor present (02)."""
    raise DecodeError("malformed", f"byte {position - 1} should say null (0) or present (2), but it is {index}")


def bad_boolean(position: int, value: int) -> NoReturn:
    """A boolean is one byte, 0 or 1."""
    raise DecodeError("malformed", f"byte {position - 1} should be a boolean (0 or 1), but it is {value}")
