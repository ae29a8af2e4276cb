"""Which tasks of a run a clear comes to: what was named, what is below or above it, of these what can be cleared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from tidewheel.core.graph import Definition
from tidewheel.core.mapping import index_of, instance_name, written_task
from tidewheel.core.state import RunState
from tidewheel.core.transitions import TaskPhase

_FAILED: frozenset[TaskPhase] = frozenset({"failed", "upstream_failed", "cancelled"})


def cleared_tasks(
    definition: Definition,
    run: RunState,
    named: Sequence[str],
    *,
    downstream: bool,
    upstream: bool,
    only_failed: bool,
) -> list[str]:
    """Tasks and instances to clear, in the file's order; of none named, all. What has not begun is not among them.

    Of an instance, what is below its task is downstream. Only what failed: of a mapped task the instances that did.
    """
    whole = {name for name in named if index_of(name) is None} if named else set(definition.tasks)
    roots = {written_task(name) for name in named}
    if downstream:
        whole |= below(definition, roots)
    if upstream:
        whole |= _above(definition, roots)
    single: dict[str, list[int]] = {}
    for name in named:
        index = index_of(name)
        if index is not None and written_task(name) not in whole:
            single.setdefault(written_task(name), []).append(index)
    found: list[str] = []
    for name in definition.tasks:
        if name in single:
            found += _instances(run, name, sorted(set(single[name])), only_failed)
        elif name in whole:
            found += _failed(run, name) if only_failed else () if run.task(name).awaits_turn else (name,)
    return found


def below(definition: Definition, names: Iterable[str]) -> set[str]:
    """All that need these tasks, directly or through others, without themselves."""
    return _reached(names, lambda name: definition.children[name])


def _above(definition: Definition, names: Iterable[str]) -> set[str]:
    return _reached(names, lambda name: definition.tasks[name].needs)


def _reached(names: Iterable[str], steps: Callable[[str], Iterable[str]]) -> set[str]:
    found: set[str] = set()
    todo = list(names)
    while todo:
        fresh = set(steps(todo.pop())) - found
        found |= fresh
        todo += fresh
    return found


def _failed(run: RunState, name: str) -> Iterable[str]:
    task = run.task(name)
    if task.fan is not None and not task.then:
        failed = list(_instances(run, name, range(task.fan.items), only_failed=True))
        if failed:
            return failed
    return (name,) if task.phase in _FAILED else ()


def _instances(run: RunState, name: str, indexes: Iterable[int], only_failed: bool) -> Iterator[str]:
    for instance in (instance_name(name, index) for index in indexes):
        state = run.task(instance)
        if state.phase in _FAILED or not (only_failed or state.awaits_turn):
            yield instance
