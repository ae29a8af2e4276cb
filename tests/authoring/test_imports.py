"""What `python:` names is looked for in the project, without executing any of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidewheel.authoring.imports import check_imports
from tidewheel.definition.load import load_text

EXAMPLES = Path(__file__).parents[2] / "examples"
ETL = """\
1 / 0
if True:
    async def load(): ...
class Day:
    def of(): ...
send = load
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").write_text("")
    (tmp_path / "shop" / "etl.py").write_text(
        "1 / 0\nif True:\n    async def load(): ...\nclass Day:\n    def of(): ...\nsend = load\n"
    )
    (tmp_path / "starry.py").write_text("from os.path import *\n")
    (tmp_path / "broken.py").write_text("def (:\n")
    return tmp_path


def warned(project: Path, *names: str) -> list[str]:
    """What is told of tasks that call these, without where the project is."""
    tasks = "".join(f"  - {{id: t{number}, python: '{name}'}}\n" for number, name in enumerate(names))
    found = check_imports([load_text(f"id: a\ntasks:\n{tasks}", "a.yaml")], project)
    return [f"{one.line}:{one.column} {one.code}: {one.message}".replace(f"{project}/", "") for one in found]


@pytest.mark.parametrize(
    "name",
    ["shop.etl:load", "shop.etl:Day.of", "shop.etl:send", "starry:join", "broken:load", "json:dumps", "registered"],
)
def test_what_may_be_there_is_not_told(project: Path, name: str) -> None:
    assert warned(project, name) == []


def test_a_module_that_is_nowhere_is_told_where_it_stands(project: Path) -> None:
    (told,) = warned(project, "json:dumps", "shopp.etl:load")
    assert told.startswith("4:23 unknown_module: there is no shopp/etl.py below ")
    assert [one.split(":")[1] for one in warned(project, "shop.elt:load")] == ["23 unknown_module"]


def test_who_gives_the_directory_above_the_project_is_told_which_it_is(project: Path) -> None:
    loaded = load_text("id: a\ntasks:\n  - {id: t, python: 'shop.etl:load'}\n", str(project / "flows" / "a.yaml"))
    (told,) = check_imports([loaded], project.parent)
    assert told.message.endswith(f"; {project} has it: name that directory instead, or as --project")


def test_a_name_that_the_module_does_not_have_is_told_with_the_nearest(project: Path) -> None:
    (told,) = warned(project, "shop.etl:laod")
    assert told == "3:23 unknown_callable: shop/etl.py defines no 'laod'; did you mean 'load'?"


def test_each_name_is_told_once(project: Path) -> None:
    assert len(warned(project, "nowhere:a", "nowhere:a", "nowhere:b")) == 2


@pytest.mark.parametrize(
    ("file", "missing"),
    [
        ("daily_orders/daily_orders.yaml", "shop/etl.py"),
        ("features/celery.yaml", "jobs.py"),
        ("seattle_weather.yaml", ""),
    ],
)
def test_examples_that_are_projects_of_their_own_work_in_them(file: str, missing: str) -> None:
    path = EXAMPLES / file
    loaded = load_text(path.read_text(encoding="utf-8"), str(path))
    assert check_imports([loaded], path.parent) == []
    assert [one.message.split()[3] for one in check_imports([loaded], EXAMPLES)[:1]] == ([missing] if missing else [])
