"""Commands that run one process of Tidewheel until it is told to stop."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from tidewheel_services.cli.faults import UNREACHABLE, CliError
from tidewheel_services.cli.options import Dsn, FeedUrl, Instance, LogUrl, settings
from tidewheel_services.cli.output import write
from tidewheel_services.config import DEFAULT_API_PORT

if TYPE_CHECKING:
    from tidewheel.log.interface import Log
    from tidewheel_services.figures import Source

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
    from tidewheel_services.scheduler.figures import SchedulerFigures
    from tidewheel_services.scheduler.main import run_scheduler

    surroundings = settings(log=log, instance=name)
    with stop_on_signals() as stop, _process(metrics_host, metrics_port) as show:
        run_scheduler(
            surroundings,
            stop,
            fallback_name=socket.gethostname(),
            show=lambda found: show(SchedulerFigures(found)),
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
    from tidewheel_services.waiting_for_log import keep_on, with_log
    from tidewheel_services.worker.figures import WorkerFigures
    from tidewheel_services.worker.main import serve

    served = pool_slots(pools)
    if not project.is_dir():
        raise CliError(f"--project {project} is no directory", UNREACHABLE)
    surroundings = settings(log=log, instance=name)
    with contextlib.ExitStack() as stack:
        stop = stack.enter_context(stop_on_signals())
        show = stack.enter_context(_process(metrics_host, metrics_port))
        # Without a name it gets one that nobody else can have.
        if surroundings.instance:
            stack.enter_context(hold_name("worker", surroundings.log, surroundings.instance, ""))

        def work(opened: Log) -> None:
            serve(
                opened,
                served,
                project.resolve(),
                stop_event=stop,
                name=surroundings.instance or None,
                drain_s=drain,
                show=lambda found: show(WorkerFigures(found)),
            )

        with_log(surroundings.log, stop, lambda opened: keep_on(lambda: work(opened), stop))


def projector(
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = _LOOPBACK,
    log: LogUrl = "",
    postgres: Dsn = "",
    name: Instance = "",
) -> None:
    """Run the projector: it writes the journal's events into Postgres."""
    from tidewheel_services.projector.figures import ProjectorFigures
    from tidewheel_services.projector.main import run_projector

    surroundings = settings(log=log, postgres=postgres, instance=name)
    with stop_on_signals() as stop, _process(metrics_host, metrics_port) as show:
        run_projector(surroundings, stop, lambda found: show(ProjectorFigures(found)))


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

    surroundings = settings(log=log, feed=feed, instance=name)
    with stop_on_signals() as stop, _process(metrics_host, metrics_port) as show:
        run_listener(surroundings, stop, lambda found: show(ListenerFigures(found)))


def waiter(
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = _LOOPBACK,
    log: LogUrl = "",
    feed: FeedUrl = "",
    postgres: Dsn = "",
    name: Instance = "",
) -> None:
    """Run the waiter: it looks for what tasks wait for by HTTP and on Kafka. One works, others stand by."""
    from tidewheel_services.waiter.figures import WaiterFigures
    from tidewheel_services.waiter.main import run_waiter

    surroundings = settings(log=log, feed=feed, postgres=postgres, instance=name)
    with stop_on_signals() as stop, _process(metrics_host, metrics_port) as show:
        run_waiter(surroundings, stop, lambda found: show(WaiterFigures(found)))


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

    if test:
        if why := send_test(test):
            raise CliError(f"target '{test}' could not be told: {why}")
        write(f"delivered to {test}")
        return
    surroundings = settings(log=log, postgres=postgres, instance=name)
    with stop_on_signals() as stop, _process(metrics_host, metrics_port) as show:
        run_notifier(surroundings, stop, lambda found: show(NotifierFigures(found)))


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
    instance = f"api-{surroundings.instance or socket.gethostname()}"
    with stop_on_signals() as stop:
        late = LateLog(surroundings.log, stop)
        try:
            app = create_app(late.log, surroundings.postgres, token=surroundings.token, instance=instance)
            serve_app(app, listener, stop)
        finally:
            late.close()


@contextlib.contextmanager
def _process(metrics_host: str, metrics_port: int | None) -> Iterator[Callable[[Source], None]]:
    """A process that logs to stderr. Gives what shows its figures on the metrics' port, if one is wanted."""
    from tidewheel_services.process_log import log_to_stderr

    log_to_stderr()
    if metrics_port is None:
        yield lambda _: None
        return
    import structlog

    from tidewheel_services.exposition import Exposition

    with Exposition(metrics_host, metrics_port) as exposition:
        structlog.get_logger("tidewheel").info("metrics are up", url=exposition.url)
        yield exposition.show


@contextlib.contextmanager
def stop_on_signals() -> Iterator[threading.Event]:
    """Set by the first TERM or INT within; a second one ends the process at once. Afterwards they do what they did."""
    stop = threading.Event()

    def on_signal(number: int, _: FrameType | None) -> None:
        if stop.is_set():
            os._exit(128 + number)
        stop.set()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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
