"""What a worker shows of itself."""

from __future__ import annotations

from collections.abc import Iterable

from tidewheel.worker import Worker
from tidewheel_services.figures import Figure, figure


class WorkerFigures:
    """Figures of one worker."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def figures(self) -> Iterable[Figure]:
        """Now."""
        status = self._worker.status
        yield Figure("worker_info", "Always 1", [({"worker": status.worker}, 1)])
        yield Figure(
            "worker_slots", "Slots offered", [({"pool": pool}, slots) for pool, slots in sorted(status.pools.items())]
        )
        yield figure("worker_running", "Attempts that are here and not ended", status.running)
        yield figure("worker_attempts", "Attempts that came here", status.taken, "counter")
        ended = [({"end": end}, count) for end, count in sorted(status.ended.items())]
        yield Figure("worker_ends", "Ends of attempts that were reported", ended, "counter")

    def fault(self) -> str:
        """Why it gets no tasks."""
        return "" if self._worker.status.joined else "not on the list of every pool yet: does a scheduler run?"
