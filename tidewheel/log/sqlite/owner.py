"""Owners of a SQLite log: any number in the one process that has the right to own."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Mapping, Sequence

from tidewheel.log.group import Member
from tidewheel.log.interface import COMMANDS, INPUTS, TRIGGERS, Append, Batch, CommitAborted, Fenced, Record
from tidewheel.log.limits import oversize
from tidewheel.log.sqlite.access import read_partition
from tidewheel.log.sqlite.file import connect, fault_of
from tidewheel.log.sqlite.hub import Hub
from tidewheel.log.written import written_shards


class SqliteOwner:
    """One owner; not thread-safe."""

    def __init__(self, hub: Hub, instance: str) -> None:
        self._hub = hub
        hub.begin_owning()
        self._member = Member(instance)
        self._positions: dict[tuple[str, int], int] = {}
        #: Positions as the file has them, to write only what moved.
        self._stored: dict[int, int] = {}
        self._known: dict[int, int] = {}
        self._notes: dict[int, str] = {}
        self._stored_notes: dict[int, str] = {}
        self._paused: frozenset[int] = frozenset()
        self._held: frozenset[int] = frozenset()
        self._must_reset = False
        self._closed = False
        self._turn = 0
        self._db = connect(hub.path)
        self._waiter = hub.wait_for(hub.place(topic, shard) for topic in INPUTS for shard in range(hub.partitions))
        with hub.group_lock:
            hub.group.join(self._member)
        hub.wake_all()

    def poll(self, max_records: int, timeout_s: float) -> Batch:
        """Wait for a first record or a change of shards, then take what is there."""
        assert not self._must_reset, "a commit failed: reset() first"
        deadline = time.monotonic() + timeout_s
        while True:
            self._waiter.event.clear()
            changed = self._settle()
            records = self._take(max_records)
            remaining = deadline - time.monotonic()
            if records or changed or remaining <= 0:
                shards = dict(self._known)
                return Batch(tuple(records), shards, token=shards, notes=dict(self._notes))
            self._waiter.event.wait(remaining)

    def commit(self, batch: Batch, appends: Sequence[Append]) -> Mapping[tuple[str, int], int]:
        """One SQLite transaction; see ``Owner.commit``."""
        assert not self._must_reset, "a commit failed: reset() first"
        hub = self._hub
        self._must_reset = True
        with hub.group_lock:
            self._refuse_if_replaced()
            if not batch.token or not hub.group.holds(self._member, batch.token):
                raise Fenced(f"instance '{self._member.instance}' lost shards since it polled this batch")
            written_shards(appends, batch.token, hub.partitions)
            if problem := oversize(appends):
                raise CommitAborted(problem)
            moved = {
                place: position
                for name, position in self._positions.items()
                if name[1] not in self._held and self._stored.get(place := hub.place(*name)) != position
            }
            try:
                notes = {
                    shard: note for shard, note in self._notes.items() if self._stored_notes.get(shard, "") != note
                }
                last = hub.write(appends, moved, notes, as_owner=True)
            except sqlite3.Error as error:
                raise CommitAborted(str(fault_of(hub.path, "committing", error))) from error
            self._stored.update(moved)
            self._stored_notes.update(notes)
        self._must_reset = False
        return last

    def reset(self) -> None:
        """Go back to the committed positions; every shard gets a new epoch."""
        with self._hub.group_lock:
            self._refuse_if_replaced()
            self._must_reset = False
            self._hub.group.renew(self._member)
            self._start_shards()

    def note(self, notes: Mapping[int, str]) -> None:
        """Keep these beside the positions on triggers."""
        self._notes.update(notes)

    def pause_triggers(self, shards: frozenset[int]) -> None:
        """Read no triggers of these shards."""
        self._paused = shards

    def hold(self, shards: frozenset[int]) -> None:
        """Read nothing of these shards, and go back to their committed positions."""
        for topic, shard in self._positions:
            if shard in shards - self._held:
                self._positions[topic, shard] = self._stored.get(self._hub.place(topic, shard), 0)
        self._held = shards

    def close(self) -> None:
        """Leave the group."""
        if self._closed:
            return
        self._closed = True
        with self._hub.group_lock:
            self._hub.group.leave(self._member)
        self._hub.forget(self._waiter)
        self._hub.end_owning()
        self._hub.wake_all()
        self._db.close()

    def _settle(self) -> bool:
        with self._hub.group_lock:
            self._refuse_if_replaced()
            changed = self._hub.group.settle(self._member)
            self._start_shards()
        if changed:
            self._hub.wake_all()
        return changed

    def _refuse_if_replaced(self) -> None:
        if self._member.replaced:
            raise Fenced(f"another scheduler has started as instance '{self._member.instance}'; give each its own name")

    def _start_shards(self) -> None:
        """Begin each shard that is new, or newly reset, at its committed position."""
        epochs = self._member.epochs
        if epochs == self._known:
            return
        try:
            self._stored = dict(self._db.execute("SELECT place, position FROM positions").fetchall())
            self._stored_notes = dict(self._db.execute("SELECT shard, note FROM notes").fetchall())
        except sqlite3.Error as error:
            raise fault_of(self._hub.path, "reading positions", error) from error
        kept = {shard for shard, epoch in epochs.items() if self._known.get(shard) == epoch}
        self._positions = {
            (topic, shard): self._positions[topic, shard]
            if shard in kept
            else self._stored.get(self._hub.place(topic, shard), 0)
            for shard in epochs
            for topic in INPUTS
        }
        self._notes = {
            shard: self._notes[shard] if shard in kept else self._stored_notes.get(shard, "") for shard in epochs
        }
        self._known = dict(epochs)

    def _take(self, max_records: int) -> list[Record]:
        """Commands first, then triggers; each poll begins at another shard, so none starves under ``max_records``."""
        shards = sorted(self._known.keys() - self._held)
        self._turn = (self._turn + 1) % max(1, len(shards))
        records: list[Record] = []
        for topic in (COMMANDS, TRIGGERS):
            for shard in shards[self._turn :] + shards[: self._turn]:
                if topic == TRIGGERS and shard in self._paused:
                    continue
                name = (topic, shard)
                end, room = self._hub.ends[self._hub.place(topic, shard)], max_records - len(records)
                if end > self._positions[name] and room > 0:
                    found = read_partition(self._db, self._hub, name, self._positions[name], end, room)
                    self._positions[name] = found[-1].offset + 1 if found else end
                    records += found
        return records
