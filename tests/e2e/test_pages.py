"""What a newcomer's pages show is run as it stands against `tidewheel dev`, in the order of the pages."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import commands
from tests.e2e.running import dev, document, tidewheel

#: What asks a running engine and ends by itself.
ONLINE = {"trigger", "runs", "show", "why", "logs", "events", "mark", "clear", "rerun", "dags", "pools", "workers"}
#: The DAG that docs/operating-runs.md speaks of.
DAILY_ORDERS = """\
id: daily_orders
inputs: {min_ratio: {type: number, default: 0.8}}
tasks:
  - {id: load, for_each: [0, 1, 2, 3, 4, 5, 6, 7], run: "true"}
  - {id: publish, needs: [load], run: "true"}
"""


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """An engine over what `tidewheel init` writes, and that DAG with its run."""
    flows: Path = tmp_path_factory.mktemp("pages") / "my-flows"
    assert tidewheel("init", flows).returncode == 0
    (flows / "daily_orders.yaml").write_text(DAILY_ORDERS)
    with dev(flows) as (_, found):
        run = document("trigger", "daily_orders", "--run-id", "2026-01-31", "--wait", env=found)
        assert run["state"] == "success"
        yield found


def shown(page: str) -> list[list[str]]:
    """The page's commands, each as its words."""
    lines = (line for place, line in commands() if place.rpartition(":")[0] == page)
    return [words for line in lines if (words := shlex.split(line, comments=True))[0] in ONLINE]


@pytest.mark.parametrize("page", ["README.md", "docs/quickstart.md"])
def test_the_first_commands_work_as_they_stand(page: str, env: dict[str, str]) -> None:
    assert len(shown(page)) >= 4
    for words in shown(page):
        newest = document("runs", "hello", "--limit", "1", env=env)
        given = [newest[0]["run_id"] if word == "RUN_ID" else word for word in words]
        done = tidewheel(*given, env=env)
        assert done.returncode == 0, f"{page}: tidewheel {shlex.join(given)}: {done.stdout}{done.stderr}"


def test_what_is_done_about_runs_is_understood(env: dict[str, str]) -> None:
    assert len(shown("docs/operating-runs.md")) >= 12
    for words in shown("docs/operating-runs.md"):
        done = tidewheel(*words, env=env)
        # The page shows alternatives: after one of them the next may be refused, with a reason.
        assert done.returncode in (0, 1), f"tidewheel {shlex.join(words)}: {done.stdout}{done.stderr}"
        assert done.returncode == 0 or done.stderr.startswith("error: "), done.stderr
