"""What the tests with processes share: a Postgres for the session, a database for each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.postgres import fresh_database, open_postgres


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with the right to create databases."""
    with open_postgres(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture
def dsn(postgres_server: str) -> Iterator[str]:
    """An empty database."""
    with fresh_database(postgres_server) as database:
        yield database
