"""Reads through the API of what a real engine did: scheduler, worker, projector and Postgres behind it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from tidewheel.log.interface import LOGS, Append, Log
from tidewheel.task.context import Context
from tidewheel.wire.codec import encode
from tidewheel.wire.messages import LogChunk
from tidewheel.worker import Worker
from tidewheel_services.cli.app import app

YAML = {"Content-Type": "application/yaml"}

ORDERS = """\
id: orders
description: Loads orders.
owner: data-platform
tags: [orders, tier1]
schedule: {cron: "0 6 * * *", timezone: Europe/Berlin}
inputs:
  day: {type: date, default: "2026-01-31"}
tasks:
  - id: extract
    python: extract
    with: {day: "${{ inputs.day }}"}
  - id: flaky
    needs: [extract]
    python: flaky
    retry: {max: 1, delay: 0s}
  - {id: load, needs: [flaky], python: load}
"""


def extract(day: str, context: Context) -> dict[str, Any]:
    context.log(f"reading {day}\n")
    context.log("größe 🙂\n")
    return {"rows": 3, "day": day}


def flaky(context: Context) -> None:
    if context.attempt == 1:
        raise ValueError("the first time always fails")


def load() -> None:
    pass


@pytest.fixture(scope="module")
def api(start_api, engine: Log, projected: str) -> httpx.Client:
    return start_api(engine, projected, answer_s=5)


@pytest.fixture(scope="module", autouse=True)
def worker(engine: Log) -> Iterator[None]:
    """A worker that runs the tasks of ``orders``."""
    worker = Worker(engine, {"default": 4}, {"extract": extract, "flaky": flaky, "load": load}, name="w1")
    worker.start()
    yield
    worker.stop(drain_s=1)


@pytest.fixture(scope="module")
def run(api: httpx.Client, worker: None, eventually: Callable[[Callable[[], Any]], Any]) -> str:
    """A run of ``orders`` that has succeeded."""
    deployed = api.post("/api/v1/dags", params={"source": "dags/orders.yaml"}, content=ORDERS, headers=YAML)
    assert deployed.status_code == 201, deployed.text
    started = api.post("/api/v1/dags/orders/runs", json={"run_id": "r1"}, headers={"X-Tidewheel-Actor": "ann"})
    assert started.status_code == 201, started.text
    found = api.get("/api/v1/dags/orders/runs/r1", headers={"X-Tidewheel-Position": started.json()["position"]})
    assert found.status_code == 200, found.text
    eventually(lambda: api.get("/api/v1/dags/orders/runs/r1").json()["state"] == "success")
    return "/api/v1/dags/orders/runs/r1"


def problem(answer: httpx.Response, status: int, kind: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = answer.json()
    assert document["type"] == f"urn:tidewheel:problem:{kind}"
    return document


def test_a_dag_and_its_versions(api: httpx.Client, run: str) -> None:
    dag = api.get("/api/v1/dags/orders").json()
    assert (dag["owner"], dag["tags"], dag["paused"], dag["tasks"]) == ("data-platform", ["orders", "tier1"], False, 3)
    assert dag["last_run_id"] == "r1"
    (version,) = api.get("/api/v1/dags/orders/versions").json()["items"]
    assert version["version"] == dag["version"]
    detail = api.get(f"/api/v1/dags/orders/versions/{dag['version']}").json()
    assert detail["definition"]["id"] == "orders"
    assert detail["source"] == "dags/orders.yaml"


def test_a_run_its_tasks_and_attempts(api: httpx.Client, run: str) -> None:
    found = api.get(run).json()
    assert (found["kind"], found["actor"], found["counts"]) == ("manual", "user:ann", {"success": 3})
    assert found["inputs"] == {"day": "2026-01-31"}
    tasks = api.get(f"{run}/tasks").json()["items"]
    assert [(task["task"], task["state"], task["attempt"]) for task in tasks] == [
        ("extract", "success", 1),
        ("flaky", "success", 2),
        ("load", "success", 1),
    ]
    assert api.get(f"{run}/tasks/extract").json()["output"] == {"rows": 3, "day": "2026-01-31"}
    attempts = api.get(f"{run}/tasks/flaky/attempts").json()["items"]
    assert [(one["attempt"], one["state"], one["worker"]) for one in attempts] == [
        (1, "failed", "w1"),
        (2, "success", "w1"),
    ]
    assert "the first time always fails" in attempts[0]["message"]


def test_the_log_as_json_and_as_text(api: httpx.Client, run: str, eventually) -> None:
    logs = f"{run}/tasks/extract/attempts/1/logs"
    page = eventually(lambda: (found := api.get(logs).json())["items"] and found)
    text = "".join(item["text"] for item in page["items"])
    assert "reading 2026-01-31\n" in text
    assert page["ended"] is True
    assert page["next"] is None
    plain = api.get(logs, headers={"Accept": "text/plain"})
    assert plain.headers["content-type"] == "text/plain; charset=utf-8"
    assert plain.text == text
    assert "größe 🙂\n" in plain.text


def test_events_are_paged_until_there_are_no_more_and_filtered_by_type(api: httpx.Client, run: str) -> None:
    whole = api.get(f"{run}/events", params={"limit": 1000}).json()
    assert whole["next"] is None
    count = len(whole["items"])
    exactly = api.get(f"{run}/events", params={"limit": count}).json()
    assert exactly == whole, "a full page that is the last one says so"
    page = api.get(f"{run}/events", params={"limit": count - 1}).json()
    rest = api.get(f"{run}/events", params={"after": page["next"]}).json()
    assert page["items"] + rest["items"] == whole["items"] and rest["next"] is None
    ends = api.get(f"{run}/events", params={"type": ["TaskSucceeded", "TaskFailed"], "newest_first": True}).json()
    assert [(event["type"], event["task"]) for event in ends["items"]] == [
        ("TaskSucceeded", "load"),
        ("TaskSucceeded", "flaky"),
        ("TaskFailed", "flaky"),
        ("TaskSucceeded", "extract"),
    ]
    wrong = problem(api.get(f"{run}/events", params={"type": "TaskSuceeded"}), 422, "invalid")
    assert "did you mean 'TaskSucceeded'?" in wrong["errors"][0]["message"]


@pytest.mark.parametrize(
    ("command", "count"), [(("runs", "listed"), 2), (("events", "orders", "r1"), 2), (("dags",), 2), (("waits",), 0)]
)
def test_a_list_of_the_command_line_that_goes_on_says_so(
    api: httpx.Client, run: str, command: tuple[str, ...], count: int
) -> None:
    api.post("/api/v1/dags", content="id: listed\ntasks: [{id: a, pool: nobody, run: 'true'}]\n", headers=YAML)
    for run_id in ("r1", "r2"):
        started = api.post("/api/v1/dags/listed/runs", json={"run_id": run_id})
        api.get("/api/v1/runs", params={"position": started.headers["x-tidewheel-position"]})

    def listed(*more: str) -> Any:
        result = CliRunner().invoke(app, [*command, "--limit", "1", "--json", "--api", str(api.base_url), *more])
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout), result.stderr

    first, said = listed()
    assert len(first) == min(1, count)
    if not count:
        assert said == ""
        return
    after = re.search(r"^there is more: --after (\S+) goes on from here", said)
    assert after is not None, said
    second, _ = listed("--after", after[1])
    assert len(second) == 1 and second != first


def test_a_long_log_is_paged(api: httpx.Client, engine: Log, run: str, eventually) -> None:
    logs = f"{run}/tasks/load/attempts/1/logs"
    shipped(engine, "r1", "load", range(25))
    eventually(lambda: len(api.get(logs).json()["items"]) == 25)
    seen: list[int] = []
    after = -1
    while True:
        page = api.get(logs, params={"after": after, "limit": 10}).json()
        seen += [item["chunk"] for item in page["items"]]
        if page["next"] is None:
            break
        after = page["next"]
    assert seen == list(range(25))
    first = api.get(logs, params={"limit": 10}, headers={"Accept": "text/plain"})
    assert first.headers["x-tidewheel-next"] == "9"


def shipped(log: Log, run_id: str, task: str, chunks: range, text: str = "line\n") -> None:
    producer = log.producer()
    for chunk in chunks:
        message = LogChunk(
            dag="orders", run_id=run_id, task=task, attempt=1, chunk=chunk, at=1, stream="stdout", text=text
        )
        producer.send(Append(LOGS, f"orders/{run_id}/{task}/1".encode(), encode(message)))
    producer.close()


def stream(api: httpx.Client, address: str, **more: Any) -> list[dict[str, str]]:
    """The server-sent events of a stream, to its end."""
    found: list[dict[str, str]] = []
    with api.stream("GET", address, params={"follow": "true"}, timeout=15, **more) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        event: dict[str, str] = {}
        for line in answer.iter_lines():
            if line:
                name, _, value = line.partition(": ")
                event[name] = value
            else:
                found.append(event)
                event = {}
    return found


def test_following_a_log_ends_with_the_attempt(api: httpx.Client, run: str) -> None:
    found = stream(api, f"{run}/tasks/extract/attempts/1/logs")
    assert [event["event"] for event in found[-1:]] == ["end"]
    assert json.loads(found[-1]["data"]) == {"state": "success"}
    assert "größe 🙂" in "".join(json.loads(event["data"])["text"] for event in found[:-1])
    assert [int(event["id"]) for event in found[:-1]] == list(range(len(found) - 1))


def test_following_goes_on_behind_the_last_event(api: httpx.Client, run: str) -> None:
    whole = stream(api, f"{run}/tasks/extract/attempts/1/logs")
    rest = stream(api, f"{run}/tasks/extract/attempts/1/logs", headers={"Last-Event-ID": whole[0]["id"]})
    assert rest == whole[1:]
    problem(
        api.get(f"{run}/tasks/extract/attempts/1/logs", params={"follow": True}, headers={"Last-Event-ID": "x"}),
        422,
        "invalid",
    )


def test_what_is_written_while_one_follows_comes_at_once(api: httpx.Client, engine: Log, run: str) -> None:
    """The attempt waits for a worker that never comes, and somebody writes its log."""
    text = "id: slow\ntasks: [{id: a, pool: nowhere, run: 'true'}]\n"
    assert api.post("/api/v1/dags", content=text, headers=YAML).status_code == 201
    position = api.post("/api/v1/dags/slow/runs", json={"run_id": "s"}).json()["position"]
    assert api.get("/api/v1/dags/slow/runs/s/tasks/a/attempts", params={"position": position}).json()["items"]
    producer = engine.producer()
    address = "/api/v1/dags/slow/runs/s/tasks/a/attempts/1/logs"
    with api.stream("GET", address, params={"follow": "true"}, headers={"Accept": "text/plain"}) as answer:
        pieces = answer.iter_text()
        for chunk in range(3):
            sent = time.monotonic()
            message = LogChunk(
                dag="slow", run_id="s", task="a", attempt=1, chunk=chunk, at=1, stream="stdout", text=f"line {chunk}\n"
            )
            producer.send(Append(LOGS, b"slow/s/a/1", encode(message)))
            assert next(pieces) == f"line {chunk}\n"
            assert time.monotonic() - sent < 10
        api.post("/api/v1/dags/slow/runs/s/cancel")
        assert list(pieces) == []


def test_the_audit_of_a_run(api: httpx.Client, run: str) -> None:
    items = api.get(f"{run}/events").json()["items"]
    kinds = [item["type"] for item in items]
    assert kinds[0] == "RunCreated"
    assert kinds[-1] == "RunSucceeded"
    assert items[0]["actor"] == "user:ann"
    assert items[0]["cause"].startswith("commands/")
    assert [item["seq"] for item in items] == sorted(item["seq"] for item in items)
    backwards = api.get(f"{run}/events", params={"newest_first": True}).json()["items"]
    assert backwards == items[::-1]
    of_flaky = api.get(f"{run}/events", params={"task": "flaky"}).json()["items"]
    assert {item["task"] for item in of_flaky} == {"flaky"}
    paged: list[Any] = []
    after = None
    while True:
        page = api.get(f"{run}/events", params={"limit": 4, **({} if after is None else {"after": after})}).json()
        paged += page["items"]
        after = page["next"]
        if after is None:
            break
    assert paged == items
    whole = api.get("/api/v1/dags/orders/events").json()["items"]
    assert whole[0]["type"] == "DagDeployed"


def test_pools_and_workers(api: httpx.Client, run: str, eventually) -> None:
    pool = eventually(lambda: (found := api.get("/api/v1/pools/default")).status_code == 200 and found.json())
    assert (pool["slots"], pool["worker_slots"], pool["used"]) == (None, 4, 0)
    (one,) = api.get("/api/v1/workers", params={"pool": "default"}).json()["items"]
    assert (one["worker"], one["state"], one["slots"]) == ("w1", "active", 4)
    position = api.put("/api/v1/pools/default", json={"slots": 4}).headers["x-tidewheel-position"]
    assert api.get("/api/v1/pools/default", params={"position": position}).json()["slots"] == 4
    assert api.get("/api/v1/pools/default/tasks").json()["items"] == []
    assert "did you mean 'default'" in problem(api.get("/api/v1/pools/defalt"), 404, "not_found")["detail"]


@pytest.fixture(scope="module")
def many(api: httpx.Client, run: str) -> list[str]:
    """DAGs ``many_00`` to ``many_24``, a third of them paused, each with two runs that wait for ever."""
    names = [f"many_{number:02}" for number in range(25)]
    position = ""
    for number, name in enumerate(names):
        tag = "odd" if number % 2 else "even"
        text = f"id: {name}\nowner: o{number % 2}\ntags: [{tag}]\ntasks: [{{id: a, pool: nowhere, run: 'true'}}]\n"
        answer = api.post("/api/v1/dags", params={"paused": number % 3 == 0}, content=text, headers=YAML)
        assert answer.status_code == 201, answer.text
        for _ in range(2):
            position += "," + api.post(f"/api/v1/dags/{name}/runs").json()["position"]
    assert api.get("/api/v1/dags", headers={"X-Tidewheel-Position": position.lstrip(",")}).status_code == 200
    return names


def pages(api: httpx.Client, address: str, **params: Any) -> list[Any]:
    """All items of a list, and never one twice."""
    items: list[Any] = []
    while True:
        answer = api.get(address, params=params)
        assert answer.status_code == 200, answer.text
        items += answer.json()["items"]
        if answer.json()["next"] is None:
            return items
        params["after"] = answer.json()["next"]


def test_dags_are_paged_and_filtered(api: httpx.Client, many: list[str]) -> None:
    def names(**params: Any) -> list[str]:
        return [item["dag"] for item in pages(api, "/api/v1/dags", limit=4, **params)]

    assert [name for name in names() if name.startswith("many_")] == many
    assert names(tag="odd") == many[1::2]
    assert names(owner="o0") == many[0::2]
    assert names(paused=True) == many[0::3]
    assert names(search="MANY_1") == many[10:20]
    assert names(owner="o0", paused=True) == many[0::6]
    assert names(tag="nothing") == []


def test_runs_are_paged_and_filtered(api: httpx.Client, many: list[str], run: str) -> None:
    def found(**params: Any) -> list[tuple[str, str]]:
        return [(item["dag"], item["run_id"]) for item in pages(api, "/api/v1/runs", limit=7, **params)]

    whole = found()
    assert len(whole) == len(set(whole))
    assert whole[-1] == ("orders", "r1"), "newest first"
    assert found(state="success") == [("orders", "r1")]
    assert found(kind="manual") == [("orders", "r1")]
    waiting = [one for one in whole if one[0].startswith("many_")]
    assert set(found(state=["queued", "running"])) >= set(waiting)
    created = api.get(run).json()["created_at"]
    assert found(until=created) == []
    assert found(since=created) == whole
    assert found(since="2100-01-01") == []
    assert found(until="2100-01-01T00:00:00+02:00") == whole
    of_one = pages(api, f"/api/v1/dags/{many[1]}/runs", limit=1)
    assert [item["dag"] for item in of_one] == [many[1]] * 2


NOT_THERE = [
    ("/api/v1/dags/ordres", "did you mean 'orders'"),
    ("/api/v1/dags/ordres/versions", "did you mean 'orders'"),
    ("/api/v1/dags/ordres/runs", "did you mean 'orders'"),
    ("/api/v1/dags/ordres/events", "did you mean 'orders'"),
    ("/api/v1/dags/ordres/runs/r1", "did you mean 'orders'"),
    ("/api/v1/dags/orders/versions/0123456789abcdef", "no version"),
    ("/api/v1/dags/orders/runs/r2", "no run 'r2'"),
    ("/api/v1/dags/orders/runs/r2/tasks", "no run 'r2'"),
    ("/api/v1/dags/orders/runs/r2/events", "no run 'r2'"),
    ("/api/v1/dags/orders/runs/r2/tasks/load", "no run 'r2'"),
    ("/api/v1/dags/orders/runs/r1/tasks/laod", "did you mean 'load'"),
    ("/api/v1/dags/orders/runs/r1/tasks/laod/attempts", "did you mean 'load'"),
    ("/api/v1/dags/orders/runs/r1/tasks/load/attempts/9/logs", "no attempt 9"),
    ("/api/v1/dags/orders/runs/r1/tasks/load/attempts/9/logs?follow=true", "no attempt 9"),
    ("/api/v1/dags/Ord%20ers", "no DAG 'Ord ers'"),
    ("/api/v1/pools/nothing_like_it", "no pool"),
    ("/api/v1/pools/nothing_like_it/tasks", "no pool"),
    ("/api/v2/dags", "no such address"),
    ("/api/v1/dags/", "no such address"),
    ("/", "no such address"),
]


@pytest.mark.parametrize(("address", "says"), NOT_THERE)
def test_what_is_not_there_is_a_problem_with_the_nearest_name(
    api: httpx.Client, run: str, address: str, says: str
) -> None:
    document = problem(api.get(address), 404, "not_found")
    assert says in document["detail"]


BAD_QUERIES = [
    ("/api/v1/dags?limit=0", "query.limit"),
    ("/api/v1/dags?limit=1001", "query.limit"),
    ("/api/v1/dags?limit=ten", "query.limit"),
    ("/api/v1/dags?after=xyz", "query.after"),
    ("/api/v1/dags?after=WyJhIiwxXQ", "query.after"),
    ("/api/v1/dags?paused=maybe", "query.paused"),
    ("/api/v1/dags?pausd=true", "query.pausd"),
    ("/api/v1/dags?removed=perhaps", "query.removed"),
    ("/api/v1/runs?state=succeeded", "query.state.0"),
    ("/api/v1/runs?kind=cron", "query.kind"),
    ("/api/v1/runs?since=yesterday", "query.since"),
    ("/api/v1/runs?since=1769839200", "query.since"),
    ("/api/v1/runs?until=2026-13-01", "query.until"),
    ("/api/v1/runs?after=WyJub3QgYSB0aW1lIiwiYSIsImIiXQ", "request"),
    ("/api/v1/dags/orders/runs/r1/tasks?state=done", "query.state.0"),
    ("/api/v1/dags/orders/runs/r1/events?after=-1", "query.after"),
    ("/api/v1/dags/orders/runs/r1/tasks/load/attempts/0/logs", "path.attempt"),
    ("/api/v1/dags/orders/runs/r1/tasks/load/attempts/x/logs", "path.attempt"),
    ("/api/v1/dags/orders/runs/r1/tasks/load/attempts/99999999999/logs", "path.attempt"),
    ("/api/v1/dags/orders/runs/r1/tasks/load/attempts/1/logs?after=-2", "query.after"),
    ("/api/v1/workers?state=dead", "query.state.0"),
    ("/api/v1/dags?position=events/3", "query.position"),
    ("/api/v1/dags?position=events/99/1", "query.position"),
    ("/api/v1/dags?position=commands/0/1", "query.position"),
    ("/api/v1/dags?position=events/0/1,nonsense", "query.position"),
    ("/api/v1/dags?position=" + "9" * 5000, "query.position"),
]


@pytest.mark.parametrize(("address", "where"), BAD_QUERIES)
def test_a_bad_query_is_refused_with_what_and_where(api: httpx.Client, run: str, address: str, where: str) -> None:
    document = problem(api.get(address), 422, "invalid")
    assert [error["where"] for error in document["errors"]] == [where]
    assert document["errors"][0]["message"]


@pytest.mark.parametrize("address", ["runs", "pause", "runs/r1/cancel", "backfills/backfill-1/cancel"])
def test_a_write_to_what_is_not_there_tells_the_nearest_name(api: httpx.Client, run: str, address: str) -> None:
    document = problem(api.post(f"/api/v1/dags/ordres/{address}", json={}), 404, "not_found")
    assert document["detail"].endswith("; did you mean 'orders'?")
    of_a_dag_that_is_there = problem(api.post("/api/v1/dags/orders/runs/never/cancel"), 404, "not_found")
    assert "did you mean" not in of_a_dag_that_is_there["detail"]


@pytest.mark.parametrize(("method", "address"), [("PATCH", "/api/v1/dags"), ("POST", "/api/v1/workers")])
def test_a_method_that_is_not_possible(api: httpx.Client, method: str, address: str) -> None:
    answer = api.request(method, address)
    problem(answer, 405, "method_not_allowed")
    assert answer.headers["allow"] == ("GET, POST" if address.endswith("dags") else "GET")


def test_reading_ones_writes(api: httpx.Client, run: str) -> None:
    """Every read that is given the position of a write sees it, at once."""
    for number in range(20):
        position = api.post("/api/v1/dags/many_01/runs", json={"run_id": f"own-{number}"}).json()["position"]
        assert api.get(f"/api/v1/dags/many_01/runs/own-{number}", params={"position": position}).status_code == 200


def test_a_position_that_does_not_come_is_a_timeout(api: httpx.Client, run: str, monkeypatch) -> None:
    monkeypatch.setattr("tidewheel_services.api.positions.WAIT_S", 0.3)
    answer = api.get("/api/v1/dags/orders", params={"position": "events/1/999999999"})
    assert "short of the position" in problem(answer, 504, "not_projected")["detail"]
    assert answer.headers["retry-after"] == "1"


def test_the_lag_comes_to_nothing(api: httpx.Client, run: str, eventually) -> None:
    lag = eventually(lambda: (found := api.get("/api/v1/lag").json())["projection_lag"] == 0 and found)
    assert lag["partitions"] == 4
    assert len(lag["journals"]) == len(lag["inputs"]) == 8
    assert lag["projector"]["instance"] == "projector"
    assert {entry["topic"] for entry in lag["inputs"]} == {"commands", "triggers"}
    assert sum(entry["shard_seq"] for entry in lag["journals"]) > 0


def test_ready_and_metrics(api: httpx.Client, run: str) -> None:
    ready = api.get("/ready")
    assert (ready.status_code, ready.json()["status"]) == (200, "ready")
    api.get("/api/v1/dags/orders")
    text = api.get("/metrics").text
    assert 'tidewheel_api_requests_total{method="GET",route="/api/v1/dags/{dag}",status="200"}' in text
    assert 'tidewheel_projection_lag_records{partition="0",topic="events"}' in text
    assert "tidewheel_lag_known 1.0" in text
    assert "orders" not in text, "ids must not become series"


def test_a_near_pool_name_is_a_mistake_and_a_new_one_is_not(api: httpx.Client, run: str) -> None:
    """C068, as far as a deployment can see it."""

    def deploy(pool: str, slots: int = 1) -> httpx.Response:
        text = f"id: wide\ntasks: [{{id: a, pool: {pool}, pool_slots: {slots}, run: 'true'}}]\n"
        return api.post("/api/v1/dags", params={"validate": True}, content=text, headers=YAML)

    position = api.put("/api/v1/pools/warehouse", json={"slots": 2}).json()["position"]
    api.get("/api/v1/pools/warehouse", params={"position": position})
    assert "did you mean 'warehouse'" in problem(deploy("warehose"), 422, "invalid_definition")["detail"]
    wide = problem(deploy("warehouse", 3), 422, "invalid_definition")
    assert "3" in wide["errors"][0]["message"]
    assert "2" in wide["errors"][0]["message"]
    assert deploy("another_thing").status_code == 200
    assert deploy("warehouse", 2).status_code == 200
