"""The tasks as a graph: unique ids, needs that exist, no cycles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from tidewheel.core.nearest import did_you_mean
from tidewheel.definition.mistakes import Findings
from tidewheel.definition.nodes import Scalar, descend
from tidewheel.definition.shapes import Draft

#: More cycles than these are variations of them.
_CYCLES_MAX: Final = 10
#: A cycle's message names no more tasks than fit a screen.
_NAMED_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class Graph:
    """Tasks by id, and what each needs, as far as that could be read."""

    tasks: dict[str, Draft]
    needs: dict[str, tuple[str, ...]]
    #: Ids that were written, also those with a mistake: whoever names them made no second one.
    written: frozenset[str]
    _bits: dict[str, int] = field(default_factory=dict)
    #: All tasks upstream of each, as a set of bits: bit n is the n-th task. Made when first asked for.
    _upstream: dict[str, int] = field(default_factory=dict)

    def is_upstream(self, other: str, task: str) -> bool:
        """Whether ``task`` needs ``other``, directly or through others."""
        if other in self.needs.get(task, ()):
            return True
        if not self._upstream:
            self._close()
        return bool(self._upstream.get(task, 0) & self._bits.get(other, 0))

    def _close(self) -> None:
        self._bits.update((name, 1 << index) for index, name in enumerate(self.needs))
        for name in self._in_order():
            bits = 0
            for need in self.needs[name]:
                bits |= self._bits[need] | self._upstream.get(need, 0)
            self._upstream[name] = bits

    def _in_order(self) -> Iterator[str]:
        """Every task after its needs (within a cycle, which is refused anyway, in some order)."""
        seen: set[str] = set()
        for start in self.needs:
            stack = [start]
            while stack:
                name = stack[-1]
                seen.add(name)
                waiting = [need for need in self.needs[name] if need not in seen]
                if waiting:
                    stack.extend(waiting)
                elif stack.pop() not in self._upstream:
                    yield name


def lint_graph(tasks: Sequence[Draft], findings: Findings) -> Graph:
    """Note mistakes of ids and needs; give the graph."""
    by_id: dict[str, Draft] = {}
    written: set[str] = set()
    for task in tasks:
        node = descend(task.node, "id")
        if isinstance(node, Scalar):
            written.add(node.text)
        name = task.get("id")
        if name is None:
            continue
        if name in by_id:
            line = descend(by_id[name].node, "id").line
            findings.add(node, "duplicate_id", f"the task id {name!r} is already used on line {line}")
        else:
            by_id[name] = task
    graph = Graph(by_id, {name: _needs(task, by_id) for name, task in by_id.items()}, frozenset(written))
    for task in tasks:
        _lint_needs(task, graph, findings)
    _lint_cycles(graph, findings)
    return graph


def _needs(task: Draft, known: dict[str, Draft]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(need for need in task.get("needs") or () if need in known))


def _lint_needs(task: Draft, graph: Graph, findings: Findings) -> None:
    seen: set[str] = set()
    for index, need in enumerate(task.get("needs") or ()):
        if need is None:
            continue
        place = descend(task.node, "needs", index)
        if need == task.get("id"):
            findings.add(place, "self_need", f"the task {need!r} needs itself")
        elif need not in graph.written:
            findings.add(place, "unknown_task", f"there is no task {need!r}{did_you_mean(need, graph.tasks)}")
        elif need in seen:
            findings.add(place, "duplicate_need", f"{need!r} is named twice")
        seen.add(need)


def _lint_cycles(graph: Graph, findings: Findings) -> None:
    """Depth first, without recursion: a chain of ten thousand tasks is legal."""
    done: set[str] = set()
    found: set[frozenset[str]] = set()
    for start in graph.tasks:
        path: list[str] = []
        on_path: set[str] = set()
        stack: list[tuple[str, Iterator[str]]] = [] if start in done else [(start, iter(graph.needs[start]))]
        if stack:
            path.append(start)
            on_path.add(start)
        while stack:
            name, rest = stack[-1]
            need = next(rest, None)
            if need is None:
                stack.pop()
                path.pop()
                on_path.discard(name)
                done.add(name)
            elif need in on_path:
                cycle = path[path.index(need) :]
                if need != name and len(found) < _CYCLES_MAX and frozenset(cycle) not in found:
                    found.add(frozenset(cycle))
                    _note_cycle(cycle, graph, findings)
            elif need not in done:
                stack.append((need, iter(graph.needs[need])))
                path.append(need)
                on_path.add(need)


def _note_cycle(cycle: list[str], graph: Graph, findings: Findings) -> None:
    """Noted where the last task of the cycle, in the order of the file, needs the next one."""
    order = {name: index for index, name in enumerate(graph.tasks)}
    first = min(range(len(cycle)), key=lambda index: order[cycle[index]])
    cycle = cycle[first:] + cycle[:first]
    shown = cycle if len(cycle) <= _NAMED_MAX else [*cycle[:_NAMED_MAX], "…"]
    task = graph.tasks[cycle[-1]]
    place = descend(task.node, "needs", task["needs"].index(cycle[0]))
    findings.add(place, "cycle", f"the tasks need each other in a circle: {' -> '.join((*shown, cycle[0]))}")
