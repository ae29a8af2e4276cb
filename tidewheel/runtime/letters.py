"""Dead letters: what could not be decoded or applied, kept with the reason and where it came from."""

from __future__ import annotations

from tidewheel.log.interface import DEAD_LETTERS, Append, Record
from tidewheel.wire.codec import encode
from tidewheel.wire.messages import DeadLetter

#: Dead letters keep the record whole up to this size; longer ones are cut, so that a dead letter always fits into a
#: record.
_VALUE_BYTES_MAX = 900_000
_KEY_BYTES_MAX = 10_000


def dead_letter(record: Record, code: str, reason: str, at: int) -> Append:
    """The letter about ``record``, to be written."""
    letter = DeadLetter(
        at=at,
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        key=None if record.key is None else record.key[:_KEY_BYTES_MAX],
        value=None if record.value is None else record.value[:_VALUE_BYTES_MAX],
        code=code,
        reason=reason[:10_000],
    )
    return Append(DEAD_LETTERS, (record.key or b"")[:1000], encode(letter))
