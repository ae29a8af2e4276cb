"""What the journal says, read past everything else."""

from __future__ import annotations

from typing import TypeVar

from tidewheel.core import events as e
from tidewheel.log.interface import EVENTS
from tidewheel.log.opening import open_log
from tidewheel.wire.codec import decode_event

E = TypeVar("E", bound=e.DagEvent)


def events_of(url: str, kind: type[E]) -> list[E]:
    """The events of a kind in the log at ``url``."""
    log = open_log(url)
    try:
        ends = log.end_offsets([(EVENTS, partition) for partition in range(log.partitions)])
        reader = log.reader(dict.fromkeys(ends, 0))
        found = []
        while any(position < ends[place] for place, position in reader.positions().items()):
            for record in reader.read(10_000, 0.2):
                event = decode_event(record.value or b"").event
                if isinstance(event, kind):
                    found.append(event)
        return found
    finally:
        log.close()


def succeeded(url: str) -> list[str]:
    """The runs that the log at ``url`` says have succeeded."""
    return [event.run_id for event in events_of(url, e.RunSucceeded)]
