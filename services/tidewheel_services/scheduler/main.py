"""Runs one scheduler: opens the log, waits for it if it is away, owns shards until told to stop, and is watched.

A call into the Kafka client can hang past every time-out it was given, and an outage of the broker ends in such calls.
Nothing in this process can end them, so it begins again from its first instruction, under its own name: the log aborts
what it left open, and its shards are its own again at once unless others took them meanwhile.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable

import structlog

from tidewheel.core.rules import Rules
from tidewheel.definition.expressions import CelEvaluator
from tidewheel.log.interface import Log
from tidewheel.runtime.scheduler import CHECKPOINT_EVENTS, Scheduler, wall_clock_ms
from tidewheel_services.config import Settings
from tidewheel_services.instance import hold_name
from tidewheel_services.waiting_for_log import keep_on, with_log

#: Longer than any healthy turn, a recovery of a long journal and a blocked commit included.
PULSE_S_MAX = 120
#: Over a network; see ``Rules.lease_ms``.
LEASE_MS = 30_000
_LOOK_S = 1.0

_log = structlog.get_logger("tidewheel.scheduler")


class Pulse:
    """The scheduler's clock, which counts how often it was asked: each turn asks."""

    def __init__(self) -> None:
        self.beats = 0

    def __call__(self) -> int:
        """Now, in milliseconds since the epoch."""
        self.beats += 1
        return wall_clock_ms()


def run_scheduler(
    settings: Settings,
    stop: threading.Event,
    *,
    fallback_name: str,
    lease_ms: int | None = None,
    checkpoint_events: int = CHECKPOINT_EVENTS,
    show: Callable[[Scheduler], object] = lambda _: None,
) -> None:
    """Own shards of ``settings.log`` until ``stop``; leases and checkpoints as long as usual unless said otherwise.
    ``show`` is told the scheduler.

    Raises ``LogMisconfigured`` and ``NameTaken``; a log that is away is waited for.
    """
    with hold_name("scheduler", settings.log, settings.instance, fallback_name) as name:

        def own(log: Log) -> None:
            own_shards(log, name, stop, settings, lease_ms=lease_ms, checkpoint_events=checkpoint_events, show=show)

        with_log(settings.log, stop, own, begin_again)


def own_shards(
    log: Log,
    name: str,
    stop: threading.Event,
    settings: Settings,
    *,
    lease_ms: int | None = None,
    checkpoint_events: int = CHECKPOINT_EVENTS,
    show: Callable[[Scheduler], object] = lambda _: None,
) -> None:
    """The same over an open log, with no name held."""
    pulse = Pulse()
    threading.Thread(target=_watch, args=(pulse, stop), name="watchdog", daemon=True).start()

    evaluator = CelEvaluator()
    term_ms = LEASE_MS if lease_ms is None else lease_ms
    rules = Rules(
        evaluator=evaluator,
        lease_ms=term_ms,
        worker_term_ms=2 * term_ms,
        waiting_runs_max=settings.waiting_runs_max,
        shard_runs_max=settings.shard_runs_max,
    )

    def own() -> None:
        pulse()
        scheduler = Scheduler(log, name, evaluator, clock=pulse, rules=rules, checkpoint_events=checkpoint_events)
        show(scheduler)
        _log.info("scheduler is up", instance=name)
        scheduler.run(stop)

    keep_on(own, stop)


def _watch(pulse: Pulse, stop: threading.Event) -> None:
    """Counts its own looks rather than the clock: a process that was stopped and goes on has missed none."""
    seen, silent = -1, 0
    while not stop.wait(_LOOK_S):
        silent = silent + 1 if pulse.beats == seen else 0
        seen = pulse.beats
        if silent >= PULSE_S_MAX:
            begin_again("a turn of the scheduler", silent * _LOOK_S)


def begin_again(doing: str, seconds: float) -> None:
    """Replace this process's program by a fresh start of the same command; threads that hang go with the old one.

    Where that cannot be done, as when an upgrade has removed the interpreter, the process ends with status 70.
    """
    try:
        _log.critical("something hangs; the process begins again", doing=doing, s=round(seconds, 1))
        os.execv(sys.executable, sys.orig_argv)
    except OSError as error:
        _log.critical("the process cannot begin again; it ends", why=str(error))
    finally:
        os._exit(os.EX_SOFTWARE)
