"""Writes through the API to a real scheduler: what is accepted, what is refused, and how each refusal reads."""

from __future__ import annotations

import json
import threading
from typing import Any

import httpx
import pytest

from tidewheel.core.events import PoolConfigured, RunCancelRequested, RunCreated
from tidewheel.definition.expressions import CelEvaluator
from tidewheel.log.interface import EVENTS, POOL_EVENTS, Log
from tidewheel.log.memory import MemoryLog
from tidewheel.runtime.scheduler import Scheduler
from tidewheel.wire.codec import decode_event

YAML = {"Content-Type": "application/yaml"}

HELLO = """\
id: hello
description: Says hello.
owner: data-platform
tags: [greeting]
inputs:
  name: {type: string, default: world}
  times: {type: integer, default: 1}
tasks:
  - id: greet
    run: echo "$NAME"
    env: {NAME: "${{ inputs.name }}"}
"""


@pytest.fixture(scope="module")
def api(start_api, engine: Log) -> httpx.Client:
    """An API over a real engine; its read model is away, which no write may mind."""
    client: httpx.Client = start_api(engine, answer_s=5)
    deployed = client.post("/api/v1/dags", content=HELLO, headers=YAML)
    assert deployed.status_code == 201, deployed.text
    return client


def events(log: Log, kind: type, topic: str = EVENTS) -> list[Any]:
    found = []
    for partition in range(log.partitions):
        for record in log.reader({(topic, partition): 0}).read(10_000, 0):
            event = decode_event(record.value or b"").event
            if isinstance(event, kind):
                found.append(event)
    return found


