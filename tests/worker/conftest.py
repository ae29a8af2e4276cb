"""What the worker's tests share: an engine of a few lines, and a workplace with real processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.worker.engine import Engine
from tidewheel.worker import Executor, Worker, postbox
from tidewheel_services.worker.container import Containers
from tidewheel_services.worker.http import Http
from tidewheel_services.worker.runners import Runners
from tidewheel_services.worker.secrets import LocalSecrets
from tidewheel_services.worker.shell import Shell
from tidewheel_services.worker.site import Site
from tidewheel_services.worker.supervision import Supervisor

StartWorker = Callable[..., Worker]


@pytest.fixture(autouse=True)
def _short_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing waits for one read: a hundred tests should not wait a hundred times."""
    monkeypatch.setattr(postbox, "WAIT_S", 0.02)


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine()
    yield engine
    engine.close()


@pytest.fixture
def start_worker(engine: Engine) -> Iterator[StartWorker]:
    """Start an embedded worker named ``w1`` and wait until it is welcome."""
    workers: list[Worker] = []

    def start(slots: int = 4, drain_s: float = 0.0, **options: object) -> Worker:
        worker = Worker(engine.log, {"default": slots}, name=f"w{len(workers) + 1}", **options)  # type: ignore[arg-type]
        workers.append(worker)
        worker.start()
        engine.await_welcome(worker.name)
        return worker

    yield start
    for worker in workers:
        worker.stop(drain_s=0)


@pytest.fixture(scope="session")
def supervisor() -> Iterator[Supervisor]:
    supervisor = Supervisor()
    yield supervisor
    supervisor.close()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The directory of the user's code."""
    directory = tmp_path / "project"
    directory.mkdir()
    return directory


@pytest.fixture
def environment() -> dict[str, str]:
    """The worker's environment; tests add to it before they start one."""
    return {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C"}


@pytest.fixture
def process_worker(
    start_worker: StartWorker, supervisor: Supervisor, project: Path, environment: dict[str, str]
) -> Iterator[StartWorker]:
    """Start a worker with shell, runners and HTTP."""

    def start(slots: int = 4, grace_s: float = 1.0, **options: object) -> Worker:
        secrets = LocalSecrets(environment)
        site = Site(supervisor, secrets, project, grace_s, environment)
        executors: dict[str, Executor] = {
            "run": Shell(site),
            "python": Runners(site),
            "http": Http(secrets),
            "container": Containers(site),
        }
        return start_worker(slots, secrets=secrets, executors=executors, **options)

    yield start


def written(*files: Path) -> bool:
    """Whether there is something in each; a file is there before its text is."""
    return all(file.exists() and file.stat().st_size > 0 for file in files)


def wait_until(condition: Callable[[], bool], what: str, limit_s: float = 10.0) -> None:
    """Wait for something that is about to become true."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {limit_s} s: {what}"
        time.sleep(0.005)
