"""Commands that run one process of Tidewheel until it is told to stop."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from tidewheel_services.cli.faults import UNREACHABLE, CliError
from tidewheel_services.cli.options import Dsn, FeedUrl, Instance, LogUrl, settings
from tidewheel_services.cli.output import write
from tidewheel_services.config import DEFAULT_API_PORT

if TYPE_CHECKING:
    from tidewheel_services.exposition import Exposition

_SLOTS_MAX = 100_000
_LOOPBACK = "127.0.0.1"


MetricsPort = Annotated[
    int | None,
    typer.Option(
        "--metrics-port", min=0, max=65_535, help="Serve /metrics, /health and /ready there.", show_default="no"
    ),
]
MetricsHost = Annotated[str, typer.Option("--metrics-host", help="Where that port listens.")]


def scheduler(
    metrics_port: MetricsPort = None, metrics_host: MetricsHost = _LOOPBACK, log: LogUrl = "", name: Instance = ""
) -> None:
    """Run a scheduler: it shares the shards with the others, and takes over from those that die."""
    from tidewheel_services.process_log import log_to_stderr
    from tidewheel_services.scheduler.figures import SchedulerFigures
    from tidewheel_services.scheduler.main import run_scheduler

    log_to_stderr()
    with _exposed(metrics_host, metrics_port) as exposition:
        run_scheduler(
            settings(log=log, instance=name),
            stop_on_signals(),
            fallback_name=socket.gethostname(),
            show=None if exposition is None else lambda found: exposition.show(SchedulerFigures(found)),
        )


def worker(
    pools: Annotated[
        list[str],
        typer.Option("--pool", metavar="NAME=SLOTS", help="A pool to serve; may be repeated.", show_default=False),
    ],
    project: Annotated[
        Path, typer.Option("--project", help="Where tasks run and Python callables are imported from.")
    ] = Path(),
    drain: Annotated[float, typer.Option("--drain", min=0, help="Seconds that running tasks get after a stop.")] = 30.0,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = _LOOPBACK,
    log: LogUrl = "",
    name: Instance = "",
) -> None:
    """Run a worker: it takes tasks from its pools, runs them, and reports."""
    from tidewheel_services.instance import hold_name
    from tidewheel_services.process_log import log_to_stderr
    from tidewheel_services.waiting_for_log import keep_on, open_when_there
    from tidewheel_services.worker.figures import WorkerFigures
    from tidewheel_services.worker.main import serve

    served = pool_slots(pools)
    if not project.is_dir():
        raise CliError(f"--project {project} is no directory", UNREACHABLE)
    log_to_stderr()
    stop = stop_on_signals()
    surroundings = settings(log=log, instance=name)
    with contextlib.ExitStack() as stack:
        exposition = stack.enter_context(_exposed(metrics_host, metrics_port))
        # Without a name it gets one that nobody else can have.
        if surroundings.instance:
            stack.enter_context(hold_name("worker", surroundings.log, surroundings.instance, ""))
        opened = open_when_there(surroundings.log, stop)
        if opened is None:
            return
        stack.callback(opened.close)
        keep_on(
            lambda: serve(
                opened,
                served,
                project.resolve(),
                stop_event=stop,
                name=surroundings.instance or None,
                drain_s=drain,
                show=None if exposition is None else lambda found: exposition.show(WorkerFigures(found)),
            ),
            stop,
        )


def projector(
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = _LOOPBACK,
    log: LogUrl = "",
    postgres: Dsn = "",
    name: Instance = "",
) -> None:
    """Run the projector: it writes the journal's events into Postgres."""
    from tidewheel_services.process_log import log_to_stderr
    from tidewheel_services.projector.figures import ProjectorFigures
    from tidewheel_services.projector.main import run_projector

    log_to_stderr()
    with _exposed(metrics_host, metrics_port) as exposition:
        run_projector(
            settings(log=log, postgres=postgres, instance=name),
            stop_on_signals(),
            show=None if exposition is None else lambda found: exposition.show(ProjectorFigures(found)),
        )


def listener(
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = _LOOPBACK,
    log: LogUrl = "",
    feed: FeedUrl = "",
    name: Instance = "",
) -> None:
    """Run a listener: records of the topics that triggers name start runs. Several share the partitions."""
    from tidewheel_services.listener.figures import ListenerFigures
    from tidewheel_services.listener.main import run_listener
    from tidewheel_services.process_log import log_to_stderr

    log_to_stderr()
    with _exposed(metrics_host, metrics_port) as exposition:
        run_listener(
            settings(log=log, feed=feed, instance=name),
            stop_on_signals(),
            show=None if exposition is None else lambda found: exposition.show(ListenerFigures(found)),
        )


def waiter(
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = _LOOPBACK,
    log: LogUrl = "",
    feed: FeedUrl = "",
    postgres: Dsn = "",
    name: Instance = "",
) -> None:
    """Run the waiter: it looks for what tasks wait for by HTTP and on Kafka. One works, others stand by."""
    from tidewheel_services.process_log import log_to_stderr
    from tidewheel_services.waiter.figures import WaiterFigures
    from tidewheel_services.waiter.main import run_waiter

    log_to_stderr()
    with _exposed(metrics_host, metrics_port) as exposition:
        run_waiter(
            settings(log=log, feed=feed, postgres=postgres, instance=name),
            stop_on_signals(),
            show=None if exposition is None else lambda found: exposition.show(WaiterFigures(found)),
        )


def notifier(
    test: Annotated[
        str, typer.Option("--test", metavar="TARGET", help="Send a test to this target and end.", show_default=False)
    ] = "",
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = _LOOPBACK,
    log: LogUrl = "",
    postgres: Dsn = "",
    name: Instance = "",
) -> None:
    """Run the notifier: it tells the targets of TIDEWHEEL_NOTIFY_<NAME> what workflows want them told."""
    from tidewheel_services.notifier.figures import NotifierFigures
    from tidewheel_services.notifier.main import run_notifier, send_test
    from tidewheel_services.process_log import log_to_stderr

    if test:
        if why := send_test(test):
            raise CliError(f"target '{test}' could not be told: {why}")
        write(f"delivered to {test}")
        return
    log_to_stderr()
    with _exposed(metrics_host, metrics_port) as exposition:
        run_notifier(
            settings(log=log, postgres=postgres, instance=name),
            stop_on_signals(),
            show=None if exposition is None else lambda found: exposition.show(NotifierFigures(found)),
        )


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
    from tidewheel_services.late_log import LateLog
    from tidewheel_services.process_log import log_to_stderr

    log_to_stderr()
    surroundings = settings(log=log, postgres=postgres, instance=name)
    listener = listen(host, port, token=surroundings.token)
    stop = stop_on_signals()
    late = LateLog(surroundings.log, stop)
    try:
        instance = f"api-{surroundings.instance or socket.gethostname()}"
        serve_app(
            create_app(late.log, surroundings.postgres, token=surroundings.token, instance=instance), listener, stop
        )
    finally:
        late.close()


@contextlib.contextmanager
def _exposed(host: str, port: int | None) -> Iterator[Exposition | None]:
    """The metrics' port, if one is wanted."""
    if port is None:
        yield None
        return
    import structlog

    from tidewheel_services.exposition import Exposition

    with Exposition(host, port) as exposition:
        structlog.get_logger("tidewheel").info("metrics are up", url=exposition.url)
        yield exposition


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
