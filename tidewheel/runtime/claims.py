"""What a shard's checkpoint, and the claim beside it, say of its journals: an event of each that was there once.

A journal that ends before it, or holds another event of that number, was cut, or is another one.
"""

from __future__ import annotations

from collections.abc import Collection

from tidewheel.log.interface import EVENTS, POOL_EVENTS, SNAPSHOTS, Log
from tidewheel.runtime.repairs import read_to_end
from tidewheel.runtime.seals import is_intact
from tidewheel.wire.codec import DecodeError, decode
from tidewheel.wire.messages import Checkpoint

#: Number and chain of an event.
Claim = tuple[int, bytes]


def claims_of(source: Log, partitions: Collection[int]) -> dict[tuple[str, int], Claim]:
    """By journal topic and partition, what was last claimed. What cannot be read claims nothing."""
    claims: dict[tuple[str, int], Claim] = {}
    for record in read_to_end(source, {(SNAPSHOTS, partition): 0 for partition in partitions}):
        try:
            message = None if record.value is None else decode(record.value)
        except DecodeError:
            continue
        if isinstance(message, Checkpoint) and is_intact(record.value or b"", message):
            events = (message.events_shard_seq, message.events_chain)
            pool_events = (message.pool_events_shard_seq, message.pool_events_chain)
            for place, claim in (((EVENTS, record.partition), events), ((POOL_EVENTS, record.partition), pool_events)):
                claims[place] = max(claim, claims.get(place, claim))
    return claims
