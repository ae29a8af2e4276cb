"""What the tests of processes share: a real Postgres, a whole engine on the memory log, and the API on a real port."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tidewheel.definition.expressions import CelEvaluator
from tidewheel.log.interface import Log
from tidewheel.log.memory import MemoryLog
from tidewheel.runtime.scheduler import Scheduler
from tidewheel_projections.projector import Projector
from tidewheel_projections.schema import migrate
from tidewheel_services.api.app import create_app
from tidewheel_services.api.main import listen, serve_app
from tidewheel_services.embedded_postgres import EmbeddedPostgres

#: Nothing listens there: port 1 belongs to a service nobody runs, and needs root.
NO_POSTGRES = "postgresql://nobody@127.0.0.1:1/nothing"

StartApi = Callable[..., httpx.Client]


@dataclass
class Threads:
    """Loops that run until told to stop."""

    stop: threading.Event = field(default_factory=threading.Event)
    running: list[threading.Thread] = field(default_factory=list)

    def run(self, loop: Callable[[threading.Event], object], name: str) -> None:
        thread = threading.Thread(target=loop, args=(self.stop,), name=name, daemon=True)
        thread.start()
        self.running.append(thread)

    def join(self) -> None:
        self.stop.set()
        for thread in self.running:
            thread.join(10)
            assert not thread.is_alive(), f"{thread.name} does not stop"


@contextmanager
def running_threads() -> Iterator[Threads]:
    """Loops that end with the block."""
    threads = Threads()
    try:
        yield threads
    finally:
        threads.join()


@pytest.fixture(scope="session")
def run_threads() -> Callable[[], AbstractContextManager[Threads]]:
    """``with run_threads() as threads: threads.run(loop, name)``: loops that end with the block."""
    return running_threads


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real server: one of the environment's, else an embedded one."""
    given = os.environ.get("TIDEWHEEL_TEST_POSTGRES")
    if given:
        yield given
        return
    with EmbeddedPostgres(Path(tmp_path_factory.mktemp("postgres")) / "data", throwaway=True) as server:
        yield server.dsn


@pytest.fixture(scope="module")
def database(postgres: str) -> Iterator[str]:
    """An empty database of the module's own."""
    name = f"test_{uuid4().hex[:12]}"
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    yield make_conninfo(postgres, dbname=name)
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture(scope="module")
def engine() -> Iterator[Log]:
    """A memory log with a scheduler that decides what is written to it."""
    log = MemoryLog(partitions=4)
    with running_threads() as threads:
        threads.run(Scheduler(log, "scheduler", CelEvaluator()).run, "scheduler")
        yield log


@pytest.fixture(scope="module")
def projected(engine: Log, database: str) -> Iterator[str]:
    """The dsn of the read model that follows ``engine``; it can be read from the first moment."""
    with psycopg.connect(database) as connection:
        migrate(connection)
    with running_threads() as threads:
        threads.run(Projector(engine, database).run, "projector")
        yield database


@pytest.fixture(scope="module")
def start_api() -> Iterator[StartApi]:
    """Starts an API on a free port and gives a client of it: ``start_api(log, dsn, token=…, answer_s=…)``."""
    with ExitStack() as stack:

        def start(log: Log, dsn: str = NO_POSTGRES, **options: Any) -> httpx.Client:
            listener = listen("127.0.0.1", 0)
            app = create_app(log, dsn, **options)
            threads = Threads()
            ready = threading.Event()
            url: list[str] = []

            def up(base: str) -> None:
                url.append(base)
                ready.set()

            threads.run(lambda stop: serve_app(app, listener, stop, up), "api")
            stack.callback(threads.join)
            assert ready.wait(10), "the API does not start"
            return stack.enter_context(httpx.Client(base_url=url[0], timeout=30))

        yield start


@pytest.fixture(scope="session")
def eventually() -> Callable[[Callable[[], Any]], Any]:
    """``eventually(probe)``: what ``probe`` gives once it gives something true; fails after 10 s."""

    def wait(probe: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + 10
        while not (found := probe()):
            assert time.monotonic() < deadline, "it never became so"
            time.sleep(0.02)
        return found

    return wait
