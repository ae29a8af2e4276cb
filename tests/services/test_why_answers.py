"""`tidewheel why` over a real engine: from the journal through the read model and the API to the line that is read."""

from __future__ import annotations

import json
import threading
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from tidewheel.log.interface import Log
from tidewheel.log.memory import MemoryLog
from tidewheel.worker import Worker
from tidewheel_services.cli.app import app

YAML = {"Content-Type": "application/yaml"}


class Site:
    """An API with everything behind it, and the command line in front."""

    def __init__(self, api: httpx.Client, eventually: Any) -> None:
        self.api = api
        self._eventually = eventually

    def deploy(self, text: str) -> None:
        """Make the workflow current."""
        answer = self.api.post("/api/v1/dags", content=text, headers=YAML)
        assert answer.status_code == 201, answer.text

    def start(self, dag: str, run_id: str) -> None:
        """Ask for a run, and wait until it is seen."""
        answer = self.api.post(f"/api/v1/dags/{dag}/runs", json={"run_id": run_id})
        assert answer.status_code == 201, answer.text
        self.api.get(f"/api/v1/dags/{dag}/runs/{run_id}", params={"position": answer.json()["position"]})

    def command(self, *arguments: str) -> str:
        """What a command writes."""
        result = CliRunner().invoke(app, [*arguments, "--api", str(self.api.base_url)])
        assert result.exit_code == 0, (result.output, result.exception)
        return result.stdout

    def why(self, *where: str, **expected: str) -> None:
        """Wait until the codes, by what they are said of (``run``: of none), are exactly these."""

        def asked() -> bool:
            answer = json.loads(self.command("why", *where, "--json"))
            return {(reason["tasks"] or ["run"])[0]: reason["code"] for reason in answer["reasons"]} == expected

        self._eventually(asked)


@pytest.fixture(scope="module")
def site(start_api: Any, engine: Log, projected: str, eventually: Any) -> Site:
    return Site(start_api(engine, projected), eventually)


def test_a_run_waits_for_its_turn_then_for_its_dag_then_for_nobody(site: Site) -> None:
    site.deploy("id: turns\nconcurrency: {max_runs: 1}\ntasks: [{id: a, pool: nobody, run: 'true'}]\n")
    for run_id in ("first", "second", "third"):
        site.start("turns", run_id)
    site.why("turns", "second", run="max_runs")
    said = site.command("why", "turns", "third")
    assert said == "the run: 1 run of the DAG is at work, and its max_runs allows 1; 1 run of the DAG goes before it\n"
    site.api.post("/api/v1/dags/turns/pause", json={"reason": "maintenance"})
    site.why("turns", "second", run="paused")
    assert site.command("why", "turns") == (
        "DAG turns is paused (maintenance); `tidewheel unpause turns` lets it go on\n"
        "it has no schedule: it runs when somebody asks for it\n"
    )
    assert "the run: DAG turns is paused (maintenance)" in site.command("show", "turns", "second")
    site.api.post("/api/v1/dags/turns/runs/second/cancel", json={})
    site.why("turns", "second")
    assert site.command("why", "turns", "second") == "second has ended: cancelled\n"


def test_tasks_wait_for_workers_needs_room_and_people(site: Site, engine: Log) -> None:
    site.deploy(
        "id: chores\nconcurrency: {max_tasks: 2}\ntasks:\n"
        "  - {id: fan, for_each: [1, 2, 3], max_parallel: 2, pool: empty, python: work}\n"
        "  - {id: join, needs: [fan], run: 'true'}\n"
        "  - {id: third, pool: empty, run: 'true'}\n"
        "  - {id: yes, wait_for: {approval: {}}}\n"
    )
    site.start("chores", "r")
    of_instances = {"fan[0]": "no_worker", "fan[2]": "max_parallel"}
    waits = {"fan": "instances", **of_instances, "join": "needs", "third": "max_tasks"}
    site.why("chores", "r", **waits, yes="approval")
    site.why("chores", "r", "join", join="needs")
    site.why("chores", "r", "fan", fan="instances", **of_instances)
    site.why("chores", "r", "fan[1]", **{"fan[1]": "no_worker"})
    said = site.command("why", "chores", "r").splitlines()
    assert said[:2] == [
        "fan: waits for its instances: 2 queued, 1 scheduled",
        "2 tasks (fan[0], fan[1]): no worker serves pool empty; start one with `tidewheel worker --pool empty=8`",
    ]
    assert said[-1].endswith("`tidewheel approve chores r yes` gives it")
    narrow = Worker(engine, {"empty": 1}, {"work": lambda: None}, name="narrow")
    narrow.start()
    try:
        site.why("chores", "r", yes="approval", join="no_worker")
    finally:
        narrow.stop(drain_s=1)
    site.why("chores", "r", "third", third="failed")


