"""The worker process."""

from __future__ import annotations

import contextlib
import resource
import signal
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType

from tidewheel.log.interface import Log
from tidewheel.log.opening import open_log
from tidewheel.worker import Executor, Worker
from tidewheel_services.config import Settings
from tidewheel_services.worker.container import Containers
from tidewheel_services.worker.http import Http
from tidewheel_services.worker.runners import Runners
from tidewheel_services.worker.secrets import LocalSecrets
from tidewheel_services.worker.shell import GRACE_S, Shell
from tidewheel_services.worker.supervision import Supervisor

DRAIN_S = 30.0


def serve(
    log: Log,
    pools: Mapping[str, int],
    project_dir: Path,
    grace_s: float = GRACE_S,
    stop_event: threading.Event | None = None,
    *,
    name: str | None = None,
    drain_s: float = DRAIN_S,
    environment: Mapping[str, str] | None = None,
    show: Callable[[Worker], None] | None = None,
) -> None:
    """Work for the engine behind ``log`` until ``stop_event`` is set; then drain, and return when nothing is left.

    Code and commands run in ``project_dir``. ``environment`` stands in for this process's own, secrets included.
    ``show`` is told the worker. Raises ``NameTaken`` if another worker has its name.
    """
    stop_event = stop_event or threading.Event()
    secrets = LocalSecrets(environment)
    supervisor = Supervisor()
    # Before the limit on open files is raised: tasks get the one they would have anywhere.
    supervisor.start()
    raise_file_limit()
    try:
        runners = Runners(supervisor, secrets, project_dir, grace_s, environment)
        executors: dict[str, Executor] = {
            "run": Shell(supervisor, secrets, project_dir, grace_s, environment),
            "python": runners,
            "http": Http(secrets),
            "container": Containers(supervisor, secrets, project_dir, grace_s, environment),
        }
        runners.pool.warm_up()
        worker = Worker(log, pools, name=name, secrets=secrets, executors=executors)
        if show is not None:
            show(worker)
        worker.run(stop_event, drain_s)
    finally:
        supervisor.close()


def run_worker(
    settings: Settings,
    pools: Mapping[str, int],
    project_dir: Path,
    grace_s: float = GRACE_S,
    stop_event: threading.Event | None = None,
    *,
    name: str | None = None,
    drain_s: float = DRAIN_S,
) -> None:
    """Open the log of ``settings`` and ``serve`` it; SIGTERM and SIGINT drain when this is the main thread."""
    stop_event = stop_event or threading.Event()
    if threading.current_thread() is threading.main_thread():
        stop_on_signals(stop_event)
    log = open_log(settings.log)
    try:
        log.check_topics()
        serve(log, pools, project_dir.resolve(), grace_s, stop_event, name=name, drain_s=drain_s)
    finally:
        log.close()


def stop_on_signals(stop_event: threading.Event) -> None:
    """Set ``stop_event`` on the first SIGTERM or SIGINT; a second SIGINT ends the process the hard way."""

    def stop(number: int, _frame: FrameType | None) -> None:
        stop_event.set()
        signal.signal(number, signal.SIG_DFL if number == signal.SIGINT else signal.SIG_IGN)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)


def raise_file_limit() -> None:
    """Each running task needs a few open files: allow as many as this process may have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
