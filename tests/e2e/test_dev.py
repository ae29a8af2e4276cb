"""`tidewheel dev` as its users meet it: files that change, kill -9 in mid-run, two at once, a port in use."""

from __future__ import annotations

import json
import shlex
import signal
import socket
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.docs.pages import fences
from tests.e2e.running import Process, dev, document, eventually, tidewheel
from tidewheel_services.standalone.templates import TEMPLATES

HELLO = "id: hello\ntasks: [{id: hello, run: echo hi}]\n"


@pytest.fixture(scope="module")
def flows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory: Path = tmp_path_factory.mktemp("flows")
    (directory / "hello.yaml").write_text(HELLO)
    return directory


@pytest.fixture(scope="module")
def running(flows: Path) -> Iterator[tuple[Process, dict[str, str]]]:
    with dev(flows) as found:
        yield found


def test_a_run_from_the_command_line(running: tuple[Process, dict[str, str]]) -> None:
    _, env = running
    run = document("trigger", "hello", "--run-id", "one", "--wait", env=env)
    assert (run["state"], run["counts"]) == ("success", {"success": 1})
    again = document("trigger", "hello", "--run-id", "one", env=env)
    assert (again["run_id"], again["created"]) == ("one", False)
    assert [one["run_id"] for one in document("runs", "hello", env=env)] == ["one"]
    eventually(lambda: tidewheel("logs", "hello", "one", "hello", env=env).stdout == "hi\n")
    shown = tidewheel("show", "hello", "one", env=env).stdout
    assert "hello one" in shown
    assert "█" in shown
    types = [event["type"] for event in document("events", "hello", "one", env=env)]
    assert types[0] == "RunCreated"
    assert types[-1] == "RunSucceeded"
    assert types.count("TaskSucceeded") == 1
    assert document("pools", env=env)[0]["worker_slots"] > 0
    assert document("workers", env=env)[0]["state"] == "active"


def test_a_run_over_http(running: tuple[Process, dict[str, str]]) -> None:
    _, env = running
    with httpx.Client(base_url=env["TIDEWHEEL_API"] + "/api/v1", timeout=20) as client:
        started = client.post("/dags/hello/runs", json={"run_id": "http"})
        assert started.status_code == 201
        position = started.headers["X-Tidewheel-Position"]
        assert client.get("/dags/hello/runs/http", headers={"X-Tidewheel-Position": position}).status_code == 200
        eventually(lambda: client.get("/dags/hello/runs/http").json()["state"] == "success")


def test_saving_a_file_deploys_it_and_a_broken_one_changes_nothing(
    flows: Path, running: tuple[Process, dict[str, str]]
) -> None:
    process, env = running
    file = flows / "changing.yaml"
    file.write_text("id: changing\ntasks: [{id: a, run: 'true'}]\n")
    process.wait_for("deployed changing")
    version = _get(env, "/dags/changing")["version"]
    file.write_text("id: changing\ntasks:\n  - id: a\n    rum: 'true'\n")
    said = process.wait_for(f"{file}:4:5: ")
    assert "the last good version" in said
    assert _get(env, "/dags/changing")["version"] == version
    assert document("trigger", "changing", "--wait", env=env)["state"] == "success"
    file.write_text("id: changing\ntasks: [{id: b, run: 'true'}]\n")
    eventually(lambda: process.said.count("deployed changing") == 2)
    eventually(lambda: "no mistakes any more" in process.said)
    run = document("trigger", "changing", "--run-id", "new", "--wait", env=env)
    assert run["version"] != version


def test_of_two_files_with_one_id_the_first_stays(flows: Path, running: tuple[Process, dict[str, str]]) -> None:
    process, _ = running
    # Sorted before hello.yaml, and yet the later one.
    second = flows / "a_second.yaml"
    second.write_text(HELLO.replace("echo hi", "echo second"))
    said = process.wait_for("is defined in")
    assert str(second) in said
    assert str(flows / "hello.yaml") in said
    second.unlink()


