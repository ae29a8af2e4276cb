"""The large example, from its first record to its end: every kind of wait in it is fed by what would feed it."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.installation import WAIT_S, ended, found_below, installed
from tests.e2e.running import CLEAN, dev, document, eventually, settings_of, tidewheel
from tests.notifier.receiver import receiving

EXAMPLE = Path(__file__).parents[2] / "examples" / "daily_orders"
ENGINE = Path(__file__).parents[1] / "worker" / "detached_engine.py"
PASSWORD = "the-warehouse-lets-me-in"
TOPICS = ("landing.files", "cdc.orders.done")
ON_KAFKA = pytest.param("kafka", marks=(pytest.mark.kafka, pytest.mark.postgres))


@dataclass
class Site:
    """The example at work, and what its surroundings took in. ``prefix`` begins the names of its topics."""

    env: dict[str, str]
    prefix: str
    published: Path
    quarantined: list[dict[str, Any]]

    def announce(self, kind: str, file: str, day: str) -> None:
        value = json.dumps({"kind": kind, "file_id": file, "day": day})
        document("publish", f"{self.prefix}landing.files", "--value", value, env=self.env)

    def changes_are_in(self, day: str) -> None:
        value = json.dumps({"day": day})
        document("publish", f"{self.prefix}cdc.orders.done", "--key", day, "--value", value, env=self.env)

    def get(self, *path: str) -> Any:
        return found_below(self.env["TIDEWHEEL_API"], *path)

    def until_deferred(self, run_id: str, task: str) -> None:
        def deferred() -> bool:
            found = self.get("daily_orders", "runs", run_id, "tasks", task)
            return found is not None and found["state"] == "deferred"

        eventually(deferred, WAIT_S, f"{run_id} waits at {task}")

    def ended(self, dag: str, run_id: str) -> Any:
        return ended(self.env["TIDEWHEEL_API"], dag, run_id)

    def states(self, run_id: str) -> dict[str, str]:
        """Of the tasks; of a fan-out's instances by their index."""
        tasks = document("show", "daily_orders", run_id, env=self.env)["tasks"]
        return {task["task"]: task["state"] for task in tasks}

    def output(self, run_id: str, task: str) -> Any:
        return self.get("daily_orders", "runs", run_id, "tasks", task)["output"]


@dataclass
class Surroundings:
    """The example with what only its owners have put in its place: the image, the quarantine's address, the disk."""

    flows: Path
    env: dict[str, str]
    published: Path
    quarantined: list[dict[str, Any]]


@contextmanager
def surroundings(directory: Path) -> Iterator[Surroundings]:
    """All of it but the engine."""
    flows, image, engine = directory / "flows", directory / "image", directory / "engine"
    shutil.copytree(EXAMPLE, flows, ignore=shutil.ignore_patterns(".tidewheel", "build", "__pycache__"))
    for made in (image, directory / "containers", directory / "scratch"):
        made.mkdir()
    published = directory / "published"
    program(image / "publish", f'echo "$*" >> {shlex.quote(str(published))}')
    program(engine, f'exec {shlex.quote(sys.executable)} -S {shlex.quote(str(ENGINE))} "$@"')
    env = {
        "TIDEWHEEL_SECRET_WAREHOUSE_PASSWORD": PASSWORD,
        "TIDEWHEEL_CONTAINER_ENGINE": str(engine),
        "ENGINE_STATE": str(directory / "containers"),
        "ENGINE_PROGRAMS": str(image),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{CLEAN['PATH']}",
    }
    with receiving() as quarantine:
        patch(
            flows / "daily_orders.yaml",
            ("https://ops.example.com/", f"http://{quarantine.address}/"),
            ("/scratch/", f"{directory}/scratch/"),
            # No slot comes due, whatever the time is: its run would have the only place of `max_runs`.
            ("# start: 2026-01-01", "start: 2100-01-01"),
        )
        yield Surroundings(flows, env, published, quarantine.taken)


@contextmanager
def embedded(directory: Path) -> Iterator[Site]:
    """`tidewheel dev` on it."""
    with surroundings(directory) as found, dev(found.flows, env=found.env) as (_, env):
        yield Site({**env, **settings_of(found.flows)}, "", found.published, found.quarantined)


@contextmanager
def on_kafka(directory: Path, kafka: str, postgres: str) -> Iterator[Site]:
    """A process for each service; the topics are a real Kafka's."""
    with surroundings(directory) as found, installed(directory, kafka, postgres) as site:
        for topic in TOPICS:
            site.create_topic(topic, 2)
            patch(found.flows / "daily_orders.yaml", (f"topic: {topic}", f"topic: {site.prefix}{topic}"))
        pools = ("--pool", "default=8", "--pool", "warehouse=8")
        site.start("worker", "worker", *pools, "--project", found.flows, env=found.env)
        site.start("listener", "listener")
        site.start("waiter", "waiter")
        document("deploy", found.flows, env=site.env)
        yield Site(site.env, site.prefix, found.published, found.quarantined)


