"""Tasks that wait: found by the API and the command line, decided, and on the record."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from tests.http_service import Answer, Request, http_service, in_json
from tidewheel.definition.expressions import CelEvaluator
from tidewheel.log.feeds import open_feed
from tidewheel.log.interface import Log
from tidewheel.log.sqlite.feed import SqliteFeed
from tidewheel.worker.secrets import KnownSecrets
from tidewheel_services.cli.app import app
from tidewheel_services.waiter.polling import Poller
from tidewheel_services.waiter.records import Records
from tidewheel_services.waiter.waiter import Waiter

YAML = {"Content-Type": "application/yaml"}
CLOSE = """
id: close_month
tasks:
  - {id: soon, wait_for: {time: 10ms}}
  - {id: approve, needs: [soon], wait_for: {approval: {roles: [finance, cfo]}}}
  - {id: late, wait_for: {time: 1d}}
"""


@pytest.fixture
def api(start_api: Callable[..., httpx.Client], engine: Log, projected: str) -> httpx.Client:
    return start_api(engine, projected)


def cli(*arguments: str) -> tuple[int, str]:
    """Exit status and output of a command."""
    done = CliRunner().invoke(app, [*arguments])
    return done.exit_code, done.stdout


def test_a_person_decides(api: httpx.Client, eventually: Callable[..., Any]) -> None:
    run = "/api/v1/dags/close_month/runs/march"
    assert api.post("/api/v1/dags", content=CLOSE, headers=YAML).status_code == 201
    assert api.post("/api/v1/dags/close_month/runs", json={"run_id": "march"}).status_code == 201
    at = ("--api", str(api.base_url))

    def waits() -> list[dict[str, Any]]:
        return json.loads(cli("waits", "close_month", "--json", *at)[1])  # type: ignore[no-any-return]

    found = eventually(lambda: len(here := waits()) == 2 and here)
    assert [(one["task"], one["waits_for"], one["state"]) for one in found] == [
        ("approve", "approval", "deferred"),
        ("late", "time", "deferred"),
    ]
    assert found[0]["wait"] == {"roles": ["finance", "cfo"]}
    assert found[0]["reason"].startswith("waits for an approval by finance or cfo, until ")
    shown = cli("show", "close_month", "march", *at)[1]
    assert "tidewheel approve close_month march approve" in shown

    place = ("close_month", "march", "approve", *at)
    status, _ = cli("approve", *place, "--role", "clerk")
    assert status != 0
    status, said = cli("approve", *place, "--by", "ann", "--role", "cfo", "--reason", "as the bank says")
    assert (status, said.strip()) == (0, "approved")
    again = api.post(f"{run}/tasks/approve/approval", json={"approve": False})
    assert again.status_code == 409 and "attempt 1 is success" in again.json()["detail"]
    output = eventually(lambda: api.get(f"{run}/tasks/approve").json()["output"])
    assert {**output, "at": ""} == {
        "approved": True,
        "by": "user:ann",
        "role": "cfo",
        "reason": "as the bank says",
        "at": "",
    }
    events = api.get(f"{run}/events", params={"task": "approve"}).json()["items"]
    assert [(event["type"], event["actor"]) for event in events] == [
        ("TaskDeferred", "scheduler"),
        ("TaskSucceeded", "user:ann"),
    ]
    assert api.post(f"{run}/cancel").status_code == 202
    eventually(lambda: api.get(run).json()["state"] == "cancelled")
    assert waits() == []


class Export:
    """A service whose export is ready at the third request; it wants a token."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[str] = []

    def answer(self, request: Request) -> Answer:
        self.asked.append(f"{request.path} {request.headers.get('x-token')}")
        return in_json({"state": "ready" if len(self.asked) >= 3 else "busy", "url": "s3://x"})


@pytest.fixture
def export() -> Iterator[Export]:
    service = Export()
    with http_service(service.answer) as service.url:
        yield service


def no_records(name: str) -> Records:
    """Nobody waits for any."""
    return Records(lambda: open_feed("kafka://127.0.0.1:1"), CelEvaluator(), name)


