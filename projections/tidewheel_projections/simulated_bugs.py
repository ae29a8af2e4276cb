"""Bugs to plant into the projector, as ``tidewheel.testing.simulation.bugs`` does into the engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest import mock

from tidewheel.testing.simulation.bugs import BUGS, Bug
from tidewheel.testing.simulation.campaign import Plant
from tidewheel_projections.folding import Folding
from tidewheel_projections.pools import PoolRows
from tidewheel_projections.simulated import MemoryStore


@contextmanager
def projected_twice() -> Iterator[None]:
    """Rows are written before their positions, and take in an event that they have taken in before."""
    fold = PoolRows.fold

    @contextmanager
    def torn(self: MemoryStore) -> Iterator[None]:
        self._pending = []
        yield
        *rows, positions = self._pending
        for change in rows:
            change()
        self.at("write")
        positions()
        self.at("written")

    def unguarded(self: PoolRows, event: Any, shard_seq: int) -> None:
        self.row.shard_seq = min(self.row.shard_seq, shard_seq - 1)
        fold(self, event, shard_seq)

    with mock.patch.object(MemoryStore, "transaction", torn), mock.patch.object(PoolRows, "fold", unguarded):
        yield


@contextmanager
def change_not_marked() -> Iterator[None]:
    """A row that changes again in a later batch is not written again."""
    touched = Folding._task_changed

    def unmarked(self: Folding, event: Any, partition: int, shard_seq: int) -> None:
        known = event.task in self.runs[event.dag, event.run_id].changed_tasks
        touched(self, event, partition, shard_seq)
        if not known and event.attempt > 1:
            self.runs[event.dag, event.run_id].changed_tasks.discard(event.task)

    with mock.patch.object(Folding, "_task_changed", unmarked):
        yield


_PLANTS: tuple[Plant, ...] = (projected_twice, change_not_marked)
#: Those of the engine too.
ALL_BUGS: Mapping[str, Bug] = {
    **BUGS,
    **{plant.__name__: Bug((plant.__doc__ or "").strip(), plant) for plant in _PLANTS},
}
