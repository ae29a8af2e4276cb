"""What a process's threads share of one SQLite log: the writing connection, who waits for what, the group of owners.

One background thread writes what producers have sent, all that has gathered in one transaction; looks 25 times a second
whether another process has written (one pragma, microseconds); and now and then forgets what nobody needs any more.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
import structlog

from tidewheel.log.group import Group
from tidewheel.log.interface import INPUTS, MAIL, SNAPSHOTS, TRIGGERS, Append, Fenced, LogError, LogUnavailable
from tidewheel.log.partition import partition_of
from tidewheel.log.sqlite.file import TOPIC_NUMBERS, connect, fault_of, first_id, place_number
from tidewheel.log.sqlite.ownership import OwnershipLock

_LOOK_S = 0.04
_HOUSEKEEPING_S = 60.0
#: A file that cannot be written is tried again this often, growing to the second number.
_RETRY_S = (0.2, 3.0)
#: Rows deleted from a partition in one go, so that a commit never waits long behind it.
_TRIM_ROWS_MAX = 2_000
#: A receiver reads its mail within seconds; a restarted one begins at the end.
_MAIL_KEPT_MS = 3_600_000
#: What may wait to be written before ``send`` waits too.
_QUEUE_MAX = 100_000
_QUEUE_BYTES_MAX = 64 * 2**20
_QUEUE_WAIT_S_MAX = 30.0

_INSERT = "INSERT INTO records (id, timestamp, key, value, headers) VALUES (?, ?, ?, ?, ?)"
_MOVE = """
INSERT INTO positions (place, position) VALUES (?, ?)
ON CONFLICT (place) DO UPDATE SET position = excluded.position
"""
_NOTE = "INSERT INTO notes (shard, note) VALUES (?, ?) ON CONFLICT (shard) DO UPDATE SET note = excluded.note"

_encode_headers = msgspec.msgpack.Encoder().encode
_log = structlog.get_logger("tidewheel.sqlite")


class Waiter:
    """Somebody who waits for records of some places."""

    def __init__(self, places: Iterable[int]) -> None:
        self.places = frozenset(places)
        self.event = threading.Event()


class Hub:
    """One per log file and process."""

    def __init__(self, path: Path, partitions: int) -> None:
        self.path = path
        self.process = os.getpid()
        self.partitions = partitions
        self.group = Group(partitions)
        #: Held while shards change hands and while an owner commits, so that neither can happen inside the other.
        self.group_lock = threading.RLock()
        self.ends = {place_number(topic, p): 0 for topic in TOPIC_NUMBERS for p in range(partitions)}
        self._places = {(topic, p): place_number(topic, p) for topic in TOPIC_NUMBERS for p in range(partitions)}
        self._lock = OwnershipLock(path)
        self._owners = 0
        self._term = -1
        self._term_now = 0
        self._waiters: frozenset[Waiter] = frozenset()
        self._waiters_lock = threading.Lock()
        self._queue: list[Append] = []
        self._queued_bytes = 0
        self._queue_changed = threading.Condition()
        self._sent = 0
        self._written = 0
        self._failure = ""
        self._closed = False
        self._writer_lock = threading.Lock()
        self._writer = connect(path)
        self._version = -1
        with self._writer_lock:
            # Files of an earlier Tidewheel lack it.
            self._writer.execute("CREATE TABLE IF NOT EXISTS notes (shard INTEGER PRIMARY KEY, note TEXT NOT NULL)")
            self._look()
        self._thread = threading.Thread(target=self._run, name="sqlite-log", daemon=True)
        self._thread.start()

    # Reading and waiting.

    def place(self, topic: str, partition: int) -> int:
        """The number of a topic's partition."""
        return self._places[topic, partition]

    def wait_for(self, places: Iterable[int]) -> Waiter:
        """Be woken by records of these places from now on."""
        waiter = Waiter(places)
        with self._waiters_lock:
            self._waiters |= {waiter}
        return waiter

    def forget(self, waiter: Waiter) -> None:
        """Wake no more."""
        with self._waiters_lock:
            self._waiters -= {waiter}

    def wake_all(self) -> None:
        """The group has changed."""
        for waiter in self._waiters:
            waiter.event.set()

    # Writing.

    def write(
        self,
        appends: Sequence[Append],
        positions: Mapping[int, int] | None = None,
        notes: Mapping[int, str] | None = None,
        as_owner: bool = False,
    ) -> dict[tuple[str, int], int]:
        """One transaction; gives the last offset of each topic and partition."""
        last: dict[tuple[str, int], int] = {}
        with self._writer_lock:
            db = self._writer
            try:
                db.execute("BEGIN IMMEDIATE")
                self._look()
                if as_owner and self._term_now != self._term:
                    raise Fenced(f"another scheduler has taken over {self.path}")
                db.executemany(_INSERT, self._rows(appends, last))
                if positions:
                    db.executemany(_MOVE, positions.items())
                if notes:
                    db.executemany(_NOTE, notes.items())
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise
            places = {self._places[place]: offset for place, offset in last.items()}
            for place, offset in places.items():
                self.ends[place] = offset + 1
        self._wake(places.keys())
        return last

    def send(self, record: Append) -> int:
        """Queue a record for the background thread; gives its ticket. Raises ``LogError`` if there is no such place."""
        record = self._placed(record)
        with self._queue_changed:
            if not self._queue_changed.wait_for(self._has_room, _QUEUE_WAIT_S_MAX):
                raise LogUnavailable(f"{len(self._queue)} records wait to be written: {self._failure or self.path}")
            self._queue.append(record)
            self._queued_bytes += len(record.value or b"")
            self._sent += 1
            if len(self._queue) == 1:
                self._queue_changed.notify_all()
            return self._sent

    def _placed(self, record: Append) -> Append:
        """The record with its partition: what cannot be written must fail here, not for all in the background."""
        partition = self._partition_of(record)
        if (record.topic, partition) not in self._places:
            raise LogError(f"{self.path} has no {record.topic}/{partition}")
        return record if record.partition is not None else msgspec.structs.replace(record, partition=partition)

    def _partition_of(self, record: Append) -> int:
        return partition_of(record.key, self.partitions) if record.partition is None else record.partition

    def _has_room(self) -> bool:
        return len(self._queue) < _QUEUE_MAX and self._queued_bytes < _QUEUE_BYTES_MAX

    def flush(self, ticket: int, timeout_s: float) -> None:
        """Wait until the record with this ticket is written."""
        with self._queue_changed:
            if not self._queue_changed.wait_for(lambda: self._written >= ticket, timeout_s):
                reason = self._failure or f"the records are not written after {timeout_s:g} s"
                raise LogUnavailable(reason)

    # Owning.

    def begin_owning(self) -> None:
        """An owner joins; the first one of the process takes the lock and raises the term."""
        with self.group_lock:
            if self._owners == 0:
                self._lock.acquire()
                with self._writer_lock:
                    self._term = self._writer.execute(
                        "UPDATE facts SET value = value + 1 WHERE name = 'term' RETURNING value"
                    ).fetchall()[0][0]
                    self._term_now = self._term
            self._owners += 1

    def end_owning(self) -> None:
        """An owner left; the last one gives the lock back."""
        with self.group_lock:
            self._owners -= 1
            if self._owners == 0:
                self._lock.release()

    def owners(self) -> list[str]:
        """The owners of this process, or the process that owns elsewhere."""
        with self.group_lock:
            if self._owners:
                return self.group.members()
            holder = self._lock.holder()
            return [holder] if holder else []

    def close(self) -> None:
        """Write what was sent and end the thread."""
        with self._queue_changed:
            self._closed = True
            self._queue_changed.notify_all()
        self._thread.join(10)
        self._lock.release()
        with self._writer_lock:
            self._writer.close()

    def trim(self, place: int, before: int) -> bool:
        """Forget rows below an offset, but never the last one: the end is told by it. True if there may be more."""
        base = first_id(place)
        upto = base + min(before, self.ends[place] - 1)
        with self._writer_lock:
            deleted = self._writer.execute(
                "DELETE FROM records WHERE id IN (SELECT id FROM records WHERE id >= ? AND id < ? ORDER BY id LIMIT ?)",
                (base, upto, _TRIM_ROWS_MAX),
            )
        return deleted.rowcount == _TRIM_ROWS_MAX

    def _rows(self, appends: Sequence[Append], last: dict[tuple[str, int], int]) -> list[tuple[object, ...]]:
        now = time.time_ns() // 1_000_000
        rows: list[tuple[object, ...]] = []
        for record in appends:
            name = (record.topic, self._partition_of(record))
            place = self._places[name]
            offset = last.get(name, self.ends[place] - 1) + 1
            last[name] = offset
            headers = _encode_headers(record.headers) if record.headers else None
            rows.append((first_id(place) + offset, now, record.key, record.value, headers))
        return rows

    def _look(self) -> bool:
        """Learn what another process has written since; cheap when it has not."""
        version = self._writer.execute("PRAGMA data_version").fetchone()[0]
        if version == self._version:
            return False
        self._version = version
        for place in self.ends:
            base, above = first_id(place), first_id(place + 1)
            top = self._writer.execute("SELECT max(id) FROM records WHERE id >= ? AND id < ?", (base, above))
            found = top.fetchone()[0]
            self.ends[place] = 0 if found is None else found - base + 1
        self._term_now = self._writer.execute("SELECT value FROM facts WHERE name = 'term'").fetchone()[0]
        return True

    def _wake(self, places: Iterable[int]) -> None:
        written = frozenset(places)
        for waiter in self._waiters:
            if not waiter.places.isdisjoint(written):
                waiter.event.set()

    # The background thread.

    def _run(self) -> None:
        next_housekeeping = time.monotonic() + _HOUSEKEEPING_S
        pause = _RETRY_S[0]
        while True:
            with self._queue_changed:
                if not self._queue and not self._closed:
                    self._queue_changed.wait(_LOOK_S)
                batch, closed = self._queue, self._closed
                self._queue, self._queued_bytes = [], 0
                self._queue_changed.notify_all()
            try:
                if batch:
                    self._write_sent(batch)
                elif closed:
                    return
                else:
                    self._look_from_outside()
                if time.monotonic() > next_housekeeping:
                    next_housekeeping = time.monotonic() + _HOUSEKEEPING_S
                    self._keep_house()
            except Exception as error:  # whatever it is: without this thread nothing sent would ever be written
                self._failure = str(fault_of(self.path, "writing what was sent", error))
                if closed:
                    _log.error("what was sent last is not written", records=len(batch), problem=self._failure)
                    return
                _log.error(
                    "the log cannot be written; trying again",
                    problem=self._failure,
                    in_s=pause,
                    exc_info=not isinstance(error, sqlite3.Error),
                )
                self._pause(pause)
                pause = min(pause * 2, _RETRY_S[1])
            else:
                pause = _RETRY_S[0]

    def _pause(self, seconds: float) -> None:
        """Wait, unless told to close."""
        with self._queue_changed:
            self._queue_changed.wait_for(lambda: self._closed, seconds)

    def _write_sent(self, batch: list[Append]) -> None:
        try:
            self.write(batch)
        except Exception:
            with self._queue_changed:
                self._queue[:0] = batch
                self._queued_bytes += sum(len(record.value or b"") for record in batch)
            raise
        with self._queue_changed:
            self._failure = ""
            self._written += len(batch)
            self._queue_changed.notify_all()

    def _look_from_outside(self) -> None:
        if self._writer_lock.acquire(blocking=False):
            try:
                changed = self._look()
            finally:
                self._writer_lock.release()
            if changed:
                self.wake_all()

    def _keep_house(self) -> None:
        """Forget answered inputs, old mail and superseded snapshots. Journals are never touched."""
        with self._writer_lock:
            committed = dict(self._writer.execute("SELECT place, position FROM positions").fetchall())
            noted = {row[0] for row in self._writer.execute("SELECT shard FROM notes WHERE note <> ''")}
        for partition in range(self.partitions):
            for topic in INPUTS:
                place = self.place(topic, partition)
                # A note beside the position may say that triggers before it are still wanted.
                if topic != TRIGGERS or partition not in noted:
                    self.trim(place, committed.get(place, 0))
            self._trim_mail(self.place(MAIL, partition))
            self._compact(self.place(SNAPSHOTS, partition))

    def _trim_mail(self, place: int) -> None:
        old = time.time_ns() // 1_000_000 - _MAIL_KEPT_MS
        base = first_id(place)
        with self._writer_lock:
            rows = self._writer.execute(
                "SELECT id, timestamp FROM records WHERE id >= ? AND id < ? ORDER BY id LIMIT ?",
                (base, first_id(place + 1), _TRIM_ROWS_MAX),
            ).fetchall()
        outdated = [row - base + 1 for row, timestamp in rows if timestamp < old]
        if outdated:
            self.trim(place, outdated[-1])

    def _compact(self, place: int) -> None:
        with self._writer_lock:
            bounds = (first_id(place), first_id(place + 1))
            self._writer.execute(
                "DELETE FROM records WHERE id >= ?1 AND id < ?2 AND id NOT IN "
                "(SELECT max(id) FROM records WHERE id >= ?1 AND id < ?2 GROUP BY key)",
                bounds,
            )
            self._writer.execute(
                "DELETE FROM records WHERE id >= ?1 AND id < ?2 AND value IS NULL AND id < "
                "(SELECT max(id) FROM records WHERE id >= ?1 AND id < ?2)",
                bounds,
            )


_hubs: dict[tuple[int, Path], tuple[Hub, int]] = {}
_hubs_lock = threading.Lock()


def share_hub(path: Path, partitions: int) -> Hub:
    """The hub of a file in this process; after a fork the child gets its own."""
    key = (os.getpid(), path.resolve())
    with _hubs_lock:
        hub, users = _hubs.get(key) or (Hub(path, partitions), 0)
        _hubs[key] = (hub, users + 1)
        return hub


def release_hub(hub: Hub) -> None:
    """One user less; the last one closes it."""
    key = (os.getpid(), hub.path.resolve())
    with _hubs_lock:
        found, users = _hubs[key]
        assert found is hub
        if users > 1:
            _hubs[key] = (hub, users - 1)
            return
        del _hubs[key]
    hub.close()
