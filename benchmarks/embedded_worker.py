"""A worker embedded in a service of one's own, with functions that do next to nothing.

``python -m benchmarks.embedded_worker [pool=slots …]``
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from benchmarks import tasks
from tidewheel.log.opening import open_log
from tidewheel.worker import Worker
from tidewheel_services.process_log import log_to_stderr

#: What it serves unless told otherwise.
POOLS = ("embedded=512",)
FUNCTIONS = (tasks.noop, tasks.numbers, tasks.same, tasks.join)


def main() -> None:
    """Serve the pools until told to stop."""
    log_to_stderr()
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    log = open_log(os.environ["TIDEWHEEL_LOG"])
    offers = (offer.split("=") for offer in sys.argv[1:] or POOLS)
    functions = {f"benchmarks.tasks:{function.__name__}": function for function in FUNCTIONS}
    worker = Worker(log, pools={pool: int(slots) for pool, slots in offers}, functions=functions)
    worker.run(stop, drain_s=2)
    log.close()


if __name__ == "__main__":
    main()
