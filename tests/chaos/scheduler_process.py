"""`tidewheel scheduler` with shorter leases and more frequent checkpoints, so that a campaign meets more of both."""

from __future__ import annotations

import sys

from tidewheel_services.cli.processes import stop_on_signals
from tidewheel_services.config import Settings
from tidewheel_services.process_log import log_to_stderr
from tidewheel_services.scheduler.main import run_scheduler

#: Longer than a takeover, which must not cost running tasks their leases.
LEASE_MS = 10_000
CHECKPOINT_EVENTS = 300


def main() -> None:
    """Run until told to stop; settings come from the environment, as for the command."""
    log_to_stderr()
    with stop_on_signals() as stop:
        run_scheduler(
            Settings.from_environment(),
            stop,
            fallback_name=sys.argv[0],
            lease_ms=LEASE_MS,
            checkpoint_events=CHECKPOINT_EVENTS,
        )


if __name__ == "__main__":
    main()
