"""What Python's operators write as CEL, and what they refuse to guess."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidewheel.authoring import Expression, cel, inputs, item, run, secrets
from tidewheel.core.expressions import Scope
from tidewheel.definition.expressions import CelEvaluator

a, b, c = (Expression(name) for name in "abc")


@pytest.mark.parametrize(
    ("built", "source"),
    [
        (run.interval.start, "run.interval.start"),
        (inputs["a-b"][0][a], 'inputs["a-b"][0][a]'),
        ((a > 1) & ~(b == "x") | c, 'a > 1 && !(b == "x") || c'),
        (a & (b | c), "a && (b || c)"),
        (1 + a * (b - 2) - -c, "1 + a * (b - 2) - -c"),
        (a - (b - c), "a - (b - c)"),
        (a - b - c, "a - b - c"),
        ((a == b) == c, "(a == b) == c"),
        ((a + b).size(), "(a + b).size()"),
        (-3 * a, "-3 * a"),
        (cel.size(a) % 2, "size(a) % 2"),
        (cel("a in [1, 2]") & b, "(a in [1, 2]) && b"),
        (cel("a.b").c, "a.b.c"),
        (a.startsWith('"\\\n'), 'a.startsWith("\\"\\\\\\n")'),
        (a == [None, True, 1.5, {"k": b}], 'a == [null, true, 1.5, {"k": b}]'),
    ],
)
def test_what_is_written(built: Expression, source: str) -> None:
    assert str(built) == f"${{{{ {source} }}}}"
    assert repr(built) == f"Expression({source!r})"


def test_within_a_text_it_stands_in_its_braces() -> None:
    assert f"Bearer {secrets.token}, {item.path}" == "Bearer ${{ secrets.token }}, ${{ item.path }}"
    with pytest.raises(TypeError):
        f"{a:>10}"


@pytest.mark.parametrize(
    "misuse",
    [
        lambda: bool(a),
        lambda: not a,
        lambda: 0 < a < 3,
        lambda: a and b,
        lambda: list(a),
        lambda: 1 in a,
        lambda: a == object(),
        lambda: a + float("nan"),
        lambda: {a},
        lambda: len(a),  # type: ignore[arg-type]
    ],
)
def test_what_only_a_run_knows_is_not_decided_now(misuse: Callable[[], Any]) -> None:
    with pytest.raises(TypeError):
        misuse()


_numbers = st.integers(-50, 50)
_sums = st.recursive(
    _numbers,
    lambda inner: st.tuples(st.sampled_from("+-*"), inner, inner),
    max_leaves=6,
)


def _value(tree: Any, leaf: Callable[[int], Any]) -> Any:
    if isinstance(tree, int):
        return leaf(tree)
    sign, left, right = tree
    first, second = _value(left, leaf), _value(right, leaf)
    return first + second if sign == "+" else first - second if sign == "-" else first * second


@settings(max_examples=60, deadline=None)
@given(_sums, _sums)
def test_parentheses_stand_where_the_sense_needs_them(left: Any, right: Any) -> None:
    """CEL computes of the text what Python computes of the numbers."""
    known: dict[str, int] = {}

    def leaf(number: int) -> Expression:
        known[f"n{len(known)}"] = number
        return inputs[f"n{len(known) - 1}"]

    built = _value(left, leaf) < _value(right, leaf)
    scope = Scope(inputs=known, run={}, task=lambda _: {})
    assert CelEvaluator().render(str(built), scope) == (_value(left, int) < _value(right, int))
