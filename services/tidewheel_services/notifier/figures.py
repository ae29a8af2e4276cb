"""What a notifier shows of itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tidewheel_services.figures import Figure, figure
from tidewheel_services.notifier.couriers import Counts
from tidewheel_services.notifier.notifier import Notifier


class NotifierFigures:
    """Figures of one notifier. Targets that nobody configured stand under the name ``unknown``."""

    def __init__(self, notifier: Notifier) -> None:
        self._notifier = notifier

    def figures(self) -> Iterable[Figure]:
        """Now."""
        notifier = self._notifier
        yield figure("notifier_working", "1 if this notifier works; 0: it stands by, or waits", notifier.working)
        yield figure("notifier_records", "Records of the journal read", notifier.read, "counter")
        yield figure("notifier_skipped", "Records of the journal not understood", notifier.skipped, "counter")
        yield figure("notifier_lag_records", "Records up to the ends last seen", notifier.behind)
        yield figure("notifications", "Notifications found", notifier.told, "counter")
        yield self._by_target("notifications_sent", "Notifications delivered", lambda counts: counts.sent)
        yield self._by_target("notifications_failed", "Tries that failed", lambda counts: counts.failed)
        yield self._by_target("notifications_dead", "Notifications given up", lambda counts: counts.dead)
        waiting = [({"target": target}, float(count)) for target, count in sorted(notifier.waiting.items())]
        yield Figure("notifications_waiting", "Notifications to be delivered", waiting)

    def _by_target(self, name: str, meaning: str, count: Callable[[Counts], int]) -> Figure:
        values = [
            ({"target": target or "unknown"}, float(count(courier.counts)))
            for target, courier in self._notifier.couriers.copy().items()
        ]
        return Figure(name, meaning, values, "counter")

    def fault(self) -> str:
        """Why it does not follow."""
        return self._notifier.fault
