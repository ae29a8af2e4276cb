"""The house rules (docs/architecture.md) as a test: what a reviewer would otherwise say again and again.

ruff and mypy hold what they can; import-linter holds the layers (``make layers``); this holds the rest.
"""

from __future__ import annotations

import ast
import re

import pytest

from tests.tidy.sources import PACKAGES, ROOT, Source, python, report, texts

MODULE_LINES_MAX = 600
TEST_LINES_MAX = 1000
MODULE_LINES_USUAL = 200
FUNCTION_LINES_MAX = 69
#: Where a public name is a contract with people who do not read its code.
DOCUMENTED = ("tidewheel/core/", "tidewheel/wire/", "tidewheel/log/")
FORBIDDEN_NAMES = {"util", "utils", "helper", "helpers", "manager", "managers", "common", "misc"}
#: Command-line tools talk to a terminal; everything else logs.
MAY_PRINT = ("services/tidewheel_services/cli/", "tools/", "examples/")

CODE = (*PACKAGES, "tests", "tools", "examples")
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


def test_files_are_found() -> None:
    assert len(python(*PACKAGES)) > 50
    assert len(python("tests")) > 20
    assert len(texts()) > len(python(*CODE))


def test_modules_are_short() -> None:
    limits = {
        source: TEST_LINES_MAX if source.name.startswith("tests/") else MODULE_LINES_MAX for source in python(*CODE)
    }
    sizes = {source: source.text.count("\n") for source in limits}
    report(
        (f"{s.name}: {sizes[s]} lines, at most {limits[s]}" for s in limits if sizes[s] > limits[s]),
        "A module that long holds two nouns: split it by noun.",
    )
    shipped = [source.text.count("\n") for source in python(*PACKAGES)]
    usual = sum(size <= MODULE_LINES_USUAL for size in shipped)
    assert usual >= len(shipped) * 2 // 3, (
        f"only {usual} of {len(shipped)} modules have up to {MODULE_LINES_USUAL} lines"
    )


def test_functions_are_short() -> None:
    report(
        (
            source.at(node, f"{node.name} has {(node.end_lineno or 0) - node.lineno + 1} lines")
            for source in python(*CODE)
            for node in source.nodes()
            if isinstance(node, FUNCTION) and (node.end_lineno or 0) - node.lineno + 1 > FUNCTION_LINES_MAX
        ),
        f"A function has at most {FUNCTION_LINES_MAX} lines: give its parts names.",
    )


def test_every_module_says_what_it_is() -> None:
    report(
        (
            f"{source.name}: {'an empty docstring' if ast.get_docstring(source.tree) is not None else 'no docstring'}"
            for source in python(*CODE)
            if len(ast.get_docstring(source.tree) or "") < 10
        ),
        "A module begins with a docstring: what is in it, and why it is as it is.",
    )


def test_public_names_of_the_engine_are_documented() -> None:
    report(
        (
            source.at(node, f"{node.name} has no docstring")
            for source in python("tidewheel")
            if source.name.startswith(DOCUMENTED)
            for node in source.tree.body
            if isinstance(node, (*FUNCTION, ast.ClassDef))
            and not node.name.startswith("_")
            and not ast.get_docstring(node)
        ),
        "A public function or class of core, wire and log states its duty.",
    )


def test_names_say_what_a_thing_is() -> None:
    def words(name: str) -> set[str]:
        return set(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().split("_"))

    modules = (
        f"{source.name}: {', '.join(found)}"
        for source in python(*CODE)
        if (
            found := {word for part in source.path.relative_to(ROOT).with_suffix("").parts for word in words(part)}
            & FORBIDDEN_NAMES
        )
    )
    classes = (
        source.at(node, node.name)
        for source in python(*CODE)
        for node in source.nodes()
        if isinstance(node, ast.ClassDef) and words(node.name) & FORBIDDEN_NAMES
    )
    report([*modules, *classes], f"A name from {sorted(FORBIDDEN_NAMES)} says nothing: name the noun.")


def test_packages_hold_only_names_and_registers() -> None:
    report(
        (
            source.at(node, f"{type(node).__name__} in an __init__")
            for source in python(*PACKAGES)
            if source.path.name == "__init__.py"
            for node in source.tree.body
            if not _belongs_in_a_package(node, source)
        ),
        "An __init__ holds a docstring, imports, __all__ and registers (with the function that looks things up there).",
    )


def _belongs_in_a_package(node: ast.stmt, source: Source) -> bool:
    if isinstance(node, ast.Import | ast.ImportFrom | ast.Assign | ast.AnnAssign):
        return True
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    if isinstance(node, ast.If):  # if TYPE_CHECKING
        return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    registers = {
        target.id
        for statement in source.tree.body
        if isinstance(statement, ast.AnnAssign | ast.Assign) and isinstance(statement.value, ast.Dict)
        for target in (statement.targets if isinstance(statement, ast.Assign) else [statement.target])
        if isinstance(target, ast.Name)
    }
    return isinstance(node, FUNCTION) and bool(
        registers & {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
    )


def test_only_command_lines_print() -> None:
    report(
        (
            source.at(node, "print")
            for source in python(*PACKAGES)
            if not source.name.startswith(MAY_PRINT)
            for node in source.nodes()
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
        ),
        "A service logs (structlog); only the command line prints.",
    )


def test_nothing_is_left_for_later() -> None:
    report(
        (
            source.at(node, f"{name}")
            for source in python(*CODE)
            for node in source.nodes()
            if isinstance(node, ast.Name | ast.Attribute)
            if (name := node.id if isinstance(node, ast.Name) else node.attr)
            in ("NotImplementedError", "skip", "skipif", "xfail", "importorskip")
        ),
        "What is here works and is tested: no stubs, no skipped tests.",
    )


_MARKS = "TO" + "DO", "FIX" + "ME", "X" * 3


@pytest.mark.parametrize(
    ("pattern", "rule"),
    [
        (rf"\b({'|'.join(_MARKS)})\b", "What is to be done is an issue, not a mark in a file."),
        (r"(?<![\w./-])/(work|root|home/\w+|Users/\w+)/", "No path of one machine in the project."),
        (r"--(extra-)?index-url|_TOKEN=[A-Za-z0-9]{16}", "No registry or account of one machine."),
        (r"^(<{7}|>{7}|={7})( |$)", "A merge was not finished."),
        (r"[ \t]+$", "No space at a line's end."),
    ],
)  # fmt: skip
def test_no_file_has(pattern: str, rule: str) -> None:
    compiled = re.compile(pattern, re.MULTILINE)
    report(
        (
            f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {match.group(0)[:60]!r}"
            for name, text in texts()
            if not name.endswith(".css")
            for match in compiled.finditer(text)
        ),
        rule,
    )


def test_the_changelog_has_a_place_for_what_is_new() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(r"^## \[?Unreleased\]?", text, re.MULTILINE), "CHANGELOG.md needs a section '## [Unreleased]'"
