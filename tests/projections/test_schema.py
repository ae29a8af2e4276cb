"""The migrations and the code agree, and migrating is safe to do twice and by several at once."""

from __future__ import annotations

import threading

import msgspec
import psycopg
import pytest

from tidewheel_projections.dags import Dag, Version
from tidewheel_projections.pools import Pool, PoolTask, Worker
from tidewheel_projections.runs import Run
from tidewheel_projections.schema import migrate, migration_files
from tidewheel_projections.tables import TABLES, Kind, Table
from tidewheel_projections.tasks import Attempt, Task

ROWS: dict[str, type[msgspec.Struct]] = {
    "dags": Dag,
    "dag_versions": Version,
    "runs": Run,
    "tasks": Task,
    "attempts": Attempt,
    "pools": Pool,
    "workers": Worker,
    "pool_tasks": PoolTask,
}
TYPES: dict[Kind, str] = {
    "text": "text",
    "integer": "integer",
    "bigint": "bigint",
    "boolean": "boolean",
    "instant": "timestamp with time zone",
    "timestamp": "timestamp with time zone",
    "json": "json",
    "bytes": "bytea",
    "texts": "ARRAY",
}

pytestmark = pytest.mark.postgres


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_tables_in_code_are_the_migrated_ones(table: Table, dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        migrate(connection)
        columns = connection.execute(
            "SELECT column_name, data_type FROM information_schema.columns"
            " WHERE table_schema = 'tidewheel' AND table_name = %s ORDER BY ordinal_position",
            (table.name,),
        ).fetchall()
        key = connection.execute(
            "SELECT array_agg(a.attname::text ORDER BY array_position(i.indkey::int[], a.attnum::int)) FROM pg_index i"
            " JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)"
            " WHERE i.indisprimary AND i.indrelid = %s::regclass",
            (f"tidewheel.{table.name}",),
        ).fetchone()
    assert sorted(columns) == sorted((name, TYPES[kind]) for name, kind in table.columns)
    assert key is not None and tuple(key[0]) == table.key
    if table.name in ROWS:
        assert ROWS[table.name].__struct_fields__ == tuple(name for name, _ in table.columns)


def test_migrating_again_does_nothing_and_many_at_once_are_one(dsn: str) -> None:
    applied: list[str] = []

    def run() -> None:
        with psycopg.connect(dsn, autocommit=True) as connection:
            applied.extend(migrate(connection))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    run()
    assert applied == list(migration_files("before"))


def test_migration_files_are_numbered_without_gap() -> None:
    files = sorted([*migration_files("before"), *migration_files("after")])
    assert [int(name.split("_", 1)[0]) for name in files] == list(range(1, len(files) + 1))
