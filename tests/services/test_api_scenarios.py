"""Field reports that touch the API and what stands behind it, played through with real schedulers and workers."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import httpx

from tidewheel.core.events import (
    RunCancelled,
    RunCreated,
    RunFailed,
    RunStarted,
    RunSucceeded,
    TaskFailed,
    TaskSucceeded,
)
from tidewheel.definition.expressions import CelEvaluator
from tidewheel.log.interface import EVENTS, Log
from tidewheel.log.memory import MemoryLog
from tidewheel.runtime.scheduler import Scheduler
from tidewheel.wire.codec import decode_event
from tidewheel.worker import Worker
from tidewheel_services.worker.main import serve

YAML = {"Content-Type": "application/yaml"}
ENDED = (RunSucceeded, RunFailed, RunCancelled)


def journal(log: Log, dag: str) -> list[Any]:
    found = []
    for partition in range(log.partitions):
        for record in log.reader({(EVENTS, partition): 0}).read(100_000, 0):
            event = decode_event(record.value or b"").event
            if getattr(event, "dag", None) == dag:
                found.append(event)
    return found


def test_c070_one_run_at_a_time_and_in_order_with_two_schedulers(start_api, run_threads, eventually) -> None:
    log = MemoryLog(partitions=4)
    with run_threads() as threads:
        for name in ("one", "two"):
            threads.run(Scheduler(log, name, CelEvaluator()).run, name)
        worker = Worker(log, {"default": 4}, {"work": lambda: None}, name="w1")
        worker.start()
        api: httpx.Client = start_api(log)
        text = "id: in_order\nconcurrency: {max_runs: 1}\ntasks: [{id: a, python: work}]\n"
        deployed = api.post("/api/v1/dags", params={"paused": True}, content=text, headers=YAML)
        assert deployed.status_code == 201, deployed.text
        dates = [f"2026-{1 + day // 28:02}-{1 + day % 28:02}" for day in range(50)]
        random.Random(70).shuffle(dates)
        for date in dates:
            answer = api.post("/api/v1/dags/in_order/runs", json={"run_id": date})
            assert answer.status_code == 201, answer.text
        assert api.post("/api/v1/dags/in_order/unpause").status_code == 200
        eventually(lambda: sum(isinstance(event, ENDED) for event in journal(log, "in_order")) == 50)
        worker.stop(drain_s=1)
    running: set[str] = set()
    order: list[str] = []
    for event in journal(log, "in_order"):
        if isinstance(event, RunStarted):
            order.append(event.run_id)
            running.add(event.run_id)
            assert len(running) == 1, f"{running} at once"
        elif isinstance(event, ENDED):
            running.discard(event.run_id)
    assert order == dates, "in the order they were asked for"


def test_c066_a_step_of_a_child_run_is_tried_again(start_api, run_threads, eventually) -> None:
    """While its parent waits for it, which then succeeds; and when both have failed, by itself. Else there is a
    reason."""
    log = MemoryLog(partitions=4)
    broken, held = threading.Event(), threading.Event()
    broken.set()

    def build() -> None:
        if broken.is_set():
            raise RuntimeError("the source is broken")

    def hold() -> None:
        assert held.wait(60)

    def told(kind: type[Any], dag: str) -> list[Any]:
        return [event for event in journal(log, dag) if isinstance(event, kind)]

    with run_threads() as threads:
        threads.run(Scheduler(log, "one", CelEvaluator()).run, "one")
        worker = Worker(log, {"default": 4}, {"build": build, "hold": hold}, name="w1")
        worker.start()
        api: httpx.Client = start_api(log)
        for text in (
            "id: child\ntasks: [{id: build, python: build}, {id: hold, python: hold}]\n",
            "id: parent\ntasks: [{id: ask, workflow: child}]\n",
        ):
            assert api.post("/api/v1/dags", content=text, headers=YAML).status_code == 201

        def clear(body: dict[str, Any]) -> httpx.Response:
            run = told(RunCreated, "child")[-1].run_id
            return api.post(f"/api/v1/dags/child/runs/{run}/clear", json=body)

        assert api.post("/api/v1/dags/parent/runs", json={"run_id": "first"}).status_code == 201
        eventually(lambda: told(TaskFailed, "child"))
        broken.clear()
        unknown = clear({"tasks": ["bild"]})
        assert (unknown.status_code, "did you mean 'build'" in unknown.json()["detail"]) == (404, True)
        again = clear({"tasks": ["build"]})
        assert (again.status_code, again.json()["tasks"]) == (200, ["build"])
        eventually(lambda: [event.attempt for event in told(TaskSucceeded, "child") if event.task == "build"] == [2])
        held.set()
        eventually(lambda: told(RunSucceeded, "parent"))

        broken.set()
        assert api.post("/api/v1/dags/parent/runs", json={"run_id": "second"}).status_code == 201
        eventually(lambda: told(RunFailed, "parent"))
        broken.clear()
        again = clear({"only_failed": True})
        assert (again.status_code, again.json()["tasks"], again.json()["reopens"]) == (200, ["build"], True)
        eventually(lambda: len(told(RunSucceeded, "child")) == 2)
        worker.stop(drain_s=1)
    assert [event.run_id for event in told(RunFailed, "parent")] == ["second"], "how it ended was said"


def test_c128_a_run_parameter_is_one_argument_of_the_shell_task(
    start_api, engine: Log, projected: str, run_threads, eventually, tmp_path: Path
) -> None:
    api: httpx.Client = start_api(engine, projected)
    text = (
        "id: quoted\ninputs: {name: {type: string}}\n"
        'tasks: [{id: a, run: \'printf "<%s>" "$NAME"\', env: {NAME: "${{ inputs.name }}"}}]\n'
    )
    assert api.post("/api/v1/dags", content=text, headers=YAML).status_code == 201
    spliced = text.replace('"$NAME"', '"${{ inputs.name }}"').replace("id: quoted", "id: spliced", 1)
    refused = api.post("/api/v1/dags", content=spliced, headers=YAML)
    assert refused.status_code == 422, "an expression in the command's text would be code"

    hostile = "x; echo hacked $(touch hacked) `touch hacked` '\" ${{ inputs.name }} größe\n"
    with run_threads() as threads:
        threads.run(lambda stop: serve(engine, {"default": 2}, tmp_path, 1.0, stop, drain_s=1.0), "worker")
        started = api.post("/api/v1/dags/quoted/runs", json={"run_id": "r", "inputs": {"name": hostile}})
        assert started.status_code == 201, started.text
        run = "/api/v1/dags/quoted/runs/r"
        api.get(run, params={"position": started.json()["position"]})
        eventually(lambda: api.get(run).json()["state"] not in ("queued", "running"))
        assert api.get(run).json()["state"] == "success"
        logs = f"{run}/tasks/a/attempts/1/logs"
        assert api.get(logs, params={"follow": True}, headers={"Accept": "text/plain"}).text == f"<{hostile}>"
    assert not (tmp_path / "hacked").exists()
