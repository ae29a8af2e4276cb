"""What many tests share: one real Kafka and one Postgres for the whole session; and which tests may run side by side.

Tests that compute are spread over the processors. The others own their servers, ports and directories and wait for
most of their time: their files run three at a time, each process with a broker of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from tests.postgres import fresh_database, open_postgres
from tests.process_state import unchanged
from tidewheel.testing.kafka_broker import open_broker

# As the processes write it: drawing a traceback with all its local values, as the library does unasked, takes seconds.
structlog.configure(
    processors=[
        structlog.processors.add_log_level,
        structlog.processors.format_exc_info,
        structlog.processors.KeyValueRenderer(key_order=["event"]),
    ]
)

#: Directories whose tests compute: the others own servers and processes, or look at times.
COMPUTING = frozenset({"authoring", "core", "definition", "runtime", "simulation", "tidy", "wire"})


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what may run beside others."""
    here = Path(__file__).parent
    for item in items:
        owns_server = item.get_closest_marker("kafka") or item.get_closest_marker("postgres")
        if not owns_server and item.path.relative_to(here).parts[0] in COMPUTING:
            item.add_marker("computing")


@pytest.fixture(autouse=True)
def _process_as_found() -> Iterator[None]:
    """No test changes what belongs to the process for those after it.

    What it sets about log lines, as a command does that it calls, ends with it.
    """
    before = structlog.get_config()
    with unchanged():
        yield
        # First, since the block's end fails a test that has left something else.
        structlog.configure(**before)


@pytest.fixture(scope="session")
def kafka_address() -> Iterator[str]:
    """``host:port`` of a real broker; use a topic prefix of your own."""
    with open_broker(short_lived=True) as address:
        yield address


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
