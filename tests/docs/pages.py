"""The pages of the documentation, and what is in them: fences, links, commands, headings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
_FENCE: Final = re.compile(r"^ *```([^\n`]*)\n(.*?)^ *```[ ]*$", re.MULTILINE | re.DOTALL)
_CODE: Final = re.compile(r"`([^`\n]+)`")
_LINK: Final = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
_CALL: Final = re.compile(r" *\$ (?:\w+=\S+ )*(?:\S*/)?tidewheel (.*)")
_HEADING: Final = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)


class Fence(NamedTuple):
    """A fenced block; ``words`` is what stands behind its opening."""

    page: str
    line: int
    words: tuple[str, ...]
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


@cache
def pages() -> dict[str, str]:
    """Every page of the project's documentation, by its path."""
    found = [ROOT / "README.md", ROOT / "schemas" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in found}


@cache
def fences() -> tuple[Fence, ...]:
    """The fenced blocks of every page, in order."""
    return tuple(
        Fence(page, text.count("\n", 0, match.start()) + 1, tuple(match[1].split()), match[2])
        for page, text in pages().items()
        for match in _FENCE.finditer(text)
    )


def commands() -> Iterator[tuple[str, str]]:
    """Each call of the program that a page shows at a prompt: where, and what stands behind the program's name."""
    for fence in fences():
        for line in fence.text.splitlines():
            if call := _CALL.match(line):
                yield str(fence), call[1]


def prose(page: str) -> str:
    """A page without its fences."""
    return _FENCE.sub("", pages()[page])


def code(page: str) -> Iterator[str]:
    """What stands between backticks on a page, outside of fences."""
    for match in _CODE.finditer(prose(page)):
        yield match[1]


def links(page: str) -> Iterator[str]:
    """The targets of a page's links."""
    for match in _LINK.finditer(prose(page)):
        yield match[1]


def anchors(page: str) -> set[str]:
    """What a link to a heading of the page may say."""
    return {
        re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower()).replace(" ", "-")
        for heading in _HEADING.findall(prose(page))
    }
