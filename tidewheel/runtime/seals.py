"""Seals on snapshots and checkpoints. The journal proves itself by its chain; these prove that they are as written."""

from __future__ import annotations

from hashlib import blake2b
from typing import TypeAlias

import msgspec

from tidewheel.wire.codec import encode
from tidewheel.wire.messages import Checkpoint, Snapshot

Sealed: TypeAlias = Snapshot | Checkpoint


def sealed(message: Sealed) -> bytes:
    """The message's record, with its seal."""
    return encode(msgspec.structs.replace(message, seal=_seal_of(message)))


def is_intact(message: Sealed) -> bool:
    """Whether it is what was sealed."""
    return message.seal == _seal_of(message)


def _seal_of(message: Sealed) -> int:
    digest = blake2b(encode(msgspec.structs.replace(message, seal=0)), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