def test_a_file_that_is_gone_takes_its_dag_along(flows: Path, running: tuple[Process, dict[str, str]]) -> None:
    process, env = running
    file = flows / "passing.yaml"
    file.write_text("id: passing\ntasks: [{id: a, run: 'true'}]\n")
    process.wait_for("deployed passing")
    file.unlink()
    process.wait_for("removed passing")
    eventually(lambda: _get(env, "/dags/passing")["removed"])
    refused = tidewheel("trigger", "passing", env=env)
    assert refused.returncode == 1
    assert "passing" in refused.stderr


def test_a_changed_python_file_is_what_runs_next(flows: Path, running: tuple[Process, dict[str, str]]) -> None:
    process, env = running
    module = flows / "answers.py"
    module.write_text("def answer():\n    return 'first'\n")
    (flows / "asking.yaml").write_text("id: asking\ntasks: [{id: ask, python: 'answers:answer'}]\n")
    process.wait_for("deployed asking")

    def output(run_id: str) -> Any:
        document("trigger", "asking", "--run-id", run_id, "--wait", env=env)
        return _get(env, f"/dags/asking/runs/{run_id}/tasks/ask")["output"]

    assert output("one") == "first"
    module.write_text("def answer():\n    return 'second, longer'\n")
    assert output("two") == "second, longer"


def test_every_template_runs_and_python_is_read_again(flows: Path, running: tuple[Process, dict[str, str]]) -> None:
    process, env = running
    expected = {
        "etl": ("report", {"files": 5, "rows": 1000}),
        "nightly": ("close_day", {"closed": "2026-01-01"}),
        "words": ("longest", {"word": "wheel", "letters": 5}),
    }
    for name in ("etl", "scheduled", "python"):
        for file, text in TEMPLATES[name].files.items():
            (flows / file).write_text(text)
    for dag, (task, output) in expected.items():
        process.wait_for(f"deployed {dag} ")
        assert document("trigger", dag, "--run-id", "one", "--wait", env=env)["state"] == "success"
        assert _get(env, f"/dags/{dag}/runs/one/tasks/{task}")["output"] == output
    version = _get(env, "/dags/words")["version"]
    shown = _get(env, f"/dags/words/versions/{version}")
    assert (shown["source"], shown["definition"]["tasks"][0]["action"]["callable"]) == ("flow.py", "flow:find_words")
    # What it imports is watched too; a broken one leaves the last good version live.
    text = TEMPLATES["python"].files["flow.py"]
    (flows / "flow.py").write_text(text.replace("from datetime", "from wording import SAID\nfrom datetime"))
    process.wait_for("No module named 'wording'")
    assert _get(env, "/dags/words")["version"] == version
    (flows / "wording.py").write_text("SAID = 'first'\n")
    (flows / "flow.py").write_text(text.replace("from datetime", "from wording import SAID\nfrom datetime").replace(
        '"Find the longest word."', "SAID"
    ))  # fmt: skip
    eventually(lambda: _get(env, "/dags/words")["description"] == "first")
    (flows / "wording.py").write_text("SAID = 'second'\n")
    eventually(lambda: _get(env, "/dags/words")["description"] == "second")


def test_a_pool_that_a_workflow_names_is_served(flows: Path, running: tuple[Process, dict[str, str]]) -> None:
    process, env = running
    (flows / "special.yaml").write_text("id: special\ntasks: [{id: a, run: 'true', pool: gpu}]\n")
    process.wait_for("deployed special")
    assert document("trigger", "special", "--wait", env=env)["state"] == "success"


def test_bad_requests_are_refused_with_a_reason(running: tuple[Process, dict[str, str]]) -> None:
    _, env = running
    for arguments, said in (
        (("trigger", "nosuch"), "nosuch"),
        (("trigger", "hello", "--input", "surplus=1"), "surplus"),
        (("show", "hello", "nosuch"), "nosuch"),
        (("logs", "hello", "one", "nosuch"), "nosuch"),
        (("cancel", "hello", "nosuch"), "nosuch"),
        (("pause", "nosuch"), "nosuch"),
    ):
        done = tidewheel(*arguments, env=env)
        assert done.returncode == 1, (arguments, done.stderr)
        assert said in done.stderr
        assert "Traceback" not in done.stderr


