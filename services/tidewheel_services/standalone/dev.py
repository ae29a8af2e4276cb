"""`tidewheel dev`: the engine on one directory, and its files deployed as they change."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from tidewheel_services.cli.client import Client
from tidewheel_services.cli.definitions import show_mistakes
from tidewheel_services.process_log import log_to_stderr
from tidewheel_services.standalone.deploying import Deployer, Told
from tidewheel_services.standalone.engine import CannotRun, Engine

__all__ = ["CannotRun", "run_dev"]

#: Between two looks at the files.
LOOK_S = 0.7
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
            _tell(terminal, deployer.look())
            terminal.print(
                f"[bold green]up[/]: {deployer.dags} DAG{'' if deployer.dags == 1 else 's'}; API at {engine.settings.api} (see /docs); "
                f"state in {escape(str(state))}\nCtrl-C ends it; the next start goes on from here"
            )
            _hint(terminal, engine.settings.api)
            while not stop.wait(LOOK_S) and not engine.failed.is_set():
                _tell(terminal, deployer.look())
    finally:
        terminal.print("stopping")
        engine.stop()
    if engine.fault is not None:
        raise CannotRun(f"a part of the engine failed: {engine.fault}")


def _hint(terminal: Console, api: str) -> None:
    """Another port must be told to the other commands."""
    from tidewheel_services.config import Settings

    if api != Settings().api:
        terminal.print(f"in other terminals: [bold]export TIDEWHEEL_API={api}[/]")


def _tell(terminal: Console, told: Told) -> None:
    for dag, version in told.deployed:
        terminal.print(f"[green]deployed[/] {dag} (version {version[:12]})")
    for dag in told.removed:
        terminal.print(f"[yellow]removed[/] {dag}: its file is gone; live runs finish, history stays")
    if told.mistakes:
        show_mistakes(told.mistakes)
        terminal.print("[yellow]the last good version of each file with a mistake stays live[/]")
    for fault in told.faults:
        terminal.print(f"[red]not deployed[/]: {escape(fault)}")
