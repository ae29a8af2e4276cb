"""The commands about targets: a test that is sent, and what `doctor` says of them."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from tests.notifier.receiver import Receiver
from tidewheel_services.cli.app import app


def test_a_test_arrives_or_says_why_not(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEWHEEL_NOTIFY_OPS", receiver.url())
    runner = CliRunner()
    assert runner.invoke(app, ["notifier", "--test", "ops"]).output == "delivered to ops\n"
    assert receiver.taken[0]["title"] == "Tidewheel: a test"
    receiver.status = 403
    refused = runner.invoke(app, ["notifier", "--test", "ops"])
    assert refused.exit_code == 1
    assert "target 'ops' could not be told: " in refused.output and "403" in refused.output
    unknown = runner.invoke(app, ["notifier", "--test", "pager"])
    assert unknown.exit_code == 2
    assert "no target 'pager' is configured here (known: ops): set TIDEWHEEL_NOTIFY_PAGER" in unknown.output


def test_doctor_lists_the_targets_and_no_urls(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEWHEEL_NOTIFY_OPS", receiver.url())
    monkeypatch.setenv("TIDEWHEEL_NOTIFY_CHAT", "nosuchservice://hunter2")
    said = CliRunner().invoke(app, ["doctor", "--json"])
    (found,) = (one for one in json.loads(said.stdout) if one["check"] == "Notifications")
    assert found["result"] == "missing"
    assert found["found"].startswith("targets: chat, ops; the URL of target 'chat' is not understood")
    assert "hunter2" not in said.output and "s3cr3t" not in said.output
