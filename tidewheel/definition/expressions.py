"""Expressions: CEL by cel-expr-python (Google's C++ implementation): linear time, no effects, only the scope's names.

Four things about that library (version 0.1.3) shape this module; ``test_expressions.py`` watches them:

* ``Value.value()`` of a null takes a reference from Python's ``None`` that it does not own. Before Python 3.12 made
  ``None`` immortal, a few thousand nulls abort the process. So a null is recognised by its type and never fetched.
* A very deeply nested argument overflows the C stack, so the depth is checked first.
* A text argument is cut off at U+0000 in silence (``"admin\\0x" == "admin"``), so such a text is refused.
* Every value passed in is copied into C++. So only what an expression mentions is passed, and an expression that is
  nothing but a name, as most are, is looked up without CEL.
"""

from __future__ import annotations

import json
import math
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final

import msgspec
from cel_expr_python import cel

from tidewheel.core.assignment import Secret, Text
from tidewheel.core.expressions import ExpressionError, Scope
from tidewheel.definition.references import Reference, references, sole_reference
from tidewheel.definition.templates import OPENING, TemplateError, parse_template, whole_expression

#: Longer expressions belong in code. The compiler's own limits (32 levels deep) are reached long before.
SOURCE_LENGTH_MAX: Final = 10_000
_DEPTH_MAX: Final = 200
_CACHED_MAX: Final = 4_096
_SHOWN_MAX: Final = 200

SECRET: Final = re.compile(r"secrets\.([A-Za-z_][A-Za-z0-9_]*)")
_CODE_PREFIX: Final = re.compile(r"^(?:[A-Z_]+: )+")
_CODE_SUFFIX: Final = re.compile(r" \[[A-Z_]+\]$")
#: What the library says of a field that is asked of a number, a text, null; and what is said here instead.
_NO_FIELDS: Final = "SELECT to non-message"
_HAS_NONE: Final = ", it has no field"
_PLAIN_TYPES: Final = frozenset({"BOOL", "INT", "UINT", "STRING"})
_ROOTS: Final = ("inputs", "run", "tasks", "env")


class _Compiled(msgspec.Struct, frozen=True):
    """An expression ready to evaluate: ``name`` if it is only a lookup, else ``program`` and the names it needs."""

    name: Reference | None
    program: Any
    needs: tuple[Reference, ...]


class CelEvaluator:
    """``core.expressions.Evaluator`` with CEL. Keeps ``kept`` expressions compiled; safe in several threads."""

    def __init__(self, kept: int = _CACHED_MAX) -> None:
        self._compile = lru_cache(maxsize=kept)(_compile)

    def condition(self, source: str, scope: Scope) -> bool:
        """Evaluate CEL ``source`` (without ``${{ }}``), which must give a boolean."""
        value = self._evaluate(source, scope)
        if not isinstance(value, bool):
            raise _error(source, f"a condition must be true or false, this gives {_named(value)}")
        return value

    def render(self, value: Any, scope: Scope) -> Any:
        """Evaluate every ``${{ }}`` in a JSON value. A text that is one whole expression keeps its type."""
        if isinstance(value, str):
            return self._render_string(value, scope) if OPENING in value else value
        if isinstance(value, Mapping):
            return {key: self.render(item, scope) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.render(item, scope) for item in value]
        return value

    def render_text(self, value: str, scope: Scope) -> Text:
        """Evaluate to text; ``${{ secrets.NAME }}`` becomes a ``Secret``.

        Texts stay as they are and null is the empty text, as users of GitHub Actions expect; all else is its JSON text.
        """
        if OPENING not in value:
            return (value,) if value else ()
        pieces: list[str | Secret] = []
        for part in _parts(value):
            if isinstance(part, str):
                piece: str | Secret = part
            elif secret := SECRET.fullmatch(part.source):
                piece = Secret(secret[1])
            else:
                piece = as_text(self._evaluate(part.source, scope))
            if isinstance(piece, str) and pieces and isinstance(pieces[-1], str):
                pieces[-1] += piece
            elif piece != "":
                pieces.append(piece)
        return tuple(pieces)

    def _render_string(self, text: str, scope: Scope) -> Any:
        parts = _parts(text)
        whole = whole_expression(text)
        if whole is not None:
            return self._evaluate(whole.source, scope)
        return "".join(part if isinstance(part, str) else as_text(self._evaluate(part.source, scope)) for part in parts)

    def _evaluate(self, source: str, scope: Scope) -> Any:
        compiled: _Compiled = self._compile(source, tuple(scope.names))
        try:
            if compiled.name is not None:
                return _look_up(compiled.name, scope)
            value = compiled.program.eval(data=_needed(compiled.needs, scope))
            return _to_json(value)
        except _Cause as cause:
            fieldless = _fieldless(compiled.needs, scope) if _NO_FIELDS in str(cause) else ""
            raise _error(source, fieldless or str(cause)) from None
        except Exception as error:  # whatever the library or a value of a foreign type comes up with
            raise _error(source, _readable(str(error))) from error


