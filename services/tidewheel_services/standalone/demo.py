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
from tidewheel_services.cli.runs import wait_for
from tidewheel_services.postgres_placement import remove_placed
from tidewheel_services.process_log import log_to_stderr
from tidewheel_services.standalone.demo_dag import DAG, RUN_S_MAX, definition, examples, show_result, verified
from tidewheel_services.standalone.engine import Engine

_YEARS = {2013: "dry", 2015: "wet"}
_SLOTS = 8


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


def _demo_here(project: Path, directory: Path, results: Path) -> None:
    state = directory / "state"
    # What an earlier version of the program wrote there must not matter.
    remove_placed(state / "postgres")
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


def _start(client: Client, year: int, results: Path) -> dict[str, Any]:
    body = {"run_id": f"demo-{year}", "inputs": {"year": year, "directory": str(results)}}
    answer: dict[str, Any] = client.post("dags", DAG, "runs", body=body)
    return answer
