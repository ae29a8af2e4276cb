"""Following backfills: in calm weather none stands still that has nothing live and is not held."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tidewheel.core import events as e
from tidewheel.testing.simulation.waiting import PATIENCE_MS

if TYPE_CHECKING:
    from tidewheel.testing.simulation.world import TroubledWorld


class _Backfill:
    """One that is not over: its runs that live, and by the world's clock when anything last happened to it."""

    __slots__ = ("live", "paused", "touched")

    def __init__(self, now: int) -> None:
        self.live: set[str] = set()
        self.paused = False
        self.touched = now


class OpenBackfills:
    """Reads every event of a DAG."""

    def __init__(self, world: TroubledWorld) -> None:
        self._world = world
        self._open: dict[tuple[str, str], _Backfill] = {}

    def apply(self, event: e.Event) -> None:
        """Go on from the next event."""
        now = self._world.now
        match event:
            case e.BackfillStarted():
                self._open[event.dag, event.backfill_id] = _Backfill(now)
            case e.BackfillFinished() | e.BackfillCancelled():
                del self._open[event.dag, event.backfill_id]
            case e.BackfillPaused() | e.BackfillResumed() | e.BackfillSlotsSkipped():
                found = self._open[event.dag, event.backfill_id]
                found.touched = now
                if not isinstance(event, e.BackfillSlotsSkipped):
                    found.paused = isinstance(event, e.BackfillPaused)
            case e.RunCreated() | e.RunRestarted() if event.backfill_id:
                found = self._open[event.dag, event.backfill_id]
                found.live.add(event.run_id)
                found.touched = now
            case e.RunSucceeded() | e.RunFailed() | e.RunCancelled():
                for (dag, _), found in self._open.items():
                    if dag == event.dag and event.run_id in found.live:
                        found.live.discard(event.run_id)
                        found.touched = now

    def overdue(self) -> Iterator[str]:
        """Which could go on and have not."""
        for (dag, name), found in self._open.items():
            if not found.paused and not found.live and self._world.now - found.touched > PATIENCE_MS:
                yield f"no run of {name} of {dag} lives, and nothing has woken for its next slot"
