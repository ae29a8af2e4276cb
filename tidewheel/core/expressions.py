"""What the rules need of an expression language. ``definition.expressions`` implements it with CEL."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from tidewheel.core.assignment import Text


class ExpressionError(Exception):
    """An expression could not be evaluated; the message says which and why."""


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """The names an expression sees.

    ``task(id)`` gives ``{"state", "output"}`` and is asked only for tasks it mentions.
    """

    inputs: Mapping[str, Any]
    #: id, kind, logical_date, interval {start, end} (RFC 3339 text or None), attempt
    run: Mapping[str, Any]
    task: Callable[[str], Mapping[str, Any]]
    env: Mapping[str, str] = msgspec.field(default_factory=dict)
    #: Names of this task alone: its item, if it is an instance of a mapped task.
    names: Mapping[str, Any] = msgspec.field(default_factory=dict)


class Evaluator(Protocol):
    """Pure: the same source and scope give the same answer. Both raise ``ExpressionError``."""

    def condition(self, source: str, scope: Scope) -> bool:
        """Evaluate CEL ``source`` (without ``${{ }}``), which must give a boolean."""

    def render(self, value: Any, scope: Scope) -> Any:
        """Evaluate every ``${{ }}`` in a JSON value.

        A string that is one whole expression keeps the expression's type.
        """

    def render_text(self, value: str, scope: Scope) -> Text:
        """Evaluate to text; ``${{ secrets.NAME }}`` becomes a ``Secret``. Non-strings render as their JSON text."""
