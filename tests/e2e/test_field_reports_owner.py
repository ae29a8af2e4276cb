"""Asking while the owner of the shard is dead: a real scheduler process, killed (docs/field-reports.md, C112)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.e2e.running import Process
from tidewheel.core.events import RunCreated
from tidewheel.log.interface import EVENTS, Log
from tidewheel.log.opening import open_log
from tidewheel.wire.codec import decode_event
from tidewheel_services.api.app import create_app
from tidewheel_services.api.main import listen, serve_app

#: Nothing listens there, and no write may mind.
NO_POSTGRES = "postgresql://nobody@127.0.0.1:1/nothing"
ANSWER_S = 2.0


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite://{tmp_path / 'log.db'}?partitions=2"


@pytest.fixture
def log(url: str) -> Iterator[Log]:
    opened = open_log(url)
    opened.create_topics()
    yield opened
    opened.close()


@pytest.fixture
def api(log: Log) -> Iterator[httpx.Client]:
    stop, up, base = threading.Event(), threading.Event(), [""]

    def ready(address: str) -> None:
        base[0] = address
        up.set()

    app = create_app(log, NO_POSTGRES, answer_s=ANSWER_S)
    thread = threading.Thread(target=lambda: serve_app(app, listen("127.0.0.1", 0), stop, ready))
    thread.start()
    assert up.wait(10)
    with httpx.Client(base_url=f"{base[0]}/api/v1", timeout=30) as client:
        yield client
    stop.set()
    thread.join(10)


def created(log: Log) -> list[str]:
    found = []
    for partition in range(log.partitions):
        reader = log.reader({(EVENTS, partition): 0})
        for record in reader.read(1_000, 0):
            event = decode_event(record.value or b"").event
            if isinstance(event, RunCreated):
                found.append(event.run_id)
        reader.close()
    return sorted(found)


def test_c112_a_dead_owner_is_a_timeout_and_the_same_run_when_asked_again(
    api: httpx.Client, log: Log, url: str, tmp_path: Path
) -> None:
    def start(run_id: str) -> httpx.Response:
        return api.post("/dags/hello/runs", json={"run_id": run_id})

    env = {"TIDEWHEEL_LOG": url}
    names = [f"r{number:02}" for number in range(24)]
    with Process("scheduler", "--name", "one", output=tmp_path / "one", env=env) as owner:
        owner.wait_for("scheduler is up")
        text = "id: hello\ntasks: [{id: a, run: 'true'}]\n"
        deployed = api.post("/dags", content=text, headers={"Content-Type": "application/yaml"})
        assert deployed.status_code == 201, deployed.text
        with ThreadPoolExecutor(24) as pool:
            asked = [pool.submit(start, name) for name in names[:20]]
            asked[5].result()
            owner.kill()
            asked += [pool.submit(start, name) for name in names[20:]]
            answers = [future.result() for future in asked]
    assert {answer.status_code for answer in answers} == {201, 504}, "answered, or told that nobody did"
    for answer in answers:
        if answer.status_code == 504:
            problem = answer.json()
            assert problem["type"].endswith(":no_answer")
            assert "again" in problem["detail"], problem
    with Process("scheduler", "--name", "two", output=tmp_path / "two", env=env) as owner:
        owner.wait_for("scheduler is up")
        again = [start(name) for name in names]
    assert [answer.json()["run_id"] for answer in again] == names
    assert {(answer.status_code, answer.json()["created"]) for answer in again} == {(200, False)}, "on the log it was"
    assert created(log) == names, "each run once"
