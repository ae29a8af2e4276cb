"""Whatever the documentation shows is so: workflows load, mistakes read as shown, commands and options exist."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator

import pytest
import typer.main
from typer.core import TyperGroup
from typer.testing import CliRunner

from tests.docs.pages import ROOT, Fence, code, commands, fences, links, pages
from tests.docs.pages import anchors as anchors_of
from tidewheel.definition.load import load_text
from tidewheel_services.cli.app import app
from tidewheel_services.standalone.templates import TEMPLATES

PROGRAM = typer.main.get_command(app)
#: Behind these, the rest of a line in a shell is another command or none of it.
_ENDS = {"&", "&&", "|", ">", ";"}


def workflows() -> list[Fence]:
    return [
        fence
        for fence in fences()
        if "bad" not in fence.words and fence.words[:1] == ("yaml",) and re.search("^tasks:", fence.text, re.MULTILINE)
    ]


def mistakes() -> list[tuple[Fence, Fence]]:
    """A workflow with mistakes, and the block right after it that shows them."""
    shown = fences()
    return [(fence, shown[index + 1]) for index, fence in enumerate(shown) if fence.words[::2] == ("yaml", "bad")]


@pytest.mark.parametrize("fence", workflows(), ids=str)
def test_a_workflow_that_is_shown_loads(fence: Fence) -> None:
    assert not [str(mistake) for mistake in load_text(fence.text, str(fence)).mistakes]


@pytest.mark.parametrize(("fence", "shown"), mistakes(), ids=lambda fence: str(fence))
def test_mistakes_read_as_they_are_shown(fence: Fence, shown: Fence) -> None:
    found = load_text(fence.text, "f").mistakes
    assert [f"{one.line}:{one.column}: {one.message} ({one.code})" for one in found] == shown.text.splitlines()


def test_the_first_mistake_of_the_quickstart_is_shown_as_it_is() -> None:
    broken = TEMPLATES["hello"].files["hello.yaml"].replace("needs: [greet]", "neds: [greet]")
    (first, *_) = load_text(broken, "my-flows/hello.yaml").mistakes
    shown = f"{first.file}:{first.line}:{first.column}: {first.message} ({first.code})\n"
    assert shown in pages()["docs/quickstart.md"]


def test_there_is_something_to_check() -> None:
    assert len(workflows()) >= 5
    assert len(mistakes()) >= 3
    assert len(list(named())) >= 30


def named() -> Iterator[tuple[str, list[str]]]:
    """Each call of the program on any page, in its text too: where, and its words."""
    for place, line in commands():
        yield place, shlex.split(line, comments=True)
    for page in pages():
        for text in code(page):
            if text.startswith("tidewheel "):
                yield page, text.split()[1:]


@pytest.mark.parametrize(("place", "words"), list(named()), ids=lambda value: value if isinstance(value, str) else "")
def test_a_command_that_is_named_exists(place: str, words: list[str]) -> None:
    command = PROGRAM
    while isinstance(command, TyperGroup) and words and not words[0].startswith("-"):
        name = words.pop(0)
        assert name in command.commands, f"{place}: no command {name!r} in {command.name}"
        command = command.commands[name]
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    for word in words:
        if word in _ENDS:
            break
        if word.startswith("-"):
            assert word.partition("=")[0] in known | {"-h", "--help"}, f"{place}: {command.name} has no {word}"


@pytest.mark.parametrize(
    "fence", [one for one in fences() if one.text.startswith("$ tidewheel plan --") and "\n2" in one.text], ids=str
)
def test_what_plan_is_said_to_print_it_prints(fence: Fence) -> None:
    first, *shown = fence.text.splitlines()
    result = CliRunner().invoke(app, shlex.split(first)[2:], env={"COLUMNS": "120"})
    assert [line.rstrip() for line in result.output.splitlines()] == shown


@pytest.mark.parametrize("page", pages())
def test_links_lead_somewhere(page: str) -> None:
    lost = []
    for link in links(page):
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = (ROOT / page).parent / file if file else ROOT / page
        name = target.resolve().relative_to(ROOT).as_posix()
        if not target.exists() or (anchor and name in pages() and anchor not in anchors_of(name)):
            lost.append(link)
    assert not lost


@pytest.mark.parametrize("page", pages())
def test_what_is_made_by_make_is_a_target(page: str) -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    calls = [text for text in code(page) if text.startswith("make ")]
    calls += [
        line[2:]
        for fence in fences()
        if fence.page == page and fence.words[:1] == ("console",)
        for line in fence.text.splitlines()
        if line.startswith("$ make ")
    ]
    assert {call.split()[1] for call in calls} <= targets


def test_the_run_that_the_readme_draws_has_the_tasks_of_its_workflow() -> None:
    (drawn,) = (fence for fence in fences() if fence.page == "README.md" and fence.text.startswith("seattle_weather "))
    workflow = load_text((ROOT / "examples/seattle_weather.yaml").read_text(encoding="utf-8"), "f").workflow
    assert workflow is not None
    assert [line.split()[0] for line in drawn.text.splitlines()[2:]] == [task.id for task in workflow.tasks]


@pytest.mark.parametrize("page", pages())
def test_extras_are_installed_from_the_checkout(page: str) -> None:
    extras = set(
        tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    )
    # The name on a public registry is not ours to promise.
    assert set(re.findall(r"pip install (?!-e '\.\[)\S+", pages()[page])) == set()
    assert set(re.findall(r"pip install -e '\.\[([\w-]+)\]'", pages()[page])) <= extras