@pytest.fixture(params=["embedded", ON_KAFKA])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """The example at work on either log."""
    with contextlib.ExitStack() as stack:
        if request.param == "embedded":
            yield stack.enter_context(embedded(tmp_path))
        else:
            kafka, postgres = (request.getfixturevalue(name) for name in ("kafka_address", "dsn"))
            yield stack.enter_context(on_kafka(tmp_path, kafka, postgres))


def program(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def patch(file: Path, *changes: tuple[str, str]) -> None:
    text = file.read_text()
    for old, new in changes:
        assert text.count(old) == 1, f"{old!r} is there {text.count(old)} times"
        text = text.replace(old, new)
    file.write_text(text)


def test_two_days_of_orders(site: Site, tmp_path: Path) -> None:
    good_day(site, tmp_path / "scratch")
    thin_day(site)
    runs = {run["run_id"]: run["state"] for run in document("runs", "daily_orders", env=site.env)}
    assert runs == {"trigger__late_file:f1": "success", "trigger__late_file:f2": "success"}
    proof = document("verify", env=site.env)
    assert (proof["ok"], proof["violations"]) == (True, [])

    def agrees() -> bool:
        done = tidewheel("projection", "verify", "--json", env=site.env)
        return bool(json.loads(done.stdout)["ok"])

    eventually(agrees, WAIT_S, "the read model says what the journal says")
    assert document("dead-letters", env=site.env) == []


def good_day(here: Site, scratch: Path) -> None:
    """A file announced twice, and one of another kind: one run, which goes the whole way."""
    run_id, day = "trigger__late_file:f1", "2026-01-31"
    (scratch / run_id).mkdir()
    for kind, file in (("returns", "f0"), ("orders", "f1"), ("orders", "f1")):
        here.announce(kind, file, day)
    here.until_deferred(run_id, "wait_for_cdc")
    here.changes_are_in("2026-01-30")
    here.changes_are_in(day)
    here.until_deferred(run_id, "approve")
    approval = ("approve", "daily_orders", run_id, "approve", "--by", "ann")
    refused = tidewheel(*approval, "--role", "guest", env=here.env)
    assert refused.returncode != 0 and "operator" in refused.stderr
    document(*approval, "--role", "operator", env=here.env)

    run = here.ended("daily_orders", run_id)
    assert (run["state"], run["kind"], run["trigger"]) == ("success", "kafka", "late_file")
    assert run["inputs"] == {"day": day, "min_ratio": 0.8}
    assert here.output(run_id, "wait_for_cdc")["key"] == day
    loaded = [here.output(run_id, f"load[{index}]") for index in range(3)]
    assert [(Path(one["file"]).stem, one["rows"]) for one in loaded] == [("asia", 3), ("eu", 4), ("us", 3)]
    assert here.output(run_id, "check_volume") == {"rows": 10, "ratio": 1}
    assert here.output(run_id, "route")["then"] == ["build_report"]
    report = here.output(run_id, "build_report")
    assert report["outputs"] == {"publish": {"address": f"reports/{day}.html"}}
    assert here.get("build_report", "runs", report["run_id"])["parent"]["run_id"] == run_id
    assert here.published.read_text() == f"--day {day}\n"
    close = here.output(run_id, "start_finance_close")
    closed = here.ended("finance_close", close["run_id"])
    assert (closed["state"], closed["inputs"]) == ("success", {"day": day})
    assert here.output(run_id, "approve")["by"] == "user:ann"
    states = here.states(run_id)
    assert {task for task, state in states.items() if state != "success"} == {"quarantine"}
    assert states["quarantine"] == "skipped"
    assert not (scratch / run_id).exists()


def thin_day(here: Site) -> None:
    """Too few rows: the quarantine is told, and nothing is published."""
    run_id, day = "trigger__late_file:f2", "2026-02-01"
    here.announce("orders", "f2", day)
    here.changes_are_in(day)
    run = here.ended("daily_orders", run_id)
    assert run["state"] == "success"
    assert here.output(run_id, "check_volume") == {"rows": 3, "ratio": 0.3}
    assert here.quarantined == [{"run": run_id}]
    states = here.states(run_id)
    skipped = {"build_report", "publish", "start_finance_close", "approve"}
    assert {task for task, state in states.items() if state == "skipped"} == skipped
    assert {state for task, state in states.items() if task not in skipped} == {"success"}
    assert here.published.read_text().count("\n") == 1
