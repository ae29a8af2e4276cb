"""A feed in one SQLite file: topics of one partition each, made by the first record published to them.

It is for an engine on one machine, and has one follower at a time.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from tidewheel.log.feed import Place, Stand, Taken
from tidewheel.log.interface import LogError, LogMisconfigured, LogUnavailable, Record
from tidewheel.log.limits import RECORD_BYTES_MAX
from tidewheel.log.sqlite.file import fault_of

#: Marks a file as ours ("TWHF").
_APPLICATION_ID = 0x54574846
_SCHEMA = """
CREATE TABLE IF NOT EXISTS records (
    topic TEXT NOT NULL,
    position INTEGER NOT NULL,
    timestamp INTEGER NOT NULL,
    key BLOB,
    value BLOB,
    headers BLOB NOT NULL,
    PRIMARY KEY (topic, position)
);
CREATE TABLE IF NOT EXISTS ends (topic TEXT PRIMARY KEY, position INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS stands (topic TEXT PRIMARY KEY, position INTEGER NOT NULL, known INTEGER NOT NULL);
"""
#: What has been dealt with is kept for so long.
_KEPT_MS = 7 * 86_400_000
#: Between two looks at the file, which another process may write.
_LOOK_S = 0.05
_BUSY_S_MAX = 5.0
#: Taken into memory at once, and one record more.
_READ_BYTES_MAX = 8 * 2**20

_headers = msgspec.msgpack.Decoder(tuple[tuple[str, bytes], ...])


class SqliteFeed:
    """The topics in the file at ``path``, which is made if it is not there. ``clock`` stamps the records (ms)."""

    def __init__(self, path: Path, clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self.path = path
        self._clock = clock
        #: Held while the connection is used.
        self._using = threading.Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(path, timeout=_BUSY_S_MAX, isolation_level=None, check_same_thread=False)
            if self._db.execute("PRAGMA application_id").fetchone()[0] not in (0, _APPLICATION_ID):
                raise LogMisconfigured(f"{path} is the SQLite file of another program: choose another path")
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")
            self._db.executescript(_SCHEMA)
            self._db.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        except sqlite3.Error as error:
            raise fault_of(path, "opening it", error) from error
        except OSError as error:
            raise LogUnavailable(f"{path} cannot be made: {error}") from error

    def follower(self, instance: str) -> SqliteFollower:
        """The one that follows."""
        return SqliteFollower(self)

    def scanner(self, instance: str) -> SqliteScanner:
        """Read beside the one that follows."""
        return SqliteScanner(self)

    def publish(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes]] = ()
    ) -> tuple[int, int]:
        """Write one record."""
        if (size := len(key or b"") + len(value or b"")) > RECORD_BYTES_MAX:
            raise LogError(f"a record of {size} bytes is over the limit of {RECORD_BYTES_MAX}")
        now = self._clock()
        with self.transaction("publishing") as db:
            offset = self.end(topic, db)
            db.execute(
                "INSERT INTO records VALUES (?, ?, ?, ?, ?, ?)",
                (topic, offset, now, key, value, msgspec.msgpack.encode(tuple(headers))),
            )
            db.execute("INSERT OR REPLACE INTO ends VALUES (?, ?)", (topic, offset + 1))
            db.execute(
                "DELETE FROM records WHERE topic = ?1 AND timestamp < ?2"
                " AND position < (SELECT position FROM stands WHERE topic = ?1)",
                (topic, now - _KEPT_MS),
            )
        return 0, offset

    def members(self) -> None:
        """Nobody keeps count."""

    def missing(self, topics: Collection[str]) -> Mapping[str, str]:
        """None: a topic nobody has published to is an empty one."""
        return {}

    def end(self, topic: str, db: sqlite3.Connection) -> int:
        """One past the topic's last record."""
        found = db.execute("SELECT position FROM ends WHERE topic = ?", (topic,)).fetchone()
        return 0 if found is None else int(found[0])

    def offset_at(self, db: sqlite3.Connection, topic: str, timestamp: int) -> int:
        """The offset of the topic's first record of then or later, or its end."""
        found = db.execute(
            "SELECT min(position) FROM records WHERE topic = ? AND timestamp >= ?", (topic, timestamp)
        ).fetchone()[0]
        return self.end(topic, db) if found is None else int(found)

    def records(self, topic: str, begin: int, most: int) -> list[Record]:
        """At most so many records of the topic from this offset on, and not too many bytes."""
        found: list[Record] = []
        size = 0
        with self.reading() as db:
            rows = db.execute(
                "SELECT position, timestamp, key, value, headers FROM records"
                " WHERE topic = ? AND position >= ? ORDER BY position LIMIT ?",
                (topic, begin, most),
            )
            for offset, timestamp, key, value, headers in rows:
                found.append(Record(topic, 0, offset, key, value, _headers.decode(headers), timestamp))
                size += len(value or b"")
                if size >= _READ_BYTES_MAX:
                    break
            rows.close()
        return found

    def close(self) -> None:
        """Let go."""
        with self._using:
            self._db.close()

    @contextmanager
    def transaction(self, doing: str) -> Iterator[sqlite3.Connection]:
        """All or nothing; SQLite's faults in our terms."""
        with self._using:
            try:
                self._db.execute("BEGIN IMMEDIATE")
                with self._db:
                    yield self._db
            except sqlite3.Error as error:
                raise fault_of(self.path, doing, error) from error

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """The connection, to read by."""
        with self._using:
            try:
                yield self._db
            except sqlite3.Error as error:
                raise fault_of(self.path, "reading it", error) from error


class SqliteFollower:
    """Reads every topic it is told to."""

    def __init__(self, feed: SqliteFeed) -> None:
        self._feed = feed
        self._topics: dict[str, int] = {}
        self._next: dict[str, int] = {}
        #: The state of the file in which nothing was found.
        self._seen: tuple[int, int] | None = None

    @property
    def missing(self) -> Mapping[str, str]:
        """A topic nobody has published to is an empty one."""
        return {}

    def follow(self, topics: Mapping[str, int]) -> None:
        """Read these."""
        self._topics = dict(topics)
        self._seen = None
        self._next = {topic: offset for topic, offset in self._next.items() if topic in topics}

    def poll(self, max_records: int, timeout_s: float) -> Taken:
        """Wait for a first record, then take what is there."""
        deadline = time.monotonic() + timeout_s
        fresh = {(topic, 0): self._begin(topic) for topic in sorted(self._topics.keys() - self._next.keys())}
        self._next |= {topic: stand.offset for (topic, _), stand in fresh.items()}
        while True:
            records = self._look(max_records)
            remaining = deadline - time.monotonic()
            if records or fresh or remaining <= 0:
                return Taken(tuple(records), fresh, frozenset((topic, 0) for topic in self._next))
            time.sleep(min(_LOOK_S, remaining))

    def offsets_at(self, places: Collection[Place], timestamp: int) -> Mapping[Place, int]:
        """By the records' times."""
        with self._feed.reading() as db:
            return {place: self._feed.offset_at(db, place[0], timestamp) for place in places}

    def behind(self) -> int:
        """Up to the ends of now."""
        with self._feed.reading() as db:
            return sum(self._feed.end(topic, db) - offset for topic, offset in self._next.items())

    def commit(self, stands: Mapping[Place, Stand]) -> None:
        """Write them down."""
        with self._feed.transaction("committing positions") as db:
            rows = [(topic, stand.offset, stand.known) for (topic, _), stand in stands.items() if topic in self._next]
            db.executemany("INSERT OR REPLACE INTO stands VALUES (?, ?, ?)", rows)

    def close(self) -> None:
        """Let go."""
        self._next.clear()

    def _look(self, most: int) -> list[Record]:
        """What is there, if the file has changed since nothing was."""
        with self._feed.reading() as db:
            now = (int(db.execute("PRAGMA data_version").fetchone()[0]), db.total_changes)
        if now == self._seen:
            return []
        records: list[Record] = []
        for topic in self._next:
            records += self._read(topic, most - len(records))
        self._seen = None if records else now
        return records

    def _begin(self, topic: str) -> Stand:
        with self._feed.transaction("beginning a topic") as db:
            found = db.execute("SELECT position, known FROM stands WHERE topic = ?", (topic,)).fetchone()
            if found is not None:
                return Stand(*found)
            since = self._topics[topic]
            stand = Stand(self._feed.offset_at(db, topic, since), since)
            db.execute("INSERT INTO stands VALUES (?, ?, ?)", (topic, stand.offset, stand.known))
            return stand

    def _read(self, topic: str, most: int) -> list[Record]:
        if most <= 0:
            return []
        records = self._feed.records(topic, self._next[topic], most)
        if records:
            self._next[topic] = records[-1].offset + 1
        return records


class SqliteScanner:
    """Reads topics from anywhere."""

    def __init__(self, feed: SqliteFeed) -> None:
        self._feed = feed
        self._next: dict[str, int] = {}

    def offsets_at(self, topic: str, timestamp: int) -> Mapping[int, int]:
        """By the records' times; a topic nobody has published to is an empty one."""
        with self._feed.reading() as db:
            return {0: self._feed.offset_at(db, topic, timestamp)}

    def scan(self, positions: Mapping[Place, int]) -> None:
        """Read these."""
        self._next = {topic: offset for (topic, _), offset in positions.items()}

    def read(self, max_records: int, timeout_s: float) -> list[Record]:
        """Wait for a first record, then take what is there."""
        deadline = time.monotonic() + timeout_s
        while True:
            records: list[Record] = []
            for topic, begin in self._next.items():
                if len(records) < max_records:
                    records += self._feed.records(topic, begin, max_records - len(records))
            for record in records:
                self._next[record.topic] = record.offset + 1
            remaining = deadline - time.monotonic()
            if records or remaining <= 0:
                return records
            time.sleep(min(_LOOK_S, remaining))

    def close(self) -> None:
        """Let go."""
        self._next.clear()
