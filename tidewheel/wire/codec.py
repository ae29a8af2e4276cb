"""Messages to bytes and back: Avro single-object encoding, schemas from ``schemas/``, decoding that trusts nothing.

A record is the marker C3 01, the fingerprint of its schema version (8 bytes) and the fields. An event's record ends
with ``chain``, 8 bytes over the previous event's chain and all bytes of this record before it, so the journal can be
proved from its bytes alone. Whatever the bytes are, decoding gives a valid message or raises ``DecodeError``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Final, cast

import msgspec

from tidewheel.core.commands import Command
from tidewheel.core.events import AnyEvent, Event, Recorded
from tidewheel.wire import catalog
from tidewheel.wire.compiled import (
    HEADER_SIZE,
    MARKER,
    EventWriter,
    Reader,
    Writer,
    compile_event_writer,
    compile_reader,
    compile_writer,
)
from tidewheel.wire.faults import DecodeError, EncodeError
from tidewheel.wire.messages import DeadLetter, TriggerRun
from tidewheel.wire.rules import DEAD_LETTER_BYTES_MAX, INPUT_BYTES_MAX, VALUE_BYTES_MAX
from tidewheel.wire.upcast import UPCASTS

__all__ = [
    "CHAIN_SIZE",
    "GENESIS",
    "DecodeError",
    "EncodeError",
    "chain_matches",
    "decode",
    "decode_event",
    "encode",
    "encode_event",
]

#: Bytes of a chain: with 2^64 values, an altered journal cannot be made to fit by trial in a lifetime.
CHAIN_SIZE: Final = 8
#: What the first event of a journal partition is chained to.
GENESIS: Final = bytes(CHAIN_SIZE)

_writers: Final[dict[type, Writer]] = {}
_event_writers: Final[dict[type, EventWriter]] = {}
_readers: Final[dict[bytes, Reader]] = {}
_event_readers: Final[dict[bytes, Reader]] = {}


def encode(message: msgspec.Struct) -> bytes:
    """The record of a travelling command, mail, log chunk, dead letter, trigger, snapshot or checkpoint."""
    write = _writers.get(type(message)) or _writer(type(message))
    try:
        return write(message)
    except (AttributeError, OverflowError, TypeError, UnicodeEncodeError) as error:
        raise EncodeError(f"{type(message).__name__} cannot be written: {error}") from error


def decode(data: bytes, partition: int = -1) -> msgspec.Struct:
    """The message in a record that is no event; ``partition`` is where mail was read, which its record does not say."""
    try:
        read = _readers.get(data[:HEADER_SIZE]) or _reader(data, events=False)
        return read(data, partition)
    except (IndexError, TypeError, ValueError) as error:
        raise _fault(data, error) from error


def encode_event(
    event: AnyEvent, *, seq: int, shard_seq: int, writer: int, cause: str, previous: bytes
) -> tuple[bytes, bytes]:
    """The event's record for the journal, and its chain, which is ``previous`` for the next one in that partition."""
    write = _event_writers.get(type(event)) or _event_writer(type(event))
    try:
        data = write(event, cause, seq, shard_seq, writer)
    except (AttributeError, OverflowError, TypeError, UnicodeEncodeError) as error:
        raise EncodeError(f"{type(event).__name__} cannot be written: {error}") from error
    chain = blake2b(previous + data, digest_size=CHAIN_SIZE).digest()
    return data + chain, chain


def decode_event(data: bytes) -> Recorded:
    """The event in a journal record, with its place in the journal. The chain is not checked here."""
    try:
        read = _event_readers.get(data[:HEADER_SIZE]) or _reader(data, events=True)
        return cast(Recorded, read(data, -1))
    except (IndexError, TypeError, ValueError) as error:
        raise _fault(data, error) from error


def chain_matches(previous: bytes, data: bytes) -> bool:
    """True if this journal record, unaltered, follows the one whose chain is ``previous``."""
    return blake2b(previous + data[:-CHAIN_SIZE], digest_size=CHAIN_SIZE).digest() == data[-CHAIN_SIZE:]


def _writer(message: type[msgspec.Struct]) -> Writer:
    version = catalog.current(message)
    if version is None or issubclass(message, Event):
        hint = "an event is written by encode_event" if version else "it has no published schema"
        raise EncodeError(f"{message.__name__} does not travel by itself: {hint}")
    write = compile_writer(version, _limit(message))
    for older, beyond in catalog.writable(message)[1:]:
        write = cast(Writer, _either(compile_writer(older, _limit(message)), beyond, write))
    return _writers.setdefault(message, write)


def _event_writer(message: type[msgspec.Struct]) -> EventWriter:
    version = catalog.current(message)
    if version is None or not issubclass(message, Event):
        raise EncodeError(f"{message.__name__} is no event with a published schema")
    write = compile_event_writer(version, _limit(message) - CHAIN_SIZE)
    for older, beyond in catalog.writable(message)[1:]:
        older_write = compile_event_writer(older, _limit(message) - CHAIN_SIZE)
        write = cast(EventWriter, _either(older_write, beyond, write))
    return _event_writers.setdefault(message, write)


def _either(
    older: Callable[..., bytes], beyond: Mapping[str, object], newer: Callable[..., bytes]
) -> Callable[..., bytes]:
    """Writes the older version if the message says nothing beyond it."""

    def write(message: msgspec.Struct, *envelope: object) -> bytes:
        said = any(getattr(message, name) != default for name, default in beyond.items())
        return (newer if said else older)(message, *envelope)

    return write


def _reader(data: bytes, *, events: bool) -> Reader:
    """Find and keep the reader for a header met for the first time; say what is wrong with one that has none."""
    if not isinstance(data, bytes):
        raise DecodeError("foreign", "the record has no value")
    if data[:2] != MARKER[: len(data)]:
        raise DecodeError(
            "foreign", f"a message begins with c301 (hex), this record with {data[:2].hex() or 'nothing'}"
        )
    if len(data) < HEADER_SIZE:
        raise DecodeError(
            "truncated", f"a message has a header of {HEADER_SIZE} bytes, this record ends after {len(data)}"
        )
    version = catalog.versions().get(data[2:HEADER_SIZE])
    if version is None or version.message is None:
        known = (
            "is not known here; did a newer release write it?"
            if version is None
            else f"({version.name}) is no longer read"
        )
        raise DecodeError("unknown_schema", f"schema fingerprint {data[2:HEADER_SIZE].hex()} {known}")
    if issubclass(version.message, Event) is not events:
        raise DecodeError(
            "unexpected", f"{version.name} is {'no' if events else 'an'} event, which does not belong here"
        )
    upcast = UPCASTS.get(version.fingerprint.hex())
    read = compile_reader(version, _limit(version.message), upcast)
    return (_event_readers if events else _readers).setdefault(data[:HEADER_SIZE], read)


def _limit(message: type[msgspec.Struct]) -> int:
    if issubclass(message, Command | TriggerRun):
        return INPUT_BYTES_MAX
    return DEAD_LETTER_BYTES_MAX if message is DeadLetter else VALUE_BYTES_MAX


def _fault(data: object, error: Exception) -> DecodeError:
    if not isinstance(data, bytes):
        return DecodeError("foreign", "the record has no value")
    if isinstance(error, IndexError):
        return DecodeError("truncated", f"the record ends after {len(data)} bytes, in the middle of the message")
    if isinstance(error, UnicodeDecodeError):
        return DecodeError("malformed", f"a string is not UTF-8: {error}")
    return DecodeError("invalid", str(error))
