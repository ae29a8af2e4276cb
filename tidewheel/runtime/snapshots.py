"""Snapshots and checkpoints: so that a takeover folds minutes of journal, not years.

A checkpoint says: every aggregate that had changed is in a snapshot as of these journal offsets. Both are written in
one transaction, fenced like every other; a snapshot is only ever a shorter way to what the journal says.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import structlog

from tidewheel.core.snapshot import FORMAT, decode_snapshot, encode_snapshot
from tidewheel.core.state import Aggregate
from tidewheel.log.interface import EVENTS, POOL_EVENTS, SNAPSHOTS, Append, Record
from tidewheel.runtime.shard import AggregateKey, JournalHead, Kind, Shard
from tidewheel.wire.codec import DecodeError, decode, encode
from tidewheel.wire.messages import Checkpoint, Snapshot

log = structlog.get_logger()

#: No record grows with the size of a run: a large state travels in parts.
PART_BYTES_MAX = 48 * 1024


def snapshot_appends(shard: Shard) -> list[Append]:
    """Snapshots of what has changed since the last checkpoint, and the new checkpoint."""
    appends = []
    for key in sorted(shard.dirty):
        state = shard.aggregates[key]
        data = encode_snapshot(state)
        parts = [data[at : at + PART_BYTES_MAX] for at in range(0, len(data), PART_BYTES_MAX)]
        for number, part in enumerate(parts):
            snapshot = Snapshot(
                kind=key.kind,
                name=key.name,
                format=FORMAT,
                seq=state.seq,
                part=number,
                parts=len(parts),
                state=part,
            )
            record_key = f"{key.kind}/{key.name}/{number}".encode()
            appends.append(Append(SNAPSHOTS, record_key, encode(snapshot), partition=shard.number))
    events, pool_events = shard.heads[EVENTS], shard.heads[POOL_EVENTS]
    checkpoint = Checkpoint(
        shard=shard.number,
        format=FORMAT,
        events_offset=events.offset,
        events_shard_seq=events.shard_seq,
        events_chain=events.chain,
        pool_events_offset=pool_events.offset,
        pool_events_shard_seq=pool_events.shard_seq,
        pool_events_chain=pool_events.chain,
        writer=shard.writer,
    )
    appends.append(Append(SNAPSHOTS, b"checkpoint", encode(checkpoint), partition=shard.number))
    return appends


def restore(shard: Shard, records: Iterable[Record]) -> None:
    """Put the newest whole snapshots and their checkpoint into an empty shard.

    What can not be used is left to the journal.
    """
    parts: dict[AggregateKey, dict[int, Snapshot]] = {}
    checkpoint: Checkpoint | None = None
    damaged = False
    for record in records:
        try:
            message = decode(record.value) if record.value is not None else None
        except DecodeError as error:
            log.warning("a damaged snapshot record", offset=record.offset, partition=record.partition, why=str(error))
            damaged = True
            continue
        if isinstance(message, Checkpoint):
            checkpoint = message
        elif isinstance(message, Snapshot):
            kind: Kind = "dag" if message.kind == "dag" else "pool"
            parts.setdefault(AggregateKey(kind, message.name), {})[message.part] = message
    if damaged or checkpoint is None or checkpoint.format != FORMAT:
        return
    restored: dict[AggregateKey, Aggregate] = {}
    for key, found in parts.items():
        state = _joined(key, found)
        if state is None:
            return  # without this one the checkpoint does not hold: the whole journal is read
        restored[key] = state
    shard.aggregates.update(restored)
    shard.writer = checkpoint.writer
    shard.heads[EVENTS] = JournalHead(checkpoint.events_offset, checkpoint.events_shard_seq, checkpoint.events_chain)
    shard.heads[POOL_EVENTS] = JournalHead(
        checkpoint.pool_events_offset, checkpoint.pool_events_shard_seq, checkpoint.pool_events_chain
    )


def _joined(key: AggregateKey, found: dict[int, Snapshot]) -> Aggregate | None:
    newest = max(found.values(), key=lambda part: part.seq)
    whole = [found.get(number) for number in range(newest.parts)]
    if any(part is None or part.seq != newest.seq or part.format != FORMAT for part in whole):
        log.warning("a snapshot is not whole; the journal is read instead", kind=key.kind, name=key.name)
        return None
    try:
        return decode_snapshot(key.kind, b"".join(part.state for part in whole if part is not None))
    except (msgspec.DecodeError, KeyError, ValueError) as error:
        log.warning("a damaged snapshot; the journal is read instead", kind=key.kind, name=key.name, why=str(error))
        return None
