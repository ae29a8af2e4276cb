"""A scheduler of whatever release is on the path, until its input ends. Tells on stdout which shards it owns.

``python rolling_scheduler.py URL INSTANCE``
"""

from __future__ import annotations

import sys
import threading

import structlog

from tidewheel.definition.expressions import CelEvaluator
from tidewheel.log.opening import open_log
from tidewheel.runtime.scheduler import Scheduler


def main(url: str, instance: str) -> None:
    """Own until stdin ends."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    stop = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
    log = open_log(url)
    scheduler = Scheduler(log, instance, CelEvaluator(), checkpoint_events=20)
    owned: tuple[int, ...] = ()
    while not stop.is_set():
        scheduler.step(0.1)
        if scheduler.status.shards != owned:
            owned = scheduler.status.shards
            print(" ".join(str(shard) for shard in owned), flush=True)
    scheduler.close()
    log.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
