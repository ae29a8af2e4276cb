"""The commands that the pages show and that need no server are run as they stand, in the order of their page."""

from __future__ import annotations

import glob
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.docs.pages import commands, fences, pages
from tidewheel_services.cli.app import app

#: They touch files at most.
OFFLINE = {"init", "validate", "plan", "schema", "effects-sql"}


def offline(page: str) -> Iterator[list[str]]:
    """The words of each such command of a page, up to where its output goes."""
    for place, line in commands():
        words = shlex.split(line, comments=True)
        if place.rpartition(":")[0] == page and words[0] in OFFLINE:
            yield words[: next((at for at, word in enumerate(words) if word in (">", "|", "&&")), None)]


PAGES = [page for page in pages() if any(offline(page))]


def test_there_is_something_to_run() -> None:
    assert {"README.md", "docs/quickstart.md", "docs/schedules.md", "docs/python.md"} <= set(PAGES)


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TIDEWHEEL_API", "http://127.0.0.1:9")
    shown = list(offline(page))
    if page not in ("README.md", "docs/quickstart.md"):
        # Who reads this page has been through the quickstart.
        assert CliRunner().invoke(app, ["init", "my-flows"]).exit_code == 0
    for words in shown:
        given = [file for word in words for file in (sorted(glob.glob(word)) if "/*" in word else [word])]  # noqa: PTH207
        done = CliRunner().invoke(app, given)
        assert done.exit_code == 0, f"{page}: tidewheel {shlex.join(words)}: {done.output}"


def test_a_worker_that_is_started_beside_a_deployment_works_in_its_project() -> None:
    served = []
    for fence in fences():
        calls = [
            words for place, line in commands() if place == str(fence) and (words := shlex.split(line, comments=True))
        ]
        for directory in (words[1] for words in calls if words[0] == "deploy"):
            for worker in (words for words in calls if words[0] == "worker"):
                assert worker[worker.index("--project") + 1] == directory, f"{fence}: {shlex.join(worker)}"
                served.append(directory)
    assert served
