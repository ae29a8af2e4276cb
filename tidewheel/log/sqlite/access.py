"""Producers and readers of a SQLite log."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Mapping

import structlog

from tidewheel.log.interface import CLOSED, Append, LogError, LogUnavailable, Record
from tidewheel.log.limits import oversize
from tidewheel.log.sqlite.file import connect, fault_of, read_rows
from tidewheel.log.sqlite.hub import Hub

_CLOSE_S_MAX = 5.0

_log = structlog.get_logger("tidewheel.sqlite")


class SqliteProducer:
    """Hands records to the hub, which writes many in one transaction."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._ticket = 0
        self._closed = False

    def send(self, record: Append) -> None:
        """Queue the record."""
        if problem := oversize((record,)):
            raise LogError(problem)
        self._ticket = self._hub.send(record)

    def flush(self, timeout_s: float) -> None:
        """Wait until it is written."""
        self._hub.flush(self._ticket, timeout_s)

    def close(self) -> None:
        """Flush."""
        if not self._closed:
            self._closed = True
            try:
                self.flush(_CLOSE_S_MAX)
            except LogUnavailable as error:
                _log.warning("records were not written before the producer closed", problem=str(error))


class SqliteReader:
    """Reads fixed partitions over a connection of its own."""

    def __init__(self, hub: Hub, starts: Mapping[tuple[str, int], int]) -> None:
        self._hub = hub
        self._places = {name: hub.place(*name) for name in starts}
        self._positions = dict(starts)
        for (topic, partition), start in starts.items():
            end = hub.ends[self._places[topic, partition]]
            if start > end:
                raise LogError(
                    f"cannot read {topic}/{partition} from offset {start}: it ends at {end}; was the log replaced?"
                )
        self._waiter = hub.wait_for(self._places.values())
        self._db = connect(hub.path)
        self._turn = 0
        self._closed = False
        #: Held while the connection is used.
        self._using = threading.Lock()

    def read(self, max_records: int, timeout_s: float) -> list[Record]:
        """Wait for a first record, then take what is there."""
        deadline = time.monotonic() + timeout_s
        while True:
            self._waiter.event.clear()
            with self._using:
                records = self._take(max_records)
            remaining = deadline - time.monotonic()
            if records or remaining <= 0:
                return records
            self._waiter.event.wait(remaining)

    def positions(self) -> Mapping[tuple[str, int], int]:
        """The next offset of each partition."""
        return dict(self._positions)

    def close(self) -> None:
        """Let go."""
        if not self._closed:
            self._closed = True
            self._hub.forget(self._waiter)
            with self._using:
                self._db.close()
            self._waiter.event.set()

    def _take(self, max_records: int) -> list[Record]:
        """Each time beginning at another partition, so that none starves under ``max_records``."""
        if self._closed:
            raise LogUnavailable(CLOSED)
        names = list(self._positions)
        self._turn = (self._turn + 1) % max(1, len(names))
        records: list[Record] = []
        for name in names[self._turn :] + names[: self._turn]:
            end, room = self._hub.ends[self._places[name]], max_records - len(records)
            if end > self._positions[name] and room > 0:
                found = read_partition(self._db, self._hub, name, self._positions[name], end, room)
                # Without a record the rest of the range has been trimmed.
                self._positions[name] = found[-1].offset + 1 if found else end
                records += found
        return records


def read_partition(
    db: sqlite3.Connection, hub: Hub, name: tuple[str, int], start: int, end: int, max_records: int
) -> list[Record]:
    """Rows of one partition, with SQLite's faults in our terms."""
    try:
        return read_rows(db, *name, start, end, max_records)
    except sqlite3.Error as error:
        raise fault_of(hub.path, "reading it", error) from error
