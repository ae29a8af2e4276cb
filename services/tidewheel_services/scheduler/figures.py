"""What a scheduler shows of itself."""

from __future__ import annotations

import time
from collections.abc import Iterable

from tidewheel.runtime.scheduler import Scheduler
from tidewheel_services.figures import Figure, figure

#: A turn without work takes a second; a recovery or a blocked commit may take this long and is no reason to worry.
_TURN_S_MAX = 30.0


class SchedulerFigures:
    """Figures of one scheduler."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def figures(self) -> Iterable[Figure]:
        """Now."""
        status = self._scheduler.status
        yield Figure("scheduler_info", "Always 1", [({"instance": status.instance}, 1)])
        yield figure("scheduler_shards", "Shards owned", len(status.shards))
        yield figure(
            "scheduler_stopped_shards",
            "Shards that stand still: their journal does not prove itself",
            len(status.stopped),
        )
        yield figure(
            "scheduler_paused_shards", "Shards that read no triggers: too many runs wait", len(status.paused_shards)
        )
        yield figure(
            "scheduler_postponed_dags",
            "DAGs whose triggers wait: too many of their runs do",
            len(status.postponed_dags),
        )
        yield figure("scheduler_batches", "Batches committed", status.batches, "counter")
        yield figure("scheduler_events", "Events written", status.events, "counter")
        yield figure("scheduler_inputs", "Input records decided", status.inputs, "counter")
        yield figure("scheduler_aborts", "Batches that were not committed", status.aborts, "counter")
        yield figure("scheduler_commit_seconds", "How long the last commit took", status.commit_ms / 1000)
        yield figure(
            "scheduler_last_commit_timestamp_seconds", "When the last commit was; 0: none", status.committed_at / 1000
        )
        yield figure(
            "scheduler_last_turn_timestamp_seconds", "When the loop last took what it had read", status.turned_at / 1000
        )

    def fault(self) -> str:
        """Why it does not turn."""
        silent_s = time.time() - self._scheduler.status.turned_at / 1000
        return f"no turn for {silent_s:.0f} s: is the log there?" if silent_s > _TURN_S_MAX else ""
