"""Tasks of a real Celery application: its own worker process, its broker and results in a directory."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.worker.conftest import StartWorker, wait_until
from tests.worker.engine import Engine
from tidewheel.core.assignment import PythonSpec, call_of
from tidewheel.core.commands import ReportCancelled
from tidewheel.core.workflow import Celery

APPLICATION = """
import time
from pathlib import Path
from celery import Celery

here = Path(__file__).parent
for folder in ("queue", "control", "results"):
    (here / folder).mkdir(exist_ok=True)
app = Celery("jobs", broker="filesystem://", backend=f"file://{here / 'results'}")
app.conf.broker_transport_options = {
    "data_folder_in": str(here / "queue"),
    "data_folder_out": str(here / "queue"),
    "control_folder": str(here / "control"),
}
app.conf.worker_hijack_root_logger = False
deaf = Celery("deaf", broker="filesystem://")

@app.task(name="jobs.add")
def add(a, b):
    return {"sum": a + b}

@app.task(name="jobs.fail")
def fail():
    raise ValueError("no such day")

@app.task(name="jobs.hold")
def hold(file):
    while not Path(file).exists():
        time.sleep(0.05)

@app.task(name="jobs.mark", bind=True)
def mark(self, directory):
    (Path(directory) / self.request.id).touch()
"""

StartCelery = Callable[[], None]


@pytest.fixture
def start_celery(project: Path, environment: dict[str, str]) -> Iterator[StartCelery]:
    """Start the application's worker."""
    (project / "jobs.py").write_text(APPLICATION)
    started: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        command = [sys.executable, "-m", "celery", "-A", "jobs", "worker", "--concurrency=1", "--loglevel=INFO"]
        with (project / "celery.log").open("wb") as log:
            env = {**os.environ, "PYTHONPATH": str(project)}
            started.append(subprocess.Popen(command, cwd=project, env=env, stdout=log, stderr=log))
        wait_until(lambda: "ready." in (project / "celery.log").read_text(), "Celery's worker is ready", 60)

    yield start
    for process in started:
        process.kill()
        process.wait()


def celery(task: str, *args: object, app: str = "jobs:app", **kwargs: object) -> PythonSpec:
    name, arguments = call_of(Celery(app=app, task=task, args=args, kwargs=kwargs))
    return PythonSpec(callable=name, kwargs=arguments)


def test_its_result_is_the_output(engine: Engine, process_worker: StartWorker, start_celery: StartCelery) -> None:
    start_celery()
    process_worker()
    task = engine.assign(celery("jobs.add", 1, b=2))
    engine.ending(task, 60)
    assert engine.success(task) == {"sum": 3}


def test_its_failure_is_told_with_its_own_traceback(
    engine: Engine, process_worker: StartWorker, start_celery: StartCelery
) -> None:
    start_celery()
    process_worker()
    failure = engine.failure(engine.assign(celery("jobs.fail")), 60)
    assert failure.kind == "exception"
    assert "FAILURE: ValueError('no such day')" in failure.message and "jobs.py" in failure.message


def test_without_results_nobody_waits_for_one(
    engine: Engine, process_worker: StartWorker, start_celery: StartCelery
) -> None:
    process_worker()
    failure = engine.failure(engine.assign(celery("jobs.add", 1, 2, app="jobs:deaf")), 60)
    assert "'jobs:deaf' has no result backend" in failure.message


def test_a_cancel_revokes_it(
    engine: Engine, process_worker: StartWorker, start_celery: StartCelery, project: Path, tmp_path: Path
) -> None:
    """What Celery is told, that is: by files it listens too seldom to such words for a test to wait for."""
    start_celery()
    process_worker(grace_s=20.0)
    go_on = tmp_path / "go_on"
    task = engine.assign(celery("jobs.hold", str(go_on)))
    wait_until(lambda: "jobs.hold[" in (project / "celery.log").read_text(), "Celery is busy", 60)
    engine.stop(task, cancel=True)
    assert isinstance(engine.ending(task, 60), ReportCancelled)
    (told,) = (project / "queue").glob("*celery.pidbox.msg")
    word = json.loads(base64.b64decode(json.loads(told.read_text())["body"]))
    assert word["method"] == "revoke" and word["arguments"]["terminate"]
    assert word["arguments"]["task_id"] == str(uuid.uuid5(uuid.NAMESPACE_URL, f"tidewheel:shop/r1/{task}/1"))
    go_on.touch()
