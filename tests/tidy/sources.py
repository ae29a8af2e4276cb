"""The project's own source files, each read and parsed once."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
#: What is shipped.
PACKAGES = ("tidewheel", "services/tidewheel_services", "projections/tidewheel_projections")
#: What people read beside it.
FOLDERS = (*PACKAGES, "tests", "tools", "examples", "docs", "schemas", "projections", "services")
TEXT_ENDINGS = {
    ".py",
    ".md",
    ".sql",
    ".yaml",
    ".yml",
    ".toml",
    ".json",
    ".avsc",
    ".html",
    ".js",
    ".css",
    ".sh",
    ".ini",
    ".cfg",
}
_NOT_OURS = {"__pycache__", "node_modules", "build", ".venv"}


class Source(NamedTuple):
    """A Python file."""

    path: Path
    name: str
    text: str
    tree: ast.Module

    def nodes(self) -> Iterator[ast.AST]:
        return ast.walk(self.tree)

    def at(self, node: ast.stmt | ast.expr | int, what: str) -> str:
        line = node if isinstance(node, int) else node.lineno
        return f"{self.name}:{line}: {what}"


def _files(folders: Iterable[str], endings: set[str]) -> list[Path]:
    found = {path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in endings}
    return sorted(path for path in found if not _NOT_OURS & set(path.relative_to(ROOT).parts))


@cache
def python(*folders: str) -> tuple[Source, ...]:
    """The Python files under these folders of the project."""
    return tuple(_parsed(path) for path in _files(folders, {".py"}))


@cache
def texts() -> tuple[tuple[str, str], ...]:
    """Name and content of every text file of ours."""
    above = [path for path in ROOT.iterdir() if path.is_file() and (path.suffix in TEXT_ENDINGS or not path.suffix)]
    paths = _files(FOLDERS, TEXT_ENDINGS) + sorted(path for path in above if not path.name.startswith(".git"))
    return tuple(
        (path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8", errors="replace")) for path in paths
    )


@cache
def _parsed(path: Path) -> Source:
    text = path.read_text(encoding="utf-8")
    return Source(path, path.relative_to(ROOT).as_posix(), text, ast.parse(text))


def report(violations: Iterable[str], rule: str) -> None:
    """Fail with every violation, if there is one, under the rule they break."""
    found = sorted(violations)
    assert not found, "\n".join([f"{rule} ({len(found)} places)", *found])
