"""Mapped tasks: a task with ``for_each`` runs once per item, each *instance* a task of the run named ``task[index]``.

Ids hold no brackets, so an instance's name says whose it is. The mapped task itself is ``deferred`` while its instances
are at work, and ends with the last of them.
"""

from __future__ import annotations

import msgspec

from tidewheel.core.graph import Tally


class Fan(msgspec.Struct, frozen=True):
    """How far the instances of a mapped task are. They begin in the order of their items."""

    items: int
    #: Instances that have begun, the first one that has not being ``begun`` itself.
    begun: int = 0
    ended: Tally = Tally()

    @property
    def all_ended(self) -> bool:
        """Whether every instance has ended."""
        return sum(self.ended) == self.items

    def room(self, max_parallel: int | None) -> int:
        """How many more instances may begin now."""
        waiting = self.items - self.begun
        if max_parallel is None:
            return waiting
        return max(0, min(waiting, max_parallel - (self.begun - sum(self.ended))))


def instance_name(task: str, index: int) -> str:
    """The instance of ``task`` for the item at ``index``, from 0."""
    return f"{task}[{index}]"


def written_task(name: str) -> str:
    """The task as it stands in the workflow file, of itself or of an instance."""
    return name[: name.index("[")] if name.endswith("]") else name


def index_of(name: str) -> int | None:
    """An instance's index; None of a task that is no instance."""
    return int(name[name.index("[") + 1 : -1]) if name.endswith("]") else None
