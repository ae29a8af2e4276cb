"""Bringing a shard up to date: from its snapshots, or from where this process last left it, on to the journals' ends.

One path serves a first start, a takeover, a shard that comes back, an aborted commit and one whose outcome is in
doubt: read what the journal says beyond what is folded, and fold it. Each event must follow the one before by number
and by chain; the first that does not stops the shard there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import structlog

from tidewheel.core.fold import fold
from tidewheel.core.snapshot import empty
from tidewheel.log.interface import JOURNALS, SNAPSHOTS, Log, LogUnavailable, Record
from tidewheel.runtime.shard import KIND_OF, AggregateKey, JournalHead, Shard
from tidewheel.runtime.snapshots import restore
from tidewheel.wire.codec import DecodeError, chain_matches, decode_event

log = structlog.get_logger()

#: Without a single record for so long, the log is called unavailable. Longer than a dead owner's transaction can stay
#: open.
NO_PROGRESS_S = 60.0


class JournalBroken(Exception):
    """The journal does not prove itself at this place: an event is missing, doubled, altered or not ours."""


def bring_up_to_date(shards: Sequence[Shard], source: Log, clock: Callable[[], int], *, snapshots: bool = True) -> int:
    """Fold everything the journals hold beyond the shards' heads, all at once; gives the number of events folded.

    Without ``snapshots`` a shard that is empty is folded from the journals' beginning. Raises ``JournalBroken``, or
    ``LogUnavailable`` if the log stops answering.
    """
    begun = clock()
    fresh = [shard for shard in shards if snapshots and all(head.shard_seq == 0 for head in shard.heads.values())]
    found: dict[int, list[Record]] = {}
    for record in _read_to_end(source, {(SNAPSHOTS, shard.number): 0 for shard in fresh}):
        found.setdefault(record.partition, []).append(record)
    for shard in fresh:
        restore(shard, found.pop(shard.number, []))
    by_number = {shard.number: shard for shard in shards}
    folded = 0
    starts = {(topic, shard.number): shard.heads[topic].offset for shard in shards for topic in JOURNALS}
    for record in _read_to_end(source, starts):
        _follow(by_number[record.partition], record)
        folded += 1
    if folded:
        log.info("shards are up to date", shards=sorted(by_number), events=folded, took_ms=clock() - begun)
    return folded


def _follow(shard: Shard, record: Record) -> None:
    """Fold one journal record, which must be the one that comes next."""
    place = f"{record.topic}/{record.partition}/{record.offset}"
    head = shard.heads[record.topic]
    if record.value is None:
        raise JournalBroken(f"{place}: a record without value lies in the journal")
    try:
        recorded = decode_event(record.value)
    except DecodeError as error:
        raise JournalBroken(f"{place}: {error}") from error
    if recorded.shard_seq != head.shard_seq + 1:
        raise JournalBroken(f"{place}: expected event {head.shard_seq + 1} of this shard, found {recorded.shard_seq}")
    if not chain_matches(head.chain, record.value):
        raise JournalBroken(f"{place}: event {recorded.shard_seq} does not follow the one before it: its chain differs")
    kind = KIND_OF[record.topic]
    event = recorded.event
    key = AggregateKey(kind, event.dag if kind == "dag" else event.pool)  # type: ignore[union-attr]
    state = shard.aggregates.get(key) or empty(*key)
    if recorded.seq > state.seq:
        if recorded.seq != state.seq + 1:
            raise JournalBroken(f"{place}: expected event {state.seq + 1} of {kind} '{key.name}', found {recorded.seq}")
        try:
            shard.aggregates[key] = fold(state, event)
        except (AssertionError, KeyError, ValueError) as error:
            raise JournalBroken(f"{place}: {type(event).__name__} can not follow: {error!r}") from error
        shard.dirty.add(key)
        shard.events_since_checkpoint += 1
    shard.heads[record.topic] = JournalHead(record.offset + 1, recorded.shard_seq, recorded.chain)
    shard.writer = max(shard.writer, recorded.writer)


def _read_to_end(source: Log, starts: Mapping[tuple[str, int], int]) -> Iterator[Record]:
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
