"""Running a projector in a test, and seeing what it left."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

import psycopg

from tidewheel.log.interface import Log
from tidewheel_projections.journal import FOLLOWED
from tidewheel_projections.projector import Projector, connect
from tidewheel_projections.schema import migrate
from tidewheel_projections.session import Session
from tidewheel_projections.store import Store
from tidewheel_projections.tables import TABLES


@contextlib.contextmanager
def following(log: Log, dsn: str, instance: str = "test") -> Iterator[Projector]:
    """A projector at work."""
    stop = threading.Event()
    projector = Projector(log, dsn, instance)
    thread = threading.Thread(target=projector.run, args=(stop,), daemon=True)
    thread.start()
    try:
        yield projector
    finally:
        stop.set()
        thread.join(10)
        assert not thread.is_alive(), "the projector does not stop"


def wait_until(condition: Callable[[], bool], what: str, wait_s: float = 10.0) -> None:
    """Wait for something to come true."""
    deadline = time.monotonic() + wait_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {wait_s:g} s in vain until {what}"
        time.sleep(0.01)


@contextlib.contextmanager
def session(log: Log, dsn: str) -> Iterator[Session]:
    """A session to apply records by hand."""
    with connect(dsn) as connection:
        migrate(connection)
        yield Session(Store(connection), log)


def project_all(log: Log, dsn: str, batch: int = 5000) -> int:
    """Apply all that the log holds beyond the positions; gives how many records were new."""
    applied = 0
    with session(log, dsn) as current:
        reader = log.reader(current.starts())
        while records := reader.read(batch, 0):
            applied += current.apply(records, reader.positions())
        reader.close()
    return applied


def tables(dsn: str) -> dict[str, list[str]]:
    """Every row of every folded table, as text, in key order."""
    with psycopg.connect(dsn, options="-c search_path=tidewheel -c timezone=UTC") as connection:
        return {
            table.name: [
                row[0]
                for row in connection.execute(
                    f"SELECT t::text FROM {table.name} t ORDER BY {', '.join(table.key)}".encode()
                )
            ]
            for table in TABLES
        }


def scalar(dsn: str, query: str) -> object:
    """The one value of a query on the read model."""
    with psycopg.connect(dsn, options="-c search_path=tidewheel -c timezone=UTC", autocommit=True) as connection:
        found = connection.execute(query.encode()).fetchone()
        assert found is not None, query
        return found[0]


def execute(dsn: str, statement: str) -> None:
    """Change something behind the projector's back."""
    with psycopg.connect(dsn, options="-c search_path=tidewheel", autocommit=True) as connection:
        connection.execute(statement.encode())


def all_ends(log: Log) -> dict[tuple[str, int], int]:
    """Where every followed partition ends."""
    return {(topic, p): log.end_offset(topic, p) for topic in FOLLOWED for p in range(log.partitions)}
