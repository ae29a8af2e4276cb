"""Commands about workflow files, which need no server: validate, schema, plan."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidewheel_services.cli.faults import REFUSED, UNREACHABLE, CliError
from tidewheel_services.cli.options import Json, instant, rfc3339, workflow_files
from tidewheel_services.cli.output import console, plain, table, write, write_json

if TYPE_CHECKING:
    from tidewheel.core.workflow import Schedule
    from tidewheel.definition.mistakes import Mistake

_COUNT_MAX = 10_000
#: Of a source line, so that a minified file does not fill the screen.
_SHOWN_MAX = 200


def validate(
    files: Annotated[list[Path], typer.Argument(help="Workflow files, or directories of them.", show_default=False)],
    as_json: Json = False,
) -> None:
    """Check workflow files: every mistake, with file, line and column. Exit code 1 if there is any."""
    from tidewheel.definition.load import load_files

    loaded = load_files(workflow_files(files))
    mistakes = [mistake for one in loaded for mistake in one.mistakes]
    if as_json:
        write_json([as_document(mistake) for mistake in mistakes])
    else:
        show_mistakes(mistakes)
        good = sum(not one.mistakes for one in loaded)
        if mistakes:
            write(f"{_counted(len(mistakes), 'mistake')} in {_counted(len(loaded) - good, 'file')}; {good} good")
        else:
            write(f"{_counted(good, 'file')} good")
    if mistakes:
        raise typer.Exit(REFUSED)


def schema() -> None:
    """Print the JSON Schema of workflow files, for editors."""
    from tidewheel.definition.schema import workflow_schema_text

    write(workflow_schema_text().rstrip())


def plan(
    file: Annotated[Path | None, typer.Argument(help="A workflow file.", show_default=False)] = None,
    cron: Annotated[str, typer.Option("--cron", help="A cron expression instead of a file.", show_default=False)] = "",
    timezone: Annotated[str, typer.Option("--timezone", help="IANA name; with --cron.")] = "UTC",
    after: Annotated[str, typer.Option("--after", help="ISO 8601; default: now.", show_default=False)] = "",
    count: Annotated[int, typer.Option("--count", min=1, max=_COUNT_MAX, help="How many.")] = 10,
    as_json: Json = False,
) -> None:
    """Preview the next times a schedule fires: each slot (UTC), and when its run starts (later by the jitter)."""
    from tidewheel.core.calendar import plan as planned

    if (file is None) == (not cron):
        raise CliError("give either a workflow FILE or --cron EXPRESSION", UNREACHABLE)
    after_ms = instant(after, "--after") if after else time.time_ns() // 1_000_000
    dag, schedule = _schedule_of_file(file) if file is not None else ("", _schedule_of_cron(cron, timezone))
    try:
        slots = planned(schedule, dag, after_ms, count)
    except ValueError as error:
        raise CliError(str(error)) from error
    if as_json:
        write_json([{"slot": rfc3339(slot), "fires_at": rfc3339(fires)} for slot, fires in slots])
        return
    rows = [(rfc3339(slot), _local(slot, schedule.timezone), rfc3339(fires)) for slot, fires in slots]
    table(("slot", schedule.timezone, "fires at"), rows, "nothing is planned")


def as_document(mistake: Mistake) -> dict[str, object]:
    """A mistake as programs read it."""
    return {
        "file": mistake.file,
        "line": mistake.line,
        "column": mistake.column,
        "code": mistake.code,
        "message": mistake.message,
    }


def show_mistakes(mistakes: Iterable[Mistake]) -> None:
    """Each mistake as a compiler shows it: where, what, and the line itself."""
    terminal = console()
    for mistake in mistakes:
        where = f"{mistake.file}:{mistake.line}:{mistake.column}"
        heading = f"[bold]{plain(where)}[/]: [red]{plain(mistake.message)}[/] [bright_black]({plain(mistake.code)})[/]"
        terminal.print(heading, soft_wrap=True)
        line = _line_of(mistake)
        if line is not None:
            gutter = f"{mistake.line:>5}"
            terminal.print(f"[bright_black]{gutter} |[/] {plain(line)}", soft_wrap=True)
            mark = " " * (mistake.column - 1) + "^"
            terminal.print(f"[bright_black]{' ' * len(gutter)} |[/] [red]{mark}[/]", soft_wrap=True)


def _line_of(mistake: Mistake) -> str | None:
    try:
        lines = Path(mistake.file).read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return None
    return lines[mistake.line - 1][:_SHOWN_MAX] if 1 <= mistake.line <= len(lines) else None


def _schedule_of_file(file: Path) -> tuple[str, Schedule]:
    from tidewheel.definition.load import load_files

    (loaded,) = load_files([file])
    if loaded.workflow is None:
        show_mistakes(loaded.mistakes)
        raise CliError(f"{file} has mistakes; nothing can be planned")
    if loaded.workflow.schedule is None:
        raise CliError(f"{file}: DAG '{loaded.workflow.id}' has no schedule; it runs only when it is triggered")
    return loaded.workflow.id, loaded.workflow.schedule


def _schedule_of_cron(cron: str, timezone: str) -> Schedule:
    from tidewheel.core.calendar import check_cron, check_zone
    from tidewheel.core.workflow import Schedule

    for option, complaint in (("--cron", check_cron(cron)), ("--timezone", check_zone(timezone))):
        if complaint is not None:
            raise CliError(f"{option}: {complaint}")
    return Schedule(cron=(cron,), timezone=timezone)


def _local(ms: int, timezone: str) -> str:
    from datetime import datetime

    from tidewheel.core.zones import zone_of

    moment = datetime.fromtimestamp(ms / 1000, zone_of(timezone))
    return f"{moment:%a %Y-%m-%d %H:%M:%S %z}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
