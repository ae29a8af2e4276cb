"""``with dag(…):`` collects tasks; ``compile`` makes of them what a YAML file would have made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Unpack

from tidewheel.authoring import places, tasks
from tidewheel.authoring.keys import DagKeys
from tidewheel.authoring.nodes import Given, Keys, Writer, given
from tidewheel.authoring.places import Place
from tidewheel.authoring.tasks import Task
from tidewheel.definition.mistakes import Findings
from tidewheel.definition.nodes import Mapping, Node, Scalar, Sequence

if TYPE_CHECKING:
    from tidewheel.authoring.functions import TaskFunction
    from tidewheel.definition.load import Loaded

_collected: list[Dag] | None = None


class Dag:
    """A DAG as far as it has been said. Its block may be entered again to add to it."""

    def __init__(self, name: str, keys: Keys, place: Place) -> None:
        self.id = str(name)
        self.tasks: list[Task] = []
        #: Where functions became tasks.
        self.functions: list[tuple[TaskFunction[..., Any], Place]] = []
        self.place = place
        self._keys = keys
        self._notes: list[tuple[Place, str, str, str]] = []

    def __enter__(self) -> Dag:
        tasks.enter(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        tasks.leave()

    def note(self, place: Place, code: str, message: str, argument: str = "") -> None:
        """Keep a mistake in a call, or in an argument of it, for when the DAG is compiled."""
        self._notes.append((place, argument, code, message))

    def compile(self) -> Loaded:
        """The workflow with its version and its text in YAML, or every mistake. Raises nothing."""
        # Workers import files with DAGs; only who compiles needs the checks.
        from tidewheel.authoring.text import yaml_text
        from tidewheel.definition.load import load_node

        findings = Findings(self.place.file)
        root = self._root(findings)
        for place, argument, code, message in self._notes:
            findings.add(places.argument(place, argument)[0], code, message)
        noted = {place for place, *_ in self._notes}
        for function, place in self.functions:
            if not function.is_found() and place not in noted:
                name = f"{function.__module__}:{function.name_in_module}"
                message = f"{name} is not this function when its module is complete: give it a name of its own"
                findings.add(places.spot(place), "not_importable", message)
        return load_node(root, findings, yaml_text(root))

    def _root(self, findings: Findings) -> Mapping:
        from tidewheel.authoring.needs import derived, graph, mentioned

        writer = Writer(self.place.file, findings, self)
        records = [writer.record(task.keys, task.place) for task in self.tasks]
        said = [self._said(task, record, findings) for task, record in zip(self.tasks, records, strict=True)]
        names = [[one.text for one in needs if isinstance(one, Scalar)] for needs in said]
        ids = [task.id for task in self.tasks]
        order = {name: index for index, name in enumerate(ids)}
        read = [mentioned(record, order) for record in records]
        upstream = graph(ids, names, read)
        for index, (task, record) in enumerate(zip(self.tasks, records, strict=True)):
            more = derived(task.id, names[index], read[index], upstream)
            if needs := (*said[index], *(self._name(name, task.place, task) for name in more)):
                place = record.entries.get("needs", record)
                record.keys.setdefault("needs", Scalar(place.line, place.column, "needs"))
                record.entries["needs"] = Sequence(place.line, place.column, needs)
        root = writer.record(self._keys, self.place)
        root.entries["tasks"] = Sequence(root.line, root.column, tuple(records))
        root.keys["tasks"] = Scalar(root.line, root.column, "tasks")
        return root

    def _said(self, task: Task, record: Mapping, findings: Findings) -> list[Node]:
        """What ``needs=`` and ``>>`` say, in this order."""
        written = record.entries.get("needs")
        found: list[Node] = []
        if written is not None:
            found += written.items if isinstance(written, Sequence) else [written]
        names = {one.text for one in found if isinstance(one, Scalar)}
        for earlier, place in task.after:
            if earlier.dag is not self:
                where = places.spot(place if place.file == self.place.file else task.place)
                findings.add(where, "unknown_task", f"the task {earlier.id!r} belongs to the DAG {earlier.dag.id!r}")
            elif earlier.id not in names:
                names.add(earlier.id)
                found.append(self._name(earlier.id, place, task))
        return found

    def _name(self, name: str, place: Place, task: Task) -> Scalar:
        line, column, _ = places.spot(place if place.file == self.place.file else task.place)
        return Scalar(line, column, name, plain=False)


def dag(name: str, /, **keys: Unpack[DagKeys]) -> Dag:
    """A DAG, for ``with dag("daily", schedule="0 6 * * *"):``; the tasks made in its block are its tasks."""
    place = places.here()
    made = Dag(name, {"id": Given(name, place, 0), **given(keys, place)}, place)
    if _collected is not None and places.is_read():
        _collected.append(made)
    return made


@contextmanager
def collecting(file: str) -> Iterator[list[Dag]]:
    """The DAGs that this file makes by being executed within."""
    global _collected
    before, _collected = _collected, []
    try:
        with places.reading(file):
            yield _collected
    finally:
        _collected = before
