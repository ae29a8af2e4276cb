"""What operators do about runs, from the command line to the journal and the read model."""

from __future__ import annotations

import json
import threading
from typing import Any

import httpx
import psycopg
import pytest
from typer.testing import CliRunner

from tidewheel.log.interface import Log
from tidewheel.runtime.checker import check_log
from tidewheel.worker import Worker
from tidewheel_projections.rebuild import verify
from tidewheel_services.cli.app import app

YAML = {"Content-Type": "application/yaml"}


class Site:
    """An API with everything behind it, and the command line in front."""

    def __init__(self, api: httpx.Client, eventually: Any) -> None:
        self.api = api
        self._eventually = eventually

    def run(self, *arguments: str, code: int = 0) -> Any:
        """What a command of the program writes as JSON."""
        result = CliRunner().invoke(app, [*arguments, "--api", str(self.api.base_url), "--json"])
        assert result.exit_code == code, (result.output, result.exception)
        return json.loads(result.stdout)

    def shown(self, *arguments: str) -> list[str]:
        """The lines of a command for people."""
        result = CliRunner().invoke(app, [*arguments, "--api", str(self.api.base_url)])
        assert result.exit_code == 0, (result.output, result.exception)
        return [" ".join(line.split()) for line in result.stdout.splitlines()]

    def tasks(self, dag: str, run_id: str) -> dict[str, str]:
        """The state of each task of a run."""
        page = self.api.get(f"/api/v1/dags/{dag}/runs/{run_id}/tasks").json()
        return {task["task"]: task["state"] for task in page.get("items", [])}

    def waits_for(self, dag: str, run_id: str, **states: str) -> None:
        """Wait until the tasks are so."""
        self._eventually(lambda: self.tasks(dag, run_id).items() >= states.items())

    def ends(self, dag: str, run_id: str) -> dict[str, Any]:
        """The run once it has ended."""

        def ended() -> Any:
            found = self.api.get(f"/api/v1/dags/{dag}/runs/{run_id}").json()
            return found if found.get("state") in ("success", "failed", "cancelled") else None

        found: dict[str, Any] = self._eventually(ended)
        return found


@pytest.fixture(scope="module")
def site(start_api: Any, engine: Log, projected: str, eventually: Any) -> Site:
    return Site(start_api(engine, projected), eventually)


FLOW = """\
id: shop
schedule: {every: 1d, start: 2030-01-01}
inputs: {day: {type: string, default: monday}}
tasks:
  - {id: load, python: hang}
  - id: report
    needs: [load]
    python: count
    with: {rows: "${{ tasks.load.output.rows }}", day: "${{ inputs.day }}"}
"""


def test_a_hanging_task_is_marked_and_the_run_is_repeated(site: Site, engine: Log) -> None:
    ended = threading.Event()
    seen: list[tuple[Any, Any]] = []

    def hang() -> dict[str, int]:
        ended.wait(60)
        return {"rows": 4}

    def count(rows: Any, day: Any) -> None:
        seen.append((rows, day))

    worker = Worker(engine, {"default": 2}, {"hang": hang, "count": count}, name="w1")
    worker.start()
    try:
        assert site.api.post("/api/v1/dags", content=FLOW, headers=YAML).status_code == 201
        site.run("trigger", "shop", "--run-id", "r1", "--input", "day=sunday", "--reason", "a try")
        site.waits_for("shop", "r1", load="running")
        said = ("success", "--output", '{"rows": 3}', "--reason", "loaded by hand")
        answer = site.run("mark", "shop", "r1", "load", *said)
        assert answer["changed"] and "once what is live of it has ended" in answer["message"]
        ended.set()  # it now reports a success of its own, which counts for nothing
        assert site.ends("shop", "r1")["state"] == "success"
        assert seen == [(3, "sunday")]
        task = site.api.get("/api/v1/dags/shop/runs/r1/tasks/load").json()
        assert (task["state"], task["output"]) == ("success", {"rows": 3})
        assert task["reason"].startswith("marked success by user:") and task["reason"].endswith(": loaded by hand")
        attempts = site.api.get("/api/v1/dags/shop/runs/r1/tasks/load/attempts").json()["items"]
        assert [attempt["state"] for attempt in attempts] == ["cancelled"]

        repeated = site.run("rerun", "shop", "r1", "--run-id", "r2", "--reason", "to be sure", "--wait")
        assert (repeated["state"], repeated["rerun_of"], repeated["inputs"]) == ("success", "r1", {"day": "sunday"})
        assert not site.run("rerun", "shop", "r1", "--run-id", "r2")["created"]
        other = site.run("rerun", "shop", "r1", "--version", "same", "--input", "day=friday", "--wait")
        assert other["version"] == repeated["version"]
        assert seen == [(3, "sunday"), (4, "sunday"), (4, "friday")]
        audit = site.api.get("/api/v1/dags/shop/runs/r2/events").json()["items"][0]
        assert audit["type"] == "RunCreated" and audit["body"]["reason"] == "to be sure"
    finally:
        worker.stop(drain_s=1)


