"""More is asked for than may wait: 429 for who can ask again, and the wait of all others is to be seen."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tidewheel.core.rules import Rules
from tidewheel.definition.expressions import CelEvaluator
from tidewheel.log.interface import TRIGGERS, Append, Log
from tidewheel.log.memory import MemoryLog
from tidewheel.log.opening import open_log
from tidewheel.log.partition import partition_of
from tidewheel.runtime.backlog import Extent, Note, write_note
from tidewheel.runtime.scheduler import Scheduler
from tidewheel_services.cli.doctor import _triggers
from tidewheel_services.config import BadSetting, Settings

YAML = {"Content-Type": "application/yaml"}
BUSY = "id: busy\nconcurrency: {max_runs: 1}\ntasks: [{id: a, run: 'true'}]\n"
CALM = "id: calm\ntasks: [{id: a, run: 'true'}]\n"
#: Nobody works: one run is under way for ever, two wait.
RULES = Rules(evaluator=CelEvaluator(), waiting_runs_max=2, shard_runs_max=12)


@pytest.fixture(scope="module")
def engine(run_threads: Callable[[], Any]) -> Iterator[Log]:
    log = MemoryLog(partitions=1)
    with run_threads() as threads:
        threads.run(Scheduler(log, "scheduler", RULES.evaluator, rules=RULES).run, "scheduler")
        yield log


@pytest.fixture(scope="module")
def api(start_api: Any, engine: Log, projected: str) -> httpx.Client:
    client: httpx.Client = start_api(engine, projected)
    for text in (BUSY, CALM):
        assert client.post("/api/v1/dags", content=text, headers=YAML).status_code == 201
    for number in range(3):
        assert client.post("/api/v1/dags/busy/runs", json={"run_id": f"r{number}"}).status_code == 201
    return client


def refused(answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code == 429, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert int(answer.headers["retry-after"]) > 0
    problem: dict[str, Any] = answer.json()
    assert (problem["type"], problem["status"]) == ("urn:tidewheel:problem:overloaded", 429)
    return problem


def test_a_run_too_many_is_refused_with_the_time_to_ask_again(api: httpx.Client) -> None:
    problem = refused(api.post("/api/v1/dags/busy/runs", json={"run_id": "r3"}))
    assert "2 runs of DAG 'busy' wait for their turn (at most 2 may)" in problem["detail"]
    assert problem["run_id"] == "r3"
    assert api.post("/api/v1/dags/busy/runs", json={"run_id": "r2"}).status_code == 200, "that one is there"
    assert api.post("/api/v1/dags/calm/runs", json={"run_id": "r"}).status_code == 201, "others have their own bound"
    assert api.post("/api/v1/dags/busy/runs/r2/cancel").status_code == 202
    assert api.post("/api/v1/dags/busy/runs", json={"run_id": "r3"}).status_code == 201


def test_what_waits_is_shown(api: httpx.Client, engine: Log, eventually: Callable[..., Any]) -> None:
    flood(engine, "busy", 5)
    entry = eventually(lambda: next((e for e in triggers(api) if e["postponed"]), None))
    assert entry["postponed"] == [{"dag": "busy", "first_offset": 0, "last_offset": 4}]
    assert (entry["lag"], entry["paused"]) == (0, False)
    assert 'tidewheel_triggers_postponed_dags{partition="0"} 1.0' in api.get("/metrics").text


def test_a_full_shard_refuses_all_and_shows_it(api: httpx.Client, engine: Log, eventually: Callable[..., Any]) -> None:
    flood(engine, "calm", 20)
    entry = eventually(lambda: next((e for e in triggers(api) if e["paused"]), None))
    assert [dag["dag"] for dag in entry["postponed"]] == ["busy", "calm"] or entry["postponed"]
    assert api.get("/api/v1/lag").json()["paused_shards"] == 1
    assert 'tidewheel_triggers_paused{partition="0"} 1.0' in api.get("/metrics").text
    problem = refused(api.post("/api/v1/dags/calm/runs", json={"run_id": "another"}))
    assert "holds as many runs as it may (12)" in problem["detail"]
    assert api.post("/api/v1/dags/calm/runs/r/cancel").status_code == 202, "a cancel is never refused"


def test_doctor_names_what_waits(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/log.db?partitions=2"
    log = open_log(url)
    log.create_topics()
    assert _triggers(Settings(log=url)).result == "ok"
    owner = log.owner("a")
    batch = owner.poll(1, 5)
    owner.note({1: write_note(Note(full=True, postponed={"busy": Extent(3, 9)}))})
    owner.commit(batch, [])
    finding = _triggers(Settings(log=url))
    assert finding.result == "optional"
    assert finding.found == "those of busy wait for runs of the same DAG to end; none are read of full shard 1"
    assert finding.fix.startswith("nothing is lost")
    log.close()


def test_the_bounds_are_settings() -> None:
    found = Settings.from_environment({"TIDEWHEEL_WAITING_RUNS_MAX": "7", "TIDEWHEEL_SHARD_RUNS_MAX": ""})
    assert (found.waiting_runs_max, found.shard_runs_max) == (7, 10_000)
    with pytest.raises(BadSetting, match="TIDEWHEEL_SHARD_RUNS_MAX='many' is no number from 1 to"):
        Settings.from_environment({"TIDEWHEEL_SHARD_RUNS_MAX": "many"})


def flood(log: Log, dag: str, count: int) -> None:
    producer = log.producer()
    for number in range(count):
        value = json.dumps({"dag": dag, "id": f"{dag}-{number}"}).encode()
        producer.send(Append(TRIGGERS, dag.encode(), value, partition=partition_of(dag.encode(), log.partitions)))
    producer.close()


def triggers(api: httpx.Client) -> list[dict[str, Any]]:
    return [entry for entry in api.get("/api/v1/lag").json()["inputs"] if entry["topic"] == TRIGGERS]
