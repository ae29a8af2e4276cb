"""Where the expressions are in a text: ``${{ … }}``, minding CEL's string literals and braces inside."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

import msgspec

OPENING: Final = "${{"
_CLOSING: Final = "}}"
_CACHED_MAX: Final = 4_096

#: CEL's string and bytes literals: raw or not, with three quotes or one.
STRING_LITERAL: Final = (
    r'(?:[bB]?[rR]|[rR][bB])(?:"""(?s:.*?)"""|\'\'\'(?s:.*?)\'\'\'|"[^"\n]*"|\'[^\'\n]*\')'
    r'|[bB]?(?:"""(?s:(?:\\.|[^\\])*?)"""|\'\'\'(?s:(?:\\.|[^\\])*?)\'\'\''
    r'|"(?!"")(?:\\.|[^"\\\n])*"|\'(?!\'\')(?:\\.|[^\'\\\n])*\')'
)
#: Identifiers too, so that the ``r`` at the end of ``for"`` opens no raw literal.
_STEP: Final = re.compile(rf"(?P<string>{STRING_LITERAL})|[A-Za-z_0-9]+|(?s:.)")


class TemplateError(ValueError):
    """A ``${{`` that is never closed, or with nothing inside. ``offset`` says where in the text."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


class Placeholder(msgspec.Struct, frozen=True):
    """One ``${{ source }}``; ``offset`` is where ``source`` begins in the text."""

    source: str
    offset: int


Parts = tuple[str | Placeholder, ...]


def has_expression(text: str) -> bool:
    """Whether anything in the text is to be evaluated."""
    return OPENING in text


@lru_cache(maxsize=_CACHED_MAX)
def parse_template(text: str) -> Parts:
    """The literal pieces and placeholders of a text, in order. Raises ``TemplateError``."""
    parts: list[str | Placeholder] = []
    position = 0
    while (start := text.find(OPENING, position)) >= 0:
        if start > position:
            parts.append(text[position:start])
        inside = start + len(OPENING)
        end = _end_of_expression(text, inside)
        if end is None:
            raise TemplateError(
                "'${{' without its '}}' (a plain YAML value ends at ' #': quote the value if the expression holds one)",
                start,
            )
        source = text[inside:end]
        if not source.strip():
            raise TemplateError("an empty expression: write a name or a CEL expression between '${{' and '}}'", start)
        lead = len(source) - len(source.lstrip())
        parts.append(Placeholder(source.strip(), inside + lead))
        position = end + len(_CLOSING)
    if position < len(text):
        parts.append(text[position:])
    return tuple(parts)


@lru_cache(maxsize=_CACHED_MAX)
def whole_expression(text: str) -> Placeholder | None:
    """The expression, if the text is nothing but one. Raises ``TemplateError``."""
    found = None
    for part in parse_template(text):
        if isinstance(part, Placeholder):
            if found is not None:
                return None
            found = part
        elif not part.isspace():
            return None
    return found


def condition_source(written: str) -> str:
    """The CEL of an ``if``: one whole ``${{ }}``, or a bare expression."""
    whole = whole_expression(written) if has_expression(written) else None
    return whole.source if whole is not None else written.strip()


def _end_of_expression(text: str, position: int) -> int | None:
    depth = 0
    while position < len(text):
        step = _STEP.match(text, position)
        assert step is not None, "the pattern takes any character"
        match step.group():
            case "{":
                depth += 1
            case "}" if depth:
                depth -= 1
            case "}" if text.startswith(_CLOSING, position):
                return position
        position = step.end()
    return None
