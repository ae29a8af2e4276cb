"""`tidewheel demo`: the example DAG over real weather data, to its report and the proof of its journal.

On ``sqlite`` everything runs in this process, twice: a wet year and a dry one take the two branches. On ``kafka`` each
service is a process, and one run is asked for three times by the same record on the triggers topic.
"""

from __future__ import annotations

import logging
import shutil
import time
from pathlib import Path
from typing import Any

from tidewheel_services.cli.client import Client
from tidewheel_services.cli.output import console, write
from tidewheel_services.cli.runs import details, show_details, wait_for
from tidewheel_services.process_log import log_to_stderr
from tidewheel_services.standalone.engine import Engine

DAG = "seattle_weather"
RUN_S_MAX = 90.0
_YEARS = {2013: "dry", 2015: "wet"}
_SLOTS = 8


class DemoFailed(Exception):
    """Something is not as it should be; the message says what."""


def run_demo(log: str, directory: Path) -> None:
    """Run it, show it, check it. Raises ``DemoFailed`` or ``CannotRun``."""
    log_to_stderr(logging.ERROR)
    directory.mkdir(parents=True, exist_ok=True)
    project = examples()
    results = directory / "results"
    shutil.rmtree(results, ignore_errors=True)
    if log == "kafka":
        from tidewheel_services.standalone.demo_kafka import demo_on_kafka

        demo_on_kafka(project, directory, results)
    else:
        _demo_here(project, directory, results)


def examples() -> Path:
    """Where the example files are: in a checkout, or inside the installed package."""
    package = Path(__file__).parents[1]
    for candidate in (package / "_examples", package.parents[1] / "examples"):
        if (candidate / f"{DAG}.yaml").exists():
            return candidate
    raise DemoFailed(f"no example files in {package / '_examples'}; run `make demo` in a checkout of Tidewheel")


def definition(project: Path) -> str:
    """The example's workflow file."""
    return (project / f"{DAG}.yaml").read_text(encoding="utf-8")


def verified(log_url: str) -> str:
    """``verify: ok``, or ``DemoFailed``."""
    from tidewheel.log.opening import open_log
    from tidewheel.runtime.checker import check_log

    opened = open_log(log_url)
    try:
        report = check_log(opened)
    finally:
        opened.close()
    if not report.ok:
        first = report.violations[0]
        raise DemoFailed(f"verify: FAILED at {first.topic}/{first.partition} offset {first.offset}: {first.message}")
    return f"verify: ok ({report.events} events in the journal)"


def _demo_here(project: Path, directory: Path, results: Path) -> None:
    state = directory / "state"
    # What an earlier version of the program wrote there must not matter.
    remove_postgres(state / "postgres")
    shutil.rmtree(state, ignore_errors=True)
    begun = time.monotonic()
    engine = Engine(state, project, port=0, slots=_SLOTS, throwaway=True)
    engine.start()
    try:
        with Client(engine.settings) as client:
            took_s = time.monotonic() - begun
            write(f"engine up after {took_s:.1f} s: API {engine.settings.api}, log {engine.settings.log}")
            client.post("dags", body={"definition": definition(project), "source": f"{DAG}.yaml"})
            started = {year: _start(client, year, results) for year in _YEARS}
            for year, answer in started.items():
                wait_for(client, DAG, answer["run_id"], answer["position"], RUN_S_MAX)
                console().rule(f"{year}, a {_YEARS[year]} year", align="left", characters="-")
                show_result(client, answer["run_id"], _YEARS[year])
        write(verified(engine.settings.log))
    finally:
        engine.stop()


def show_result(client: Client, run_id: str, kind: str) -> None:
    """Show a finished run with its files, and check it against what it must have done."""
    shown = details(client, DAG, run_id)
    show_details(client, shown)
    output = client.get("dags", DAG, "runs", run_id, "tasks", "report")["output"] or {}
    for name, path in output.items():
        write(f"{name}: {path}")
    _check(shown, kind, output)


def _start(client: Client, year: int, results: Path) -> dict[str, Any]:
    body = {"run_id": f"demo-{year}", "inputs": {"year": year, "directory": str(results)}}
    answer: dict[str, Any] = client.post("dags", DAG, "runs", body=body)
    return answer


def _check(shown: dict[str, Any], kind: str, output: dict[str, str]) -> None:
    """Raise ``DemoFailed`` unless the run did what this example is about."""
    run, tasks = shown["run"], {task["task"]: task for task in shown["tasks"]}
    taken, other = ("wet_advice", "dry_advice") if kind == "wet" else ("dry_advice", "wet_advice")
    wanted = {name: "skipped" if name == other else "success" for name in tasks}
    wrong = [f"{name} is {tasks[name]['state']}" for name, state in wanted.items() if tasks[name]["state"] != state]
    attempts = sorted((row["attempt"], row["state"]) for row in shown["attempts"] if row["task"] == "station")
    if run["state"] != "success":
        raise DemoFailed(f"run {run['run_id']} is {run['state']}: {run['reason']} ({', '.join(wrong)})")
    if wrong:
        raise DemoFailed(f"run {run['run_id']}: {', '.join(wrong)}; expected {taken} to run and {other} to be skipped")
    if attempts != [(1, "failed"), (2, "success")]:
        raise DemoFailed(f"run {run['run_id']}: task station should fail once and then succeed, but had {attempts}")
    missing = [path for path in output.values() if not Path(path).is_file()]
    if missing or not output:
        raise DemoFailed(f"run {run['run_id']}: no result file {', '.join(missing)}")


def remove_postgres(directory: Path) -> None:
    """Remove an embedded server's data, those that it keeps elsewhere included: they come again from the journal."""
    if directory.is_symlink():
        shutil.rmtree(directory.resolve(), ignore_errors=True)
        directory.unlink()
    shutil.rmtree(directory, ignore_errors=True)
