"""Mistakes of authors: where, what, and what to do about it."""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

#: Nobody reads more, and a file of nothing but mistakes must not fill the memory.
MISTAKES_MAX: Final = 1_000


class Mistake(msgspec.Struct, frozen=True, order=True):
    """One mistake in a workflow file. ``line`` and ``column`` count from 1; ``code`` is a stable word for programs."""

    file: str
    line: int
    column: int
    code: str
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.message} [{self.code}]"


class Place(Protocol):
    """Something with a position in the file."""

    @property
    def line(self) -> int: ...

    @property
    def column(self) -> int: ...


class Findings:
    """Collects the mistakes of one file."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._found: set[Mistake] = set()

    def add(self, place: Place, code: str, message: str) -> None:
        """Note a mistake. The same one at the same place (a node used again by an alias) counts once."""
        self.at(place.line, place.column, code, message)

    def at(self, line: int, column: int, code: str, message: str) -> None:
        """Note a mistake by line and column."""
        if len(self._found) < MISTAKES_MAX:
            self._found.add(Mistake(self.file, line, column, code, message))

    def drop(self, code: str) -> None:
        """Take mistakes of this kind back: they only follow from another one."""
        self._found = {mistake for mistake in self._found if mistake.code != code}

    def sorted(self) -> tuple[Mistake, ...]:
        """All of them, in the order of the file."""
        return tuple(sorted(self._found))

    def __bool__(self) -> bool:
        return bool(self._found)
