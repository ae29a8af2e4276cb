"""The program `tidewheel`: its commands, by family."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from tidewheel_services.cli import (
    backfills,
    dags,
    definitions,
    doctor,
    effects,
    following,
    journal,
    local,
    maintenance,
    operations,
    planning,
    pools,
    processes,
    publishing,
    resharding,
    runs,
    showing,
    simulation,
    trimming,
    waiting,
    waits,
)
from tidewheel_services.cli.faults import Commands

_WRITE = "Write workflows"
_RUN = "Run and watch"
_SERVE = "Serve (each until stopped)"
_KEEP = "Keep"

app = typer.Typer(
    name="tidewheel",
    cls=Commands,
    help="An event-sourced workflow engine: nothing lost, nothing doubled, every decision on the record.",
    epilog="Start with: tidewheel init my-flows && tidewheel dev my-flows",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
topics = typer.Typer(name="topics", help="The log's topics.", no_args_is_help=True)
journals = typer.Typer(name="journal", help="The journals: repair and trimming.", no_args_is_help=True)
projection = typer.Typer(name="projection", help="The read model in Postgres.", no_args_is_help=True)

for family, commands in {
    _WRITE: (local.init, definitions.validate, planning.plan, definitions.schema, dags.deploy),
    _RUN: (
        local.dev,
        local.demo,
        runs.trigger,
        publishing.publish,
        runs.runs,
        showing.show,
        waiting.why,
        runs.cancel,
        operations.mark,
        operations.clear,
        operations.rerun,
        waits.waits,
        waits.approve,
        following.logs,
        following.events,
        dags.dags,
        dags.pause,
        dags.unpause,
        backfills.backfill,
        backfills.backfills,
        backfills.backfill_pause,
        backfills.backfill_resume,
        backfills.backfill_cancel,
        pools.pools,
        pools.workers,
    ),
    _SERVE: (
        processes.scheduler,
        processes.worker,
        processes.projector,
        processes.notifier,
        processes.waiter,
        processes.listener,
        processes.api,
    ),
    _KEEP: (
        maintenance.verify,
        maintenance.dead_letters,
        effects.effects_sql,
        doctor.doctor,
        resharding.reshard,
        simulation.simulate,
    ),
}.items():
    for command in commands:
        app.command(rich_help_panel=family)(command)
topics.command("create")(maintenance.create_topics)
topics.command("check")(maintenance.check_topics)
projection.command("rebuild")(maintenance.rebuild_projection)
projection.command("verify")(maintenance.verify_projection)
journals.command("repair")(journal.repair)
journals.command("trim")(trimming.trim_journal)
app.add_typer(journals, rich_help_panel=_KEEP)
app.add_typer(topics, rich_help_panel=_KEEP)
app.add_typer(projection, rich_help_panel=_KEEP)


def _show_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        sys.stdout.write(f"tidewheel {version('tidewheel')}\n")
        raise typer.Exit


@app.callback()
def _root(
    show_version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Options of the program itself."""


def main() -> None:
    """Run the command that the arguments name, and exit."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a letter must not end the command.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    app()
