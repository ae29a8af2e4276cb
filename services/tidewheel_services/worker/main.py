"""The worker process."""

from __future__ import annotations

import contextlib
import os
import resource
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from tidewheel.log.interface import Log
from tidewheel.worker import Executor, Worker
from tidewheel_services.worker.container import Containers
from tidewheel_services.worker.http import Http
from tidewheel_services.worker.runners import Runners
from tidewheel_services.worker.secrets import LocalSecrets
from tidewheel_services.worker.shell import Shell
from tidewheel_services.worker.site import GRACE_S, Site
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
    show: Callable[[Worker], object] = lambda _: None,
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
        site = Site(supervisor, secrets, project_dir, grace_s, os.environ if environment is None else environment)
        runners = Runners(site)
        executors: dict[str, Executor] = {
            "run": Shell(site),
            "python": runners,
            "http": Http(secrets),
            "container": Containers(site),
        }
        runners.pool.warm_up()
        worker = Worker(log, pools, name=name, secrets=secrets, executors=executors)
        show(worker)
        worker.run(stop_event, drain_s)
    finally:
        supervisor.close()


def raise_file_limit() -> None:
    """Each running task needs a few open files: allow as many as this process may have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