class _Cause(Exception):
    """Why an evaluation failed, before the expression's text is added."""


def as_text(value: Any) -> str:
    """A JSON value within a text."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def compile_mistakes(error: Exception) -> list[tuple[int, int, str]]:
    """Line, column (both from 1) and message of each complaint of the compiler."""
    found = [
        (max(int(line), 1), max(int(column), 1), _CODE_SUFFIX.sub("", message))
        for line, column, message in re.findall(r"ERROR: <input>:(-?\d+):(-?\d+): (.*)", str(error))
    ]
    return found or [(1, 1, _readable(str(error)))]


@lru_cache(maxsize=_CACHED_MAX)
def _environment(names: tuple[str, ...]) -> Any:
    return cel.NewEnv(variables=dict.fromkeys((*_ROOTS, *names), cel.Type.DYN))


def _compile(source: str, names: tuple[str, ...]) -> _Compiled:
    if len(source) > SOURCE_LENGTH_MAX:
        raise _error(source, f"longer than {SOURCE_LENGTH_MAX} characters")
    mentioned = references(source, names)
    if any(reference.root == "secrets" for reference in mentioned):
        raise _error(source, "a secret may stand only alone, as ${{ secrets.NAME }}, in env and http headers")
    name = sole_reference(source, names)
    if name is not None:
        return _Compiled(name, None, ())
    for reference in mentioned:
        if reference.root == "tasks" and not reference.path:
            raise _error(source, "'tasks' must be followed by the id of one task, as in tasks.load.output")
    try:
        # Unchecked: the types were checked at deploy time, as far as they were known then.
        program = _environment(names).compile(source, disable_check=True)
    except Exception as error:
        line, column, message = compile_mistakes(error)[0]
        raise _error(source, f"{message} (line {line}, column {column})") from error
    return _Compiled(None, program, _shortest(mentioned))


def _shortest(mentioned: tuple[Reference, ...]) -> tuple[Reference, ...]:
    """Without the references that another one, being a part of them, brings along."""
    kept: list[Reference] = []
    for reference in sorted(mentioned, key=lambda one: len(one.path)):
        if not any(one.root == reference.root and reference.path[: len(one.path)] == one.path for one in kept):
            kept.append(reference)
    return tuple(kept)


def _root(reference: Reference, scope: Scope) -> tuple[Any, int]:
    """The value that the reference's path begins in, and how much of the path led there."""
    match reference.root:
        case "inputs":
            return scope.inputs, 0
        case "run":
            return scope.run, 0
        case "env":
            return scope.env, 0
    if reference.root in scope.names:
        return scope.names[reference.root], 0
    if not reference.path:
        raise _Cause("'tasks' must be followed by the id of one task, as in tasks.load.output")
    try:
        return scope.task(reference.path[0]), 1
    except KeyError:
        raise _Cause(f"there is no task {reference.path[0]!r}") from None


def _look_up(reference: Reference, scope: Scope) -> Any:
    value, start = _root(reference, scope)
    for index in range(start, len(reference.path)):
        field = reference.path[index]
        if not isinstance(value, Mapping):
            parent = ".".join((reference.root, *reference.path[:index]))
            raise _Cause(f"{parent} is {_named(value)}{_HAS_NONE} {field!r}")
        if field not in value:
            parent = ".".join((reference.root, *reference.path[:index]))
            raise _Cause(f"{parent} has no field {field!r}")
        value = value[field]
    return dict(value) if isinstance(value, Mapping) else value


