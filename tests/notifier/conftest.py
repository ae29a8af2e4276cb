"""What the notifier's tests share: a Postgres for the session, a database and receivers for each test."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.notifier.receiver import Receiver, receiving
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


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Takes notifications."""
    with receiving() as found:
        yield found


@pytest.fixture
def other() -> Iterator[Receiver]:
    """Another one."""
    with receiving() as found:
        yield found


@pytest.fixture(scope="session")
def eventually() -> Callable[[Callable[[], Any], str], None]:
    """``eventually(condition, what)``: waits, generously, until it is so."""

    def wait(condition: Callable[[], Any], what: str) -> None:
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline, f"waited in vain until {what}"
            time.sleep(0.02)

    return wait
