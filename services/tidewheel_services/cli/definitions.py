"""Commands about workflow files, which need no server: validate, schema."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidewheel_services.cli.faults import REFUSED
from tidewheel_services.cli.options import Json, Project, files_given, load_given, passed_over, passing_over
from tidewheel_services.cli.output import console, plain, write, write_json

if TYPE_CHECKING:
    from tidewheel.definition.load import Loaded
    from tidewheel.definition.mistakes import Mistake

#: Of a source line, so that a minified file does not fill the screen.
_SHOWN_MAX = 200


def validate(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Workflow files in YAML or Python, or directories of them. Default: the current directory.",
            show_default=False,
        ),
    ] = None,
    project: Project = None,
    as_json: Json = False,
) -> None:
    """Check workflow files: every mistake, with file, line and column. Exit code 1 if there is any. What several files
    say of each other and looks wrong is told as a warning, and Python that is not in the project."""
    given = files or [Path()]
    loaded = load_given(given, project)
    mistakes, warnings = mistakes_of(loaded), warnings_of(loaded, given, project)
    if as_json:
        documents = [as_document(mistake) for mistake in mistakes]
        write_json(documents + [{**as_document(warning), "severity": "warning"} for warning in warnings])
    else:
        show_mistakes(mistakes)
        show_mistakes(warnings, "yellow")
        show_passed_over(passed_over(given))
        bad = {mistake.file for mistake in mistakes}
        good = len({one.file for one in loaded} - bad)
        if mistakes:
            write(f"{counted(len(mistakes), 'mistake')} in {counted(len(bad), 'file')}; {good} good")
        else:
            told = f", {counted(len(warnings), 'warning')}" if warnings else ""
            write(f"{counted(good, 'file')} good{told}")
    if mistakes:
        raise typer.Exit(REFUSED)


def schema() -> None:
    """Print the JSON Schema of workflow files, for editors."""
    from tidewheel.definition.schema import workflow_schema_text

    write(workflow_schema_text().rstrip())


def mistakes_of(loaded: Iterable[Loaded]) -> list[Mistake]:
    """Every mistake once, also if a loop in a Python file has made it in many DAGs."""
    return list(dict.fromkeys(mistake for one in loaded for mistake in one.mistakes))


def warnings_of(loaded: Iterable[Loaded], files: list[Path], project: Path | None) -> list[Mistake]:
    """What looks wrong and may be right: other files, or other packages, may be where it runs."""
    from tidewheel.authoring.imports import check_imports
    from tidewheel.definition.links import check_links

    everything = tuple(loaded)
    found = check_links(everything)
    for file, base in files_given(files, project).items():
        found += check_imports((one for one in everything if one.file == str(file)), base)
    return found


def as_document(mistake: Mistake) -> dict[str, object]:
    """A mistake as programs read it."""
    return {
        "file": mistake.file,
        "line": mistake.line,
        "column": mistake.column,
        "code": mistake.code,
        "message": mistake.message,
    }


def show_mistakes(mistakes: Iterable[Mistake], colour: str = "red") -> None:
    """Each mistake as a compiler shows it: where, what, and the line itself."""
    terminal = console()
    for mistake in mistakes:
        where = f"{mistake.file}:{mistake.line}:{mistake.column}"
        heading = (
            f"[bold]{plain(where)}[/]: [{colour}]{plain(mistake.message)}[/] [bright_black]({plain(mistake.code)})[/]"
        )
        terminal.print(heading, soft_wrap=True)
        line = _line_of(mistake)
        if line is not None:
            gutter = f"{mistake.line:>5}"
            terminal.print(f"[bright_black]{gutter} |[/] {plain(line)}", soft_wrap=True)
            mark = " " * (mistake.column - 1) + "^"
            terminal.print(f"[bright_black]{' ' * len(gutter)} |[/] [{colour}]{mark}[/]", soft_wrap=True)


def show_passed_over(files: Sequence[Path]) -> None:
    """A line about the files of a directory that are taken for something else than workflows, if there are any."""
    if files:
        console().print(f"[bright_black]{plain(passing_over(files))}[/]", soft_wrap=True)


def _line_of(mistake: Mistake) -> str | None:
    try:
        lines = Path(mistake.file).read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return None
    return lines[mistake.line - 1][:_SHOWN_MAX] if 1 <= mistake.line <= len(lines) else None


def counted(number: int, noun: str) -> str:
    """``1 file``, ``2 files``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
