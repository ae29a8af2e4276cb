"""What a waiter shows of itself."""

from __future__ import annotations

from collections.abc import Iterable

from tidewheel_services.figures import Figure, figure
from tidewheel_services.waiter.waiter import Waiter


class WaiterFigures:
    """Figures of one waiter."""

    def __init__(self, waiter: Waiter) -> None:
        self._waiter = waiter

    def figures(self) -> Iterable[Figure]:
        """Now."""
        waiter = self._waiter
        yield figure("waiter_working", "1 if this waiter works; 0: it stands by, or waits", waiter.working)
        yield figure("waiter_waits", "Open waits that it looks after", waiter.waiting)
        yield figure("waiter_requests", "Requests made", waiter.asked, "counter")
        yield figure("waiter_records", "Records read of topics that tasks wait for", waiter.records_read, "counter")
        yield figure("waiter_ended", "Waits ended by what came", waiter.ended, "counter")

    def fault(self) -> str:
        """Why it looks after nothing."""
        return self._waiter.fault or self._waiter.feed_fault
