"""A real Postgres for tests: an address in ``TIDEWHEEL_TEST_POSTGRES``, else a container, else the embedded one."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from tidewheel_services.embedded_postgres import EmbeddedPostgres

ADDRESS_VARIABLE = "TIDEWHEEL_TEST_POSTGRES"
IMAGE = "postgres:18-alpine"


@contextlib.contextmanager
def open_postgres(directory: Path) -> Iterator[str]:
    """A connection string with the right to create databases. ``directory`` is for an embedded server's data."""
    given = os.environ.get(ADDRESS_VARIABLE)
    if given:
        yield given
    elif _docker_answers():
        from testcontainers.postgres import PostgresContainer

        with PostgresContainer(IMAGE, driver=None) as container:
            yield container.get_connection_url()
    else:
        with EmbeddedPostgres(directory / "postgres", throwaway=True) as server:
            yield server.dsn


@contextlib.contextmanager
def fresh_database(server: str) -> Iterator[str]:
    """A connection string of a new, empty database, dropped in the end."""
    name = f"test_{secrets.token_hex(6)}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {} STRATEGY wal_log").format(sql.Identifier(name)))
        yield make_conninfo(server, dbname=name)
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def _docker_answers() -> bool:
    import docker

    try:
        client = docker.from_env(timeout=2)
        try:
            return bool(client.ping())
        finally:
            client.close()
    except docker.errors.DockerException:
        return False
