"""Runs one projector: opens the log, waits for it if it is away, and follows it until told to stop."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable

from tidewheel_projections.projector import Projector
from tidewheel_services.config import Settings
from tidewheel_services.waiting_for_log import open_when_there


def run_projector(settings: Settings, stop: threading.Event, show: Callable[[Projector], None] | None = None) -> None:
    """Project ``settings.log`` into ``settings.postgres`` until ``stop``. What is away is waited for.

    ``show`` is told the projector. Raises ``LogMisconfigured``. Several may run: one writes, the others stand by.
    """
    log = open_when_there(settings.log, stop)
    if log is None:
        return
    try:
        projector = Projector(log, settings.postgres, settings.instance or socket.gethostname())
        if show is not None:
            show(projector)
        projector.run(stop)
    finally:
        log.close()
