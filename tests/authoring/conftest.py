"""Python files with ``§`` before every place where a mistake is expected."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tidewheel.authoring.files import load_source
from tidewheel.definition.load import Mistake

Expect = Callable[..., list[Mistake]]
HEAD = "from tidewheel.authoring import cel, dag, http, inputs, item, run, secrets, shell, task\n"


@pytest.fixture
def expect(tmp_path: Path) -> Expect:
    """Load a marked text and compare the places and codes of all its mistakes, in order."""

    def check(marked: str, *codes: str) -> list[Mistake]:
        text, *pieces = (HEAD + marked).split("§")
        places = []
        for piece in pieces:
            places.append((text.count("\n") + 1, len(text) - text.rfind("\n")))
            text += piece
        file = tmp_path / "flow.py"
        file.write_text(text, encoding="utf-8")
        found = [one for dag in load_source(file, tmp_path).dags for one in dag.mistakes]
        expected = [(*place, code) for place, code in zip(places, codes, strict=True)]
        assert [(m.line, m.column, m.code) for m in found] == expected, "\n".join(map(str, found))
        assert {m.file for m in found} <= {str(file)}
        return found

    return check
