"""Values that are known only when the workflow runs, as Python objects that write CEL.

``load.output.rows > 3`` is an object that says ``tasks.load.output.rows > 3``. Within a text it stands in its braces:
``f"rows: {load.output.rows}"`` is ``rows: ${{ tasks.load.output.rows }}``.
"""

from __future__ import annotations

import json
import math
import re
from enum import IntEnum
from typing import Any, Final, NoReturn, Protocol, runtime_checkable

_PATH: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)


class Level(IntEnum):
    """How tightly CEL's operators bind."""

    ANYTHING = 0
    OR = 1
    AND = 2
    RELATION = 3
    SUM = 4
    PRODUCT = 5
    UNARY = 6
    PRIMARY = 7


class Expression:
    """A CEL expression. Fields, items, calls and operators make longer ones; ``&``, ``|``, ``~`` are and, or, not."""

    __slots__ = ("__level", "__source")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, source: str, level: Level = Level.PRIMARY) -> None:
        self.__source = source
        self.__level = level

    def __getattr__(self, name: str) -> Expression:
        if name.startswith("_"):
            raise AttributeError(f"a field named {name!r} is written [{name!r}]")
        return Expression(f"{operand(self, Level.PRIMARY)}.{name}")

    def __getitem__(self, key: str | int | Expression) -> Expression:
        return Expression(f"{operand(self, Level.PRIMARY)}[{literal(key)}]")

    def __call__(self, *arguments: Any) -> Expression:
        return Expression(f"{operand(self, Level.PRIMARY)}({', '.join(map(literal, arguments))})")

    def __eq__(self, other: object) -> Expression:  # type: ignore[override]
        return _binary(self, "==", other, Level.RELATION)

    def __ne__(self, other: object) -> Expression:  # type: ignore[override]
        return _binary(self, "!=", other, Level.RELATION)

    def __lt__(self, other: Any) -> Expression:
        return _binary(self, "<", other, Level.RELATION)

    def __le__(self, other: Any) -> Expression:
        return _binary(self, "<=", other, Level.RELATION)

    def __gt__(self, other: Any) -> Expression:
        return _binary(self, ">", other, Level.RELATION)

    def __ge__(self, other: Any) -> Expression:
        return _binary(self, ">=", other, Level.RELATION)

    def __and__(self, other: Any) -> Expression:
        return _binary(self, "&&", other, Level.AND)

    def __rand__(self, other: Any) -> Expression:
        return _binary(other, "&&", self, Level.AND)

    def __or__(self, other: Any) -> Expression:
        return _binary(self, "||", other, Level.OR)

    def __ror__(self, other: Any) -> Expression:
        return _binary(other, "||", self, Level.OR)

    def __invert__(self) -> Expression:
        return Expression(f"!{operand(self, Level.UNARY)}", Level.UNARY)

    def __add__(self, other: Any) -> Expression:
        return _binary(self, "+", other, Level.SUM)

    def __radd__(self, other: Any) -> Expression:
        return _binary(other, "+", self, Level.SUM)

    def __sub__(self, other: Any) -> Expression:
        return _binary(self, "-", other, Level.SUM)

    def __rsub__(self, other: Any) -> Expression:
        return _binary(other, "-", self, Level.SUM)

    def __mul__(self, other: Any) -> Expression:
        return _binary(self, "*", other, Level.PRODUCT)

    def __rmul__(self, other: Any) -> Expression:
        return _binary(other, "*", self, Level.PRODUCT)

    def __truediv__(self, other: Any) -> Expression:
        return _binary(self, "/", other, Level.PRODUCT)

    def __rtruediv__(self, other: Any) -> Expression:
        return _binary(other, "/", self, Level.PRODUCT)

    def __mod__(self, other: Any) -> Expression:
        return _binary(self, "%", other, Level.PRODUCT)

    def __rmod__(self, other: Any) -> Expression:
        return _binary(other, "%", self, Level.PRODUCT)

    def __neg__(self) -> Expression:
        return Expression(f"-{operand(self, Level.UNARY)}", Level.UNARY)

    def __str__(self) -> str:
        return f"${{{{ {self.__source} }}}}"

    def __repr__(self) -> str:
        return f"Expression({self.__source!r})"

    def __bool__(self) -> NoReturn:
        raise TypeError(
            f"{self.__source!r} is known only when the workflow runs: give the task a condition (if_=…); "
            "in expressions write & | ~ for and, or, not, with parentheses around comparisons"
        )

    def __iter__(self) -> NoReturn:
        raise TypeError(
            f"{self.__source!r} is known only when the workflow runs: a task can be run for_each item of it"
        )

    def __contains__(self, _item: object) -> NoReturn:
        raise TypeError(f"{self.__source!r} is known only when the workflow runs: write cel('… in {self.__source}')")

    @staticmethod
    def parts(expression: Expression) -> tuple[str, Level]:
        """Source and level; a static method, since every other name is a field."""
        return expression.__source, expression.__level


@runtime_checkable
class Referable(Protocol):
    """A task: where a value is wanted it is its output, within its own DAG."""

    @property
    def dag(self) -> object: ...

    @property
    def output(self) -> Expression: ...


class Cel:
    """CEL itself: ``cel("x in [1, 2]")`` is that text, ``cel.size(x)`` a function's call, ``cel.file`` a name."""

    def __call__(self, source: str) -> Expression:
        return Expression(source.strip(), Level.PRIMARY if _PATH.fullmatch(source.strip()) else Level.ANYTHING)

    def __getattr__(self, name: str) -> Expression:
        if name.startswith("_"):
            raise AttributeError(name)
        return Expression(name)


def operand(value: Any, level: Level) -> str:
    """The source of a value as a part of an expression that binds as ``level`` says."""
    if isinstance(value, Expression):
        source, own = Expression.parts(value)
        return source if own >= level else f"({source})"
    text = literal(value)
    return f"({text})" if text.startswith("-") and level == Level.PRIMARY else text


def literal(value: Any) -> str:
    """A Python value as CEL. Raises ``TypeError`` for what CEL cannot say."""
    match value:
        case Expression():
            return Expression.parts(value)[0]
        case None | bool():
            return json.dumps(value)
        case str():
            return json.dumps(value, ensure_ascii=False)
        case int():
            return str(value)
        case float() if math.isfinite(value):
            return repr(value)
        case list() | tuple():
            return f"[{', '.join(map(literal, value))}]"
        case dict():
            return f"{{{', '.join(f'{literal(key)}: {literal(item)}' for key, item in value.items())}}}"
        case Referable():
            return literal(value.output)
    raise TypeError(f"{value!r} cannot stand in an expression: write a text, a number, a list, a dict or an expression")


def _binary(left: Any, sign: str, right: Any, level: Level) -> Expression:
    # Relations do not chain; of the others, equals bind to the left.
    outer = Level(level + 1)
    return Expression(
        f"{operand(left, outer if level == Level.RELATION else level)} {sign} {operand(right, outer)}", level
    )


cel = Cel()
inputs, run, secrets, env = (Expression(root) for root in ("inputs", "run", "secrets", "env"))
#: The record that a trigger judges.
event = Expression("event")
#: The item of a task with ``for_each``, unless ``as_`` names it otherwise; then it is ``cel.NAME``.
item = Expression("item")
