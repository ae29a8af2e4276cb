"""Shapes: what may stand at a place of a workflow file. Each reads a node and describes itself as JSON Schema.

``read`` notes every mistake and gives None there (a bad item of a list is None in its place), so that reading and
later checks go on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping as MappingABC
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from tidewheel.core.nearest import did_you_mean
from tidewheel.definition.mistakes import Findings
from tidewheel.definition.nodes import Mapping, Node, Scalar, Sequence, describe
from tidewheel.definition.scalars import OLD_TRUTH, ScalarMistake, duration_ms, is_null, moment, resolve
from tidewheel.definition.templates import has_expression

Schema = dict[str, Any]
#: Authors' own keys, for anchors and notes.
OWN_KEY: Final = "x-"
#: Keys that a message names where none is near the unknown one.
_NAMED_MAX: Final = 8
_MOMENT_PATTERN: Final = "^\\d{4}-\\d{2}-\\d{2}([Tt ]\\d{2}:\\d{2}(:\\d{2})?([Zz]|[+-]\\d{2}:\\d{2})?)?$"
_PERCENT_PATTERN: Final = "^([1-9][0-9]?|100)%$"
_DURATION_PATTERN: Final = "^(\\d+d)?(\\d+h)?(\\d+m)?(\\d+s)?(\\d+ms)?$"


class Shape(Protocol):
    """What may stand somewhere."""

    def read(self, node: Node, findings: Findings) -> Any:
        """The value, or None with the mistake noted."""

    def schema(self) -> Schema:
        """The same as JSON Schema."""


def wrong_type(node: Node, findings: Findings, expected: str, hint: str = "") -> None:
    """Note that something else stands there."""
    findings.add(node, "wrong_type", f"expected {expected}, got {describe(node)}{hint}")


@dataclass(frozen=True, slots=True)
class Text:
    """A text. A plain scalar is taken as it is written: ``no``, ``1.10`` and ``2026-01-01`` are these texts."""

    meaning: str = "a text"
    pattern: str = ""
    #: Why an expression has no place here; empty allows expressions.
    no_expression: str = "an expression has no place here"
    #: Numbers and booleans are texts too, for editors; nothing at all is the empty text.
    loose: bool = False
    length_max: int = 100_000

    def read(self, node: Node, findings: Findings) -> str | None:
        if not isinstance(node, Scalar):
            wrong_type(node, findings, self.meaning)
            return None
        if node.plain and is_null(node.text):
            if self.loose and not node.text:
                return ""
            wrong_type(node, findings, self.meaning, ": quote it if it is meant as a text" if node.text else "")
            return None
        if len(node.text) > self.length_max:
            findings.add(node, "bad_value", f"longer than {self.length_max} characters")
            return None
        if self.no_expression and has_expression(node.text):
            findings.add(node, "expression_not_allowed", self.no_expression)
            return None
        if self.pattern and not re.fullmatch(self.pattern, node.text, re.ASCII):
            wrong_type(node, findings, self.meaning)
            return None
        return node.text

    def schema(self) -> Schema:
        schema: Schema = {"type": ["string", "number", "boolean", "null"] if self.loose else "string"}
        if self.pattern:
            schema["pattern"] = f"^(?:{self.pattern})$"
        return schema


@dataclass(frozen=True, slots=True)
class Integer:
    """A whole number within bounds."""

    minimum: int
    maximum: int = 1_000_000

    def read(self, node: Node, findings: Findings) -> int | None:
        expected = f"a whole number from {self.minimum} to {self.maximum}"
        value = resolved(node, findings) if isinstance(node, Scalar) and node.plain else node
        if value is _BAD:
            return None
        if not isinstance(value, int) or isinstance(value, bool):
            hint = ": leave the quotes out" if isinstance(node, Scalar) and re.fullmatch(r"-?\d+", node.text) else ""
            wrong_type(node, findings, expected, hint)
            return None
        if not self.minimum <= value <= self.maximum:
            findings.add(node, "bad_value", f"expected {expected}, got {value}")
            return None
        return value

    def schema(self) -> Schema:
        return {"type": "integer", "minimum": self.minimum, "maximum": self.maximum}


@dataclass(frozen=True, slots=True)
class Number:
    """A number, whole or not."""

    minimum: float

    def read(self, node: Node, findings: Findings) -> float | None:
        value = resolved(node, findings) if isinstance(node, Scalar) and node.plain else node
        if isinstance(value, int | float) and not isinstance(value, bool) and value >= self.minimum:
            return value
        if value is not _BAD:
            wrong_type(node, findings, f"a number of at least {self.minimum:g}")
        return None

    def schema(self) -> Schema:
        return {"type": "number", "minimum": self.minimum}


@dataclass(frozen=True, slots=True)
class Boolean:
    """``true`` or ``false``, and none of YAML 1.1's other spellings."""

    def read(self, node: Node, findings: Findings) -> bool | None:
        value = resolved(node, findings) if isinstance(node, Scalar) and node.plain else node
        if isinstance(value, bool):
            return value
        if value is not _BAD:
            old = isinstance(node, Scalar) and node.text.lower() in OLD_TRUTH
            wrong_type(node, findings, "true or false", ": YAML 1.2 has only true and false" if old else "")
        return None

    def schema(self) -> Schema:
        return {"type": "boolean"}


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few words."""

    words: tuple[str, ...]

    def read(self, node: Node, findings: Findings) -> str | None:
        if isinstance(node, Scalar) and node.text in self.words:
            return node.text
        hint = did_you_mean(node.text, self.words) if isinstance(node, Scalar) else ""
        code = "bad_value" if isinstance(node, Scalar) else "wrong_type"
        findings.add(node, code, f"expected one of {', '.join(self.words)}, got {describe(node)}{hint}")
        return None

    def schema(self) -> Schema:
        return {"enum": list(self.words)}


@dataclass(frozen=True, slots=True)
class Duration:
    """A length of time, read to milliseconds; with ``negative`` also one before, as a negative number."""

    minimum_ms: int = 1
    negative: bool = False

    def read(self, node: Node, findings: Findings) -> int | None:
        if not isinstance(node, Scalar):
            wrong_type(node, findings, "a duration such as 30s, 5m, 2h, 1d or 1h30m")
            return None
        before = self.negative and node.text.startswith("-")
        try:
            value = duration_ms(node.text[before:])
        except ScalarMistake as mistake:
            findings.add(node, "bad_duration", str(mistake))
            return None
        if value < self.minimum_ms:
            findings.add(node, "bad_duration", f"{node.text} is too short: at least {self.minimum_ms}ms")
            return None
        return -value if before else value

    def schema(self) -> Schema:
        pattern = _DURATION_PATTERN.replace("^", "^-?", 1) if self.negative else _DURATION_PATTERN
        return {"type": "string", "pattern": pattern, "minLength": 2}


@dataclass(frozen=True, slots=True)
class Percent:
    """A whole percentage from 1% to 100%, read to its number."""

    def read(self, node: Node, findings: Findings) -> int | None:
        if not isinstance(node, Scalar) or not re.fullmatch(_PERCENT_PATTERN, node.text, re.ASCII):
            bare = isinstance(node, Scalar) and re.fullmatch(_PERCENT_PATTERN, f"{node.text}%", re.ASCII)
            hint = f": write {node.text}%" if bare else ""  # type: ignore[union-attr]
            wrong_type(node, findings, "a percentage from 1% to 100%", hint)
            return None
        return int(node.text[:-1])

    def schema(self) -> Schema:
        return {"type": "string", "pattern": _PERCENT_PATTERN}


@dataclass(frozen=True, slots=True)
class Moment:
    """A date, or a date with a time of day; kept as written, for its instant may depend on a zone."""

    def read(self, node: Node, findings: Findings) -> str | None:
        if not isinstance(node, Scalar):
            wrong_type(node, findings, "a date such as 2026-01-31 or a time such as 2026-01-31T06:00")
            return None
        try:
            moment(node.text)
        except ScalarMistake as mistake:
            findings.add(node, "bad_date", str(mistake))
            return None
        return node.text

    def schema(self) -> Schema:
        return {"type": "string", "pattern": _MOMENT_PATTERN}


@dataclass(frozen=True, slots=True)
class Condition:
    """An expression, in ``${{ }}`` or bare."""

    def read(self, node: Node, findings: Findings) -> str | None:
        return Text("an expression that is true or false", no_expression="").read(node, findings)

    def schema(self) -> Schema:
        return {"type": ["string", "boolean"]}


@dataclass(frozen=True, slots=True)
class Anything:
    """Any JSON value; expressions may stand in its texts."""

    def read(self, node: Node, findings: Findings) -> Any:
        match node:
            case Scalar(plain=False):
                return node.text
            case Scalar():
                value = resolved(node, findings)
                return None if value is _BAD else value
            case Sequence():
                return [self.read(item, findings) for item in node.items]
            case Mapping():
                return {key: self.read(item, findings) for key, item in node.entries.items()}

    def schema(self) -> Schema:
        return {}


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list; ``single`` takes one item for a list of one."""

    item: Shape
    meaning: str
    single: bool = False
    required: bool = False

    def read(self, node: Node, findings: Findings) -> list[Any] | None:
        if self.single and not isinstance(node, Sequence):
            return [self.item.read(node, findings)]
        if not isinstance(node, Sequence):
            wrong_type(node, findings, self.meaning)
            return None
        if self.required and not node.items:
            findings.add(node, "bad_value", f"expected {self.meaning} with at least one item")
            return None
        return [self.item.read(item, findings) for item in node.items]

    def schema(self) -> Schema:
        item = self.item.schema()
        many: Schema = {"type": "array", "items": item}
        if self.required:
            many["minItems"] = 1
        return {"anyOf": [item, many]} if self.single else many


