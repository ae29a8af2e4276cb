"""Python values to the nodes that workflow files consist of, each with its place in the source."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping as MappingABC
from datetime import date, timedelta
from typing import Any, Final

import msgspec

from tidewheel.authoring import places
from tidewheel.authoring.expression import Expression, Referable
from tidewheel.authoring.places import Place, Spot
from tidewheel.definition.mistakes import Findings
from tidewheel.definition.nodes import Mapping, Node, Scalar, Sequence

_UNITS_MS: Final = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
#: As deep as YAML may go; whatever contains itself ends here too.
DEPTH_MAX: Final = 64
_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class Given(msgspec.Struct, frozen=True):
    """A value with the call that gave it, and as which of its arguments."""

    value: Any
    place: Place
    name: str | int = ""


#: By the language's keys; a mapping within is a record of its own.
Keys = MappingABC[str, "Given | Keys"]


def given(keys: MappingABC[str, Any], place: Place) -> dict[str, Given]:
    """Keyword arguments by the language's keys. None is as if it were not there."""
    return {name.removesuffix("_"): Given(value, place, name) for name, value in keys.items() if value is not None}


class Writer:
    """Makes nodes for one file and notes what cannot be one."""

    def __init__(self, file: str, findings: Findings, dag: object = None) -> None:
        self._dag = dag
        self._file = file
        self._findings = findings

    def record(self, keys: Keys, place: Place) -> Mapping:
        """A mapping from what calls gave; what another file gave stands at ``place``."""
        entries: dict[str, Node] = {}
        names: dict[str, Scalar] = {}
        for key, one in keys.items():
            if isinstance(one, Given):
                named, value = self.where(one, place)
                node = self.node(one.value, value)
            else:
                node = self.record(one, place)
                named = Spot(node.line, node.column)
            if node is not None:
                entries[key], names[key] = node, Scalar(named.line, named.column, key)
        line, column, _ = places.spot(place)
        return Mapping(line, column, entries, names)

    def where(self, one: Given, place: Place) -> tuple[Spot, Spot]:
        """The spots of the argument's name and value."""
        if one.place.file != self._file:
            return places.spot(place), places.spot(place)
        return places.argument(one.place, one.name)

    def node(self, value: Any, spot: Spot, level: int = 1) -> Node | None:
        """The node of a value: JSON, expressions, tasks (their outputs), dates and times. None, with the mistake
        noted, if it has none."""
        line, column, _ = spot
        kind = type(value).__name__
        code, refusal = "wrong_type", f"{kind!r} has no place in a definition: give JSON, expressions, dates or tasks"
        match value:
            case list() | tuple() | MappingABC() if level > DEPTH_MAX:
                code, refusal = "too_deep", f"nested more than {DEPTH_MAX} levels deep"
            case list() | tuple():
                return self._sequence(value, spot, level)
            case MappingABC():
                return self._mapping(value, spot, level)
            case Expression():
                return Scalar(line, column, str(value), plain=False)
            case str() if value.isascii() or not _LONE_SURROGATE.search(value):
                return Scalar(line, column, str(value), plain=False)
            case str():
                code, refusal = "not_utf8", "a text with half a character (a lone surrogate)"
            case None:
                return Scalar(line, column, "null")
            case bool() | int():
                return Scalar(line, column, str(value).lower())
            case float():
                return Scalar(line, column, repr(value) if math.isfinite(value) else ".inf")
            case timedelta():
                return Scalar(line, column, duration(value), plain=False)
            case date():
                return Scalar(line, column, value.isoformat(), plain=False)
            case Referable() if value.dag is self._dag:
                return Scalar(line, column, str(value.output), plain=False)
            case Referable():
                code, refusal = "unknown_task", f"{value!r} belongs to another DAG"
        self._findings.at(line, column, code, refusal)
        return None

    def _sequence(self, value: list[Any] | tuple[Any, ...], spot: Spot, level: int) -> Sequence:
        within = spot.expr.elts if isinstance(spot.expr, ast.List | ast.Tuple) else []
        # A starred item is as many as it holds: then their places are not known.
        spots = [places.at(self._file, one) for one in within] if len(within) == len(value) else [spot] * len(value)
        items = (self.node(item, place, level + 1) for item, place in zip(value, spots, strict=True))
        return Sequence(spot.line, spot.column, tuple(one for one in items if one is not None))

    def _mapping(self, value: MappingABC[Any, Any], spot: Spot, level: int) -> Mapping:
        written: dict[Any, tuple[Spot, Spot]] = {}
        if isinstance(spot.expr, ast.Dict):
            for key, item in zip(spot.expr.keys, spot.expr.values, strict=True):
                if isinstance(key, ast.Constant):
                    written[key.value] = places.at(self._file, key), places.at(self._file, item)
        entries: dict[str, Node] = {}
        names: dict[str, Scalar] = {}
        for key, item in value.items():
            named, place = written.get(key, (spot, spot)) if isinstance(key, str) else (spot, spot)
            if not isinstance(key, str):
                self._findings.at(spot.line, spot.column, "wrong_type", f"a key must be a text, got {key!r}")
            elif (node := self.node(item, place, level + 1)) is not None:
                entries[key], names[key] = node, Scalar(named.line, named.column, key)
        return Mapping(spot.line, spot.column, entries, names)


def duration(value: timedelta) -> str:
    """``1h30m``, ``-10m`` and the like; what is no whole number of milliseconds as Python says it."""
    if value < timedelta():
        return f"-{duration(-value)}"
    total, rest = divmod(value, timedelta(milliseconds=1))
    if rest:
        return str(value)
    text = ""
    for unit, size in _UNITS_MS.items():
        count, total = divmod(total, size)
        text += f"{count}{unit}" if count else ""
    return text or "0s"
