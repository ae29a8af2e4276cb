"""What a listener shows of itself."""

from __future__ import annotations

import time
from collections.abc import Iterable

from tidewheel.runtime.listener.listener import Listener
from tidewheel_services.figures import Figure, figure

#: A turn without records takes half a second; the first one reads snapshots and journals.
_TURN_S_MAX = 30.0


class ListenerFigures:
    """Figures of one listener."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    def figures(self) -> Iterable[Figure]:
        """Now."""
        status = self._listener.status
        yield Figure("listener_info", "Always 1", [({"instance": status.instance}, 1)])
        yield figure("listener_triggers", "Triggers of all DAGs", status.triggers)
        yield figure("listener_topics", "Topics that triggers name", status.topics)
        yield figure("listener_partitions", "Partitions of them that this listener reads", status.partitions)
        missing = [({"topic": topic}, 1) for topic in sorted(status.missing)]
        yield Figure("listener_missing_topics", "1 for each topic that cannot be followed now", missing)
        yield figure("listener_lag_records", "Records up to the ends last seen", status.behind)
        yield figure("listener_records", "Records read", status.records, "counter")
        yield figure("listener_runs", "Runs asked for", status.runs, "counter")
        yield figure("listener_dead_letters", "Records a trigger could not judge", status.dead_letters, "counter")
        yield figure(
            "listener_last_turn_timestamp_seconds", "When the loop last took what it had read", status.turned_at / 1000
        )

    def fault(self) -> str:
        """Why it does not follow."""
        status = self._listener.status
        if status.fault:
            return status.fault
        silent_s = time.time() - status.turned_at / 1000
        return f"no turn for {silent_s:.0f} s: is Kafka there?" if silent_s > _TURN_S_MAX else ""
