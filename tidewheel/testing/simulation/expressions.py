"""The few expressions that simulated workflows use, evaluated without CEL: a simulation asks for thousands of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tidewheel.core.assignment import Text
from tidewheel.core.expressions import ExpressionError, Scope

NEVER = "1 > 2"
SECOND_TRY = "tasks.t0.output.n > 1"
NUMBER = "${{ tasks.t0.output.n }}"
#: Of a record, in triggers: a filter, and a dedupe key.
LARGE = "event.value.n > 1"
KEY = "${{ event.key }}"


class PlainEvaluator:
    """Knows these expressions only; ``at`` is called before each, so that a process can be hit within a decision."""

    def __init__(self, at: Callable[[], None]) -> None:
        self._at = at

    def condition(self, source: str, scope: Scope) -> bool:
        """The condition's value."""
        self._at()
        if source == NEVER:
            return False
        if source == LARGE:
            return _size(scope) > 1
        assert source == SECOND_TRY, source
        return _number(scope) > 1

    def render(self, value: Any, scope: Scope) -> Any:
        """``value`` with its expressions filled in."""
        self._at()
        if isinstance(value, dict):
            return {key: self.render(item, scope) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.render(item, scope) for item in value]
        if value == KEY:
            return scope.names["event"]["key"]
        return _number(scope) if value == NUMBER else value

    def render_text(self, value: str, scope: Scope) -> Text:
        """``value`` as text."""
        rendered = self.render(value, scope)
        return (rendered if isinstance(rendered, str) else json.dumps(rendered),)


def _size(scope: Scope) -> int:
    value = scope.names["event"]["value"]
    if not isinstance(value, dict):
        raise ExpressionError("event.value.n: the value is no object")
    return int(value.get("n", 0))


def _number(scope: Scope) -> int:
    output = scope.task("t0")["output"]
    if not isinstance(output, dict):
        raise ExpressionError("tasks.t0.output.n: t0 has no output")
    return int(output["n"])
