"""Commands that work on this machine alone: init, dev, demo."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from tidewheel.core.nearest import did_you_mean
from tidewheel_services.cli.faults import REFUSED, UNREACHABLE, CliError
from tidewheel_services.cli.output import plain, table, write
from tidewheel_services.config import DEFAULT_API_PORT

Port = Annotated[int, typer.Option("--port", min=0, max=65_535, help="Of the API; 0: any free one.")]


def init(
    directory: Annotated[Path | None, typer.Argument(help="It is made if need be.", show_default=False)] = None,
    template: Annotated[str, typer.Option("--template", help="What to begin with; see --list.")] = "hello",
    listing: Annotated[bool, typer.Option("--list", help="List the templates and exit.")] = False,
) -> None:
    """Write a first workflow, with a README and the schema for editors. What is there is never overwritten."""
    from tidewheel_services.standalone.templates import TEMPLATES

    if listing:
        table(("template", "what"), ((name, plain(one.summary)) for name, one in TEMPLATES.items()), "")
        return
    if directory is None:
        raise CliError("say which DIRECTORY to write to", UNREACHABLE)
    if template not in TEMPLATES:
        hint = did_you_mean(template, TEMPLATES) or f"; there are {', '.join(TEMPLATES)}"
        raise CliError(f"there is no template {template!r}{hint}", UNREACHABLE)
    files = TEMPLATES[template].written()
    there = [name for name in files if (directory / name).exists()]
    if there:
        raise CliError(f"{directory} has {', '.join(there)} already; choose another directory")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (directory / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise CliError(f"cannot write to {directory}: {error.strerror}") from None
    write(f"wrote {', '.join(files)} to {directory}\nnext: tidewheel dev {directory}")


def dev(
    directory: Annotated[
        Path,
        typer.Argument(help="Where the workflow files are. Default: the current directory.", show_default=False),
    ] = Path(),
    port: Port = DEFAULT_API_PORT,
    slots: Annotated[
        int,
        typer.Option("--slots", min=1, max=1000, help="Tasks that run at once, of each pool.", show_default="4 a core"),
    ] = 4 * (os.cpu_count() or 1),
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Also show what the parts log.")] = False,
) -> None:
    """Run everything in one process on DIRECTORY, and redeploy its files as they change. Ctrl-C ends it."""
    from tidewheel_services.cli.processes import stop_on_signals
    from tidewheel_services.standalone.dev import CannotRun, run_dev

    if directory.is_file():
        raise CliError(f"{directory} is a file; name its directory: `tidewheel dev {directory.parent}`", UNREACHABLE)
    if not directory.is_dir():
        raise CliError(f"{directory} is no directory; `tidewheel init {directory}` makes one", UNREACHABLE)
    try:
        with stop_on_signals() as stop:
            run_dev(directory.resolve(), port=port, slots=slots, verbose=verbose, stop=stop)
    except CannotRun as error:
        raise CliError(str(error), UNREACHABLE) from None


def demo(
    log: Annotated[
        Literal["sqlite", "kafka"],
        typer.Option(
            "--log", help="kafka: on a real broker (TIDEWHEEL_LOG, or one that is started), in separate processes."
        ),
    ] = "sqlite",
    directory: Annotated[Path, typer.Option("--directory", help="Where results and state go.")] = Path("build/demo"),
) -> None:
    """Run the example over real weather data to a finished report, and prove its journal."""
    from tidewheel_services.standalone.demo import run_demo
    from tidewheel_services.standalone.demo_dag import DemoFailed
    from tidewheel_services.standalone.dev import CannotRun

    try:
        run_demo(log, directory.resolve())
    except CannotRun as error:
        raise CliError(str(error), UNREACHABLE) from None
    except DemoFailed as error:
        raise CliError(str(error), REFUSED) from None
