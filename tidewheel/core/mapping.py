"""Mapped tasks: a task with ``for_each`` runs once per item, each *instance* a task of the run named ``task[index]``.

Ids hold no brackets, so an instance's name says whose it is. The mapped task itself is ``deferred`` while its instances
are at work, and ends with the last of them.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from tidewheel.core.graph import Tally


class Fan(msgspec.Struct, frozen=True):
    """How far the instances of a mapped task are. They begin in the order of their items."""

    items: int
    #: Instances that have begun, the first one that has not being ``begun`` itself.
    begun: int = 0
    ended: Tally = Tally()
    #: By a person's word: instances before ``begun`` that are to begin once more, in order, and instances behind it
    #: that have ended already.
    again: tuple[int, ...] = ()
    early: tuple[int, ...] = ()

    @property
    def all_ended(self) -> bool:
        """Whether every instance has ended."""
        return sum(self.ended) == self.items

    def room(self, max_parallel: int | None) -> int:
        """How many more instances may begin now."""
        waiting = self.items - self.begun - len(self.early) + len(self.again)
        if max_parallel is None:
            return waiting
        at_work = self.items - waiting - sum(self.ended)
        return max(0, min(waiting, max_parallel - at_work))

    def next(self, count: int) -> list[int]:
        """The indexes of the next ``count`` instances to begin, fewer if fewer wait."""
        found = list(self.again[:count])
        index = self.begun
        while len(found) < count and index < self.items:
            if index not in self.early:
                found.append(index)
            index += 1
        return found

    def with_begun(self, index: int) -> Fan:
        """The instance does not wait any more."""
        if self.again and index in self.again:
            at = self.again.index(index)
            return replace(self, again=self.again[:at] + self.again[at + 1 :])
        if index > self.begun:
            return replace(self, early=(*self.early, index))
        begun = index + 1
        while begun in self.early:
            begun += 1
        return replace(self, begun=begun, early=tuple(one for one in self.early if one > begun) if self.early else ())

    def with_waiting(self, indexes: Iterable[int]) -> Fan:
        """The instances wait to begin once more."""
        waiting = set(indexes)
        early = tuple(one for one in self.early if one not in waiting)
        return replace(self, again=tuple(sorted({*self.again, *waiting.difference(self.early)})), early=early)


def instance_name(task: str, index: int) -> str:
    """The instance of ``task`` for the item at ``index``, from 0."""
    return f"{task}[{index}]"


def written_task(name: str) -> str:
    """The task as it stands in the workflow file, of itself or of an instance."""
    return name[: name.index("[")] if name.endswith("]") else name


def index_of(name: str) -> int | None:
    """An instance's index; None of a task that is no instance."""
    return int(name[name.index("[") + 1 : -1]) if name.endswith("]") else None
