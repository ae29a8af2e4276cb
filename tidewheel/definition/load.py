"""Workflow files in, workflows or mistakes out. Whatever a file holds, loading it raises nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from tidewheel.core.workflow import Workflow
from tidewheel.definition.assemble import assemble
from tidewheel.definition.canonical import CANONICAL_BYTES_MAX, canonical_json, version_of
from tidewheel.definition.language import WORKFLOW
from tidewheel.definition.lint import lint
from tidewheel.definition.mistakes import Findings, Mistake
from tidewheel.definition.nodes import Node, descend
from tidewheel.definition.syntax import FILE_BYTES_MAX, parse

SUFFIXES: Final = (".yaml", ".yml")

Pools = Mapping[str, int | None]


_NEEDS_MEANT = "did you mean 'needs'?"


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one file: a workflow with its version, or every mistake in it. ``line`` is where its id stands."""

    file: str
    workflow: Workflow | None = None
    mistakes: tuple[Mistake, ...] = ()
    version: str | None = None
    line: int = 1
    #: The text in YAML that was loaded.
    source: str = ""


def load_text(text: str, file: str, pools: Pools | None = None) -> Loaded:
    """Parse and check a workflow. ``pools``: the known pools and their slots, to check the names against."""
    findings = Findings(file)
    root = parse(text, findings)
    return load_node(root, findings, text, pools)


def load_node(root: Node | None, findings: Findings, source: str, pools: Pools | None = None) -> Loaded:
    """The same for what a text consists of; ``findings`` has the file's name and what was found so far."""
    file = findings.file
    draft = WORKFLOW.read(root, findings) if root is not None else None
    if root is None or draft is None:
        return Loaded(file=file, mistakes=findings.sorted())
    lint(draft, findings, pools)
    if any(one.code == "unknown_key" and one.message.endswith(_NEEDS_MEANT) for one in findings.sorted()):
        # Whatever is not upstream may be so only for that.
        findings.drop("not_upstream")
    if findings:
        return Loaded(file=file, mistakes=findings.sorted())
    workflow = assemble(draft)
    size = len(canonical_json(workflow).encode("utf-8"))
    if size > CANONICAL_BYTES_MAX:
        findings.at(1, 1, "too_large", f"the definition has {size} bytes as JSON, at most {CANONICAL_BYTES_MAX} travel")
        return Loaded(file=file, mistakes=findings.sorted())
    line = descend(root, "id").line
    return Loaded(file=file, workflow=workflow, version=version_of(workflow), line=line, source=source)


def load_bytes(data: bytes, file: str, pools: Pools | None = None) -> Loaded:
    """The same for a file's bytes, which must be UTF-8."""
    if len(data) > FILE_BYTES_MAX:
        return refuse(file, 1, 1, "too_large", f"the file is larger than {FILE_BYTES_MAX} bytes; split the workflow")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8")
        line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
        return refuse(
            file, line, column, "not_utf8", f"the byte 0x{data[error.start]:02x} is not UTF-8: save the file as UTF-8"
        )
    return load_text(text, file, pools)


def load_files(paths: Iterable[Path | str], pools: Pools | None = None) -> tuple[Loaded, ...]:
    """Load files, and YAML files below directories, each id once."""
    return refuse_doubles(_load_file(path, pools) for path in _files(paths))


def refuse_doubles(files: Iterable[Loaded]) -> tuple[Loaded, ...]:
    """Of two workflows with one id the second is refused, naming both."""
    results: list[Loaded] = []
    first: dict[str, Loaded] = {}
    for loaded in files:
        if loaded.workflow is not None:
            earlier = first.setdefault(loaded.workflow.id, loaded)
            if earlier is not loaded:
                loaded = refuse(
                    loaded.file,
                    loaded.line,
                    1,
                    "duplicate_dag",
                    f"{loaded.file} has the id {loaded.workflow.id!r}, which {earlier.file}:{earlier.line} has already",
                )
        results.append(loaded)
    return tuple(results)


def _files(paths: Iterable[Path | str]) -> list[Path]:
    found: dict[Path, None] = {}
    for given in paths:
        path = Path(given)
        found.update(dict.fromkeys(sorted(_below(path)) if path.is_dir() else [path]))
    return list(found)


def _below(directory: Path) -> Iterable[Path]:
    """YAML files, but none in hidden directories: those belong to other tools."""
    for path in directory.rglob("*"):
        hidden = any(part.startswith(".") for part in path.relative_to(directory).parts)
        if path.suffix in SUFFIXES and not hidden and path.is_file():
            yield path


def _load_file(path: Path, pools: Pools | None) -> Loaded:
    try:
        with path.open("rb") as stream:
            data = stream.read(FILE_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        return refuse(str(path), 1, 1, "unreadable", f"cannot be read: {reason}")
    return load_bytes(data, str(path), pools)


def refuse(file: str, line: int, column: int, code: str, message: str) -> Loaded:
    """A file with one mistake, which leaves nothing else to say about it."""
    return Loaded(file=file, mistakes=(Mistake(file, line, column, code, message),))


__all__ = ["Loaded", "Mistake", "Pools", "load_bytes", "load_files", "load_node", "load_text", "refuse"]
