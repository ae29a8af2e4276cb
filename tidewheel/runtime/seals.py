"""Seals on snapshots and checkpoints. The journal proves itself by its chain; these prove that they are as written."""

from __future__ import annotations

from hashlib import blake2b
from typing import TypeAlias

import msgspec

from tidewheel.wire.codec import encode
from tidewheel.wire.messages import Checkpoint, Snapshot
from tidewheel.wire.primitives import long_bytes

Sealed: TypeAlias = Snapshot | Checkpoint


def sealed(message: Sealed) -> bytes:
    """The message's record, with its seal."""
    return encode(msgspec.structs.replace(message, seal=_seal_of(message)))


def is_intact(record: bytes, message: Sealed) -> bool:
    """Whether the record that says ``message`` is what was sealed. Judged by its bytes, whatever version they are of:
    the seal is always last."""
    return message.seal == _digest(record[: -len(long_bytes(message.seal))] + long_bytes(0))


def _seal_of(message: Sealed) -> int:
    return _digest(encode(msgspec.structs.replace(message, seal=0)))


def _digest(record: bytes) -> int:
    return int.from_bytes(blake2b(record, digest_size=8).digest(), "big", signed=True)
