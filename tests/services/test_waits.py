"""Tasks that wait: found by the API and the command line, decided, and on the record."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tidewheel.log.interface import Log
from tidewheel_services.cli.app import app

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


def cli(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Exit status and output of a command."""
    with pytest.raises(SystemExit) as ended:
        app([*arguments])
    return int(ended.value.code or 0), capsys.readouterr().out


def test_a_person_decides(
    api: httpx.Client, eventually: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    run = "/api/v1/dags/close_month/runs/march"
    assert api.post("/api/v1/dags", content=CLOSE, headers=YAML).status_code == 201
    assert api.post("/api/v1/dags/close_month/runs", json={"run_id": "march"}).status_code == 201
    at = ("--api", str(api.base_url))

    def waits() -> list[dict[str, Any]]:
        return json.loads(cli(capsys, "waits", "close_month", "--json", *at)[1])  # type: ignore[no-any-return]

    found = eventually(lambda: len(here := waits()) == 2 and here)
    assert [(one["task"], one["waits_for"], one["state"]) for one in found] == [
        ("approve", "approval", "deferred"),
        ("late", "time", "deferred"),
    ]
    assert found[0]["wait"] == {"roles": ["finance", "cfo"]}
    assert found[0]["reason"].startswith("waits for an approval by finance or cfo, until ")
    shown = cli(capsys, "show", "close_month", "march", *at)[1]
    assert "tidewheel approve close_month march approve" in shown

    place = ("close_month", "march", "approve", *at)
    status, _ = cli(capsys, "approve", *place, "--role", "clerk")
    assert status != 0
    status, said = cli(capsys, "approve", *place, "--by", "ann", "--role", "cfo", "--reason", "as the bank says")
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
