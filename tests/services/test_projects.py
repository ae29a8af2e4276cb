"""A workflow whose modules lie in a project of its own is told where it can run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidewheel.definition.load import load_text
from tidewheel_services.standalone.projects import stray_project

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("file", "task", "module"),
    [
        ("daily_orders/daily_orders.yaml", "list_files", "shop.etl"),
        ("features/python_task.yaml", "count", "steps"),
        ("features/celery.yaml", "add", "jobs"),
    ],
)
def test_it_can_run_where_its_modules_are(file: str, task: str, module: str) -> None:
    path = EXAMPLES / file
    workflow = load_text(path.read_text(encoding="utf-8"), str(path)).workflow
    assert workflow is not None
    hint = stray_project(workflow, path, EXAMPLES)
    assert f"task {task} needs the module '{module}'" in hint
    assert hint.endswith(f"tidewheel dev {path.parent}")
    assert stray_project(workflow, path, path.parent) == ""


def test_nothing_is_said_of_what_is_found_or_is_nowhere(tmp_path: Path) -> None:
    file = tmp_path / "team" / "flow.yaml"
    file.parent.mkdir()
    tasks = "[{id: a, python: 'etl:load'}, {id: b, python: registered}, {id: c, run: 'true'}]"
    workflow = load_text(f"id: flow\ntasks: {tasks}\n", str(file)).workflow
    assert workflow is not None
    assert stray_project(workflow, file, tmp_path) == ""
    (tmp_path / "etl.py").touch()
    (tmp_path / "team" / "etl.py").touch()
    assert stray_project(workflow, file, tmp_path) == ""
