"""Kafka and Postgres go away under running processes, and come back: everybody says so, waits, and goes on."""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.journals import succeeded
from tests.e2e.running import Process, document, eventually, standing_still, tidewheel
from tidewheel.testing.kafka_broker import KafkaBroker
from tidewheel_services.embedded_postgres import EmbeddedPostgres

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]

#: Sessions, leases and back-offs all have to come round again.
RECOVERY_S = 90
SLOW = "id: slow\ntasks: [{id: wait, run: 'sleep 4'}, {id: end, needs: [wait], run: 'true'}]\n"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with KafkaBroker(data=tmp_path_factory.mktemp("kafka")) as found:
        yield found


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres(tmp_path_factory.mktemp("postgres") / "data") as found:
        yield found


@dataclass
class Away:
    """What was seen while processes had been started and the broker had not."""

    process_says: dict[str, str] = field(default_factory=dict)
    answers: dict[str, httpx.Response] = field(default_factory=dict)
    commands: dict[str, subprocess.CompletedProcess[str]] = field(default_factory=dict)


Processes = tuple[dict[str, Process], dict[str, str], Away]


@pytest.fixture(scope="module")
def processes(
    broker: KafkaBroker, postgres: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Processes]:
    """All processes, started before their broker; it is there when this is handed out."""
    home: Path = tmp_path_factory.mktemp("processes")
    env = {"TIDEWHEEL_LOG": f"kafka://{broker.address}?partitions=4", "TIDEWHEEL_POSTGRES": postgres.dsn}
    document("topics", "create", env=env)
    broker.kill()
    commands = {
        "scheduler": ("scheduler", "--metrics-port", "0"),
        "worker": ("worker", "--pool", "default=4", "--metrics-port", "0"),
        "projector": ("projector", "--metrics-port", "0"),
        "api": ("api", "--port", "0"),
    }
    away = Away()
    with contextlib.ExitStack() as stack:
        found = {
            name: stack.enter_context(Process(*command, output=home / f"{name}.log", env=env))
            for name, command in commands.items()
        }
        env["TIDEWHEEL_API"] = _url(found["api"].wait_for("api is up"))
        for name, process in found.items():
            away.process_says[name] = process.wait_for("waiting for the log")
            if name != "api":
                away.answers[f"{name} ready"] = httpx.get(f"{_url(process.said)}/readyz")
        _look_while_away(away, env)
        broker.start()
        eventually(lambda: httpx.get(f"{env['TIDEWHEEL_API']}/ready").status_code == 200, RECOVERY_S)
        (home / "slow.yaml").write_text(SLOW)
        document("deploy", home / "slow.yaml", env=env)
        yield found, env, away


def _look_while_away(away: Away, env: dict[str, str]) -> None:
    api = env["TIDEWHEEL_API"]
    away.answers["api health"] = httpx.get(f"{api}/healthz")
    away.answers["api ready"] = httpx.get(f"{api}/readyz", timeout=20)
    away.answers["a write"] = httpx.post(f"{api}/api/v1/dags/slow/runs", json={"run_id": "early"}, timeout=20)
    away.answers["a read of a position"] = httpx.get(f"{api}/api/v1/runs?position=events/0/1", timeout=20)
    asked = (("verify",), ("topics", "create"), ("doctor",), ("trigger", "slow"))
    with ThreadPoolExecutor(len(asked)) as pool:
        done = pool.map(lambda command: tidewheel(*command, env=env), asked)
        away.commands = {" ".join(command): result for command, result in zip(asked, done, strict=True)}


def test_what_starts_before_its_broker_waits_and_says_so(broker: KafkaBroker, processes: Processes) -> None:
    found, _, away = processes
    assert set(away.process_says) == set(found)
    for said in away.process_says.values():
        assert re.search(rf"Kafka at {re.escape(broker.address)} (is not reachable|does not answer)", said), said
        assert "Traceback" not in said
    unready = {name: answer.status_code for name, answer in away.answers.items()}
    assert unready.pop("api health") == 200
    assert unready == dict.fromkeys(unready, 503)
    for name in ("api ready", "a write", "a read of a position"):
        answer = away.answers[name]
        assert answer.headers["content-type"] == "application/problem+json"
        assert int(answer.headers["retry-after"]) > 0
        assert answer.json()["type"] == "urn:tidewheel:problem:log_unavailable"
    for command, done in away.commands.items():
        assert done.returncode == (1 if command == "doctor" else 2), f"{command}: {done.stderr}"
        assert "Traceback" not in done.stderr + done.stdout
        assert command == "doctor" or len(done.stderr.splitlines()) == 1, done.stderr


def test_once_the_broker_is_there_every_process_is_ready(processes: Processes) -> None:
    found, _, _ = processes
    for name in ("scheduler", "worker", "projector"):
        url = _url(found[name].said)
        eventually(lambda url=url: httpx.get(f"{url}/readyz").status_code == 200, RECOVERY_S, f"{name} is ready")
        assert "tidewheel_ready 1.0" in httpx.get(f"{url}/metrics").text


