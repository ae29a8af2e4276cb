"""Rows from and to Postgres. One ``write`` is part of one transaction that also moves the positions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Any, TypeAlias

import msgspec
import psycopg

from tidewheel.wire.messages import DeadLetter, LogChunk
from tidewheel_projections.audit import UNLISTED, audit_row
from tidewheel_projections.backfills import Backfill
from tidewheel_projections.dags import Dag, outline_of
from tidewheel_projections.folding import Folding, Needed, RunRows
from tidewheel_projections.journal import FOLLOWED, Journals, Placed, Track
from tidewheel_projections.pools import Pool, PoolRows, PoolTask, Worker
from tidewheel_projections.runs import row_of, run_from
from tidewheel_projections.schema import Connection
from tidewheel_projections.tables import (
    ATTEMPTS,
    BACKFILLS,
    DAG_VERSIONS,
    DAGS,
    DEAD_LETTERS_TABLE,
    EVENTS_TABLE,
    POOL_TASKS,
    POOLS,
    RUNS,
    TASK_LOGS,
    TASKS,
    WORKERS,
    Table,
)
from tidewheel_projections.tasks import Attempt, Task

Rows: TypeAlias = Sequence[tuple[object, ...]]


#: Fewer rows go by themselves: emptying a temporary table costs as much as 20 of them.
STAGED_ROWS_MIN = 20


class Store:
    """Reads and writes the tables of one schema through one connection, whose ``search_path`` names it.

    The connection is in autocommit mode.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._staging: set[str] = set()

    def epoch(self) -> str:
        """Which set of tables this is. Read first in each transaction: a rebuild puts another one in place."""
        # Not prepared: after a rebuild the name means another table.
        found = self._connection.execute("SELECT epoch::text FROM read_model", prepare=False).fetchone()
        assert found is not None, "the table read_model has lost its row"
        return str(found[0])

    def transaction(self) -> AbstractContextManager[object]:
        """All or nothing of what is written within."""
        return self._connection.transaction()

    def tracks(self, partitions: int) -> list[Track]:
        """Where every followed partition stands."""
        rows = self._connection.execute(
            "SELECT topic, partition, last_offset, next_offset, shard_seq, chain,"
            " (extract(epoch FROM last_at) * 1000)::bigint, end_offset, stopped FROM projection_positions"
        )
        known = {(row[0], row[1]): Track(*row) for row in rows}
        places = [(topic, partition) for topic in FOLLOWED for partition in range(partitions)]
        return [known.get(place) or Track(*place) for place in places]

    def load(self, folding: Folding, needed: Needed) -> None:
        """Bring what is needed into memory."""
        if needed.dags:
            rows = self._select(DAGS, "t.dag = ANY (%s)", (list(needed.dags),))
            folding.dags.update((row[0], Dag(*row)) for row in rows)
        if needed.versions:
            columns = "unnest(%s::text[], %s::text[]) AS u(d, v)"
            condition = f'(t.dag, t.version) IN (SELECT d COLLATE "C", v COLLATE "C" FROM {columns})'
            for row in self._select(DAG_VERSIONS, condition, _columns(needed.versions)):
                folding.outlines[row[0], row[1]] = outline_of(row[2]).tasks
        if needed.backfills:
            condition = (
                "(t.dag, t.backfill_id) IN"
                ' (SELECT d COLLATE "C", b COLLATE "C" FROM unnest(%s::text[], %s::text[]) AS u(d, b))'
            )
            for row in self._select(BACKFILLS, condition, _columns(needed.backfills)):
                folding.backfills[row[0], row[1]] = Backfill(*row)
        if needed.runs:
            self._load_runs(folding, needed)
        if needed.pools:
            self._load_pools(folding, list(needed.pools))

    def write(self, folding: Folding, placed: Iterable[Placed], careful: bool) -> None:
        """Write what changed. ``careful``: events may be there already, and texts may hold what Postgres refuses."""
        runs = [folding.touched_runs[key] for key in sorted(folding.touched_runs)]
        astuple = msgspec.structs.astuple
        self._upsert(DAGS, [astuple(folding.dags[dag]) for dag in sorted(folding.changed_dags)], careful)
        versions = sorted(folding.new_versions, key=lambda version: (version.dag, version.version))
        self._upsert(DAG_VERSIONS, [astuple(version) for version in versions], careful)
        backfills = [astuple(folding.backfills[key]) for key in sorted(folding.changed_backfills)]
        self._upsert(BACKFILLS, backfills, careful)
        self._upsert(RUNS, [row_of(run.row) for run in runs if run.changed], careful)
        gone = [(run.row.dag, run.row.run_id, task) for run in runs for task in sorted(run.gone_tasks)]
        self._delete(TASKS, gone)
        tasks = [astuple(run.tasks[task]) for run in runs for task in sorted(run.changed_tasks)]
        self._upsert(TASKS, tasks, careful)
        attempts = [astuple(run.attempts[number]) for run in runs for number in sorted(run.changed_attempts)]
        self._upsert(ATTEMPTS, attempts, careful)
        self._write_pools([folding.pools[pool] for pool in sorted(folding.touched_pools)], careful)
        self._append(placed, careful)

    def write_tracks(self, journals: Journals) -> None:
        """Write the positions that moved."""
        tracks = [journals.tracks[place] for place in sorted(journals.moved)]
        if not tracks:
            return
        columns = [list(column) for column in zip(*map(msgspec.structs.astuple, tracks), strict=True)]
        self._connection.execute(
            "INSERT INTO projection_positions (topic, partition, last_offset, next_offset, shard_seq, chain, last_at,"
            " end_offset, stopped) SELECT t, p, l, n, s, c, to_timestamp(a / 1000.0::float8), e, x"
            " FROM unnest(%s::text[], %s::int[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bytea[], %s::bigint[],"
            " %s::bigint[], %s::text[]) AS u(t, p, l, n, s, c, a, e, x)"
            " ON CONFLICT (topic, partition) DO UPDATE SET last_offset = excluded.last_offset,"
            " next_offset = excluded.next_offset, shard_seq = excluded.shard_seq, chain = excluded.chain,"
            " last_at = excluded.last_at, end_offset = excluded.end_offset, stopped = excluded.stopped",
            columns,
        )

    def rolled_back(self) -> None:
        """The temporary tables may be gone: they are made anew when needed."""
        self._staging.clear()

    def write_health(self, instance: str, started_at: int) -> None:
        """Say that the projector is alive."""
        self._connection.execute(
            "INSERT INTO projector_health (instance, started_at, seen_at) VALUES (%s, %s, now())"
            " ON CONFLICT (one) DO UPDATE SET instance = excluded.instance, started_at = excluded.started_at,"
            " seen_at = excluded.seen_at",
            (instance, datetime.fromtimestamp(started_at / 1000, UTC)),
        )

    def _select(self, table: Table, condition: str, parameters: Sequence[object]) -> list[tuple[Any, ...]]:
        query = f"SELECT {table.select('t')} FROM {table.name} t WHERE {condition}"
        return self._connection.execute(query.encode(), parameters).fetchall()

    def _load_runs(self, folding: Folding, needed: Needed) -> None:
        condition = (
            '(t.dag, t.run_id) IN (SELECT d COLLATE "C", r COLLATE "C" FROM unnest(%s::text[], %s::text[]) AS u(d, r))'
        )
        keys = _columns(needed.runs)
        for row in self._select(RUNS, condition, keys):
            folding.runs[row[0], row[1]] = RunRows(run_from(row))
        if not any(key in folding.runs for key in needed.runs):
            return
        for row in self._select(TASKS, condition, keys):
            folding.runs[row[0], row[1]].tasks[row[2]] = Task(*row)
        for row in self._select(ATTEMPTS, condition, keys):
            folding.runs[row[0], row[1]].attempts[row[2], row[3]] = Attempt(*row)

    def _load_pools(self, folding: Folding, pools: list[str]) -> None:
        for row in self._select(POOLS, "t.pool = ANY (%s)", (pools,)):
            folding.pools[row[0]] = PoolRows(Pool(*row))
        for row in self._select(WORKERS, "t.pool = ANY (%s)", (pools,)):
            folding.pools[row[0]].workers[row[1]] = Worker(*row)
        for row in self._select(POOL_TASKS, "t.pool = ANY (%s)", (pools,)):
            folding.pools[row[0]].tasks[row[1], row[2], row[3], row[4]] = PoolTask(*row)

    def _write_pools(self, pools: Sequence[PoolRows], careful: bool) -> None:
        astuple = msgspec.structs.astuple
        self._upsert(POOLS, [astuple(pool.row) for pool in pools], careful)
        workers: list[tuple[object, ...]] = []
        tasks: list[tuple[object, ...]] = []
        left: list[tuple[str, str]] = []
        gone: list[tuple[str, str, str, str, int]] = []
        for pool in pools:
            for name in sorted(pool.changed_workers):
                if name in pool.workers:
                    workers.append(astuple(pool.workers[name]))
                else:
                    left.append((pool.row.pool, name))
            for key in sorted(pool.changed_tasks):
                if key in pool.tasks:
                    tasks.append(astuple(pool.tasks[key]))
                else:
                    gone.append((pool.row.pool, *key))
        self._delete(WORKERS, left)
        self._upsert(WORKERS, workers, careful)
        self._delete(POOL_TASKS, gone)
        self._upsert(POOL_TASKS, tasks, careful)

    def _append(self, placed: Iterable[Placed], careful: bool) -> None:
        events: list[tuple[object, ...]] = []
        chunks: list[tuple[object, ...]] = []
        letters: list[tuple[object, ...]] = []
        for item in placed:
            message = item.message
            if isinstance(message, LogChunk):
                chunks.append(msgspec.structs.astuple(message))
            elif isinstance(message, DeadLetter):
                letters.append((item.partition, item.offset, *msgspec.structs.astuple(message)))
            elif type(message.event) not in UNLISTED:
                events.append(audit_row(item.topic, item.partition, item.offset, message))
        if careful:
            self._upsert(EVENTS_TABLE, events, careful)
        elif events:
            with self._connection.cursor().copy(EVENTS_TABLE.copy_straight.encode()) as copy:
                for row in events:
                    copy.write_row(row)
        self._upsert(TASK_LOGS, chunks, careful)
        self._upsert(DEAD_LETTERS_TABLE, letters, careful)

    def _delete(self, table: Table, keys: Rows) -> None:
        if keys:
            self._connection.execute(table.delete.encode(), _columns(keys))

    def _upsert(self, table: Table, rows: Rows, careful: bool) -> None:
        if not rows:
            return
        if careful:
            rows = [acceptable(table, row) for row in rows]
        if len(rows) < STAGED_ROWS_MIN:
            with self._connection.cursor() as cursor:
                cursor.executemany(table.upsert_one.encode(), rows)
            return
        if table.name not in self._staging:
            self._connection.execute(table.staging.encode())
            self._staging.add(table.name)
        with self._connection.cursor().copy(table.copy.encode()) as copy:
            for row in rows:
                copy.write_row(row)
        self._connection.execute(table.upsert_staged.encode())
        self._connection.execute(table.truncate.encode())


def acceptable(table: Table, row: tuple[object, ...]) -> tuple[object, ...]:
    """The row without what Postgres refuses: NUL in texts, and JSON columns that hold no JSON (kept as a string)."""
    values = list(row)
    for index in table.json_columns:
        values[index] = _json(values[index])
    return tuple(value.replace("\0", "\ufffd") if isinstance(value, str) else value for value in values)


def _json(text: object) -> object:
    if not isinstance(text, str):
        return text
    try:
        msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return msgspec.json.encode(text).decode()
    return text


def _columns(rows: Iterable[tuple[object, ...]]) -> list[list[object]]:
    return [list(column) for column in zip(*sorted(rows), strict=True)]


#: What Postgres raises when a row can never be written as it is.
REFUSED: tuple[type[psycopg.Error], ...] = (
    psycopg.DataError,
    psycopg.IntegrityError,
    psycopg.errors.ProgramLimitExceeded,
    psycopg.errors.StatementTooComplex,
)
