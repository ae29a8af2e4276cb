"""``SqliteLog``: one file as a log."""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from tidewheel.log.interface import INPUTS, TOPICS, LogMisconfigured, TopicSetting
from tidewheel.log.sqlite.access import SqliteProducer, SqliteReader
from tidewheel.log.sqlite.file import connect, create, fault_of, first_id, partitions_of
from tidewheel.log.sqlite.hub import Hub, release_hub, share_hub
from tidewheel.log.sqlite.owner import SqliteOwner

#: Fewer than on Kafka: one process owns them all.
DEFAULT_SQLITE_PARTITIONS = 4


class SqliteLog:
    """The log in the file at ``path``, which ``create_topics`` makes if it is not there."""

    def __init__(self, path: Path, partitions: int | None = None) -> None:
        self._path = path
        self._hub: Hub | None = None
        self._lock = threading.Lock()
        self._query: sqlite3.Connection | None = None
        self._opened: weakref.WeakSet[SqliteProducer | SqliteReader | SqliteOwner] = weakref.WeakSet()
        found = partitions_of(path)
        if found is not None and partitions not in (None, found):
            raise LogMisconfigured(
                f"{path} has {found} partitions, not {partitions}: leave partitions= out, or use another file"
            )
        self.partitions = found or partitions or DEFAULT_SQLITE_PARTITIONS

    def create_topics(self, *, repair: bool = False) -> Sequence[str]:
        """Make the file if there is none."""
        if partitions_of(self._path) is not None:
            return ()
        create(self._path, self.partitions)
        return TOPICS

    def check_topics(self) -> None:
        """Raise unless the file is there."""
        if partitions_of(self._path) is None:
            raise LogMisconfigured(f"there is no log at {self._path}: run `tidewheel topics create`, or check the path")

    def inspect_topics(self) -> Sequence[TopicSetting]:
        """Nothing can be set."""
        self.check_topics()
        return ()

    def producer(self) -> SqliteProducer:
        """A new producer."""
        producer = SqliteProducer(self._share())
        self._opened.add(producer)
        return producer

    def reader(self, starts: Mapping[tuple[str, int], int]) -> SqliteReader:
        """A reader of these partitions from these offsets."""
        reader = SqliteReader(self._share(), starts)
        self._opened.add(reader)
        return reader

    def owner(self, instance: str) -> SqliteOwner:
        """Join the group of owners, which lives in one process at a time."""
        owner = SqliteOwner(self._share(), instance)
        self._opened.add(owner)
        return owner

    def end_offset(self, topic: str, partition: int) -> int:
        """One past the last record."""
        return self._bound("max", topic, partition, 1)

    def end_offsets(self, places: Collection[tuple[str, int]]) -> Mapping[tuple[str, int], int]:
        """The same of many."""
        return {place: self.end_offset(*place) for place in places}

    def start_offset(self, topic: str, partition: int) -> int:
        """The offset of the oldest record kept."""
        return self._bound("min", topic, partition, 0)

    def start_offsets(self, places: Collection[tuple[str, int]]) -> Mapping[tuple[str, int], int]:
        """The same of many."""
        return {place: self.start_offset(*place) for place in places}

    def offsets_at(self, places: Collection[tuple[str, int]], timestamp: int) -> Mapping[tuple[str, int], int]:
        """The first records of this time or later."""
        question = "SELECT id FROM records WHERE id >= ? AND id < ? AND timestamp >= ? ORDER BY id LIMIT 1"
        found = {}
        for name in places:
            place = self._share().place(*name)
            rows = self._ask(question, first_id(place), first_id(place + 1), timestamp)
            found[name] = rows[0][0] - first_id(place) if rows else self.end_offset(*name)
        return found

    def trim(self, topic: str, partition: int, before: int) -> None:
        """Forget the records below this offset, but the newest; a little at a time, so that nobody waits long."""
        hub = self._share()
        place = hub.place(topic, partition)
        try:
            while hub.trim(place, before):
                pass
        except sqlite3.Error as error:
            raise fault_of(self._path, "deleting old records", error) from error

    def owners(self) -> Sequence[str]:
        """The owners of this process, or the one process elsewhere that owns."""
        return self._share().owners()

    def committed(self, partition: int) -> Mapping[str, int | None]:
        """The owners' committed input positions on this shard."""
        hub = self._share()
        positions: dict[str, int | None] = {}
        for topic in INPUTS:
            rows = self._ask("SELECT position FROM positions WHERE place = ?", hub.place(topic, partition))
            positions[topic] = rows[0][0] if rows else None
        return positions

    def noted(self, partition: int) -> str:
        """What stands beside the position on triggers."""
        self._share()
        rows = self._ask("SELECT note FROM notes WHERE shard = ?", partition)
        return str(rows[0][0]) if rows else ""

    def close(self) -> None:
        """Close what was opened and not closed; the last log of the process on this file ends its thread."""
        for opened in list(self._opened):
            opened.close()
        with self._lock:
            if self._query is not None:
                self._query.close()
            self._query = None
            hub, self._hub = self._hub, None
        if hub is not None:
            release_hub(hub)

    # What only tests ask for.

    def expel(self, instance: str) -> None:
        """Treat an owner as dead."""
        hub = self._share()
        with hub.group_lock:
            hub.group.expel(instance)
        hub.wake_all()

    def _share(self) -> Hub:
        with self._lock:
            if self._hub is None or self._hub.process != os.getpid():
                self.check_topics()
                self._hub = share_hub(self._path, self.partitions)
            return self._hub

    def _bound(self, which: str, topic: str, partition: int, beyond: int) -> int:
        place = self._share().place(topic, partition)
        base = first_id(place)
        rows = self._ask(f"SELECT {which}(id) FROM records WHERE id >= ? AND id < ?", base, first_id(place + 1))
        found: int | None = rows[0][0]
        return 0 if found is None else found - base + beyond

    def _ask(self, question: str, *values: int) -> list[tuple[Any]]:
        with self._lock:
            if self._query is None:
                self._query = connect(self._path)
            try:
                return self._query.execute(question, values).fetchall()
            except sqlite3.Error as error:
                raise fault_of(self._path, "reading it", error) from error
