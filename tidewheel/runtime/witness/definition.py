"""One version of a DAG as the witness needs it."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tidewheel.core.switch import Taken
from tidewheel.core.workflow import Switch, Task, Workflow


class Definition:
    """Its tasks, its leaves, and what its switches may decide."""

    __slots__ = ("_children", "leaves", "switches", "tasks", "version", "workflow")

    def __init__(self, version: str, workflow: Workflow) -> None:
        self.version = version
        self.workflow = workflow
        self.tasks: dict[str, Task] = {task.id: task for task in workflow.tasks}
        self._children: dict[str, list[str]] = {name: [] for name in self.tasks}
        #: The switches that each task waits for because they name it.
        self.switches: dict[str, set[str]] = {}
        for task in workflow.tasks:
            for name in task.needs:
                self._children[name].append(task.id)
            if isinstance(task.action, Switch):
                for branch in task.action.branches:
                    for name in branch.then:
                        self.switches.setdefault(name, set()).add(task.id)
        self.leaves = tuple(name for name in self.tasks if not self._children[name])

    def below(self, names: Iterable[str]) -> frozenset[str]:
        """These tasks and all that need them, directly or through others."""
        found = set(names)
        todo = list(found)
        while todo:
            fresh = set(self._children[todo.pop()]) - found
            found |= fresh
            todo += fresh
        return frozenset(found)

    def decided(self, name: str, output: str | None) -> tuple[frozenset[str], str]:
        """The tasks that a switch with this output lets go on, and what is wrong with the output."""
        switch = self.tasks[name].action
        assert isinstance(switch, Switch), f"{name} is no switch"
        try:
            taken = msgspec.json.decode(output or "", type=Taken)
        except msgspec.DecodeError:
            return frozenset(), f"does not say which branch it took: {output}"
        if taken.branch is None and switch.branches[-1].if_ is None:
            return frozenset(), "took no branch, though its last one needs no condition"
        named = {number: branch.then for number, branch in enumerate(switch.branches)}
        if taken.branch is not None and named.get(taken.branch) != taken.then:
            return frozenset(), f"took a branch that it does not have: {output}"
        return self.below(taken.then), ""