def _fieldless(mentioned: tuple[Reference, ...], scope: Scope) -> str:
    """Which mentioned value a field is asked of that can have none, such as the output of a task that gave none."""
    for reference in mentioned:
        try:
            _look_up(reference, scope)
        except _Cause as cause:
            if _HAS_NONE in str(cause):
                return str(cause)
    return ""


def _needed(mentioned: tuple[Reference, ...], scope: Scope) -> dict[str, Any]:
    """The scope cut down to what is mentioned. A field that is missing stays missing."""
    data: dict[str, Any] = {}
    for reference in mentioned:
        value, start = _root(reference, scope)
        keys = (reference.root, *reference.path)
        place = data
        for key in keys[:start]:
            place = place.setdefault(key, {})
        _put(place, keys[start:], value)
    return data


def _put(place: dict[str, Any], keys: tuple[str, ...], value: Any) -> None:
    for key, field in pairwise(keys):
        if not isinstance(value, Mapping):
            place[key] = _plain(value, 0)
            return
        place = place.setdefault(key, {})
        if field not in value:
            return
        value = value[field]
    place[keys[-1]] = _plain(value, 0)


def _plain(value: Any, depth: int) -> Any:
    """The value, checked for what the library would break on; what holds it may be any mapping."""
    if isinstance(value, str):
        if "\0" in value:
            raise _Cause("a text with the character U+0000, which expressions cannot hold")
        return value
    if isinstance(value, dict):
        for key in value:
            _plain(key, depth)
        items: Iterable[Any] = value.values()
    elif isinstance(value, list):
        items = value
    elif isinstance(value, Mapping):
        return _plain(dict(value), depth)
    else:
        return value
    if depth >= _DEPTH_MAX:
        raise _Cause(f"a value is nested more than {_DEPTH_MAX} levels deep")
    for item in items:
        if isinstance(item, str | dict | list):
            _plain(item, depth + 1)
    return value


def _to_json(value: Any) -> Any:
    """A CEL value in plain JSON types, by CEL's JSON mapping: times are RFC 3339, durations seconds, bytes base64."""
    kind = value.type().name()
    if kind == "NULL":
        return None
    if kind in _PLAIN_TYPES:
        return value.value()
    if kind.startswith("LIST"):
        return [_to_json(item) for item in value.value()]
    if kind.startswith("MAP"):
        return _to_object(value.value())
    content = value.value()
    if kind == "ERROR":
        raise _Cause(_readable(content))
    if isinstance(content, float):
        if not math.isfinite(content):
            raise _Cause(f"the result is {content}, which JSON cannot hold")
        return content
    if isinstance(content, datetime):
        return content.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(content, timedelta):
        return f"{content.total_seconds():.6f}".rstrip("0").rstrip(".") + "s"
    if isinstance(content, bytes | bytearray):
        return b64encode(content).decode("ascii")
    raise _Cause(f"the result is of the type {kind.lower()}, which JSON cannot hold")


def _to_object(entries: Mapping[Any, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, item in entries.items():
        name = key if isinstance(key, str) else json.dumps(key)
        if name in result:
            raise _Cause(f"the result has the key {name} twice, as a text and as a value")
        result[name] = _to_json(item)
    return result


def _parts(text: str) -> tuple[Any, ...]:
    try:
        return parse_template(text)
    except TemplateError as error:
        raise ExpressionError(f"{_short(text)}: {error}") from None


def _error(source: str, cause: str) -> ExpressionError:
    return ExpressionError(f"${{{{ {_short(source)} }}}}: {cause}")


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"


def _readable(message: str) -> str:
    return _short(
        _CODE_SUFFIX.sub("", _CODE_PREFIX.sub("", message.strip().splitlines()[0] if message.strip() else "failed"))
    )


def _named(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case list():
            return "a list"
    return "a mapping"
