"""The projector: follows the journals and keeps the read model up to date, for ever.

It gates nothing: the log does not wait for it, and when it stops, only reading goes stale. Its offsets are written
with the rows in one transaction, so it goes on exactly where it was, whatever ended it. Of several projectors on one
database one writes, the others stand by: a session lock of Postgres decides.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

import psycopg
import structlog
from psycopg.types.numeric import Int8Dumper

from tidewheel.log.interface import Log, LogError, Reader
from tidewheel_projections.journal import Place
from tidewheel_projections.locks import Lock
from tidewheel_projections.schema import LIVE, Connection, migrate, use_schema
from tidewheel_projections.session import Replaced, Session
from tidewheel_projections.store import Store

#: Most records in one transaction.
BATCH_MAX = 5_000
#: A batch at least this large means that more comes at once: a pause lets the next one gather, and a row that changes
#: several times meanwhile is written once.
BUSY_RECORDS = 300
PAUSE_S = 0.1
#: How long a read waits; a stop is noticed within it.
READ_S = 0.5
BEAT_S = 2.0
BACK_OFF_S = (0.2, 10.0)
STANDBY_S = 1.0

#: The server is gone, or somebody dropped the tables: both are cured by connecting (and migrating) again.
_AWAY: tuple[type[psycopg.Error], ...] = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.errors.UndefinedTable,
    psycopg.errors.InvalidSchemaName,
)

_log = structlog.get_logger("tidewheel.projector")


class Projector:
    """Projects ``log`` into the database ``dsn``."""

    def __init__(self, log: Log, dsn: str, instance: str = "projector") -> None:
        self._log = log
        self._dsn = dsn
        self._instance = instance
        self._started_at = time.time_ns() // 1_000_000
        # For whoever watches.
        #: Records applied since the start.
        self.applied = 0
        #: Records up to the ends last seen, and partitions followed no further.
        self.behind = self.stopped = 0
        #: This one writes; else it stands by or waits.
        self.writing = False
        #: Why nothing can be followed now; empty: it can.
        self.fault = "nothing has been reached yet"

    def run(self, stop: threading.Event) -> None:
        """Project until ``stop`` is set. What is away is waited for, and said once per back-off."""
        back_off_s = BACK_OFF_S[0]
        while not stop.is_set():
            before = self.applied
            try:
                self._follow(stop)
            except Replaced:
                _log.info("read_model_rebuilt", action="beginning again from the new tables")
                continue
            except _AWAY as error:
                self.fault = f"Postgres: {_reason(error)}"
                _log.error("postgres_unavailable", reason=_reason(error), retry_s=back_off_s)
            except LogError as error:
                self.fault = str(error)
                _log.error("log_unavailable", reason=str(error), retry_s=back_off_s)
            finally:
                self.writing = False
            if self.applied > before:
                back_off_s = BACK_OFF_S[0]
            stop.wait(back_off_s)
            back_off_s = min(back_off_s * 2, BACK_OFF_S[1])

    def _follow(self, stop: threading.Event) -> None:
        with connect(self._dsn) as connection:
            migrated = migrate(connection)
            if migrated:
                _log.info("read_model_migrated", files=migrated)
            if not self._become_writer(connection, stop):
                return
            session = Session(Store(connection), self._log)
            self.writing, self.fault = True, ""
            while not stop.is_set():
                # A stopped partition is left out of the next reader.
                starts = session.starts()
                if not starts:
                    if session.take_up_repaired():
                        continue
                    session.beat(self._instance, self._started_at, {}, {})
                    stop.wait(BEAT_S)
                    continue
                reader = self._log.reader(starts)
                try:
                    self._read_on(session, reader, tuple(starts), stop)
                finally:
                    reader.close()

    def _read_on(self, session: Session, reader: Reader, followed: Iterable[Place], stop: threading.Event) -> None:
        tracks = session.journals.tracks
        next_beat = 0.0
        while not stop.is_set():
            records = reader.read(BATCH_MAX, READ_S)
            if records:
                self.applied += session.apply(records, reader.positions())
            if time.monotonic() >= next_beat:
                session.beat(self._instance, self._started_at, self._log.end_offsets(tracks), reader.positions())
                next_beat = time.monotonic() + BEAT_S
                self.behind = sum(max(0, track.end_offset - track.next_offset) for track in tracks.values())
                self.stopped = sum(bool(track.stopped) for track in tracks.values())
                if session.take_up_repaired():
                    return
            tracks = session.journals.tracks
            if any(tracks[place].stopped for place in followed):
                return
            if BUSY_RECORDS <= len(records) < BATCH_MAX:
                stop.wait(PAUSE_S)

    def _become_writer(self, connection: Connection, stop: threading.Event) -> bool:
        waiting = False
        while not stop.is_set():
            if Lock.WRITER.take(connection):
                if waiting:
                    _log.info("writer_lock_taken")
                return True
            if not waiting:
                _log.info("standing_by", reason="another projector writes this database; taking over when it ends")
                waiting = True
            self.fault = ""
            stop.wait(STANDBY_S)
        return False


def connect(dsn: str, schema: str = LIVE) -> Connection:
    """A connection for writing: autocommit, on the schema, quick to notice that the server is gone."""
    connection: Connection = psycopg.connect(
        dsn,
        autocommit=True,
        connect_timeout=5,
        application_name="tidewheel-projector",
        keepalives_idle=10,
        keepalives_interval=5,
        keepalives_count=3,
    )
    # One type for all integers, so that a statement is prepared once and not for each mix of small and large numbers.
    connection.adapters.register_dumper(int, Int8Dumper)
    use_schema(connection, schema)
    # Safe: rows and positions are lost together, and read again from the journal.
    connection.execute("SET synchronous_commit = off")
    connection.execute("SET timezone = 'UTC'")
    return connection


def _reason(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