@dataclass(frozen=True, slots=True)
class MapOf:
    """A mapping with names of the author's choice."""

    name: str
    value: Shape
    meaning: str
    name_meaning: str

    def read(self, node: Node, findings: Findings) -> Draft | None:
        if not isinstance(node, Mapping):
            wrong_type(node, findings, self.meaning)
            return None
        draft = Draft(node)
        for name, entry in node.entries.items():
            if not re.fullmatch(self.name, name, re.ASCII):
                findings.add(node.keys[name], "bad_name", f"{name!r} is no name: {self.name_meaning}")
                continue
            value = self.value.read(entry, findings)
            if value is not None:
                draft[name] = value
        return draft

    def schema(self) -> Schema:
        return {
            "type": "object",
            "propertyNames": {"pattern": f"^{self.name}$"},
            "additionalProperties": self.value.schema(),
        }


@dataclass(frozen=True, slots=True)
class AnythingMap:
    """A mapping to any JSON values."""

    meaning: str

    def read(self, node: Node, findings: Findings) -> Draft | None:
        if not isinstance(node, Mapping):
            wrong_type(node, findings, self.meaning)
            return None
        return Draft(node, Anything().read(node, findings))

    def schema(self) -> Schema:
        return {"type": "object"}


@dataclass(frozen=True, slots=True)
class Either:
    """A scalar of one shape, or a mapping or list of another."""

    scalar: Shape
    other: Shape

    def read(self, node: Node, findings: Findings) -> Any:
        return (self.scalar if isinstance(node, Scalar) else self.other).read(node, findings)

    def schema(self) -> Schema:
        return {"anyOf": [self.scalar.schema(), self.other.schema()]}


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a record, with what editors show about it."""

    shape: Shape
    doc: str
    required: bool = False
    default: Any = None


@dataclass(frozen=True, slots=True)
class Record:
    """A mapping with known keys. ``later`` are keys of the language that are refused as not supported yet."""

    noun: str
    keys: MappingABC[str, Key]
    later: frozenset[str] = field(default_factory=frozenset)
    #: Sets of keys of which exactly one must be there, for the schema; ``lint`` says so to authors.
    one_of: tuple[str, ...] = ()

    def read(self, node: Node, findings: Findings) -> Draft | None:
        if not isinstance(node, Mapping):
            such = f", such as {{{node.text}: …}}" if isinstance(node, Scalar) and node.text in self.keys else ""
            wrong_type(node, findings, f"{self.noun} as a mapping of keys{such}")
            return None
        draft = Draft(node)
        for name, entry in node.entries.items():
            if name in self.keys:
                value = self.keys[name].shape.read(entry, findings)
                if value is not None or isinstance(self.keys[name].shape, Anything):
                    draft[name] = value
            elif name in self.later:
                findings.add(node.keys[name], "not_supported_yet", f"{name!r} in {self.noun} is not supported yet")
            elif not name.startswith(OWN_KEY):
                hint = did_you_mean(name, (*self.keys, *self.later)) or self._few_keys()
                findings.add(node.keys[name], "unknown_key", f"unknown key {name!r} in {self.noun}{hint}")
        for name, key in self.keys.items():
            if key.required and name not in node.entries:
                findings.add(node, "missing_key", f"{self.noun} needs the key {name!r}: {key.doc}")
        return draft

    def _few_keys(self) -> str:
        """The keys that there are, if one can read them at a glance."""
        return f"; its keys are {', '.join(self.keys)}" if 0 < len(self.keys) <= _NAMED_MAX else ""

    def schema(self) -> Schema:
        schema: Schema = {
            "type": "object",
            "properties": {name: _described(key) for name, key in self.keys.items()},
            "patternProperties": {f"^{OWN_KEY}": {}},
            "additionalProperties": False,
        }
        required = [name for name, key in self.keys.items() if key.required]
        if required:
            schema["required"] = required
        if self.one_of:
            schema["oneOf"] = [{"required": [name]} for name in self.one_of]
        return schema


class Draft(dict[str, Any]):
    """A mapping as read: the keys without a mistake, and the node with all of them."""

    def __init__(self, node: Mapping, content: MappingABC[str, Any] | None = None) -> None:
        super().__init__(content or {})
        self.node = node


def _described(key: Key) -> Schema:
    schema = {**key.shape.schema(), "description": key.doc}
    if key.default is not None:
        schema["default"] = key.default
    return schema


class _Bad:
    """Stands for a value whose mistake is noted, where None is a value."""


_BAD: Final = _Bad()


def resolved(node: Scalar, findings: Findings) -> Any:
    """The plain scalar's value, or ``_BAD`` with the mistake noted."""
    try:
        return resolve(node.text)
    except ScalarMistake as mistake:
        findings.add(node, "ambiguous_value", str(mistake))
        return _BAD
