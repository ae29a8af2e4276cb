"""What the documentation says about the code is there; what people meet in files, journal and settings is explained."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from functools import cache
from typing import get_args

import pytest

from tests.docs.pages import ROOT, code, pages
from tidewheel.core import events
from tidewheel.core.commands import FailureKind, RunKind
from tidewheel.core.transitions import RunPhase, TaskPhase
from tidewheel.core.workflow import DeadlineFrom, NotifyEvent, TriggerRule
from tidewheel.definition.language import WORKFLOW
from tidewheel.definition.shapes import Either, ListOf, MapOf, Record, Shape
from tidewheel.log.interface import TOPICS
from tidewheel_services.why.reason import Code
from tools.draw_states import PAGE, drawn

_PATH = re.compile(r"(?P<path>[\w./-]+\.(?:py|sql|avsc|json|jsonl|yaml|yml|toml|md))(?::(?P<name>[\w.]+))?$")
_TEST = re.compile(r"(?P<path>[\w./]+\.py)::(?P<name>\w+)")


@cache
def defined(path: str) -> set[str]:
    """The names that a module defines, those within its classes also with the class in front."""
    names: set[str] = set()

    def collect(body: Iterable[ast.stmt], prefix: str) -> None:
        for node in body:
            match node:
                case ast.ClassDef(name=name):
                    names.add(prefix + name)
                    collect(node.body, f"{prefix}{name}.")
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    names.update((name, prefix + name))
                case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                    names.add(prefix + name)

    collect(ast.parse((ROOT / path).read_text(encoding="utf-8")).body, "")
    return names


@pytest.mark.parametrize("page", pages())
def test_files_and_names_that_are_named_exist(page: str) -> None:
    lost = []
    for text in code(page):
        found = _TEST.fullmatch(text) or _PATH.fullmatch(text)
        if found is None or "/" not in found["path"] or found["path"].startswith("/"):
            continue
        path, name = found["path"], found["name"]
        if not (ROOT / path).exists() or (name is not None and name not in defined(path)):
            lost.append(text)
    assert not lost


def test_the_states_are_drawn_as_the_tables_are() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert drawn(text) == text, "run tools/draw_states.py"


def missing(page: str, words: Iterable[str]) -> list[str]:
    """Which of the words stand nowhere between backticks on the page."""
    there = {word for text in code(page) for word in (text, *re.findall(r"[\w-]+", text))}
    return sorted(set(words) - there)


def test_every_event_is_explained() -> None:
    assert not missing("docs/journal.md", (event.__name__ for event in get_args(events.AnyEvent)))


def test_every_state_is_drawn() -> None:
    text = pages()["docs/journal.md"]
    assert not [state for state in (*get_args(TaskPhase), *get_args(RunPhase)) if f"--> {state}" not in text]


def keys(shape: Shape) -> set[str]:
    """Every key of the language within a shape, those refused as not supported yet included."""
    match shape:
        case Record(keys=known, later=later):
            return {*known, *later} | {name for key in known.values() for name in keys(key.shape)}
        case ListOf(item=inner) | MapOf(value=inner):
            return keys(inner)
        case Either(other=inner):
            return keys(inner)
    return set()


def test_every_key_and_word_of_workflow_files_is_explained() -> None:
    known = keys(WORKFLOW)
    assert {"cron", "exit_codes", "headers", "enum", "switch"} <= known
    tasks = WORKFLOW.keys["tasks"].shape
    assert isinstance(tasks, ListOf) and isinstance(tasks.item, Record)
    telling = keys(WORKFLOW.keys["deadlines"].shape) | keys(WORKFLOW.keys["notify"].shape)
    elsewhere = {
        "docs/schedules.md": keys(WORKFLOW.keys["schedule"].shape),
        "docs/triggers.md": keys(WORKFLOW.keys["triggers"].shape),
        "docs/containers.md": {
            key for action in ("container", "kubernetes", "celery") for key in keys(tasks.item.keys[action].shape)
        },
        "docs/waits.md": keys(tasks.item.keys["wait_for"].shape),
        "docs/notifications.md": telling - {"notify"},
    }
    assert not missing("docs/workflow.md", known - set().union(*elsewhere.values()))
    for page, there in elsewhere.items():
        assert not missing(page, there)
    assert not missing("docs/notifications.md", (*get_args(DeadlineFrom), *get_args(NotifyEvent)))
    assert not missing("docs/workflow.md", (*get_args(TriggerRule), *get_args(FailureKind), *get_args(RunKind)))
    assert not missing("docs/operating-runs.md", get_args(Code))


def test_every_topic_and_setting_is_explained() -> None:
    assert not missing("docs/operations.md", TOPICS)
    assert not missing("docs/architecture.md", TOPICS)
    sources = [ROOT / "services/tidewheel_services/config.py", ROOT / "services/tidewheel_services/worker/secrets.py"]
    variables = {
        name for path in sources for name in re.findall(r'"(TIDEWHEEL_[A-Z_]+)"', path.read_text(encoding="utf-8"))
    }
    assert len(variables) >= 7
    assert not [name for name in variables if name not in pages()["docs/operations.md"]]


def test_the_layers_on_the_page_are_those_that_are_held() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    held = re.search(r"^layers = \[(.*?)^\]", text, re.MULTILINE | re.DOTALL)
    assert held is not None
    layers = [re.findall(r"[\w.]+", line) for line in held[1].splitlines() if line.strip()]
    rows = re.findall(r"^\| (`tidewheel[^|]*) \|", pages()["docs/architecture.md"], re.MULTILINE)
    assert [re.findall(r"[\w.]+", row) for row in rows] == layers


def test_pages_are_short_enough_to_read() -> None:
    assert not [page for page, text in pages().items() if text.count("\n") >= 400]
