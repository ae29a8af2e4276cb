"""Runs one waiter: opens the log, waits for it if it is away, and looks after waits until told to stop."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable

from tidewheel.definition.expressions import CelEvaluator
from tidewheel.log.feeds import feed_beside, open_feed
from tidewheel.log.interface import Log
from tidewheel_services.config import Settings
from tidewheel_services.waiter.polling import Poller
from tidewheel_services.waiter.records import Records
from tidewheel_services.waiter.waiter import Waiter
from tidewheel_services.waiting_for_log import with_log
from tidewheel_services.worker.secrets import LocalSecrets


def run_waiter(settings: Settings, stop: threading.Event, show: Callable[[Waiter], object] = lambda _: None) -> None:
    """Look after waits until ``stop``; ``show`` is told the waiter. Raises ``LogMisconfigured``."""
    name = settings.instance or socket.gethostname()
    with_log(settings.log, stop, lambda log: wait_on(log, settings, name, stop, show))


def wait_on(
    log: Log,
    settings: Settings,
    name: str,
    stop: threading.Event,
    show: Callable[[Waiter], object] = lambda _: None,
) -> None:
    """The same over an open log."""
    evaluator = CelEvaluator()
    records = Records(lambda: open_feed(settings.feed or feed_beside(settings.log)), evaluator, name)
    waiter = Waiter(log, settings.postgres, Poller(LocalSecrets(), evaluator), records, name)
    show(waiter)
    waiter.run(stop)
