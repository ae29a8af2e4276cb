"""Runs one scheduler: opens the log, waits for it if it is away, owns shards until told to stop, and is watched.

A call into the Kafka client can hang past every time-out it was given. The loop shows a pulse at each turn (it asks for
the time); when the pulse stops, the process ends at once and its shards go to others, or to its own restart.
"""

from __future__ import annotations

import os
import threading
import time

import structlog

from tidewheel.core.rules import Rules
from tidewheel.definition.expressions import CelEvaluator
from tidewheel.log.interface import Log
from tidewheel.runtime.scheduler import Scheduler, wall_clock_ms
from tidewheel_services.config import Settings
from tidewheel_services.instance import hold_name
from tidewheel_services.waiting_for_log import keep_on, open_when_there

#: Longer than any healthy turn, a recovery of a long journal and a blocked commit included.
PULSE_S_MAX = 120.0
_LOOK_S = 1.0
#: BSD's EX_SOFTWARE: a supervisor restarts the process.
_EXIT_HUNG = 70

_log = structlog.get_logger("tidewheel.scheduler")


class Pulse:
    """The scheduler's clock, which notes when it was last asked."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def __call__(self) -> int:
        """Now, in milliseconds since the epoch."""
        self._last = time.monotonic()
        return wall_clock_ms()

    def silent_s(self) -> float:
        """Seconds since it was last asked."""
        return time.monotonic() - self._last


def run_scheduler(settings: Settings, stop: threading.Event, *, fallback_name: str) -> None:
    """Own shards of ``settings.log`` until ``stop``.

    Raises ``LogMisconfigured``, ``NameTaken`` and ``JournalBroken``; a log that is away is waited for.
    """
    with hold_name("scheduler", settings.log, settings.instance, fallback_name) as name:
        log = open_when_there(settings.log, stop)
        if log is None:
            return
        try:
            own_shards(log, name, stop)
        finally:
            log.close()


def own_shards(log: Log, name: str, stop: threading.Event, *, lease_ms: int | None = None) -> None:
    """The same over an open log, with no name held; ``lease_ms`` instead of the usual. Raises ``JournalBroken``."""
    pulse = Pulse()
    threading.Thread(target=_watch, args=(pulse, stop), name="watchdog", daemon=True).start()

    evaluator = CelEvaluator()
    rules = None
    if lease_ms is not None:
        rules = Rules(evaluator=evaluator, lease_ms=lease_ms, worker_term_ms=2 * lease_ms)

    def own() -> None:
        pulse()
        scheduler = Scheduler(log, name, evaluator, clock=pulse, rules=rules)
        _log.info("scheduler is up", instance=name)
        scheduler.run(stop)

    keep_on(own, stop)


def _watch(pulse: Pulse, stop: threading.Event) -> None:
    while not stop.wait(_LOOK_S):
        silent = pulse.silent_s()
        if silent > PULSE_S_MAX:
            _log.error("the scheduler hangs; ending the process so that its shards move on", silent_s=round(silent))
            os._exit(_EXIT_HUNG)
