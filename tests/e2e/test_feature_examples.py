"""Every example of `examples/features` is valid and does what its head says, on either log: one engine runs them all.

What one comes to is asserted by its case, in `feature_cases` and `feature_cases_failing`.
"""

from __future__ import annotations

import contextlib
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import tests.e2e.feature_cases_failing  # noqa: F401 (brings its cases)
from tests.e2e.feature_cases import CASES, Stage
from tests.e2e.installation import installed
from tests.e2e.playing import Play, Site, commands
from tests.e2e.running import CLEAN, dev, document, eventually, settings_of, tidewheel
from tests.notifier.receiver import receiving
from tests.postgres import fresh_database
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
ON_KAFKA = pytest.param("kafka", marks=(pytest.mark.kafka, pytest.mark.postgres))
SLOTS = "32"
#: What the examples name, and a `tidewheel dev` would bring by itself.
POOLS = ("default", "example", "example_defaults")
TOPICS = ("example.landing", "example.orders.done")


@dataclass(frozen=True)
class Outside:
    """What an engine is started with, and what it finds outside: targets, a container engine, a cluster."""

    flows: Path
    env: dict[str, str]
    stage: Stage


@dataclass(frozen=True)
class Engine:
    """One at work. ``crash`` kills what runs the tasks, and starts it again."""

    env: dict[str, str]
    crash: Callable[[], None]


@contextlib.contextmanager
def outside(place: Path) -> Iterator[Outside]:
    """Set up, and nothing started."""
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
        yield Outside(flows, surroundings, Stage(Site(flows, {}), chat, oncall, cluster))


@contextlib.contextmanager
def embedded(found: Outside) -> Iterator[Engine]:
    """`tidewheel dev` on the examples."""
    with contextlib.ExitStack() as stack:
        process, env = stack.enter_context(dev(found.flows, "--slots", SLOTS, env=found.env))
        bring(found.flows, env["TIDEWHEEL_API"])
        process.wait_for("deployed wait_time")
        assert "mistake" not in process.said and "not deployed" not in process.said, process.said
        env.update(settings_of(found.flows))

        def crash() -> None:
            process.kill()
            _, again = stack.enter_context(dev(found.flows, env=found.env))
            env.update(again)

        yield Engine(env, crash)


@contextlib.contextmanager
def on_kafka(found: Outside, kafka: str, postgres: str) -> Iterator[Engine]:
    """A process for each service; topics are a real Kafka's."""
    with installed(found.flows.parent, kafka, postgres) as site:
        site.create_topics(*TOPICS)
        work = ("worker", "--name", "w1", *(f"--pool={pool}={SLOTS}" for pool in POOLS), "--project", found.flows)
        site.start("worker", *work, env=found.env)
        site.start("listener", "listener")
        site.start("waiter", "waiter", env=found.env)
        site.start("notifier", "notifier", env={**found.env, "TIDEWHEEL_PUBLIC_URL": site.env["TIDEWHEEL_API"]})
        bring(found.flows, site.env["TIDEWHEEL_API"])
        document("deploy", found.flows, env=site.env)

        def crash() -> None:
            site.processes["worker"].kill()
            site.start("worker", *work, env=found.env)

        yield Engine(site.env, crash)


@pytest.fixture(scope="module", params=["embedded", ON_KAFKA])
def at_work(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Engine, Stage, dict[str, Play]]]:
    """All examples deployed on either log, and the first command of each that starts a run done."""
    with contextlib.ExitStack() as stack:
        found = stack.enter_context(outside(tmp_path_factory.mktemp("outside")))
        if request.param == "embedded":
            engine = stack.enter_context(embedded(found))
        else:
            kafka, server = (request.getfixturevalue(name) for name in ("kafka_address", "postgres_server"))
            database = stack.enter_context(fresh_database(server))
            engine = stack.enter_context(on_kafka(found, kafka, database))
        found.stage.site.env.update(engine.env)
        stack.enter_context(celery_worker(found.flows))
        plays = {file.name: Play(found.stage.site, found.flows / file.name) for file in FILES}
        for name, play in plays.items():
            if name not in LATER:
                play.begin()
        yield engine, found.stage, plays


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
def test_it_does_what_its_head_says(name: str, at_work: tuple[Engine, Stage, dict[str, Play]]) -> None:
    _, stage, plays = at_work
    play = plays[name]
    CASES[name](play, stage)
    assert play.todo == [] or name == "pool_urgent.yaml"


def test_a_lost_worker_is_not_a_retry(at_work: tuple[Engine, Stage, dict[str, Play]]) -> None:
    """The last one: infra_retries.yaml, whose head says to kill the engine."""
    engine, stage, plays = at_work
    play = plays["infra_retries.yaml"]
    play.start()

    def at_work_now() -> bool:
        task = stage.site.get("infra_retries", "runs", play.run_id, "tasks", "load")
        return task is not None and task["state"] == "running"

    eventually(at_work_now, 60)
    engine.crash()
    stage.site.env.update(engine.env)
    run = play.now()
    assert run.state == "success" and len(run.attempts("load")) == 2
    assert run.ends("load")[0] in ("lease_expired", "worker_lost")
    play.do(said="load")
    assert document("verify", env=stage.site.env)["ok"]
