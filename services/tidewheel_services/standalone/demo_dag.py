"""The demo's DAG: its files, and what a run of it must have done."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tidewheel_services.cli.client import Client
from tidewheel_services.cli.output import write
from tidewheel_services.cli.showing import details, show_details

DAG = "seattle_weather"
RUN_S_MAX = 90.0


class DemoFailed(Exception):
    """Something is not as it should be; the message says what."""


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


def show_result(client: Client, run_id: str, kind: str) -> None:
    """Show a finished run with its files, and check it against what it must have done."""
    shown = details(client, DAG, run_id)
    show_details(client, shown)
    output = client.get("dags", DAG, "runs", run_id, "tasks", "report")["output"] or {}
    for name, path in output.items():
        write(f"{name}: {path}")
    _check(shown, kind, output)


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
