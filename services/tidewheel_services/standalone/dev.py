"""`tidewheel dev`: the engine on one directory, and its files deployed as they change."""

from __future__ import annotations

import logging
import shlex
import threading
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from tidewheel_services.cli.client import Client
from tidewheel_services.cli.definitions import show_mistakes, show_passed_over
from tidewheel_services.config import Settings
from tidewheel_services.process_log import log_to_stderr
from tidewheel_services.standalone.deploying import Deployer, Told
from tidewheel_services.standalone.engine import DRAIN_S, CannotRun, Engine

__all__ = ["CannotRun", "run_dev"]

#: Between two looks at the files, and while one of them is being written.
LOOK_S = 0.7
SOON_S = 0.2
STATE = ".tidewheel"


def run_dev(directory: Path, *, port: int, slots: int, verbose: bool, stop: threading.Event) -> None:
    """Run until ``stop``. Raises ``CannotRun``."""
    log_to_stderr(logging.INFO if verbose else logging.ERROR)
    terminal = Console(highlight=False, soft_wrap=True)
    state = directory / STATE
    engine = Engine(state, directory, port=port, slots=slots)
    terminal.print(f"starting on {escape(str(directory))}")
    engine.start()
    try:
        with Client(engine.settings) as client:
            deployer = Deployer(directory, client, state / "deployed.json", engine.serve_pools)
            first = deployer.look()
            _tell(terminal, first)
            count = f"{deployer.dags} DAG{'' if deployer.dags == 1 else 's'}"
            terminal.print(f"[bold green]up[/]: {count}; API at {engine.settings.api} (see {engine.settings.api}/docs)")
            terminal.print(f"state in {escape(str(state))}; Ctrl-C ends it, the next start goes on from here")
            environment = _write_environment(state, engine.settings)
            terminal.print(f"in other terminals: [bold]source {escape(environment)}[/]")
            if not (deployer.dags or first.mistakes or first.faults):
                terminal.print("no workflow yet: save one here and it is live; [bold]tidewheel init DIR[/] writes one")
            while not stop.wait(SOON_S if deployer.waiting else LOOK_S) and not engine.failed.is_set():
                _tell(terminal, deployer.look())
    finally:
        terminal.print(f"stopping; tasks have {DRAIN_S:g} s to end, or run again at the next start")
        engine.stop()
    if engine.failed.is_set():
        raise CannotRun(engine.why)


def _write_environment(state: Path, settings: Settings) -> str:
    """Where everything is, for the other commands' shells."""
    path = state / "environment"
    found = {"TIDEWHEEL_API": settings.api, "TIDEWHEEL_LOG": settings.log, "TIDEWHEEL_POSTGRES": settings.postgres}
    if settings.feed:
        found["TIDEWHEEL_FEED"] = settings.feed
    path.write_text("".join(f"export {name}={shlex.quote(value)}\n" for name, value in found.items()))
    return shlex.quote(str(path))


def _tell(terminal: Console, told: Told) -> None:
    for dag, version in told.deployed:
        terminal.print(f"[green]deployed[/] {dag} (version {version[:12]})")
    for dag in told.removed:
        terminal.print(f"[yellow]removed[/] {dag}: no file defines it any more; live runs finish, history stays")
    if told.mistakes:
        show_mistakes(told.mistakes)
        terminal.print("[yellow]the last good version of each file with a mistake stays live[/]")
    show_mistakes(told.warnings, "yellow")
    show_passed_over(told.passed)
    if told.mended:
        terminal.print("[green]no mistakes any more[/]")
    for fault in told.faults:
        terminal.print(f"[red]not deployed[/]: {escape(fault)}")
