"""A run's inputs: defaults filled in, every value checked against its declared type before the run is created."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import date, datetime
from reprlib import Repr
from typing import Any, Final

from tidewheel.core.expressions import Evaluator, ExpressionError, Scope
from tidewheel.core.nearest import did_you_mean
from tidewheel.core.workflow import Input, InputType, Workflow
from tidewheel.core.zones import zone_of

_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_DATETIME: Final = re.compile(r"\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2}:\d{2}(\.\d{1,9})?([Zz]|[+-]\d{2}:\d{2})", re.ASCII)
#: Integers beyond this do not survive every JSON reader, and expressions count in 64 bits.
_INTEGER_MAX: Final = 2**63 - 1
#: Values in messages are cut to a length that fits a line.
_SHORT: Final = Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 80

_EXPECTED: Final[Mapping[InputType, str]] = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "date": "a date like 2026-01-31",
    "datetime": "an RFC 3339 time like 2026-01-31T06:00:00Z",
    "array": "a list",
    "object": "a mapping",
}


class InputMistake(ValueError):
    """A value does not fit the declaration of its input."""


def check_inputs(
    workflow: Workflow, given: Mapping[str, Any], evaluator: Evaluator, scope: Scope
) -> tuple[dict[str, Any], list[str]]:
    """The inputs a run gets, and every mistake in what was given. Inputs without a mistake are in the result anyway.

    A default's expression sees ``scope.run``. A timestamp that such an expression gives for a ``date`` becomes the
    date it has in the schedule's time zone: the slot of 1 January 00:00 in Tokyo is 1 January, though in UTC it is
    still December.
    """
    accepted: dict[str, Any] = {}
    mistakes = [
        f"unknown input {name!r}{did_you_mean(name, workflow.inputs)}"
        if workflow.inputs
        else f"unknown input {name!r}: this workflow declares no inputs"
        for name in given
        if name not in workflow.inputs
    ]
    for name, declared in workflow.inputs.items():
        try:
            if name in given:
                accepted[name] = check_value(declared, given[name])
            elif declared.required:
                mistakes.append(f"input {name!r} is required: give {_EXPECTED[declared.type]}")
            else:
                accepted[name] = _default(workflow, declared, evaluator, scope)
        except InputMistake as mistake:
            mistakes.append(f"input {name!r}: {mistake}")
        except ExpressionError as error:
            mistakes.append(f"input {name!r}: its default failed: {error}")
    return accepted, mistakes


def check_value(declared: Input, value: Any) -> Any:
    """The value as the declared type holds it (a ``number`` is always a float). Raises ``InputMistake``."""
    if value is None and not declared.required and declared.default is None:
        return None
    value = typed(declared.type, value)
    if declared.enum and value not in [typed(declared.type, allowed) for allowed in declared.enum]:
        raise InputMistake(f"{_shown(value)} is none of {', '.join(_shown(allowed) for allowed in declared.enum)}")
    return value


def typed(kind: InputType, value: Any) -> Any:
    """The value as ``kind`` holds it. Raises ``InputMistake``."""
    match kind:
        case "string" if isinstance(value, str):
            return value
        case "boolean" if isinstance(value, bool):
            return value
        case "integer" if (whole := _whole(value)) is not None:
            return whole
        case "number" if isinstance(value, int | float) and not isinstance(value, bool):
            return _finite(value)
        case "date" if isinstance(value, str) and _is_date(value):
            return value
        case "datetime" if isinstance(value, str) and _is_datetime(value):
            return value
        case "array" if isinstance(value, list | tuple):
            return list(value)
        case "object" if isinstance(value, Mapping):
            return dict(value)
    raise InputMistake(f"expected {_EXPECTED[kind]}, got {_shown(value)}")


def _default(workflow: Workflow, declared: Input, evaluator: Evaluator, scope: Scope) -> Any:
    value = evaluator.render(declared.default, scope)
    if declared.type == "date" and value != declared.default and isinstance(value, str) and _is_datetime(value):
        zone = zone_of(workflow.schedule.timezone if workflow.schedule else "UTC")
        value = _moment(value).astimezone(zone).date().isoformat()
    return check_value(declared, value)


def _whole(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, float) and value.is_integer():  # JSON has one kind of number: 3.0 is a whole one
        value = int(value)
    if not isinstance(value, int):
        return None
    if not -_INTEGER_MAX - 1 <= value <= _INTEGER_MAX:
        raise InputMistake(f"{_shown(value)} does not fit into 64 bits")
    return value


def _finite(value: int | float) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise InputMistake(f"{_shown(value)} is no finite number")
    return number


def _is_date(text: str) -> bool:
    if not _DATE.fullmatch(text):
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _is_datetime(text: str) -> bool:
    if not _DATETIME.fullmatch(text):
        return False
    try:
        _moment(text)
    except ValueError:
        return False
    return True


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text.upper())


def _shown(value: Any) -> str:
    """The value as its author would write it, shortened."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return _SHORT.repr(value)
