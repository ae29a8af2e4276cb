"""Every example of `examples/features` is valid and does what its head says: one `tidewheel dev` runs them all.

What one comes to is asserted by its case, in `feature_cases` and `feature_cases_failing`.
"""

from __future__ import annotations

import contextlib
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tests.e2e.feature_cases_failing  # noqa: F401 (brings its cases)
from tests.e2e.feature_cases import CASES, Stage
from tests.e2e.playing import Play, Site, commands
from tests.e2e.running import CLEAN, Process, dev, document, eventually, settings_of, tidewheel
from tests.notifier.receiver import receiving
from tests.worker.cluster import Cluster, ended, running
from tidewheel.authoring.files import names_dags

EXAMPLES = Path(__file__).parents[2] / "examples" / "features"
ENGINE = Path(__file__).parents[1] / "worker" / "detached_engine.py"
#: Beside the workflows: modules that their tasks use.
FILES = sorted(
    file for pattern in ("*.yaml", "*.py") for file in EXAMPLES.glob(pattern)
    if file.suffix == ".yaml" or names_dags(file)
)  # fmt: skip
#: Begun by its own case, when what it is about is at work; and the one whose case ends the engine.
LATER = {"pool_urgent.yaml", "infra_retries.yaml"}


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, str], Stage]]:
    """What the engine is started with, and what it finds outside: targets, a container engine, a cluster."""
    place: Path = tmp_path_factory.mktemp("outside")
    flows, state, engine = place / "flows", place / "containers", place / "engine"
    for made in (flows, state):
        made.mkdir()
    engine.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -S {shlex.quote(str(ENGINE))} "$@"\n')
    engine.chmod(0o755)
    cluster = Cluster()
    cluster.stories = [{"phase": "Pending"}, running(), ended(message='{"rows": 3}')]
    with receiving() as chat, receiving() as oncall, cluster.serve(place / "kubeconfig"):
        surroundings = {
            "TIDEWHEEL_SECRET_WAREHOUSE_PASSWORD": "open-sesame",
            "TIDEWHEEL_SECRET_API_TOKEN": "not-needed-here",
            "TIDEWHEEL_NOTIFY_CHAT": chat.url(),
            "TIDEWHEEL_NOTIFY_DATA_ONCALL": oncall.url(),
            "TIDEWHEEL_CONTAINER_ENGINE": str(engine),
            "ENGINE_STATE": str(state),
            "KUBECONFIG": str(place / "kubeconfig"),
        }
        yield flows, surroundings, Stage(Site(flows, {}), chat, oncall, cluster)


@pytest.fixture(scope="module")
def at_work(outside: tuple[Path, dict[str, str], Stage]) -> Iterator[tuple[Process, Stage, dict[str, Play]]]:
    """All examples deployed, and the first command of each that starts a run done."""
    flows, surroundings, stage = outside
    with dev(flows, "--slots", "32", env=surroundings) as (process, env), contextlib.ExitStack() as stack:
        bring(flows, env["TIDEWHEEL_API"])
        process.wait_for("deployed wait_time")
        assert "mistake" not in process.said and "not deployed" not in process.said, process.said
        stage.site.env.update({**env, **settings_of(flows)})
        stack.enter_context(celery_worker(flows))
        plays = {file.name: Play(stage.site, flows / file.name) for file in FILES}
        for name, play in plays.items():
            if name not in LATER:
                play.begin()
        yield process, stage, plays


def bring(flows: Path, api: str) -> None:
    """The files, each whole at once, with the address of this API, and schedules that overlap within seconds."""
    beside = flows.with_name("beside")
    shutil.copytree(EXAMPLES, beside, ignore=shutil.ignore_patterns(".tidewheel", "build", "__pycache__"))
    for file in sorted(beside.iterdir()):
        text = file.read_text()
        if file.name.startswith("overlap_"):
            for old, new in (('cron: "0 * * * *"', "every: 2s"), ("sleep 5400", "sleep 5")):
                assert text.count(old) == 1
                text = text.replace(old, new)
        file.write_text(text.replace("http://127.0.0.1:8420", api))
        file.rename(flows / file.name)


@contextlib.contextmanager
def celery_worker(project: Path) -> Iterator[None]:
    """The other side of celery.yaml, started as its head says."""
    command = [sys.executable, "-m", "celery", "-A", "jobs", "worker", "--concurrency", "1"]
    with (project.with_name("celery.log")).open("wb") as log:
        worker = subprocess.Popen(command, cwd=project, env=CLEAN, stdout=log, stderr=log)
    try:
        yield
    finally:
        worker.kill()
        worker.wait()


def test_every_file_is_valid() -> None:
    done = tidewheel("validate", EXAMPLES)
    assert (done.returncode, done.stdout) == (0, f"{len(FILES)} files good\n")


def test_each_example_has_a_case_and_says_what_to_type() -> None:
    names = {file.name for file in FILES}
    assert names - {"infra_retries.yaml"} == set(CASES)
    assert not [file.name for file in FILES if not commands(file)]


@pytest.mark.parametrize("name", [file.name for file in FILES if file.name in CASES])
def test_it_does_what_its_head_says(name: str, at_work: tuple[Process, Stage, dict[str, Play]]) -> None:
    _, stage, plays = at_work
    play = plays[name]
    CASES[name](play, stage)
    assert play.todo == [] or name == "pool_urgent.yaml"


def test_a_lost_worker_is_not_a_retry(
    outside: tuple[Path, dict[str, str], Stage], at_work: tuple[Process, Stage, dict[str, Play]]
) -> None:
    """The last one: infra_retries.yaml, whose head says to kill the engine."""
    (flows, surroundings, stage), (process, _, plays) = outside, at_work
    play = plays["infra_retries.yaml"]
    play.start()

    def at_work_now() -> bool:
        task = stage.site.get("infra_retries", "runs", play.run_id, "tasks", "load")
        return task is not None and task["state"] == "running"

    eventually(at_work_now, 60)
    process.kill()
    with dev(flows, env=surroundings) as (_, env):
        stage.site.env.update(env)
        run = play.now()
        assert run.state == "success" and len(run.attempts("load")) == 2
        assert run.ends("load")[0] in ("lease_expired", "worker_lost")
        play.do(said="load")
        assert document("verify", env=stage.site.env)["ok"]