def test_the_broker_dies_in_the_middle_of_a_run(broker: KafkaBroker, processes: Processes) -> None:
    found, env, _ = processes
    document("trigger", "slow", "--run-id", "across", env=env)
    eventually(lambda: _task_state(env, "across", "wait") == "running")
    broker.kill()
    refused = tidewheel("trigger", "slow", "--run-id", "meanwhile", env=env)
    assert refused.returncode == 2
    assert "Traceback" not in refused.stderr
    broker.start()
    assert eventually(lambda: _ended(env, "across"), RECOVERY_S, "the run's end")["state"] == "success"
    # Asked again with the same name it is safe: it is one run, whatever became of the first request.
    eventually(lambda: tidewheel("trigger", "slow", "--run-id", "meanwhile", env=env).returncode == 0, RECOVERY_S)
    assert eventually(lambda: _ended(env, "meanwhile"), RECOVERY_S)["state"] == "success"
    assert {name: process.alive for name, process in found.items()} == dict.fromkeys(found, True)
    proof = document("verify", env=env)
    assert (proof["ok"], proof["violations"]) == (True, [])


def test_postgres_dies_and_only_reading_stops(postgres: EmbeddedPostgres, processes: Processes) -> None:
    found, env, _ = processes
    postgres.stop()
    try:
        asked = tidewheel("runs", env=env)
        assert asked.returncode == 2
        assert "Postgres did not answer" in asked.stderr
        assert "Traceback" not in asked.stderr
        assert document("trigger", "slow", "--run-id", "unseen", env=env)["created"]
        found["projector"].wait_for("postgres_unavailable")
    finally:
        postgres.start()
    assert eventually(lambda: _ended(env, "unseen"), RECOVERY_S)["state"] == "success"
    assert {name: process.alive for name, process in found.items()} == dict.fromkeys(found, True)
    assert document("projection", "verify", env=env)["ok"]


def _url(said: str) -> str:
    """The first address that a process tells."""
    return said.split('"url": "')[1].split('"')[0]


def test_postgres_stands_still_and_only_reading_waits(postgres: EmbeddedPostgres, processes: Processes) -> None:
    """Worse than gone: connections are taken, and nothing is ever answered."""
    found, env, _ = processes
    assert postgres._process is not None
    with standing_still(postgres._process.pid):
        for run_id in ("still-1", "still-2"):
            assert document("trigger", "slow", "--run-id", run_id, env=env)["created"]
        asked = httpx.get(f"{env['TIDEWHEEL_API']}/api/v1/dags", timeout=60)
        assert asked.status_code == 503, asked.text
        assert asked.json()["type"] == "urn:tidewheel:problem:read_model_unavailable"
        assert int(asked.headers["retry-after"]) > 0
        assert httpx.get(f"{env['TIDEWHEEL_API']}/health", timeout=5).status_code == 200
        eventually(lambda: {"still-1", "still-2"} <= set(succeeded(env["TIDEWHEEL_LOG"])), RECOVERY_S, "the runs")
        assert document("trigger", "slow", "--run-id", "still-1", env=env)["created"] is False
    for run_id in ("still-1", "still-2"):
        assert eventually(lambda run_id=run_id: _ended(env, run_id), RECOVERY_S)["state"] == "success"
    assert {name: process.alive for name, process in found.items()} == dict.fromkeys(found, True)
    assert document("projection", "verify", env=env)["ok"]


def test_the_projector_stands_still_and_who_reads_own_writes_is_told(processes: Processes) -> None:
    found, env, _ = processes
    runs = f"{env['TIDEWHEEL_API']}/api/v1/dags/slow/runs"
    with standing_still(found["projector"].pid):
        written = httpx.post(runs, json={"run_id": "behind"}, timeout=30)
        assert written.status_code == 201, written.text
        position = {"X-Tidewheel-Position": written.headers["X-Tidewheel-Position"]}
        read = httpx.get(f"{runs}/behind", headers=position, timeout=30)
        assert (read.status_code, read.json()["type"]) == (504, "urn:tidewheel:problem:not_projected")
        assert int(read.headers["retry-after"]) > 0
        assert httpx.get(runs, timeout=30).status_code == 200, "what is there can be read"
        eventually(lambda: "behind" in succeeded(env["TIDEWHEEL_LOG"]), RECOVERY_S, "the run's end")
        lag = httpx.get(f"{env['TIDEWHEEL_API']}/api/v1/lag", timeout=30).json()
        assert lag["projection_lag"] > 0
    assert httpx.get(f"{runs}/behind", headers=position, timeout=30).status_code in (200, 504)
    assert eventually(lambda: _ended(env, "behind"), RECOVERY_S)["state"] == "success"
    assert document("projection", "verify", env=env)["ok"]


def _task_state(env: dict[str, str], run_id: str, task: str) -> Any:
    return _get(env, f"/dags/slow/runs/{run_id}/tasks/{task}").get("state")


def _ended(env: dict[str, str], run_id: str) -> Any:
    run = _get(env, f"/dags/slow/runs/{run_id}")
    return run if run.get("ended_at") else None


def _get(env: dict[str, str], path: str) -> Any:
    return httpx.get(f"{env['TIDEWHEEL_API']}/api/v1{path}", timeout=20).json()
