"""Runs one notifier: opens the log, waits for it if it is away, and follows it until told to stop."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tidewheel.log.interface import Log
from tidewheel_services.config import Settings
from tidewheel_services.notifier.delivery import Delivery
from tidewheel_services.notifier.notifier import Notifier
from tidewheel_services.notifier.targets import BadTargets, configured
from tidewheel_services.waiting_for_log import with_log


def run_notifier(
    settings: Settings, stop: threading.Event, show: Callable[[Notifier], object] = lambda _: None
) -> None:
    """Tell the configured targets of what happens on ``settings.log`` until ``stop``. What is away is waited for.

    ``show`` is told the notifier. Raises ``LogMisconfigured`` and ``BadTargets``. Several may run: one works, the
    others stand by.
    """
    targets = configured()

    def tell(log: Log) -> None:
        notifier = Notifier(log, settings.postgres, targets, settings.public_url)
        show(notifier)
        notifier.run(stop)

    with_log(settings.log, stop, tell)


def send_test(name: str) -> str:
    """Send a test to one target; gives why it failed, or nothing. Raises ``BadTargets`` and ``Unusable``."""
    targets = configured()
    if name not in targets:
        known = ", ".join(targets) or "none"
        raise BadTargets(f"no target '{name}' is configured here (known: {known}): set TIDEWHEEL_NOTIFY_{name.upper()}")
    text = "If you can read this, notifications of Tidewheel arrive here."
    return Delivery(targets[name]).send("Tidewheel: a test", text, "info")
