"""Finding ``${{ … }}``."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewheel.definition.templates import Placeholder, TemplateError, parse_template, whole_expression


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ()),
        ("plain }} {{ $ ${x}", ("plain }} {{ $ ${x}",)),
        ("${{ a }}", (Placeholder("a", 4),)),
        ("${{a}}", (Placeholder("a", 3),)),
        ("x${{ a }}y${{  b  }}", ("x", Placeholder("a", 5), "y", Placeholder("b", 15))),
        ("${{ '}}' }}", (Placeholder("'}}'", 4),)),
        ("${{ \"}}\" + '\\'}}' }}", (Placeholder("\"}}\" + '\\'}}'", 4),)),
        ("${{ r'\\' }}", (Placeholder("r'\\'", 4),)),
        ("${{ '''a'}}''' }}!", (Placeholder("'''a'}}'''", 4), "!")),
        ("${{ {'a': {'b': 1}} }}", (Placeholder("{'a': {'b': 1}}", 4),)),
        ("${{ a\n && b }}", (Placeholder("a\n && b", 4),)),
        ("${{ a }}}", (Placeholder("a", 4), "}")),
    ],
)
def test_texts_are_taken_apart(text: str, parts: tuple[str | Placeholder, ...]) -> None:
    assert parse_template(text) == parts


@pytest.mark.parametrize(("text", "offset"), [("ab ${{ x", 3), ("${{ }}", 0), ("${{ a }} ${{ { }}", 9), ("${{", 0)])
def test_what_is_not_closed_or_empty_is_refused_with_its_place(text: str, offset: int) -> None:
    with pytest.raises(TemplateError) as raised:
        parse_template(text)
    assert raised.value.offset == offset


def test_whole_expressions() -> None:
    assert whole_expression(" ${{ a }}\n") == Placeholder("a", 5)
    assert whole_expression("${{ a }}${{ b }}") is None
    assert whole_expression("x ${{ a }}") is None
    assert whole_expression("x") is None


@given(st.text(alphabet="${}'\"ar \\n\n", max_size=30))
def test_nothing_is_lost(text: str) -> None:
    try:
        parts = parse_template(text)
    except TemplateError:
        return
    position = 0
    for part in parts:
        if isinstance(part, str):
            assert text.startswith(part, position)
            position += len(part)
        else:
            assert text.startswith(part.source, part.offset)
            assert text[position : part.offset].strip() == "${{"
            position = text.index("}}", part.offset + len(part.source)) + 2
    assert position == len(text)
