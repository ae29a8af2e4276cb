"""DAGs in Python that the documentation shows: they compile, are what the YAML below them says, and break as shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import Fence, fences
from tidewheel.authoring.files import load_source
from tidewheel.definition.load import Loaded, load_text


def shown(*words: str) -> list[tuple[Fence, Fence]]:
    """Blocks of these words, each with the one after it."""
    found = fences()
    return [(fence, found[index + 1]) for index, fence in enumerate(found[:-1]) if fence.words == words]


def load(fence: Fence, directory: Path) -> tuple[Loaded, ...]:
    (directory / "flow.py").write_text(fence.text)
    return load_source(directory / "flow.py", directory).dags


@pytest.mark.parametrize(("fence", "after"), shown("python", "dag"), ids=str)
def test_a_dag_that_is_shown_is_what_the_yaml_below_it_says(fence: Fence, after: Fence, tmp_path: Path) -> None:
    dags = load(fence, tmp_path)
    assert dags
    assert not [str(mistake) for one in dags for mistake in one.mistakes]
    if after.words == ("yaml", "workflow"):
        assert [one.version for one in dags] == [load_text(after.text, "f").version]


@pytest.mark.parametrize(("fence", "after"), shown("python", "dag", "bad"), ids=str)
def test_mistakes_in_python_read_as_they_are_shown(fence: Fence, after: Fence, tmp_path: Path) -> None:
    found = [mistake for one in load(fence, tmp_path) for mistake in one.mistakes]
    assert [f"{one.line}:{one.column}: {one.message} ({one.code})" for one in found] == after.text.splitlines()


def test_there_is_something_to_check() -> None:
    assert sum(after.words == ("yaml", "workflow") for _, after in shown("python", "dag")) >= 2
    assert shown("python", "dag", "bad")
