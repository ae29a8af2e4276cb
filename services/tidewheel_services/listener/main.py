"""Runs one listener: opens log and feed, waits for them if they are away, and listens until told to stop."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable

from tidewheel.definition.expressions import CelEvaluator
from tidewheel.log.feeds import feed_beside, open_feed
from tidewheel.log.interface import Log
from tidewheel.runtime.listener.listener import Listener
from tidewheel.runtime.scheduler import wall_clock_ms
from tidewheel_services.config import Settings
from tidewheel_services.waiting_for_log import with_log

#: A topic that ten thousand triggers name asks for all of their filters again and again.
_EXPRESSIONS_KEPT = 50_000


def run_listener(
    settings: Settings, stop: threading.Event, show: Callable[[Listener], object] = lambda _: None
) -> None:
    """Listen until ``stop``; ``show`` is told the listener. Raises ``LogMisconfigured``.

    Several share the partitions of all topics.
    """
    name = settings.instance or socket.gethostname()
    with_log(settings.log, stop, lambda log: listen_on(log, settings, name, stop, show))


def listen_on(
    log: Log,
    settings: Settings,
    name: str,
    stop: threading.Event,
    show: Callable[[Listener], object] = lambda _: None,
) -> None:
    """The same over an open log."""
    feed = open_feed(settings.feed or feed_beside(settings.log))
    try:
        listener = Listener(log, feed, CelEvaluator(_EXPRESSIONS_KEPT), name, wall_clock_ms)
        show(listener)
        listener.run(stop)
    finally:
        feed.close()
