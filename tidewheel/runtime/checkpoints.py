"""Writing checkpoints, a piece at a time between the batches, so that no transaction grows with the shard.

A round takes note of where the journals stand and of every aggregate changed since the last checkpoint. It then writes
their snapshots, a bounded piece in each transaction, each as the aggregate is by then; the last piece holds the
checkpoint, with the places noted at the beginning. A snapshot may so be newer than its checkpoint: recovery passes over
the events it already holds.

Each set of parts has keys of its own, and what it replaces is deleted in the transaction that makes it whole. So there
is a whole snapshot of every aggregate at any instant, whatever is cut off in the middle.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import msgspec

from tidewheel.core.snapshot import FORMAT, encode_snapshot
from tidewheel.log.interface import EVENTS, POOL_EVENTS, SNAPSHOTS, Append
from tidewheel.runtime.seals import sealed
from tidewheel.runtime.shard import AggregateKey, JournalHead, Shard
from tidewheel.wire.messages import Checkpoint, Snapshot

#: No record grows with the size of a run: a large state travels in parts.
PART_BYTES_MAX = 48 * 1024
#: Of snapshots in one transaction. Leases wait behind it, so it is small: see docs/operations.md for the figures.
PIECE_BYTES_MAX = 1024 * 1024

CHECKPOINT_KEY = b"checkpoint"
#: Under it lies what a shard's journals held when last looked at, with no promise about snapshots.
CLAIM_KEY = b"claim"


class Round:
    """One checkpoint of ``shard`` in the making.

    ``next_piece`` gives what to commit next; then say ``committed``, or ``give_up`` if it was not, or if the shard
    went.
    """

    def __init__(self, shard: Shard, piece_bytes_max: int | None = None) -> None:
        self.shard = shard
        self._piece_bytes_max = piece_bytes_max or PIECE_BYTES_MAX
        self._heads = dict(shard.heads)
        self._writer = shard.writer
        self._seqs = shard.seqs
        self._commands = dict(shard.answered.commands)
        self._changed = frozenset(shard.dirty)
        self._waiting = deque(sorted(shard.dirty))
        #: Parts of a state larger than a piece, and the keys of them all.
        self._rest: deque[Append] = deque()
        self._set: tuple[AggregateKey, tuple[bytes, ...]] | None = None
        #: Of the piece handed out: sets that it makes whole, and every key it writes.
        self._whole: dict[AggregateKey, tuple[bytes, ...]] = {}
        self._written: set[bytes] = set()
        self._last = False
        self.finished = False
        shard.dirty = set()
        shard.events_since_checkpoint = 0

    def next_piece(self) -> list[Append]:
        """The records of the next transaction."""
        appends: list[Append] = []
        size = 0
        self._whole = {}
        while size < self._piece_bytes_max and (self._rest or self._waiting):
            if not self._rest:
                self._begin(self._waiting.popleft())
            part = self._rest.popleft()
            size += len(part.value or b"")
            self._written.add(part.key)
            appends.append(part)
            if not self._rest:
                appends += self._replace()
        self._last = not self._rest and not self._waiting
        if self._last:
            appends += self._end()
        return appends

    def committed(self) -> None:
        """The piece is in the log."""
        self.shard.stored.update(self._whole)
        if self._last:
            self.shard.stale = set()
            self.finished = True

    def give_up(self) -> None:
        """Let a later round write all of it again, and remove what this one may have left behind."""
        self.shard.dirty |= self._changed
        self.shard.stale |= self._written

    def _begin(self, key: AggregateKey) -> None:
        state = self.shard.aggregates[key]
        data = encode_snapshot(state)
        parts = [data[at : at + PART_BYTES_MAX] for at in range(0, len(data), PART_BYTES_MAX)]
        keys = tuple(f"{key.kind}/{key.name}/{state.seq}/{number}".encode() for number in range(len(parts)))
        self._set = (key, keys)
        trigger = self.shard.answered.triggers.get(key.name, -1) if key.kind == "dag" else -1
        for number, (record_key, part) in enumerate(zip(keys, parts, strict=True)):
            snapshot = Snapshot(
                kind=key.kind,
                name=key.name,
                format=FORMAT,
                seq=state.seq,
                part=number,
                parts=len(parts),
                state=part,
                number=self.shard.numbers.setdefault(key, len(self.shard.numbers)),
                trigger=trigger,
            )
            self._rest.append(Append(SNAPSHOTS, record_key, sealed(snapshot), partition=self.shard.number))

    def _replace(self) -> list[Append]:
        """Delete the set that the one just made whole stands for."""
        assert self._set is not None
        key, keys = self._set
        self._whole[key] = keys
        return self._tombstones(set(self.shard.stored.get(key, ())) - set(keys))

    def _end(self) -> list[Append]:
        in_use = {key for keys in (self.shard.stored | self._whole).values() for key in keys}
        checkpoint = msgspec.structs.replace(
            checkpoint_of(self.shard.number, self._heads, self._writer, len(self.shard.numbers)),
            seqs=self._seqs,
            events_command=self._commands.get(EVENTS, -1),
            pool_events_command=self._commands.get(POOL_EVENTS, -1),
        )
        return [
            *self._tombstones(self.shard.stale - in_use),
            Append(SNAPSHOTS, CHECKPOINT_KEY, sealed(checkpoint), partition=self.shard.number),
        ]

    def _tombstones(self, keys: Iterable[bytes]) -> list[Append]:
        return [Append(SNAPSHOTS, key, None, partition=self.shard.number) for key in sorted(keys)]


def claim_append(shard: Shard) -> Append:
    """Says in another topic what the journals hold now, so that a journal that is cut off later is known to be."""
    claim = msgspec.structs.replace(checkpoint_of(shard.number, shard.heads, shard.writer, 0), format="claim")
    return Append(SNAPSHOTS, CLAIM_KEY, sealed(claim), partition=shard.number)


def checkpoint_of(number: int, heads: dict[str, JournalHead], writer: int, aggregates: int) -> Checkpoint:
    """What says that the snapshots cover the journals up to here."""
    events, pool_events = heads[EVENTS], heads[POOL_EVENTS]
    return Checkpoint(
        shard=number,
        format=FORMAT,
        events_offset=events.offset,
        events_shard_seq=events.shard_seq,
        events_chain=events.chain,
        pool_events_offset=pool_events.offset,
        pool_events_shard_seq=pool_events.shard_seq,
        pool_events_chain=pool_events.chain,
        writer=writer,
        aggregates=aggregates,
    )
