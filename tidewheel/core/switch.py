"""Switches: which tasks one names, and which of them its decision leaves out.

A task that a switch names waits for it, whatever its trigger rule: so it never matters whether the switch or another
upstream ended first. What a switch decided is in its output, and a task is judged by that when it is its turn.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from tidewheel.core.workflow import Switch, Task, Workflow


class Taken(msgspec.Struct, frozen=True):
    """The output of a switch: the branch it took, from 0, and the tasks it named; None: no branch fitted."""

    branch: int | None
    then: tuple[str, ...] = ()


def switches_by_task(workflow: Workflow) -> dict[str, tuple[str, ...]]:
    """The switches that name each task."""
    found: dict[str, tuple[str, ...]] = {}
    for task in workflow.tasks:
        for name in named_by(task):
            found[name] = (*found.get(name, ()), task.id)
    return found


def named_by(task: Task) -> tuple[str, ...]:
    """The tasks that a switch names, each once; of another task none."""
    if not isinstance(task.action, Switch):
        return ()
    return tuple(dict.fromkeys(name for branch in task.action.branches for name in branch.then))


def misnamed(tasks: Mapping[str, Task], task: Task) -> str:
    """Why a switch could not keep its word; empty of any other task."""
    if isinstance(task.action, Switch) and task.for_each is not None:
        return f"task '{task.id}' is a switch, which decides once: it has no for_each"
    for name in named_by(task):
        if name not in tasks or task.id not in tasks[name].needs:
            return f"task '{task.id}' names '{name}' in a branch, which does not need it"
    return ""


def leaves_out(tasks: Mapping[str, Task], output: str | None, name: str) -> bool:
    """Whether a switch that ended with ``output`` leaves out a task that it names: no taken task is it or leads to it.

    One that decided nothing, such as one that was marked as successful by hand, leaves out nothing.
    """
    try:
        then = msgspec.json.decode(output or "", type=Taken).then
    except msgspec.DecodeError:
        return False
    return name not in then and not _is_downstream(tasks, name, then)


def _is_downstream(tasks: Mapping[str, Task], name: str, of: Collection[str]) -> bool:
    """Whether ``name`` needs one of ``of``, directly or through others."""
    seen = set(tasks[name].needs)
    todo = list(seen)
    while todo:
        upstream = todo.pop()
        if upstream in of:
            return True
        fresh = set(tasks[upstream].needs) - seen
        seen |= fresh
        todo.extend(fresh)
    return False
