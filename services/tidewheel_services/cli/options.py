"""Options that several commands share, and the settings they make."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from tidewheel_services.cli.faults import UNREACHABLE, CliError
from tidewheel_services.config import Settings

if TYPE_CHECKING:
    from tidewheel.definition.load import Loaded

Json = Annotated[bool, typer.Option("--json", help="Write one JSON document, for programs.")]
ApiUrl = Annotated[str, typer.Option("--api", help="Where the API is.", envvar="TIDEWHEEL_API", show_default=False)]
LogUrl = Annotated[str, typer.Option("--log", help="The log's URL.", envvar="TIDEWHEEL_LOG", show_default=False)]
FeedUrl = Annotated[
    str,
    typer.Option(
        "--feed",
        help="Where the topics of triggers are: a Kafka's URL. Default: where the log is.",
        envvar="TIDEWHEEL_FEED",
        show_default=False,
    ),
]
Dsn = Annotated[
    str, typer.Option("--postgres", help="The read model's database.", envvar="TIDEWHEEL_POSTGRES", show_default=False)
]
Instance = Annotated[
    str,
    typer.Option(
        "--name", help="This process's name across restarts.", envvar="TIDEWHEEL_INSTANCE", show_default=False
    ),
]
Files = Annotated[
    list[Path],
    typer.Argument(help="Workflow files in YAML or Python, or directories of them.", show_default=False),
]
Project = Annotated[
    Path | None,
    typer.Option(
        "--project",
        help="Of Python files: where workers import from. Default: the directory given, or the file's.",
        show_default=False,
    ),
]
Limit = Annotated[int, typer.Option("--limit", min=1, max=100_000, help="How many at most.")]
After = Annotated[
    str | None,
    typer.Option("--after", help="Go on where a shorter list said that there is more.", show_default=False),
]

#: Files that one line names.
_PASSED_MAX = 5
_ISO = re.compile(r"\d{4}-\d\d-\d\d")


def settings(*, api: str = "", log: str = "", feed: str = "", postgres: str = "", instance: str = "") -> Settings:
    """The environment's settings with what the flags say instead."""
    found = Settings.from_environment()
    given = {"api": api.rstrip("/"), "log": log, "feed": feed, "postgres": postgres, "instance": instance}
    return msgspec.structs.replace(found, **{name: value for name, value in given.items() if value})


def instant(text: str, option: str) -> int:
    """ISO 8601 to milliseconds; without an offset it is UTC."""
    try:
        if not _ISO.match(text):
            raise ValueError
        moment = datetime.fromisoformat(text)
    except ValueError:
        example = "2026-03-08T12:00:00Z"
        raise CliError(f"{option} {text!r} is no instant; write ISO 8601, such as {example}", UNREACHABLE) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def rfc3339(ms: int) -> str:
    """Milliseconds as UTC text, with a fraction only if there is one."""
    moment = datetime.fromtimestamp(ms / 1000, UTC)
    fraction = f".{ms % 1000:03}" if ms % 1000 else ""
    return f"{moment:%Y-%m-%dT%H:%M:%S}{fraction}Z"


def files_given(paths: list[Path], project: Path | None) -> dict[Path, Path]:
    """The given files, and below given directories those that are meant as workflows: each with its project."""
    from tidewheel.authoring.files import names_dags, project_of

    found: dict[Path, Path] = {}
    for path in paths:
        if path.is_dir():
            inside = [one for one in files_below(path) if names_dags(one)]
            if not inside:
                other = passed_over([path])
                told = f"; {passing_over(other)}" if other else ""
                raise CliError(f"{path}: no workflow file (*.yaml, or *.py with DAGs) in this directory{told}")
            found.update(dict.fromkeys(inside, project or path))
        else:
            found[path] = project or project_of(path)
    return found


def passed_over(paths: list[Path]) -> list[Path]:
    """The YAML files below given directories that are not meant as workflows."""
    from tidewheel.authoring.files import is_python, names_dags

    inside = [one for path in paths if path.is_dir() for one in files_below(path)]
    return [one for one in inside if not is_python(one) and not names_dags(one)]


def passing_over(files: Sequence[Path]) -> str:
    """That these files are passed over, and why, in one line."""
    more = f" and {len(files) - _PASSED_MAX:,} more" if len(files) > _PASSED_MAX else ""
    named = ", ".join(str(file) for file in files[:_PASSED_MAX])
    has = "it has" if len(files) == 1 else "they have"
    return f"passed over, since {has} neither 'id' nor 'tasks' at the top: {named}{more}"


def load_given(paths: list[Path], project: Path | None) -> tuple[Loaded, ...]:
    """What the given files define."""
    from tidewheel.authoring.files import load_source
    from tidewheel.definition.load import refuse, refuse_doubles

    loaded: list[Loaded] = []
    for file, base in files_given(paths, project).items():
        dags = load_source(file, base).dags
        if not dags and file in paths:
            message = "it defines no DAG: write `with dag(...):`, from tidewheel.authoring"
            dags = (refuse(str(file), 1, 1, "no_dag", message),)
        loaded += dags
    return refuse_doubles(loaded)


def files_below(directory: Path) -> list[Path]:
    """Every YAML and Python file below the directory, in order, hidden files and directories left out.

    Hidden directories are not entered: `tidewheel dev` looks often, and its own state lies in one. Nor are virtual
    environments: what is installed there is not the project's.
    """
    found: list[str] = []
    for folder, folders, files in os.walk(directory):
        if "pyvenv.cfg" in files:
            folders.clear()
            continue
        folders[:] = [name for name in folders if not name.startswith(".") and name != "__pycache__"]
        found.extend(
            os.path.join(folder, name)  # noqa: PTH118 (a Path for each is what costs)
            for name in files
            if name.endswith((".yaml", ".yml", ".py")) and not name.startswith(".")
        )
    return [Path(name) for name in sorted(found)]
