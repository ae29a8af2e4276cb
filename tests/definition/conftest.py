"""Mistakes by example: a file's text with ``§`` before every place where one is expected."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from tidewheel.definition.load import Loaded, load_text

Expect = Callable[..., Loaded]


@pytest.fixture
def expect() -> Expect:
    """Load a marked text and compare the places and codes of all its mistakes, in order."""

    def check(marked: str, *codes: str, pools: Mapping[str, int | None] | None = None) -> Loaded:
        text, *pieces = marked.split("§")
        places = []
        for piece in pieces:
            places.append((text.count("\n") + 1, len(text) - text.rfind("\n")))
            text += piece
        loaded = load_text(text, "dag.yaml", pools)
        expected = [(*place, code) for place, code in zip(places, codes, strict=True)]
        assert [(m.line, m.column, m.code) for m in loaded.mistakes] == expected, "\n".join(map(str, loaded.mistakes))
        assert {m.file for m in loaded.mistakes} <= {"dag.yaml"}
        assert (loaded.workflow is None) == bool(codes) == (loaded.version is None)
        return loaded

    return check


@pytest.fixture
def message(expect: Expect) -> Callable[..., str]:
    """The same for a text with one mistake, giving its message."""

    def check(marked: str, code: str, pools: Mapping[str, int | None] | None = None) -> str:
        (mistake,) = expect(marked, code, pools=pools).mistakes
        return mistake.message

    return check