def test_a_second_one_on_the_same_directory_is_refused(flows: Path, running: tuple[Process, dict[str, str]]) -> None:
    process, _ = running
    second = tidewheel("dev", flows, "--port", "0")
    assert second.returncode == 2
    assert "another `tidewheel dev`" in second.stderr
    assert process.alive


def test_a_port_in_use_is_told_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "hello.yaml").write_text(HELLO)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = tidewheel("dev", tmp_path, "--port", str(port))
    assert done.returncode == 2
    assert f"port {port}" in done.stderr
    assert "--port" in done.stderr
    assert not (tmp_path / ".tidewheel" / "postgres").exists()


def test_ctrl_c_ends_it_in_order(tmp_path: Path) -> None:
    directory = tmp_path / "flows"
    directory.mkdir()
    (directory / "hello.yaml").write_text(HELLO)
    with dev(directory) as (process, _):
        assert process.stop(signal.SIGINT) == 0
        assert "stopping" in process.said
        assert "Traceback" not in process.said


def test_killed_in_the_middle_of_a_run_it_goes_on_and_doubles_nothing(tmp_path: Path) -> None:
    directory = tmp_path / "flows"
    directory.mkdir()
    ledger = tmp_path / "ledger"
    note = f'echo "$TIDEWHEEL_TASK $TIDEWHEEL_ATTEMPT" >> {ledger}'
    tasks = [{"id": "first", "run": note}]
    gate = f"while [ ! -e {tmp_path / 'gate'} ]; do sleep 0.1; done"
    ends = ("true", "sleep 0.5", gate, gate)
    tasks += [{"id": f"part_{n}", "needs": ["first"], "run": f"{note}; {end}"} for n, end in enumerate(ends)]
    tasks += [{"id": "last", "needs": [f"part_{n}" for n in range(4)], "run": note}]
    (directory / "long.yaml").write_text(json.dumps({"id": "long", "tasks": tasks}))
    with dev(directory) as (process, env):
        document("trigger", "long", "--run-id", "killed", env=env)
        eventually(lambda: ledger.exists() and len(ledger.read_text().splitlines()) == 5)
        eventually(lambda: _states(env)["part_1"] == "success")
        done = {task for task, state in _states(env).items() if state == "success"}
        process.kill()
    assert done == {"first", "part_0", "part_1"}
    (tmp_path / "gate").touch()
    with dev(directory) as (process, env):
        run = eventually(lambda: _ended(env), 60, "the end of the run")
        assert (run["state"], run["counts"]) == ("success", {"success": 6})
        everything = _environment(directory)
        proof = document("verify", env=everything)
        assert (proof["ok"], proof["violations"]) == (True, [])
        assert document("projection", "verify", env=everything) == {"ok": True, "differences": []}
        assert document("projection", "rebuild", env=everything)["records"] >= proof["events"]
        assert document("projection", "verify", env=everything)["ok"]
        assert _ended(env) == run
        checks = {check["check"]: check["result"] for check in document("doctor", env=everything)}
        assert (checks["Log"], checks["Postgres"], checks["API"]) == ("ok", "ok", "ok")
    begun = Counter(ledger.read_text().splitlines())
    assert set(begun.values()) == {1}, "an attempt ran twice"
    tries = Counter(line.split()[0] for line in begun)
    assert tries == {"first": 1, "part_0": 1, "part_1": 1, "part_2": 2, "part_3": 2, "last": 1}


def _states(env: dict[str, str]) -> dict[str, str]:
    return {task["task"]: task["state"] for task in _get(env, "/dags/long/runs/killed/tasks")["items"]}