def test_a_record_is_found_that_came_before_and_one_that_comes_later(
    api: httpx.Client, engine: Log, projected: str, tmp_path: Path, run_threads: Any, eventually: Callable[..., Any]
) -> None:
    text = """
id: after_cdc
inputs: {day: {type: string}}
tasks:
  - id: before
    wait_for: {kafka: {topic: cdc.done, match: "${{ event.value.day == inputs.day }}", window: 1h}}
  - {id: after, wait_for: {kafka: {topic: cdc.done, match: "${{ event.key == run.id }}", window: 0s}}}
"""
    feed = SqliteFeed(tmp_path / "topics.db")
    for value in (b"no json", b'{"day": "sunday"}', b'{"day": "monday", "rows": 3}'):
        feed.publish("cdc.done", b"one", value)
    records = Records(lambda: SqliteFeed(tmp_path / "topics.db"), CelEvaluator(), "w")
    waiter = Waiter(engine, projected, Poller(KnownSecrets(), CelEvaluator()), records, "w", look_s=0.1)
    assert api.post("/api/v1/dags", content=text, headers=YAML).status_code == 201
    run = "/api/v1/dags/after_cdc/runs/one"
    started = {"run_id": "one", "inputs": {"day": "monday"}}
    assert api.post("/api/v1/dags/after_cdc/runs", json=started).status_code == 201
    with run_threads() as threads:
        threads.run(waiter.run, "waiter")
        eventually(lambda: api.get(f"{run}/tasks/before").json().get("state") == "success")
        assert api.get(f"{run}/tasks/after").json()["state"] == "deferred"
        feed.publish("cdc.done", b"two", b"1")
        feed.publish("cdc.done", b"one", None)
        eventually(lambda: api.get(run).json()["state"] == "success")
    feed.close()
    output = api.get(f"{run}/tasks/before").json()["output"]
    assert (output["offset"], output["key"], output["value"]) == (2, "one", {"day": "monday", "rows": 3})
    assert api.get(f"{run}/tasks/after").json()["output"]["offset"] == 4


def test_an_answer_is_asked_for_until_it_is_as_wanted(
    api: httpx.Client, engine: Log, projected: str, export: Export, run_threads: Any, eventually: Callable[..., Any]
) -> None:
    text = f"""
id: after_export
tasks:
  - id: ready
    wait_for:
      http:
        url: {export.url}/exports/${{{{ run.id }}}}
        headers: {{X-Token: "${{{{ secrets.export_token }}}}"}}
        every: 1s
        until: ${{{{ response.status == 200 && response.json.state == "ready" && run.id == "one" }}}}
  - {{id: nobody, wait_for: {{http: {{url: "{export.url}", headers: {{X: "${{{{ secrets.unknown }}}}"}}}}}}}}
"""
    poller = Poller(KnownSecrets({"export_token": "hush-hush"}), CelEvaluator())
    waiters = [Waiter(engine, projected, poller, no_records(name), name, look_s=0.1) for name in ("one", "two")]
    with run_threads() as threads:
        for waiter in waiters:
            threads.run(waiter.run, waiter.instance)
        assert api.post("/api/v1/dags", content=text, headers=YAML).status_code == 201
        assert api.post("/api/v1/dags/after_export/runs", json={"run_id": "one"}).status_code == 201
        run = "/api/v1/dags/after_export/runs/one"
        eventually(lambda: api.get(run).json().get("state") == "failed")
    task = api.get(f"{run}/tasks/ready").json()
    assert (task["state"], task["output"]["json"]) == ("success", {"state": "ready", "url": "s3://x"})
    assert export.asked == ["/exports/one hush-hush"] * 3, "one of two waiters works"
    failed = api.get(f"{run}/tasks/nobody").json()
    assert failed["state"] == "failed" and "secret 'unknown' is not known" in failed["reason"]
    events = api.get(f"{run}/events", params={"task": "ready"}).json()["items"]
    assert [(event["type"], event["actor"]) for event in events] == [
        ("TaskDeferred", "scheduler"),
        ("TaskSucceeded", "waiter"),
    ]
    assert "hush" not in json.dumps(events)
