"""Reading snapshots: so that a takeover folds minutes of journal, not years.

A checkpoint says: every aggregate that had changed is in a snapshot as of these journal offsets, or later
(``runtime.checkpoints``). A snapshot is only ever a shorter way to what the journal says: what can not be used is left
to the journal.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import structlog

from tidewheel.core.snapshot import FORMAT, decode_snapshot, is_readable
from tidewheel.core.state import Aggregate
from tidewheel.log.interface import EVENTS, POOL_EVENTS, Record
from tidewheel.runtime.checkpoints import CLAIM_KEY
from tidewheel.runtime.seals import is_intact
from tidewheel.runtime.shard import AggregateKey, JournalHead, Kind, Shard
from tidewheel.wire.codec import DecodeError, decode
from tidewheel.wire.messages import Checkpoint, Snapshot

log = structlog.get_logger()

#: Parts found of one aggregate as of one event, by number.
_Parts = dict[int, tuple[Record, Snapshot]]


def restore(shard: Shard, records: Iterable[Record]) -> None:
    """Put the newest whole snapshots and their checkpoint into an empty shard, or nothing.

    What lies there beside them is noted in ``shard.stale``, for the next checkpoint to delete.
    """
    newest: dict[bytes, Record] = {}
    for record in records:
        newest.pop(record.key or b"", None)
        if record.value is not None:
            newest[record.key or b""] = record
    claim = newest.pop(CLAIM_KEY, None)
    shard.claims = {} if claim is None else _claimed(claim)
    shard.stale = set(newest)
    found = _decoded(newest.values())
    if found is None:
        return
    checkpoint_record, checkpoint, sets = found
    shard.stale.discard(checkpoint_record.key or b"")
    if not is_readable(checkpoint.format):
        return
    restored: dict[AggregateKey, Aggregate] = {}
    stored: dict[AggregateKey, tuple[bytes, ...]] = {}
    numbers: dict[AggregateKey, int] = {}
    triggers: dict[str, int] = {}
    for key, versions in sets.items():
        whole = _newest_whole(key, versions, checkpoint_record.offset)
        state = None if whole is None else _joined(key, whole)
        if whole is None or state is None:
            return  # without this one the checkpoint does not hold: the whole journal is read
        restored[key] = state
        stored[key] = tuple(whole[number][0].key or b"" for number in range(len(whole)))
        numbers[key] = whole[0][1].number
        if whole[0][1].trigger >= 0:
            triggers[key.name] = whole[0][1].trigger
    if sorted(numbers.values()) != list(range(len(numbers))) or len(numbers) < checkpoint.aggregates:
        log.warning("a snapshot is missing; the journal is read instead", shard=shard.number)
        return
    shard.aggregates.update(restored)
    shard.stored.update(stored)
    shard.numbers.update(numbers)
    shard.answered.triggers.update(triggers)
    commands = {EVENTS: checkpoint.events_command, POOL_EVENTS: checkpoint.pool_events_command}
    shard.answered.commands.update({journal: offset for journal, offset in commands.items() if offset >= 0})
    shard.stale -= {record_key for keys in stored.values() for record_key in keys}
    # What an older release wrote is written anew with the next checkpoint.
    shard.dirty.update(key for key in restored if sets[key][restored[key].seq][0][1].format != FORMAT)
    shard.writer = checkpoint.writer
    shard.heads = _heads_of(checkpoint)
    shard.seqs_expected = checkpoint.seqs if checkpoint.seqs >= 0 else None


def _claimed(record: Record) -> dict[str, JournalHead]:
    try:
        message = decode(record.value or b"")
    except DecodeError:
        return {}
    intact = isinstance(message, Checkpoint) and is_intact(record.value or b"", message)
    return _heads_of(message) if isinstance(message, Checkpoint) and intact else {}


def _heads_of(checkpoint: Checkpoint) -> dict[str, JournalHead]:
    return {
        EVENTS: JournalHead(checkpoint.events_offset, checkpoint.events_shard_seq, checkpoint.events_chain),
        POOL_EVENTS: JournalHead(
            checkpoint.pool_events_offset, checkpoint.pool_events_shard_seq, checkpoint.pool_events_chain
        ),
    }


def _decoded(
    records: Iterable[Record],
) -> tuple[Record, Checkpoint, dict[AggregateKey, dict[int, _Parts]]] | None:
    """The checkpoint, and the parts of each aggregate by the event they stand at; None if anything is damaged."""
    sets: dict[AggregateKey, dict[int, _Parts]] = {}
    checkpoint: tuple[Record, Checkpoint] | None = None
    damaged = False
    for record in records:
        try:
            message = decode(record.value) if record.value is not None else None
        except DecodeError as error:
            log.warning("a damaged snapshot record", offset=record.offset, partition=record.partition, why=str(error))
            damaged = True
            continue
        if isinstance(message, Snapshot | Checkpoint) and not is_intact(record.value or b"", message):
            log.warning("a snapshot record was altered", offset=record.offset, partition=record.partition)
            damaged = True
        elif isinstance(message, Checkpoint):
            checkpoint = (record, message)
        elif isinstance(message, Snapshot):
            kind: Kind = "dag" if message.kind == "dag" else "pool"
            versions = sets.setdefault(AggregateKey(kind, message.name), {})
            versions.setdefault(message.seq, {})[message.part] = (record, message)
    return None if damaged or checkpoint is None else (*checkpoint, sets)


def _newest_whole(key: AggregateKey, versions: dict[int, _Parts], checkpoint_at: int) -> _Parts | None:
    """The newest set that has all its parts. Behind the checkpoint a round may have been cut off; before it, none."""
    for seq in sorted(versions, reverse=True):
        parts = versions[seq]
        wanted = next(iter(parts.values()))[1].parts
        if set(parts) == set(range(wanted)):
            return parts
        if min(record.offset for record, _ in parts.values()) < checkpoint_at:
            break
    log.warning("a snapshot is not whole; the journal is read instead", kind=key.kind, name=key.name)
    return None


def _joined(key: AggregateKey, parts: _Parts) -> Aggregate | None:
    whole = [parts[number][1] for number in range(len(parts))]
    written = whole[0].format
    if not is_readable(written) or any(part.format != written for part in whole):
        log.warning("a snapshot of another format; the journal is read instead", kind=key.kind, name=key.name)
        return None
    try:
        return decode_snapshot(key.kind, b"".join(part.state for part in whole), written)
    except (msgspec.DecodeError, KeyError, ValueError) as error:
        log.warning("a damaged snapshot; the journal is read instead", kind=key.kind, name=key.name, why=str(error))
        return None
