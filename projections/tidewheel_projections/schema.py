"""Schemas of the read model and their migrations.

The tables people read are in the schema ``tidewheel``. A rebuild or a verification fills a schema of its own, from the
same files.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from typing import Any, Literal, TypeAlias

import psycopg
from psycopg import sql

from tidewheel_projections.locks import Lock

LIVE = "tidewheel"
#: ``before``: safe while the old code still runs. ``after``: only once none does.
Phase: TypeAlias = Literal["before", "after"]

Connection: TypeAlias = psycopg.Connection[Any]


def migration_files(phase: Phase) -> Sequence[str]:
    """The names of this phase's files, in order."""
    directory = resources.files("tidewheel_projections").joinpath("migrations")
    return sorted(file.name for file in directory.iterdir() if file.name.endswith(f".{phase}.sql"))


def use_schema(connection: Connection, schema: str) -> None:
    """Let unqualified names mean this schema, for the whole session."""
    connection.execute(sql.SQL("SET search_path = {}").format(sql.Identifier(schema)))


def migrate(connection: Connection, schema: str = LIVE, phase: Phase = "before") -> Sequence[str]:
    """Make or update the schema in one transaction; gives the files applied. Several processes may try at once."""
    applied: list[str] = []
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (Lock.MIGRATION,))
        connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(schema)))
        connection.execute(sql.SQL("SET LOCAL search_path = {}").format(sql.Identifier(schema)))
        done = _applied(connection, schema)
        directory = resources.files("tidewheel_projections").joinpath("migrations")
        for file in migration_files(phase):
            if file not in done:
                connection.execute(directory.joinpath(file).read_bytes())
                connection.execute("INSERT INTO schema_migrations (file) VALUES (%s)", (file,))
                applied.append(file)
    return applied


def drop_schema(connection: Connection, schema: str) -> None:
    """Remove a schema and all in it, if it is there."""
    connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema)))


def _applied(connection: Connection, schema: str) -> frozenset[str]:
    exists = connection.execute("SELECT to_regclass(%s)", (f"{schema}.schema_migrations",)).fetchone()
    if exists is None or exists[0] is None:
        return frozenset()
    return frozenset(row[0] for row in connection.execute("SELECT file FROM schema_migrations"))
