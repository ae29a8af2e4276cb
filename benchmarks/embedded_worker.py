"""A worker embedded in a service of one's own, with one function that does nothing."""

from __future__ import annotations

import os
import signal
import threading

from benchmarks.tasks import noop
from tidewheel.log.opening import open_log
from tidewheel.worker import Worker
from tidewheel_services.process_log import log_to_stderr

SLOTS = 512


def main() -> None:
    """Serve the pool ``embedded`` until told to stop."""
    log_to_stderr()
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    log = open_log(os.environ["TIDEWHEEL_LOG"])
    worker = Worker(log, pools={"embedded": SLOTS}, functions={"benchmarks.tasks:noop": noop})
    worker.run(stop, drain_s=2)
    log.close()


if __name__ == "__main__":
    main()
