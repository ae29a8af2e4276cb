"""What a YAML text consists of: scalars, sequences and mappings that know their line and column (both from 1).

Scalars keep their source text: what a plain scalar means depends on what is expected there, so ``no``, ``1:30`` and
``01234`` stay themselves where a text is wanted.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Scalar:
    """``plain``: not quoted, no block. ``verbatim``: the value stands so in the file, from ``column + quote`` on."""

    line: int
    column: int
    text: str
    plain: bool = True
    verbatim: bool = False
    quote: int = 0
    size: int = 1
    depth: int = 1

    def column_of(self, offset: int) -> int:
        """The column of the value's character ``offset``, as well as it is known."""
        return self.column + self.quote + offset if self.verbatim else self.column


@dataclass(frozen=True, slots=True)
class Sequence:
    """A list. ``size`` counts all nodes within, ``depth`` the levels, with aliases expanded."""

    line: int
    column: int
    items: tuple[Node, ...]
    size: int = 1
    depth: int = 1


@dataclass(frozen=True, slots=True)
class Mapping:
    """A mapping with merge keys (``<<``) resolved. ``keys`` holds where each key stands."""

    line: int
    column: int
    entries: dict[str, Node]
    keys: dict[str, Scalar] = field(default_factory=dict)
    size: int = 1
    depth: int = 1


Node = Scalar | Sequence | Mapping


def descend(node: Node, *path: str | int) -> Node:
    """The node at ``path``, or the last one on the way that exists."""
    for step in path:
        if isinstance(node, Mapping) and isinstance(step, str) and step in node.entries:
            node = node.entries[step]
        elif isinstance(node, Sequence) and isinstance(step, int) and step < len(node.items):
            node = node.items[step]
        else:
            break
    return node


def describe(node: Node) -> str:
    """What stands there, for a message."""
    match node:
        case Scalar(plain=True, text=""):
            return "nothing"
        case Scalar(text=text):
            return repr(text if len(text) <= 60 else f"{text[:60]}…")
        case Sequence():
            return "a list"
        case Mapping():
            return "a mapping"
