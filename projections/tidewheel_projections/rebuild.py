"""Building the read model anew from the journal, and proving that the one in use is what the journal says.

Both replay into a schema of their own, so that readers and the running projector go on. A rebuild ends by exchanging
names; the projector sees another ``epoch`` with its next transaction and begins again from the new tables. A
verification stops each partition exactly where the tables in use stand, and compares every row.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import psycopg
from psycopg import sql

from tidewheel.log.interface import Log, Record
from tidewheel.runtime.repairs import Repair
from tidewheel_projections.journal import Place, Track
from tidewheel_projections.locks import Lock
from tidewheel_projections.projector import BATCH_MAX, connect
from tidewheel_projections.schema import LIVE, Connection, drop_schema, migrate, use_schema
from tidewheel_projections.session import Session
from tidewheel_projections.store import Store
from tidewheel_projections.tables import TABLES

_REBUILT = "tidewheel_rebuilt"
_REPLACED = "tidewheel_replaced"
_VERIFIED = "tidewheel_verified"
#: Without a record for so long, a partition that should have more is given up.
SILENCE_S = 30.0
DIFFERENCES_MAX = 100
#: How long the server may take to notice that the one before has ended.
_ENDING_S_MAX, _PAUSE_S = 5.0, 0.05

Progress = Callable[[int], None]


class ReplayFailed(Exception):
    """The journal could not be replayed. The message says where and why."""


class Difference(msgspec.Struct, frozen=True):
    """A row that is not what the journal says: it is ``found`` so, and the journal gives ``expected``."""

    table: str
    key: str
    #: ``missing``, ``extra`` or ``different``
    kind: str
    found: str | None
    expected: str | None


def rebuild(dsn: str, log: Log, progress: Progress | None = None) -> int:
    """Replay the whole journal into new tables and put them in place; gives the number of records applied.

    Raises ``ReplayFailed``, leaving the tables in use as they were.
    """
    with connect(dsn) as connection:
        _become_only_replay(connection)
        applied = _replay(connection, _REBUILT, log, None, progress)
        _put_in_place(connection)
    return applied


def verify(dsn: str, log: Log, progress: Progress | None = None) -> list[Difference]:
    """Replay the journal up to where the tables in use stand and compare all rows; gives the first differences.

    Raises ``ReplayFailed`` if the journal cannot be replayed.
    """
    with connect(dsn) as connection, connect(dsn) as live:
        _become_only_replay(connection)
        try:
            # One moment of the tables in use, whatever a running projector does meanwhile.
            live.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            tracks = Store(live).tracks(log.partitions)
            _replay(connection, _VERIFIED, log, {track.place: track.last_offset for track in tracks}, progress)
            use_schema(connection, _VERIFIED)
            return list(_differences(live, connection, tracks, log.partitions))
        finally:
            drop_schema(connection, _VERIFIED)


def _become_only_replay(connection: Connection) -> None:
    """Patient for a moment: of one that has just ended the server still has to hear."""
    deadline = time.monotonic() + _ENDING_S_MAX
    while not Lock.REPLAY.take(connection):
        if time.monotonic() < deadline:
            time.sleep(_PAUSE_S)
            continue
        raise ReplayFailed("another rebuild or verification of this database is under way; wait for it to end")


def _fresh_schema(connection: Connection, schema: str) -> None:
    drop_schema(connection, schema)
    migrate(connection, schema)
    use_schema(connection, schema)


def _replay(
    connection: Connection, schema: str, log: Log, until: Mapping[Place, int] | None, progress: Progress | None
) -> int:
    """Fold the log into a fresh schema: up to these offsets, or to where it ends now.

    A repair may lie behind what it declares void: then all begins again, knowing it.
    """
    repairs: dict[Place, tuple[Repair, ...]] = {}
    while True:
        _fresh_schema(connection, schema)
        session = Session(Store(connection), log)
        session.journals.repairs.update(repairs)
        try:
            return _fold(session, log, until, progress)
        except ReplayFailed:
            session.take_up_repaired()
            if session.journals.repairs == repairs:
                raise
            repairs = dict(session.journals.repairs)


def _fold(session: Session, log: Log, until: Mapping[Place, int] | None, progress: Progress | None) -> int:
    places = list(session.journals.tracks)
    ends = {place: end - 1 for place, end in log.end_offsets(places).items()} if until is None else dict(until)
    reader = log.reader(dict.fromkeys(places, 0))
    applied = 0
    last_progress = time.monotonic()
    try:
        while not _all_read(reader.positions(), ends):
            records = reader.read(BATCH_MAX, 0.5)
            wanted: Sequence[Record] = [
                record for record in records if until is None or record.offset <= ends[record.topic, record.partition]
            ]
            if wanted:
                applied += session.apply(wanted)
                last_progress = time.monotonic()
                if progress is not None:
                    progress(applied)
            _refuse_stopped(session)
            if time.monotonic() - last_progress > SILENCE_S:
                behind = [f"{t}/{p}" for (t, p), at in reader.positions().items() if at <= ends[t, p]]
                raise ReplayFailed(f"the log gives no more records, but {', '.join(behind)} should have some")
    finally:
        reader.close()
    return applied


def _all_read(positions: Mapping[Place, int], ends: Mapping[Place, int]) -> bool:
    return all(positions[place] > end for place, end in ends.items())


def _refuse_stopped(session: Session) -> None:
    for track in session.journals.tracks.values():
        if track.stopped:
            raise ReplayFailed(track.stopped)


def _put_in_place(connection: Connection) -> None:
    """Exchange the names. Takes no lock on a table; the old ones are dropped once their last reader is done."""
    drop_schema(connection, _REPLACED)
    live = sql.Identifier(LIVE)
    with connection.transaction():
        exists = connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (LIVE,)).fetchone()
        if exists is not None:
            connection.execute(sql.SQL("ALTER SCHEMA {} RENAME TO {}").format(live, sql.Identifier(_REPLACED)))
        connection.execute(sql.SQL("ALTER SCHEMA {} RENAME TO {}").format(sql.Identifier(_REBUILT), live))
    # Gives way to a reader rather than have the two block each other.
    connection.execute("SET lock_timeout = '300ms'")
    while True:
        try:
            drop_schema(connection, _REPLACED)
        except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected):
            time.sleep(0.2)
        else:
            return


def _differences(
    live: Connection, replayed: Connection, tracks: Sequence[Track], partitions: int
) -> Iterator[Difference]:
    found = 0
    expected_tracks = Store(replayed).tracks(partitions)
    for track, expected in zip(tracks, expected_tracks, strict=True):
        mine = (track.last_offset, track.shard_seq, track.chain.hex())
        theirs = (expected.last_offset, expected.shard_seq, expected.chain.hex())
        if mine != theirs:
            yield Difference(
                "projection_positions", f"{track.topic}/{track.partition}", "different", str(mine), str(theirs)
            )
    for table in TABLES:
        for difference in _compare(table.name, table.key, live, replayed):
            yield difference
            found += 1
            if found >= DIFFERENCES_MAX:
                return


def _compare(table: str, key: Sequence[str], live: Connection, replayed: Connection) -> Iterator[Difference]:
    """Both tables side by side, in key order; only a few rows are in memory."""
    query = f"SELECT {', '.join(key)}, t::text FROM {table} t ORDER BY {', '.join(key)}".encode()
    with replayed.transaction(), live.cursor("live") as left, replayed.cursor("replayed") as right:
        for cursor in (left, right):
            cursor.itersize = 2_000
            cursor.execute(query)
        ours, theirs = iter(left), iter(right)
        mine, other = next(ours, None), next(theirs, None)
        while mine is not None or other is not None:
            if other is None or (mine is not None and _key(mine) < _key(other)):
                assert mine is not None
                yield Difference(table, _shown(mine), "extra", mine[-1], None)
                mine = next(ours, None)
            elif mine is None or _key(other) < _key(mine):
                yield Difference(table, _shown(other), "missing", None, other[-1])
                other = next(theirs, None)
            else:
                if mine[-1] != other[-1]:
                    yield Difference(table, _shown(mine), "different", mine[-1], other[-1])
                mine, other = next(ours, None), next(theirs, None)


def _key(row: Sequence[Any]) -> tuple[Any, ...]:
    # Text compares by code point here and by UTF-8 bytes there, which is the same order.
    return tuple(row[:-1])


def _shown(row: Sequence[Any]) -> str:
    return "/".join(str(part) for part in row[:-1])