def _ended(env: dict[str, str]) -> Any:
    run = _get(env, "/dags/long/runs/killed")
    return run if run["ended_at"] else None


def _environment(directory: Path) -> dict[str, str]:
    """What `source .tidewheel/environment` sets."""
    lines = (directory / ".tidewheel" / "environment").read_text().splitlines()
    words = [shlex.split(line)[1] for line in lines]
    return dict(word.split("=", 1) for word in words)


def _get(env: dict[str, str], path: str) -> Any:
    return httpx.get(f"{env['TIDEWHEEL_API']}/api/v1{path}").json()


def test_the_backfill_of_the_page_runs_as_the_page_says(flows: Path, running: tuple[Process, dict[str, str]]) -> None:
    process, env = running
    (text,) = (
        fence.text for fence in fences() if fence.page == "docs/backfill.md" and fence.words == ("yaml", "workflow")
    )
    (flows / "daily.yaml").write_text(text)
    process.wait_for("deployed daily_orders")
    first = ("backfill", "daily_orders", "--from", "2026-10-30", "--to", "2026-10-31")
    whole = ("backfill", "daily_orders", "--from", "2026-10-30", "--to", "2026-11-02")
    assert document(*first, "--wait", env=env)["succeeded"] == 2
    preview = document(*whole, "--dry-run", "--order", "backward", env=env)
    assert [(item["slot"], item["action"], item["state"]) for item in preview["items"]] == [
        ("2026-11-02T11:00:00Z", "create", None),
        ("2026-11-01T11:00:00Z", "create", None),
        ("2026-10-31T10:00:00Z", "pass", "success"),
        ("2026-10-30T10:00:00Z", "pass", "success"),
    ]
    row = document(*whole, "--chunk", "2", "--wait", env=env)
    assert (row["state"], row["slots"], row["skipped"], row["succeeded"]) == ("finished", 4, 2, 2)
    runs = document("runs", "daily_orders", env=env)
    assert sorted((run["run_id"], run["kind"]) for run in runs) == [
        (f"scheduled__{slot}Z", "backfill")
        for slot in ("2026-10-30T10:00:00", "2026-10-31T10:00:00", "2026-11-01T11:00:00", "2026-11-02T11:00:00")
    ]
    assert all(run["counts"] == {"success": 1, "skipped": 1} for run in runs)
    assert "backfill-2  finished" in tidewheel("backfills", "daily_orders", env=env).stdout
    again = document(*first, "--reprocess", "all", "--dry-run", env=env)
    assert (again["creates"], again["restarts"], again["passes"]) == (0, 2, 0)
    row = document(*first, "--reprocess", "all", "--wait", env=env)
    assert (row["state"], row["runs"], row["succeeded"]) == ("finished", 2, 2)
    shown = document("show", "daily_orders", "scheduled__2026-10-30T10:00:00Z", env=env)
    assert [(one["task"], one["attempt"], one["state"]) for one in shown["attempts"]] == [
        ("load", 1, "success"),
        ("load", 2, "success"),
    ]
    long = document("backfill", "daily_orders", "--from", "1980-01-01", "--to", "2020-12-31", env=env)
    name = long["backfill_id"]
    assert document("backfill-pause", "daily_orders", name, env=env)["changed"]
    stopped = document("backfill-cancel", "daily_orders", name, "--running", "--reason", "enough", env=env)
    with httpx.Client(base_url=env["TIDEWHEEL_API"] + "/api/v1", timeout=20) as client:
        there = client.get(
            f"/dags/daily_orders/backfills/{name}", headers={"X-Tidewheel-Position": stopped["position"]}
        ).json()
        assert (there["state"], there["reason"]) == ("cancelled", "enough")
        wrong = client.post("/dags/daily_orders/backfills", json={"from": "yesterday", "to": "2026-11-02"})
        assert (wrong.status_code, wrong.json()["errors"][0]["where"]) == (422, "body.from")
        assert client.get("/dags/daily_orders/backfills/backfill-99").status_code == 404