def test_a_slot_that_replaces_a_run_waits_for_its_end_and_a_sub_workflow_for_its_turn(site: Site, engine: Log) -> None:
    site.deploy("id: child\nconcurrency: {max_runs: 1}\ntasks: [{id: a, pool: nobody, run: 'true'}]\n")
    site.deploy("id: parent\ntasks: [{id: sub, workflow: child}]\n")
    site.start("child", "before")
    site.start("parent", "r")
    site.why("parent", "r", sub="workflow")
    assert "that run is queued: 1 run of the DAG is at work, and its max_runs allows 1" in site.command(
        "why", "parent", "r"
    )


def test_a_task_in_a_full_pool_and_one_that_is_too_wide(site: Site, engine: Log) -> None:
    free = threading.Event()
    worker = Worker(engine, {"narrow": 2}, {"work": lambda: free.wait(60)}, name="busy")
    worker.start()
    try:
        site.deploy(
            "id: crowd\ntasks:\n  - {id: many, for_each: [1, 2, 3, 4], pool: narrow, python: work}\n"
            "  - {id: wide, pool: narrow, pool_slots: 3, python: work}\n"
        )
        site.start("crowd", "r")
        site.why("crowd", "r", many="instances", **{"many[2]": "pool_full"}, wide="too_wide")
        said = site.command("why", "crowd", "r", "many[3]")
        expected = "2 of 2 slots of pool narrow are in use (DAG crowd has 2), 3 wait, 1 of its DAG before it"
        assert said == f"many[3]: {expected}\n"
    finally:
        free.set()
        worker.stop(drain_s=5)


def test_that_nobody_decides_comes_before_everything_else(site: Site, start_api: Any, projected: str) -> None:
    """The same rows beside a log that no scheduler serves."""
    site.deploy("id: alone\ntasks: [{id: a, pool: nobody, run: 'true'}]\n")
    site.start("alone", "r")
    site.why("alone", "r", a="no_worker")
    elsewhere: httpx.Client = start_api(MemoryLog(partitions=4), projected)
    reasons = elsewhere.get("/api/v1/dags/alone/runs/r/why").json()["reasons"]
    assert [reason["code"] for reason in reasons] == ["no_scheduler", "no_worker"]


def test_a_run_that_failed_says_where_and_what_to_do(site: Site, engine: Log) -> None:
    def fail() -> None:
        raise ValueError("no such table")

    worker = Worker(engine, {"failing": 2}, {"fail": fail}, name="failing")
    worker.start()
    try:
        site.deploy(
            "id: broken\ntasks:\n  - {id: load, pool: failing, python: fail, retries: 1, retry: {delay: 1s}}\n"
            "  - {id: after, needs: [load], run: 'true'}\n"
        )
        site.start("broken", "r")
        site.why("broken", "r", run="ended", load="failed", after="ended")
    finally:
        worker.stop(drain_s=1)
    said = site.command("why", "broken", "r").splitlines()
    assert said[1:3] == [
        "load: failed after 2 attempts: ValueError: no such table",
        "after: did not run, since something upstream failed (upstream_failed)",
    ]
    assert said[3:] == site.command("show", "broken", "r").splitlines()[-5:], "the table has the reasons"
    assert said[3] == "next:" and said[4].endswith(" tidewheel logs broken r load")
    site.why("broken", "r", "after", after="ended", load="failed")
    waited = CliRunner().invoke(app, ["trigger", "broken", "--run-id", "r", "--wait", "--api", str(site.api.base_url)])
    assert waited.exit_code == 1 and said[1] in waited.output and said[4] in waited.output


def test_what_is_not_there_is_named(site: Site) -> None:
    site.deploy("id: known\ntasks: [{id: load, run: 'true'}]\n")
    site.start("known", "r")
    answer = site.api.get("/api/v1/dags/known/runs/r/why", params={"task": "laod"})
    assert answer.status_code == 404 and "did you mean 'load'" in answer.json()["detail"]
    assert site.api.get("/api/v1/dags/known/runs/none/why").status_code == 404
    assert site.api.get("/api/v1/dags/nothing/why").status_code == 404
