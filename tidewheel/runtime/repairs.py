"""Repairs that are on record: which stretches of a journal partition somebody declared void, and by which event.

Nothing is ever deleted. A repair is a ``JournalRepaired`` at the partition's end that names the void offsets before it
and follows the last event that is proved. So who reads in offset order meets what is void first; on a fault it looks
here for a repair, and reads again knowing it. The repair is believed because, without what is void, every record up to
it and itself proves: a forged or mistaken one is just one more record that does not.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from tidewheel.core.events import JournalRepaired
from tidewheel.log.interface import Log, LogUnavailable, Record
from tidewheel.wire.catalog import versions
from tidewheel.wire.codec import DecodeError, decode_event

#: Without a single record for so long, the log is called unavailable. Longer than a dead owner's transaction can stay
#: open.
NO_PROGRESS_S = 60.0


class Repair(msgspec.Struct, frozen=True, kw_only=True):
    """One ``JournalRepaired`` and where it lies."""

    topic: str
    partition: int
    offset: int
    shard_seq: int
    event: JournalRepaired

    def voids(self, offset: int) -> bool:
        """Whether the record at this offset is void by it."""
        return self.event.void_from <= offset < self.event.void_to


def in_force(repairs: Iterable[Repair]) -> tuple[Repair, ...]:
    """Those that no later one of the same partition declared void."""
    kept: list[Repair] = []
    for repair in sorted(repairs, key=lambda repair: repair.offset, reverse=True):
        if repair.event.void_to <= repair.offset and not any(later.voids(repair.offset) for later in kept):
            kept.append(repair)
    return tuple(reversed(kept))


def is_repair(value: bytes) -> bool:
    """Whether the record calls itself one."""
    return value[2:10] in _fingerprints()


def repair_in(record: Record) -> Repair | None:
    """The repair in a journal record, if it is one."""
    value = record.value
    if value is None or not is_repair(value):
        return None
    try:
        recorded = decode_event(value)
    except DecodeError:
        return None
    assert isinstance(recorded.event, JournalRepaired)
    return Repair(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        shard_seq=recorded.shard_seq,
        event=recorded.event,
    )


def repairs_of(source: Log, topic: str, partition: int, start: int = 0) -> tuple[Repair, ...]:
    """The repairs in force that lie at ``start`` or behind it."""
    records = read_to_end(source, {(topic, partition): start})
    return in_force(found for record in records if (found := repair_in(record)) is not None)


def read_to_end(source: Log, starts: Mapping[tuple[str, int], int]) -> Iterator[Record]:
    """Committed records up to the ends of now, a dead owner's open transaction waited for."""
    if not starts:
        return
    ends = source.end_offsets(starts)
    ahead = {place: start for place, start in starts.items() if start < ends[place]}
    if not ahead:
        return
    reader = source.reader(ahead)
    try:
        deadline = time.monotonic() + NO_PROGRESS_S
        while any(position < ends[place] for place, position in reader.positions().items()):
            records = reader.read(5_000, 0.05)
            if records:
                deadline = time.monotonic() + NO_PROGRESS_S
            elif time.monotonic() > deadline:
                behind = sorted(place for place, position in reader.positions().items() if position < ends[place])
                topic, partition = behind[0]
                where = f"{topic}/{partition} and {len(behind) - 1} more" if len(behind) > 1 else f"{topic}/{partition}"
                raise LogUnavailable(f"{where}: nothing to read for {NO_PROGRESS_S:.0f} s before the end")
            yield from records
    finally:
        reader.close()


@functools.cache
def _fingerprints() -> frozenset[bytes]:
    """Of every version of the event ever published."""
    return frozenset(fingerprint for fingerprint, version in versions().items() if version.message is JournalRepaired)
