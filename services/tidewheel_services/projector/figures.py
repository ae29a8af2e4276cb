"""What a projector shows of itself."""

from __future__ import annotations

from collections.abc import Iterable

from tidewheel_projections.projector import Projector
from tidewheel_services.figures import Figure, figure


class ProjectorFigures:
    """Figures of one projector."""

    def __init__(self, projector: Projector) -> None:
        self._projector = projector

    def figures(self) -> Iterable[Figure]:
        """Now."""
        projector = self._projector
        yield figure("projector_writing", "1 if this projector writes; 0: it stands by, or waits", projector.writing)
        yield figure("projector_records", "Records applied", projector.applied, "counter")
        yield figure("projector_lag_records", "Records up to the ends last seen", projector.behind)
        yield figure("projector_stopped_partitions", "Partitions followed no further", projector.stopped)

    def fault(self) -> str:
        """Why it does not follow."""
        return self._projector.fault
