"""The file: its format, how it is opened, and SQLite's faults in our terms."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import msgspec

from tidewheel.log.interface import (
    COMMANDS,
    DEAD_LETTERS,
    EVENTS,
    LOGS,
    MAIL,
    POOL_EVENTS,
    SNAPSHOTS,
    TRIGGERS,
    LogError,
    LogMisconfigured,
    LogUnavailable,
    Record,
)

#: Marks a file as ours ("TWHL"); SQLite keeps it in the header.
_APPLICATION_ID = 0x5457484C
#: Raised whenever an older Tidewheel could not read what a newer one wrote.
FORMAT = 1

#: Part of the format: never renumber.
TOPIC_NUMBERS = {
    TRIGGERS: 0,
    COMMANDS: 1,
    EVENTS: 2,
    POOL_EVENTS: 3,
    SNAPSHOTS: 4,
    MAIL: 5,
    LOGS: 6,
    DEAD_LETTERS: 7,
}
_OFFSET_BITS = 40
_PARTITION_BITS = 16

#: A record's row id is its topic, partition and offset in one number, so a partition is one range of one B-tree.
_SCHEMA = """
CREATE TABLE records (
    id INTEGER PRIMARY KEY,
    timestamp INTEGER NOT NULL,
    key BLOB,
    value BLOB,
    headers BLOB
);
CREATE TABLE positions (place INTEGER PRIMARY KEY, position INTEGER NOT NULL);
CREATE TABLE notes (shard INTEGER PRIMARY KEY, note TEXT NOT NULL);
CREATE TABLE facts (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
"""

#: Taken into memory in one read of a partition, and one record more.
_READ_BYTES_MAX = 8 * 2**20

_decode_headers = msgspec.msgpack.Decoder(tuple[tuple[str, bytes], ...]).decode

#: How long a writer waits for another process's transaction.
_BUSY_S_MAX = 5.0


def place_number(topic: str, partition: int) -> int:
    """One number for topic and partition."""
    return TOPIC_NUMBERS[topic] << _PARTITION_BITS | partition


def first_id(place: int) -> int:
    """Row id of a place's offset 0; the offset is added to it."""
    return place << _OFFSET_BITS


def create(path: Path, partitions: int) -> None:
    """Make a new, empty log. Another process may be doing the same: one of them wins."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        db = _connect(path, "rwc")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("BEGIN IMMEDIATE")
        if db.execute("PRAGMA application_id").fetchone()[0] == 0:
            for statement in _SCHEMA.strip().split(";\n"):
                db.execute(statement)
            facts = [("partitions", partitions), ("term", 0)]
            db.executemany("INSERT INTO facts (name, value) VALUES (?, ?)", facts)
            db.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            db.execute(f"PRAGMA user_version = {FORMAT}")
        db.execute("COMMIT")
        db.close()
    except sqlite3.Error as error:
        raise fault_of(path, "creating it", error) from error


def partitions_of(path: Path) -> int | None:
    """The number of partitions of an existing log; None if there is no file yet. Raises if it is not one of ours."""
    if not path.exists():
        return None
    try:
        db = _connect(path, "rw")
        application = db.execute("PRAGMA application_id").fetchone()[0]
        version = db.execute("PRAGMA user_version").fetchone()[0]
        tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if application == 0 and tables == 0:
            return None
        if application != _APPLICATION_ID:
            raise LogMisconfigured(f"{path} is the SQLite file of another program: choose another path for the log")
        if version > FORMAT:
            raise LogMisconfigured(
                f"{path} was written by a newer Tidewheel (format {version}, this one knows {FORMAT}): upgrade"
            )
        partitions: int = db.execute("SELECT value FROM facts WHERE name = 'partitions'").fetchone()[0]
        db.close()
    except sqlite3.Error as error:
        raise fault_of(path, "opening it", error) from error
    return partitions


def connect(path: Path) -> sqlite3.Connection:
    """A connection to an existing log."""
    try:
        return _connect(path, "rw")
    except sqlite3.Error as error:
        raise fault_of(path, "opening it", error) from error


def fault_of(path: Path, doing: str, error: Exception) -> LogError:
    """What went wrong, where, and what to do."""
    name = getattr(error, "sqlite_errorname", "")
    match name.split("_")[1] if "_" in name else "":
        case "NOTADB":
            return LogMisconfigured(f"{path} is not a SQLite file: choose another path for the log")
        case "CORRUPT":
            return LogError(f"{path} is damaged ({doing}): restore it from a copy; `sqlite3 {path} .recover` may help")
        case "FULL":
            return LogUnavailable(f"no space left for {path} ({doing}): free some; nothing written before is lost")
        case "BUSY":
            return LogUnavailable(f"another process holds {path} for over {_BUSY_S_MAX:g} s ({doing})")
        case "READONLY" | "PERM" | "CANTOPEN":
            return LogUnavailable(f"{path} cannot be opened for writing ({doing}): check the path and its permissions")
        case _:
            return LogUnavailable(f"{path} cannot be used ({doing}): {str(error) or repr(error)}")


def read_rows(
    db: sqlite3.Connection, topic: str, partition: int, start: int, end: int, max_records: int
) -> list[Record]:
    """Records from offset ``start``, below ``end``; fewer than there are if they are large, but one at least."""
    base = first_id(place_number(topic, partition))
    rows = db.execute(
        "SELECT id, timestamp, key, value, headers FROM records WHERE id >= ? AND id < ? ORDER BY id LIMIT ?",
        (base + start, base + end, max_records),
    )
    found: list[Record] = []
    size = 0
    for row, timestamp, key, value, headers in rows:
        found.append(
            Record(topic, partition, row - base, key, value, _decode_headers(headers) if headers else (), timestamp)
        )
        size += len(value or b"")
        if size >= _READ_BYTES_MAX:
            break
    rows.close()
    return found


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    db = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        timeout=_BUSY_S_MAX,
        isolation_level=None,
        check_same_thread=False,
    )
    db.execute("PRAGMA synchronous = NORMAL")
    return db
