"""Kafka and Postgres go away under running processes, and come back: everybody says so, waits, and goes on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.running import Process, document, eventually, tidewheel
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


@pytest.fixture(scope="module")
def processes(
    broker: KafkaBroker, postgres: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[dict[str, Process], dict[str, str]]]:
    home: Path = tmp_path_factory.mktemp("processes")
    env = {"TIDEWHEEL_LOG": f"kafka://{broker.address}?partitions=4", "TIDEWHEEL_POSTGRES": postgres.dsn}
    document("topics", "create", env=env)
    commands = {
        "scheduler": ("scheduler",),
        "worker": ("worker", "--pool", "default=4"),
        "projector": ("projector",),
        "api": ("api", "--port", "0"),
    }
    with contextlib.ExitStack() as stack:
        found = {
            name: stack.enter_context(Process(*command, output=home / f"{name}.log", env=env))
            for name, command in commands.items()
        }
        env["TIDEWHEEL_API"] = found["api"].wait_for("api is up").split('"url": "')[1].split('"')[0]
        eventually(lambda: httpx.get(f"{env['TIDEWHEEL_API']}/ready").status_code == 200, 40)
        (home / "slow.yaml").write_text(SLOW)
        document("deploy", home / "slow.yaml", env=env)
        yield found, env


def test_the_broker_dies_in_the_middle_of_a_run(
    broker: KafkaBroker, processes: tuple[dict[str, Process], dict[str, str]]
) -> None:
    found, env = processes
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


def test_postgres_dies_and_only_reading_stops(
    postgres: EmbeddedPostgres, processes: tuple[dict[str, Process], dict[str, str]]
) -> None:
    found, env = processes
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


def _task_state(env: dict[str, str], run_id: str, task: str) -> Any:
    return _get(env, f"/dags/slow/runs/{run_id}/tasks/{task}").get("state")


def _ended(env: dict[str, str], run_id: str) -> Any:
    run = _get(env, f"/dags/slow/runs/{run_id}")
    return run if run.get("ended_at") else None


def _get(env: dict[str, str], path: str) -> Any:
    return httpx.get(f"{env['TIDEWHEEL_API']}/api/v1{path}", timeout=20).json()
