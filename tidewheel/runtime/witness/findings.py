"""What the witness found wrong, and where."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

#: Violations kept in full; one broken journal can hold millions, and the first ones tell the story.
KEPT_MAX = 1_000


class Place(NamedTuple):
    """A record of a journal."""

    topic: str
    partition: int
    offset: int


class Violation(msgspec.Struct, frozen=True):
    """An invariant (numbered as in the design) that the journal breaks at this record."""

    topic: str
    partition: int
    offset: int
    invariant: int
    message: str


class Findings:
    """Collects violations. ``at`` is the record being read."""

    __slots__ = ("at", "count", "violations")

    def __init__(self) -> None:
        self.at = Place("", -1, -1)
        self.violations: list[Violation] = []
        self.count = 0

    def add(self, invariant: int, message: str, at: Place | None = None) -> None:
        """Invariant ``invariant`` does not hold, here or ``at`` another record."""
        self.count += 1
        if len(self.violations) < KEPT_MAX:
            self.violations.append(Violation(*(at or self.at), invariant, message))