def problem(answer: httpx.Response, status: int, kind: str) -> dict[str, Any]:
    """The problem document; it must be whole."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = answer.json()
    assert document["type"] == f"urn:tidewheel:problem:{kind}"
    assert document["status"] == status
    assert document["title"]
    assert document["detail"]
    assert document["instance"] == answer.request.url.path
    return document


# --- starting runs -----------------------------------------------------------------------------------------------


def test_the_same_run_id_again_is_the_same_run(api: httpx.Client, engine: Log) -> None:
    first = api.post("/api/v1/dags/hello/runs", json={"run_id": "once", "inputs": {"name": "ann"}})
    assert first.status_code == 201
    assert first.json()["created"] is True
    again = api.post("/api/v1/dags/hello/runs", json={"run_id": "once", "inputs": {"name": "bob"}})
    assert again.status_code == 200
    assert (again.json()["run_id"], again.json()["created"]) == ("once", False)
    created = [event for event in events(engine, RunCreated) if event.run_id == "once"]
    assert len(created) == 1
    assert json.loads(created[0].inputs) == {"name": "ann", "times": 1}
    for answer in (first, again):
        topic, partition, shard_seq = answer.headers["x-tidewheel-position"].split("/")
        assert (topic, int(partition) < 4, int(shard_seq) > 0) == ("events", True, True)


def test_a_hundred_at_once_start_one_run(api: httpx.Client, engine: Log) -> None:
    answers: list[httpx.Response] = []

    def ask() -> None:
        answers.append(api.post("/api/v1/dags/hello/runs", json={"run_id": "crowd"}))

    threads = [threading.Thread(target=ask) for _ in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answer.status_code for answer in answers) == [200] * 99 + [201]
    assert len([event for event in events(engine, RunCreated) if event.run_id == "crowd"]) == 1


def test_a_run_without_an_id_gets_one_and_says_it(api: httpx.Client, engine: Log) -> None:
    one = api.post("/api/v1/dags/hello/runs")
    other = api.post("/api/v1/dags/hello/runs", json={})
    assert (one.status_code, other.status_code) == (201, 201)
    ids = {one.json()["run_id"], other.json()["run_id"]}
    assert len(ids) == 2
    assert all(run_id.startswith("api__") for run_id in ids)
    by_ann = api.post("/api/v1/dags/hello/runs", headers={"X-Tidewheel-Actor": "ann"})
    assert by_ann.json()["run_id"].startswith("manual__")
    assert ids <= {event.run_id for event in events(engine, RunCreated)}


@pytest.mark.parametrize(
    ("header", "actor", "kind"),
    [(None, "api", "api"), ("ann", "user:ann", "manual"), ("user:ann@example.org", "user:ann@example.org", "manual")],
)
def test_who_asked_is_on_the_record(api: httpx.Client, engine: Log, header: str | None, actor: str, kind: str) -> None:
    headers = {} if header is None else {"X-Tidewheel-Actor": header}
    run_id = api.post("/api/v1/dags/hello/runs", headers=headers).json()["run_id"]
    (event,) = [event for event in events(engine, RunCreated) if event.run_id == run_id]
    assert (event.actor, event.kind) == (actor, kind)


@pytest.mark.parametrize("header", ["", "scheduler x", "worker:w1", "a" * 101, "user:", "é"])
def test_an_actor_that_is_no_user_name_is_refused(api: httpx.Client, header: str) -> None:
    answer = api.post("/api/v1/dags/hello/runs", headers={b"X-Tidewheel-Actor": header.encode()})  # type: ignore[arg-type]
    problem(answer, 422, "invalid")


def test_a_run_of_an_unknown_dag_is_refused(api: httpx.Client) -> None:
    document = problem(api.post("/api/v1/dags/helo/runs", json={}), 404, "not_found")
    assert "helo" in document["detail"]


BAD_STARTS: list[tuple[str, Any, str]] = [
    ("unknown input", {"inputs": {"nam": "x"}}, "did you mean 'name'"),
    ("wrong type of an input", {"inputs": {"times": "three"}}, "whole number"),
    ("unknown field", {"runid": "x"}, "body.runid: there is no key 'runid' here; did you mean 'run_id'?"),
    ("inputs that are no object", {"inputs": [1]}, "body.inputs"),
    ("run id that is no text", {"run_id": 7}, "body.run_id"),
    ("empty run id", {"run_id": ""}, "body.run_id"),
    ("run id too long", {"run_id": "x" * 251}, "body.run_id"),
    ("run id with a control character", {"run_id": "a\nb"}, "body.run_id"),
    ("run id with a space at the end", {"run_id": "a "}, "body.run_id"),
    ("a run id of the schedule's", {"run_id": "scheduled__2026-01-31T06:00:00Z"}, "schedule's own"),
    ("a logical date, which is the schedule's", {"logical_date": "2026-01-31"}, "body.logical_date"),
    ("a list for a body", [1, 2], "body: expected a JSON object"),
    ("a text for a body", "x", "body"),
    ("null for a body", None, "body"),
]


@pytest.mark.parametrize(("body", "says"), [row[1:] for row in BAD_STARTS], ids=[row[0] for row in BAD_STARTS])
def test_a_bad_start_is_refused_with_what_and_where(api: httpx.Client, engine: Log, body: Any, says: str) -> None:
    before = len(events(engine, RunCreated))
    answer = api.post("/api/v1/dags/hello/runs", content=json.dumps(body), headers={"Content-Type": "application/json"})
    document = problem(answer, 422, "invalid")
    assert says in document["detail"]
    assert len(events(engine, RunCreated)) == before


def test_all_mistakes_of_a_body_are_told_at_once(api: httpx.Client) -> None:
    answer = api.post("/api/v1/dags/hello/runs", json={"run_id": 1, "inputs": 2, "x": 4})
    document = problem(answer, 422, "invalid")
    assert [error["where"] for error in document["errors"]] == [
        "body.run_id",
        "body.inputs",
        "body.x",
    ]
    assert all(error["code"] and error["message"] for error in document["errors"])


@pytest.mark.parametrize(
    "text",
    [
        b"{",
        b'{"inputs": {"name": NaN}}',
        b"{'run_id': 'x'}",
        b'{"run_id": "a" "b"}',
        b'{"run_id": "\\ud800"}',
        b'{"run_id": "\xff"}',
        b"[" * 100_000,
        b'{"inputs": {"name": "a\\u0000b"}}',
        b'{"inputs": {"name": 1e999}}',
        b"{} {}",
    ],
    ids=lambda text: text[:30].decode("latin-1"),
)
def test_what_is_no_json_is_refused(api: httpx.Client, text: bytes) -> None:
    answer = api.post("/api/v1/dags/hello/runs", content=text, headers={"Content-Type": "application/json"})
    problem(answer, 400, "malformed")


@pytest.mark.parametrize("media_type", ["text/plain", "application/x-www-form-urlencoded", "application/yaml", ""])
def test_a_body_of_another_kind_is_refused(api: httpx.Client, media_type: str) -> None:
    """A form of another site can send only such types, which is one more reason."""
    answer = api.post("/api/v1/dags/hello/runs", content=b'{"run_id": "x"}', headers={"Content-Type": media_type})
    problem(answer, 415, "unsupported_media_type")


def test_c085_inputs_up_to_the_documented_limit_and_no_further(api: httpx.Client, engine: Log) -> None:
    frame = len('{"name":""}')
    fits = api.post(
        "/api/v1/dags/hello/runs", json={"run_id": "large", "inputs": {"name": "x" * (65_536 - frame - 12)}}
    )
    assert fits.status_code == 201, fits.text
    over = api.post("/api/v1/dags/hello/runs", json={"run_id": "larger", "inputs": {"name": "x" * (65_537 - frame)}})
    document = problem(over, 413, "too_large")
    assert "65,536" in document["detail"]
    huge = {"run_id": "huge", "inputs": {"name": "x" * (2 * 1024 * 1024), "list": list(range(500))}}
    problem(api.post("/api/v1/dags/hello/runs", json=huge), 413, "too_large")
    assert {"larger", "huge"}.isdisjoint(event.run_id for event in events(engine, RunCreated))


def test_c128_a_parameter_is_data_all_the_way(api: httpx.Client, engine: Log) -> None:
    body = {"run_id": "quoted", "inputs": {"name": "x; echo hacked"}}
    assert api.post("/api/v1/dags/hello/runs", json=body).status_code == 201
    (event,) = [event for event in events(engine, RunCreated) if event.run_id == "quoted"]
    assert json.loads(event.inputs)["name"] == "x; echo hacked"


def test_a_run_id_with_slashes_is_reached_by_its_address(api: httpx.Client, engine: Log) -> None:
    for run_id in ("landing/3/107", "50%", "a%2Fb", "größe ü", "x?y#z"):
        assert api.post("/api/v1/dags/hello/runs", json={"run_id": run_id}).status_code == 201
        quoted = "".join(f"%{byte:02X}" for byte in run_id.encode())
        cancelled = api.post(f"/api/v1/dags/hello/runs/{quoted}/cancel", json={"reason": "test"})
        assert cancelled.status_code == 202, (run_id, cancelled.text)
        assert cancelled.json()["run_id"] == run_id
        assert run_id in {event.run_id for event in events(engine, RunCancelRequested)}


# --- cancelling, pausing, removing -------------------------------------------------------------------------------


def test_cancelling(api: httpx.Client) -> None:
    api.post("/api/v1/dags/hello/runs", json={"run_id": "doomed"})
    assert api.post("/api/v1/dags/hello/runs/doomed/cancel", json={"reason": "wrong day"}).status_code == 202
    problem(api.post("/api/v1/dags/hello/runs/never/cancel"), 404, "not_found")
    problem(api.post("/api/v1/dags/never/runs/doomed/cancel"), 404, "not_found")
    problem(api.post("/api/v1/dags/hello/runs/doomed/cancel", json={"why": "x"}), 422, "invalid")
    problem(api.post("/api/v1/dags/hello/runs/doomed/cancel", json={"reason": "x" * 1001}), 422, "invalid")


def test_a_run_that_has_ended_cannot_be_cancelled(api: httpx.Client, eventually) -> None:
    api.post("/api/v1/dags/hello/runs", json={"run_id": "over"})
    api.post("/api/v1/dags/hello/runs/over/cancel")
    again = eventually(
        lambda: (answer := api.post("/api/v1/dags/hello/runs/over/cancel")).status_code == 409 and answer
    )
    assert "ended" in problem(again, 409, "conflict")["detail"]


def test_pausing_and_going_on(api: httpx.Client) -> None:
    assert api.post("/api/v1/dags/hello/pause", json={"reason": "maintenance"}).json()["changed"] is True
    assert api.post("/api/v1/dags/hello/pause").json()["changed"] is False
    assert api.post("/api/v1/dags/hello/unpause").json()["changed"] is True
    problem(api.post("/api/v1/dags/never/pause"), 404, "not_found")
    problem(api.post("/api/v1/dags/never/unpause"), 404, "not_found")


def test_removing_and_deploying_again(api: httpx.Client) -> None:
    text = HELLO.replace("id: hello", "id: short_lived", 1)
    assert api.post("/api/v1/dags", content=text, headers=YAML).status_code == 201
    assert api.delete("/api/v1/dags/short_lived", params={"reason": "unused"}).status_code == 200
    problem(api.post("/api/v1/dags/short_lived/runs"), 409, "conflict")
    assert api.post("/api/v1/dags", content=text, headers=YAML).status_code == 201
    assert api.post("/api/v1/dags/short_lived/runs").status_code == 201
    problem(api.delete("/api/v1/dags/never"), 404, "not_found")


def test_configuring_a_pool(api: httpx.Client, engine: Log) -> None:
    answer = api.put("/api/v1/pools/warehouse", json={"slots": 16, "description": "it takes 16"})
    assert (answer.status_code, answer.json()["changed"]) == (200, True)
    assert answer.headers["x-tidewheel-position"].startswith("pool-events/")
    assert api.put("/api/v1/pools/warehouse", json={"slots": None}).status_code == 200
    assert [(event.slots, event.description) for event in events(engine, PoolConfigured, POOL_EVENTS)] == [
        (16, "it takes 16"),
        (None, ""),
    ]


@pytest.mark.parametrize(
    ("pool", "body"),
    [
        ("warehouse", {}),
        ("warehouse", {"slots": -1}),
        ("warehouse", {"slots": "3"}),
        ("warehouse", {"slots": True}),
        ("warehouse", {"slots": 1.5}),
        ("warehouse", {"slots": 1_000_001}),
        ("warehouse", {"slots": 1, "size": 2}),
        ("Warehouse", {"slots": 1}),
        ("a b", {"slots": 1}),
        ("x" * 201, {"slots": 1}),
    ],
)
def test_a_bad_pool_is_refused(api: httpx.Client, pool: str, body: dict[str, Any]) -> None:
    problem(api.put(f"/api/v1/pools/{pool}", json=body), 422, "invalid")


# --- deploying ---------------------------------------------------------------------------------------------------


def test_deploying_the_same_again_makes_no_version(api: httpx.Client) -> None:
    text = HELLO.replace("id: hello", "id: reformatted", 1)
    first = api.post("/api/v1/dags", content=text, headers=YAML)
    again = api.post("/api/v1/dags", content="# a comment\n" + text, headers=YAML)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["version"] == again.json()["version"]
    assert (first.json()["created"], again.json()["created"]) == (True, False)


def test_a_definition_comes_as_yaml_or_as_json(api: httpx.Client) -> None:
    versions = set()
    for body in ("id: three\ntasks: [{id: a, run: 'true'}]", {"id": "three", "tasks": [{"id": "a", "run": "true"}]}):
        answer = api.post("/api/v1/dags", json={"definition": body, "source": "dags/three.yaml", "paused": True})
        assert answer.status_code in (200, 201), answer.text
        versions.add(answer.json()["version"])
    assert len(versions) == 1


def test_validating_deploys_nothing(api: httpx.Client) -> None:
    text = HELLO.replace("id: hello", "id: only_checked", 1)
    answer = api.post("/api/v1/dags", params={"validate": True}, content=text, headers=YAML)
    assert (answer.status_code, answer.json()["valid"]) == (200, True)
    assert api.post("/api/v1/dags/only_checked/runs").status_code == 404


@pytest.mark.parametrize("how", ["yaml", "json"])
@pytest.mark.parametrize("validate", ["true", "false"])
def test_every_mistake_of_a_definition_is_told_with_its_place(api: httpx.Client, how: str, validate: str) -> None:
    text = "id: broken\nshedule: '0 6 * * *'\ntasks:\n  - {id: a, run: 'true', needs: [b]}\n  - {id: c, run: 3}\n"
    if how == "yaml":
        answer = api.post(
            "/api/v1/dags", params={"source": "dags/broken.yaml", "validate": validate}, content=text, headers=YAML
        )
    else:
        body = {"definition": text, "source": "dags/broken.yaml"}
        answer = api.post("/api/v1/dags", params={"validate": validate}, json=body)
    document = problem(answer, 422, "invalid_definition")
    found = {(error["file"], error["line"]): error for error in document["errors"]}
    assert ("dags/broken.yaml", 2) in found
    assert "schedule" in found["dags/broken.yaml", 2]["message"]
    assert ("dags/broken.yaml", 4) in found
    assert all(error["column"] > 0 and error["code"] for error in document["errors"])
    assert api.post("/api/v1/dags/broken/runs").status_code == 404


def test_a_definition_that_is_no_yaml_is_refused(api: httpx.Client) -> None:
    document = problem(api.post("/api/v1/dags", content="id: [", headers=YAML), 422, "invalid_definition")
    assert document["errors"][0]["line"] >= 1


def test_a_definition_that_is_no_text_is_refused(api: httpx.Client) -> None:
    problem(api.post("/api/v1/dags", content=b"id: \xff\xfe", headers=YAML), 400, "malformed")


@pytest.mark.parametrize(
    "body", [{}, {"definition": 3}, {"definition": "x", "pausd": True}, {"definition": None}, {"definition": ["a"]}]
)
def test_a_bad_deployment_is_refused(api: httpx.Client, body: dict[str, Any]) -> None:
    problem(api.post("/api/v1/dags", json=body), 422, "invalid")


def test_a_deployment_of_an_unknown_kind_is_refused(api: httpx.Client) -> None:
    problem(api.post("/api/v1/dags", content=HELLO), 415, "unsupported_media_type")


def test_a_definition_over_its_bound_is_refused(api: httpx.Client) -> None:
    lines = "\n".join(f"  - {{id: t{n}, run: 'echo {'x' * 200}'}}" for n in range(6_000))
    answer = api.post("/api/v1/dags", content=f"id: vast\ntasks:\n{lines}\n", headers=YAML)
    assert answer.status_code in (413, 422), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert "larger" in answer.text or "limit" in answer.text


# --- when nobody answers -----------------------------------------------------------------------------------------


def test_c112_without_an_owner_the_asker_is_told_and_may_ask_again(start_api) -> None:
    """No scheduler owns the shard: 504, then one comes, and asking again gives the one run."""
    log = MemoryLog(partitions=4)
    api = start_api(log, answer_s=0.3)
    stop = threading.Event()
    deploying = threading.Thread(target=Scheduler(log, "first", CelEvaluator()).run, args=(stop,))
    deploying.start()
    assert api.post("/api/v1/dags", content=HELLO, headers=YAML).status_code == 201
    stop.set()
    deploying.join()

    unanswered = api.post("/api/v1/dags/hello/runs", json={"inputs": {"name": "ann"}})
    document = problem(unanswered, 504, "no_answer")
    assert unanswered.headers["retry-after"]
    assert "may still be carried out" in document["detail"]
    assert "same run_id" in document["detail"]
    run_id = document["run_id"]

    stop = threading.Event()
    second = threading.Thread(target=Scheduler(log, "second", CelEvaluator()).run, args=(stop,))
    second.start()
    try:
        again = api.post("/api/v1/dags/hello/runs", json={"run_id": run_id, "inputs": {"name": "ann"}})
        while again.status_code == 504:
            again = api.post("/api/v1/dags/hello/runs", json={"run_id": run_id, "inputs": {"name": "ann"}})
        assert (again.status_code, again.json()["created"]) == (200, False)
        assert len([event for event in events(log, RunCreated) if event.run_id == run_id]) == 1
    finally:
        stop.set()
        second.join()