MAPPED = """\
id: files
tasks:
  - {id: list, python: listed}
  - {id: load, python: load, needs: [list], for_each: "${{ tasks.list.output }}", with: {file: "${{ item }}"}}
  - {id: done, python: listed, needs: [load]}
"""


def test_what_failed_runs_again_and_history_stays(site: Site, engine: Log) -> None:
    broken = {"b"}
    files = ["a", "b", "c"]

    def load(file: str) -> str:
        if file in broken:
            raise ValueError(f"{file} is broken")
        return file.upper()

    worker = Worker(engine, {"default": 4}, {"listed": lambda: files, "load": load}, name="w2")
    worker.start()
    run = "/api/v1/dags/files/runs/r"
    try:
        assert site.api.post("/api/v1/dags", content=MAPPED, headers=YAML).status_code == 201
        site.run("trigger", "files", "--run-id", "r")
        assert site.ends("files", "r")["state"] == "failed"
        shown = site.run("clear", "files", "r", "--only-failed", "--dry-run")
        assert (shown["changed"], shown["tasks"], shown["reopens"]) == (False, ["load[1]", "done"], True)
        broken.clear()
        cleared = site.run("clear", "files", "r", "--only-failed", "--reason", "b was repaired")
        assert cleared["changed"]
        site.api.get(run, params={"position": cleared["position"]})
        ended = site.ends("files", "r")
        assert (ended["state"], ended["reopened"]) == ("success", 1)
        attempts = site.api.get(f"{run}/tasks/load%5B1%5D/attempts").json()["items"]
        assert [(attempt["attempt"], attempt["state"]) for attempt in attempts] == [(1, "failed"), (2, "success")]

        files.pop()
        cleared = site.run("clear", "files", "r", "list")
        site.api.get(run, params={"position": cleared["position"]})
        assert site.ends("files", "r")["counts"] == {"success": 5}, "load[2] is gone: there are two items now"
        assert "load[2]" not in site.tasks("files", "r")
        assert site.api.get(f"{run}/tasks/load%5B1%5D").json()["attempt"] == 3
        audit = site.api.get(f"{run}/events", params={"limit": 1000}).json()["items"]
        lines = site.shown("show", "files", "r")
        assert "had ended and went on 2 times" in lines
        assert any("cleared load[1], done: b was repaired" in line and " user:" in line for line in lines)
        task = site.run("show", "files", "r", "load")["task"]
        assert (task["output"], task["outputs"], task["outputs_next"]) == (["A", "B"], 2, None)
        lines = site.shown("show", "files", "r", "load", "--limit", "1")
        assert lines[-3:] == [
            "output: a list of 2, one for each item",
            '[0] "A"',
            "… and 1 more; --limit says how many to list",
        ]
        lines = site.shown("show", "files", "r", "load[1]")
        assert 'item: "b"' in lines and 'output: "B"' in lines
        assert any(line.startswith("attempt 1: failed on w2") and "b is broken" in line for line in lines)
        reopened = [event for event in audit if event["type"] == "RunReopened"]
        assert [event["body"].get("reason", "") for event in reopened] == ["b was repaired", ""]
        assert all(event["actor"].startswith("user:") for event in reopened)
    finally:
        worker.stop(drain_s=1)


def test_a_mark_says_what_stays_as_it_was_downstream_and_how_to_let_it_run(site: Site, engine: Log) -> None:
    def fail() -> None:
        raise ValueError("no such table")

    worker = Worker(engine, {"default": 4}, {"fail": fail, "tell": lambda: None}, name="w4")
    worker.start()
    flow = (
        "id: held\ntasks:\n  - {id: load, python: fail}\n  - {id: other, python: tell}\n"
        "  - {id: after, python: tell, needs: [load]}\n  - {id: last, python: tell, needs: [after]}\n"
    )
    repeat = "tidewheel mark held r load success --clear-downstream"
    try:
        assert site.api.post("/api/v1/dags", content=flow, headers=YAML).status_code == 201
        site.run("trigger", "held", "--run-id", "r")
        assert site.ends("held", "r")["state"] == "failed"
        assert site.shown("mark", "held", "r", "other", "skipped") == ["other: marked skipped"]
        said = f"after, last stay upstream_failed; to let that run: {repeat}"
        assert site.shown("mark", "held", "r", "load", "success") == ["load: marked success", said]
        assert site.shown("mark", "held", "r", "load", "success") == ["load is marked so already", said]
        assert site.ends("held", "r")["state"] == "failed"
        assert len(site.shown(*repeat.split()[1:])) == 1
        whose = CliRunner().invoke(app, ["logs", "held", "r", "--api", str(site.api.base_url)])
        assert whose.exit_code == 2 and "`tidewheel logs held r TASK`: " in whose.stderr
        newest = CliRunner().invoke(app, ["logs", "held", "--api", str(site.api.base_url)])
        assert newest.stderr == whose.stderr
        assert "other (skipped)" in whose.stderr and site.shown("show", "held")[0].startswith("held r ")
        site.waits_for("held", "r", load="success", after="success", last="success")
        assert site.ends("held", "r")["state"] == "success"
    finally:
        worker.stop(drain_s=1)


