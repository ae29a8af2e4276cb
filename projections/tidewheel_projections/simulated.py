"""The projector in a simulation: its session, folding and order of writing as they are, over tables in memory.

What Postgres does itself is done here by the same rules: rows are replaced by newer ones, a transaction is whole or
nothing, and an event that is written a second time is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeAlias, cast

import msgspec
import psycopg

from tidewheel.core.attempt import AttemptKey
from tidewheel.log.interface import Reader
from tidewheel.log.memory import MemoryLog
from tidewheel.testing.simulation.faults import ProjectorPoint
from tidewheel_projections.backfills import Backfill
from tidewheel_projections.dags import Dag, outline_of
from tidewheel_projections.folding import Folding, Needed, RunKey, RunRows
from tidewheel_projections.journal import FOLLOWED, Journals, Place, Placed, Track
from tidewheel_projections.pools import Pool, PoolRows, PoolTask, Worker
from tidewheel_projections.runs import run_from
from tidewheel_projections.session import Session
from tidewheel_projections.store import Rows, Store
from tidewheel_projections.tables import (
    ATTEMPTS,
    BACKFILLS,
    DAG_VERSIONS,
    DAGS,
    POOL_TASKS,
    POOLS,
    RUNS,
    TASKS,
    WORKERS,
    Table,
)
from tidewheel_projections.tasks import Attempt, Task

Key: TypeAlias = tuple[object, ...]
At: TypeAlias = Callable[[ProjectorPoint], None]

#: Records of one turn, at most.
_TURN_MAX = 200


class MemoryStore(Store):
    """The tables as dicts. What a transaction writes is kept aside until it ends well."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[Key, tuple[object, ...]]] = {}
        self.places: dict[Place, Track] = {}
        #: The keys of each run's tasks and attempts, and of each pool's workers and tasks.
        self._members: dict[tuple[str, Key], dict[Key, None]] = {}
        self._pending: list[Callable[[], None]] = []
        #: By what is waited for: the details of the waits that are open, as the index on ``waits_for`` finds them.
        self.open_waits: dict[str, dict[AttemptKey, str]] = {}
        self.at: At = lambda point: None

    def epoch(self) -> str:
        """There is one set of tables."""
        return "memory"

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing of what is written within."""
        self._pending = []
        yield
        self.at("write")
        for change in self._pending:
            change()
        self.at("written")

    def tracks(self, partitions: int) -> list[Track]:
        """Where every followed partition stands."""
        places = [(topic, partition) for topic in FOLLOWED for partition in range(partitions)]
        return [msgspec.structs.replace(self.places[at]) if at in self.places else Track(*at) for at in places]

    def load(self, folding: Folding, needed: Needed) -> None:
        """Bring what is needed into memory."""
        self.at("fold")
        for dag in needed.dags:
            if row := self._row(DAGS, (dag,)):
                folding.dags[dag] = Dag(*row)  # type: ignore[arg-type]
        for version in needed.versions:
            if row := self._row(DAG_VERSIONS, version):
                folding.outlines[version] = outline_of(cast(str, row[2])).tasks
        for backfill in needed.backfills:
            if row := self._row(BACKFILLS, backfill):
                folding.backfills[backfill] = Backfill(*row)  # type: ignore[arg-type]
        for run in needed.runs:
            self._load_run(folding, run)
        for pool in needed.pools:
            self._load_pool(folding, pool)

    def write_tracks(self, journals: Journals) -> None:
        """Write the positions that moved."""
        moved = {place: msgspec.structs.replace(journals.tracks[place]) for place in journals.moved}
        self._pending.append(lambda: self.places.update(moved))

    def rolled_back(self) -> None:
        """Nothing of it was written."""
        self._pending = []

    def write_health(self, instance: str, started_at: int) -> None:
        """Nobody looks."""

    def _row(self, table: Table, key: Key) -> tuple[object, ...] | None:
        return self.tables.get(table.name, {}).get(key)

    def _rows_under(self, table: Table, prefix: Key) -> Iterator[tuple[object, ...]]:
        for key in self._members.get((table.name, prefix), ()):
            yield self.tables[table.name][key]

    def _load_run(self, folding: Folding, key: RunKey) -> None:
        row = self._row(RUNS, key)
        if row is not None:
            run = folding.runs[key] = RunRows(run_from(row))
            for values in self._rows_under(TASKS, key):
                task = Task(*values)  # type: ignore[arg-type]
                run.tasks[task.task] = task
            for values in self._rows_under(ATTEMPTS, key):
                attempt = Attempt(*values)  # type: ignore[arg-type]
                run.attempts[attempt.task, attempt.attempt] = attempt

    def _load_pool(self, folding: Folding, name: str) -> None:
        row = self._row(POOLS, (name,))
        if row is not None:
            pool = folding.pools[name] = PoolRows(Pool(*row))  # type: ignore[arg-type]
            for values in self._rows_under(WORKERS, (name,)):
                worker = Worker(*values)  # type: ignore[arg-type]
                pool.workers[worker.worker] = worker
            for values in self._rows_under(POOL_TASKS, (name,)):
                task = PoolTask(*values)  # type: ignore[arg-type]
                pool.tasks[task.dag, task.run_id, task.task, task.attempt] = task

    def _append(self, placed: Iterable[Placed], careful: bool) -> None:
        events = self.tables.setdefault("events", {})
        new: dict[Key, tuple[object, ...]] = {}
        for item in placed:
            key = (item.topic, item.partition, item.offset)
            if key in events and not careful:
                raise psycopg.errors.UniqueViolation(f"{key} is there already")
            new[key] = (item.message,)
        self._pending.append(lambda: events.update(new))

    def _upsert(self, table: Table, rows: Rows, careful: bool) -> None:
        if rows:
            self._pending.append(lambda: self._replace(table, rows))

    def _delete(self, table: Table, keys: Rows) -> None:
        if keys:
            self._pending.append(lambda: self._remove(table, keys))

    def _replace(self, table: Table, rows: Sequence[tuple[object, ...]]) -> None:
        written = self.tables.setdefault(table.name, {})
        for row in rows:
            key = row[: len(table.key)]
            before = written.get(key)
            if before is None:
                prefix = key[:2] if table in (TASKS, ATTEMPTS) else key[:1]
                self._members.setdefault((table.name, prefix), {})[key] = None
            elif not table.newest_wins or cast(int, row[-1]) <= cast(int, before[-1]):
                continue
            written[key] = row
            if table is TASKS:
                self._index_wait(before, row)

    def _index_wait(self, before: tuple[object, ...] | None, row: tuple[object, ...]) -> None:
        for values in (before, row):
            task = None if not values else Task(*values)  # type: ignore[arg-type]
            if task is None or not task.waits_for:
                continue
            waits, key = (
                self.open_waits.setdefault(task.waits_for, {}),
                (task.dag, task.run_id, task.task, task.attempt),
            )
            if values is before:
                waits.pop(key, None)
            elif task.wait is not None:
                waits[key] = task.wait

    def _remove(self, table: Table, keys: Rows) -> None:
        for key in keys:
            gone = self.tables.get(table.name, {}).pop(key, None)
            if gone is not None:
                if table is TASKS:
                    self._index_wait(gone, ())
                prefix = key[:2] if table in (TASKS, ATTEMPTS) else key[:1]
                del self._members[table.name, prefix][key]


class SimulatedProjector:
    """Follows ``log`` a turn at a time; its store outlives it."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log
        self._store = MemoryStore()
        self._session: Session | None = None
        self._reader: Reader | None = None

    def act(self, at: At) -> bool:
        """One turn; true if there was anything. ``at`` is called at each point where it can be hit."""
        self._store.at = at
        if self._session is None or self._reader is None:
            self._session = Session(self._store, self._log)
            self._reader = self._log.reader(self._session.starts())
        try:
            records = self._reader.read(_TURN_MAX, 0)
            if records:
                self._session.apply(records, self._reader.positions())
        except BaseException:
            # As the projector does: whatever ended the turn, the next begins from what is in the tables.
            self.restart()
            raise
        return bool(records)

    def restart(self) -> None:
        """The process died: it comes back with an empty memory."""
        self._session = self._reader = None

    def open_waits(self, waits_for: str) -> Mapping[AttemptKey, str]:
        """What tasks wait for, as its rows have it: the details of each wait."""
        return self._store.open_waits.get(waits_for, {})

    def difference(self) -> str:
        """The first row that differs from what a rebuild gives; empty if none does."""
        while self.act(lambda point: None):
            pass
        rebuilt = SimulatedProjector(self._log)
        while rebuilt.act(lambda point: None):
            pass
        for place, track in rebuilt._store.places.items():
            mine = self._store.places.get(place)
            if track.stopped or mine is None or (mine.last_offset, mine.chain) != (track.last_offset, track.chain):
                return f"{place[0]}/{place[1]} is projected up to {mine}, and rebuilt up to {track}"
        for name in self._store.tables.keys() | rebuilt._store.tables.keys():
            mine_rows, theirs = self._store.tables.get(name, {}), rebuilt._store.tables.get(name, {})
            for key in sorted(mine_rows.keys() | theirs.keys(), key=repr) if mine_rows != theirs else ():
                if mine_rows.get(key) != theirs.get(key):
                    return f"{name} {key} is {mine_rows.get(key)}, and rebuilt {theirs.get(key)}"
        return ""
