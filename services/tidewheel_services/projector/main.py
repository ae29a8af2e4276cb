"""Runs one projector: opens the log, waits for it if it is away, and follows it until told to stop."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable

from tidewheel.log.interface import Log
from tidewheel_projections.projector import Projector
from tidewheel_services.config import Settings
from tidewheel_services.waiting_for_log import with_log


def run_projector(
    settings: Settings, stop: threading.Event, show: Callable[[Projector], object] = lambda _: None
) -> None:
    """Project ``settings.log`` into ``settings.postgres`` until ``stop``. What is away is waited for.

    ``show`` is told the projector. Raises ``LogMisconfigured``. Several may run: one writes, the others stand by.
    """

    def project(log: Log) -> None:
        projector = Projector(log, settings.postgres, settings.instance or socket.gethostname())
        show(projector)
        projector.run(stop)

    with_log(settings.log, stop, project)
