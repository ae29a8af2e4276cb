"""Which names an expression mentions, found in its tokens: ``tasks.load.output``, ``inputs["day"]``.

The scan knows CEL's tokens, not its grammar, so a macro's variable that bears the name of a root counts as that root.
That is harmless: what is mentioned too much is checked and passed in for nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from tidewheel.definition.templates import STRING_LITERAL

ROOTS: Final = frozenset({"inputs", "run", "tasks", "env", "secrets"})

_TOKEN: Final = re.compile(
    rf"\s+|(?P<string>{STRING_LITERAL})|(?P<name>[A-Za-z_][A-Za-z0-9_]*)|(?P<number>[0-9](?:[0-9A-Fa-fxX]|\.[0-9])*)|(?P<sign>(?s:.))"
)
_SIMPLE_STRING: Final = re.compile(r"(?P<quote>[\"'])(?P<text>[^\"'\\\n]*)(?P=quote)")


class Reference(msgspec.Struct, frozen=True):
    """A mention of ``root``, with the fields that follow it as far as they are fixed; ``offset`` in the source."""

    root: str
    path: tuple[str, ...]
    offset: int

    def __str__(self) -> str:
        return ".".join((self.root, *self.path))


class _Token(msgspec.Struct, frozen=True):
    kind: str
    text: str
    offset: int


def references(source: str, names: tuple[str, ...] = ()) -> tuple[Reference, ...]:
    """Every mention of a root, or of one of ``names`` beside them, in order."""
    tokens = list(_tokens(source))
    roots = ROOTS.union(names)
    return tuple(_follow(tokens, index) for index in range(len(tokens)) if _is_root(tokens, index, roots))


def sole_reference(source: str, names: tuple[str, ...] = ()) -> Reference | None:
    """The reference, if the expression is nothing but a root and fields."""
    tokens = list(_tokens(source))
    if not tokens or not _is_root(tokens, 0, ROOTS.union(names)):
        return None
    reference = _follow(tokens, 0)
    return reference if len(tokens) == 1 + 2 * len(reference.path) else None


def _tokens(source: str) -> Iterator[_Token]:
    for match in _TOKEN.finditer(source):
        if match.lastgroup is not None:
            yield _Token(match.lastgroup, match.group(), match.start())


def _is_root(tokens: list[_Token], index: int, roots: frozenset[str]) -> bool:
    if tokens[index].kind != "name" or tokens[index].text not in roots:
        return False
    if _sign(tokens, index + 1) == "(":  # a function's name
        return False
    if _sign(tokens, index - 1) != ".":
        return True
    # A dot after a value selects a field of it; a leading dot makes the name absolute.
    before = tokens[index - 2] if index >= 2 else None
    return before is None or not (before.kind in ("name", "string", "number") or before.text in (")", "]", "}"))


def _follow(tokens: list[_Token], index: int) -> Reference:
    root = tokens[index]
    path: list[str] = []
    index += 1
    while True:
        sign = _sign(tokens, index)
        if sign == "." and _kind(tokens, index + 1) == "name" and _sign(tokens, index + 2) != "(":
            path.append(tokens[index + 1].text)
            index += 2
        elif sign == "[" and _kind(tokens, index + 1) == "string" and _sign(tokens, index + 2) == "]":
            literal = _SIMPLE_STRING.fullmatch(tokens[index + 1].text)
            if literal is None:
                break
            path.append(literal["text"])
            index += 3
        else:
            break
    return Reference(root.text, tuple(path), root.offset)


def _sign(tokens: list[_Token], index: int) -> str:
    return tokens[index].text if 0 <= index < len(tokens) and tokens[index].kind == "sign" else ""


def _kind(tokens: list[_Token], index: int) -> str:
    return tokens[index].kind if 0 <= index < len(tokens) else ""
