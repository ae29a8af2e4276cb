"""What processes show of themselves, whoever shows it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, Protocol

import msgspec


class Figure(msgspec.Struct, frozen=True):
    """One figure as it is now: its name without the prefix ``tidewheel_``, and a value for each set of labels."""

    name: str
    meaning: str
    values: Sequence[tuple[Mapping[str, str], float]]
    kind: Literal["gauge", "counter"] = "gauge"


def figure(name: str, meaning: str, value: float, kind: Literal["gauge", "counter"] = "gauge") -> Figure:
    """One without labels."""
    return Figure(name, meaning, [({}, value)], kind)


class Source(Protocol):
    """What is shown; asked from other threads."""

    def figures(self) -> Iterable[Figure]:
        """Its figures now."""

    def fault(self) -> str:
        """Why it cannot do its work now; empty: it is ready."""
