"""What a task needs: what its author says, and whose outputs or states its expressions read."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping as MappingABC
from collections.abc import Sequence as SequenceABC
from typing import Final

from tidewheel.definition.lint_graph import Graph
from tidewheel.definition.nodes import Mapping, Node, Scalar, Sequence
from tidewheel.definition.references import references
from tidewheel.definition.templates import Placeholder, TemplateError, has_expression, parse_template

#: Texts that are never rendered.
_NO_EXPRESSIONS: Final = frozenset({"id", "description", "needs", "run", "python"})


def mentioned(task: Mapping, places: MappingABC[str, int]) -> list[str]:
    """The tasks that the expressions of a task read, in the order of the DAG, of which ``places`` holds the numbers."""
    found = {
        reference.path[0]
        for key, node in task.entries.items()
        if key not in _NO_EXPRESSIONS
        for source in _sources(node, bare=key == "if", branches=key == "switch")
        for reference in references(source)
        if reference.root == "tasks" and reference.path
    }
    return sorted((name for name in found if name in places), key=places.__getitem__)


def graph(ids: SequenceABC[str], *edges: SequenceABC[SequenceABC[str]]) -> Graph:
    """Who is upstream of whom, by edges of several kinds: of each task, ids of others."""
    known = frozenset(ids)
    needs = {
        name: tuple(dict.fromkeys(one for some in kinds for one in some if one in known))
        for name, *kinds in zip(ids, *edges, strict=True)
    }
    return Graph({}, needs, known)


def derived(task: str, said: SequenceABC[str], read: SequenceABC[str], graph: Graph) -> list[str]:
    """What a task needs because it reads it: not what is upstream of a need that its author has said."""
    missing = (name for name in read if name != task and name not in said)
    return [name for name in missing if not any(graph.is_upstream(name, need) for need in said)]


def _sources(node: Node, *, bare: bool, branches: bool) -> Iterator[str]:
    """The expressions in a value; ``bare`` text is one itself, as the ``if`` of ``branches`` is."""
    match node:
        case Scalar(text=text) if bare and not has_expression(text):
            yield text
        case Scalar(text=text):
            try:
                yield from (part.source for part in parse_template(text) if isinstance(part, Placeholder))
            except TemplateError:
                # Told when the definition is checked.
                return
        case Sequence(items=items):
            for item in items:
                yield from _sources(item, bare=False, branches=branches)
        case Mapping(entries=entries):
            for name, item in entries.items():
                yield from _sources(item, bare=branches and name == "if", branches=False)