def test_a_task_that_cannot_be_is_told_at_once(site: Site) -> None:
    answer = site.api.post("/api/v1/dags/shop/runs/r1/tasks/Load%20it/mark", json={"state": "success"})
    assert answer.status_code == 422, answer.text
    assert "a task is named by its id" in answer.json()["detail"]


FORGETFUL = """\
id: forgetful
keep_runs: 1
tasks:
  - {id: list, python: listed}
  - {id: load, python: load, needs: [list], for_each: "${{ tasks.list.output }}", with: {file: "${{ item }}"}}
"""


def test_a_run_that_is_not_kept_any_more_goes_on_all_the_same(site: Site, engine: Log, projected: str) -> None:
    broken = {"b"}

    def load(file: str) -> None:
        if file in broken:
            raise ValueError(f"{file} is broken")

    def deploy(text: str) -> None:
        assert site.api.post("/api/v1/dags", content=text, headers=YAML).status_code == 201

    worker = Worker(engine, {"default": 4}, {"listed": lambda: ["a", "b"], "load": load}, name="w3")
    worker.start()
    try:
        deploy(FORGETFUL)
        site.run("trigger", "forgetful", "--run-id", "old")
        assert site.ends("forgetful", "old")["state"] == "failed"
        old = site.ends("forgetful", "old")["version"]
        broken.clear()
        deploy(FORGETFUL.replace("keep_runs: 1", "keep_runs: 2"))
        for number in range(2):
            site.run("trigger", "forgetful", "--run-id", f"new{number}")
            assert site.ends("forgetful", f"new{number}")["state"] == "success"
        # Neither the run nor its definition is in the scheduler's memory any more.
        shown = site.run("clear", "forgetful", "old", "--only-failed", "--dry-run")
        assert (shown["changed"], shown["tasks"], shown["reopens"]) == (False, ["load[1]"], True)
        assert shown["version"] == old
        cleared = site.run("clear", "forgetful", "old", "--only-failed", "--reason", "b was repaired")
        site.api.get("/api/v1/dags/forgetful/runs/old", params={"position": cleared["position"]})
        ended = site.ends("forgetful", "old")
        assert (ended["state"], ended["reopened"], ended["version"]) == ("success", 1, old)
        attempts = site.api.get("/api/v1/dags/forgetful/runs/old/tasks/load%5B1%5D/attempts").json()["items"]
        assert [(attempt["attempt"], attempt["state"]) for attempt in attempts] == [(1, "failed"), (2, "success")]

        for run_id in ("new0", "new1"):  # who was marked last is kept, and so one of them is recalled
            marked = site.run("mark", "forgetful", run_id, "load", "failed", "--reason", "it was not true")
            site.api.get(f"/api/v1/dags/forgetful/runs/{run_id}", params={"position": marked["position"]})
            assert site.ends("forgetful", run_id)["state"] == "failed"
        said = site.api.post("/api/v1/dags/forgetful/runs/nobody/clear", json={})
        assert said.status_code == 404
        assert check_log(engine).ok
    finally:
        worker.stop(drain_s=1)
    assert verify(projected, engine) == []


def test_what_the_tables_say_wrongly_of_a_run_is_refused(site: Site, engine: Log, projected: str) -> None:
    worker = Worker(engine, {"default": 4}, {"listed": list, "load": lambda file: None}, name="w4")
    worker.start()
    try:
        text = FORGETFUL.replace("forgetful", "altered").replace("keep_runs: 1", "keep_runs: 0")
        assert site.api.post("/api/v1/dags", content=text, headers=YAML).status_code == 201
        site.run("trigger", "altered", "--run-id", "r")
        assert site.ends("altered", "r")["state"] == "success"
        event = "dag = 'altered' AND run_id = 'r' AND task = 'list'"
        with psycopg.connect(projected, autocommit=True) as connection:
            connection.execute(f"UPDATE tidewheel.tasks SET output = '[1]' WHERE {event}".encode())
        refused = site.api.post("/api/v1/dags/altered/runs/r/clear", json={})
        assert refused.status_code == 409
        assert "is not what it came to; `tidewheel rerun altered r`" in refused.json()["detail"]
        with psycopg.connect(projected, autocommit=True) as connection:
            connection.execute(f"UPDATE tidewheel.tasks SET output = '[]' WHERE {event}".encode())
        assert site.run("clear", "altered", "r")["changed"]
        assert site.ends("altered", "r")["state"] == "success"
    finally:
        worker.stop(drain_s=1)
