"""Commands that run a process of Tidewheel until it is told to stop: scheduler, worker, projector, api."""

from __future__ import annotations

import os
import signal
import socket
import threading
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from tidewheel_services.cli.faults import UNREACHABLE, CliError
from tidewheel_services.cli.options import Dsn, Instance, LogUrl, settings
from tidewheel_services.config import DEFAULT_API_PORT

_SLOTS_MAX = 100_000


def scheduler(log: LogUrl = "", name: Instance = "") -> None:
    """Run a scheduler: it shares the shards with the others, and takes over from those that die."""
    from tidewheel_services.instance import NameTaken
    from tidewheel_services.process_log import log_to_stderr
    from tidewheel_services.scheduler.main import run_scheduler

    log_to_stderr()
    try:
        run_scheduler(settings(log=log, instance=name), stop_on_signals(), fallback_name=socket.gethostname())
    except NameTaken as error:
        raise CliError(str(error), UNREACHABLE) from None


def worker(
    pools: Annotated[
        list[str],
        typer.Option("--pool", metavar="NAME=SLOTS", help="A pool to serve; may be repeated.", show_default=False),
    ],
    project: Annotated[
        Path, typer.Option("--project", help="Where tasks run and Python callables are imported from.")
    ] = Path(),
    drain: Annotated[float, typer.Option("--drain", min=0, help="Seconds that running tasks get after a stop.")] = 30.0,
    log: LogUrl = "",
    name: Instance = "",
) -> None:
    """Run a worker: it takes tasks from its pools, runs them, and reports."""
    from tidewheel_services.process_log import log_to_stderr
    from tidewheel_services.waiting_for_log import keep_on, open_when_there
    from tidewheel_services.worker.main import serve

    served = pool_slots(pools)
    if not project.is_dir():
        raise CliError(f"--project {project} is no directory", UNREACHABLE)
    log_to_stderr()
    stop = stop_on_signals()
    surroundings = settings(log=log, instance=name)
    opened = open_when_there(surroundings.log, stop)
    if opened is None:
        return
    try:
        keep_on(
            lambda: serve(
                opened, served, project.resolve(), stop_event=stop, name=surroundings.instance or None, drain_s=drain
            ),
            stop,
        )
    finally:
        opened.close()


def projector(log: LogUrl = "", postgres: Dsn = "", name: Instance = "") -> None:
    """Run the projector: it writes the journal's events into Postgres."""
    from tidewheel_services.process_log import log_to_stderr
    from tidewheel_services.projector.main import run_projector

    log_to_stderr()
    run_projector(settings(log=log, postgres=postgres, instance=name), stop_on_signals())


def api(
    host: Annotated[str, typer.Option("--host", help="Other than loopback needs TIDEWHEEL_TOKEN.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65_535, help="0: any free one.")] = DEFAULT_API_PORT,
    log: LogUrl = "",
    postgres: Dsn = "",
    name: Instance = "",
) -> None:
    """Serve the HTTP API."""
    from tidewheel_services.api.app import create_app
    from tidewheel_services.api.main import listen, serve_app
    from tidewheel_services.process_log import log_to_stderr
    from tidewheel_services.waiting_for_log import open_when_there

    log_to_stderr()
    surroundings = settings(log=log, postgres=postgres, instance=name)
    listener = listen(host, port, token=surroundings.token)
    stop = stop_on_signals()
    opened = open_when_there(surroundings.log, stop)
    if opened is None:
        return
    try:
        instance = f"api-{surroundings.instance or socket.gethostname()}"
        serve_app(
            create_app(opened, surroundings.postgres, token=surroundings.token, instance=instance), listener, stop
        )
    finally:
        opened.close()


def stop_on_signals() -> threading.Event:
    """Set by the first TERM or INT; a second one ends the process at once."""
    stop = threading.Event()

    def on_signal(number: int, _: FrameType | None) -> None:
        if stop.is_set():
            os._exit(128 + number)
        stop.set()

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    return stop


def pool_slots(pairs: list[str]) -> dict[str, int]:
    """``NAME=SLOTS…`` as a mapping."""
    pools: dict[str, int] = {}
    for pair in pairs:
        name, _, slots = pair.partition("=")
        if not name or not slots.isdecimal() or not 1 <= int(slots) <= _SLOTS_MAX:
            raise CliError(
                f"--pool {pair!r}: write NAME=SLOTS, such as default=8 (1 to {_SLOTS_MAX} slots)", UNREACHABLE
            )
        if name in pools:
            raise CliError(f"--pool {name} is given twice", UNREACHABLE)
        pools[name] = int(slots)
    return pools
