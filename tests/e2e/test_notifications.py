"""A file with a deadline and people to tell, run as a user runs it: what is late and what failed reaches them."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.running import dev, document, eventually, tidewheel
from tests.notifier.receiver import receiving

FLOW = """
id: slow
owner: data-platform
deadlines:
  - {within: 1s, from: started, notify: chat}
  - {within: 3s, from: started, action: fail}
notify:
  - {events: [run_failed, deadline_missed], to: ops}
tasks:
  - {id: wait, run: sleep 600}
  - {id: after, needs: wait, run: echo never}
"""


def test_a_late_run_is_told_of_and_then_ended(tmp_path: Path) -> None:
    flows = tmp_path / "flows"
    flows.mkdir()
    (flows / "slow.yaml").write_text(FLOW)
    with receiving() as ops, receiving() as chat:
        targets = {"TIDEWHEEL_NOTIFY_OPS": ops.url(), "TIDEWHEEL_NOTIFY_CHAT": chat.url()}
        with dev(flows, env=targets) as (_, env):
            run = document_of_failure("slow", "late", env)
            assert run["reason"] == "deadline missed: the run had not ended 3s after its start"
            assert [one["action"] for one in run["deadlines_missed"]] == ["alert", "fail"]
            assert "the run had not ended 1s after its start" in tidewheel("show", "slow", "late", env=env).stdout
            eventually(lambda: len(ops.taken) == 3 and chat.taken, 60, "what is wanted told is told")
            api = env["TIDEWHEEL_API"]
    assert [taken["title"] for taken in chat.taken] == ["slow: deadline missed"]
    assert sorted(taken["title"] for taken in ops.taken) == [
        "slow failed",
        "slow: deadline missed",
        "slow: deadline missed",
    ]
    (failed,) = (taken["message"] for taken in ops.taken if taken["title"] == "slow failed")
    assert "Owner: data-platform" in failed
    assert f"{api}/api/v1/dags/slow/runs/late" in failed


def document_of_failure(dag: str, run_id: str, env: dict[str, str]) -> dict[str, object]:
    """The run, once it has ended as failed."""
    assert tidewheel("trigger", dag, "--run-id", run_id, "--wait", env=env).returncode == 1
    shown = document("show", dag, run_id, env=env)
    assert shown["run"]["state"] == "failed"
    run: dict[str, object] = shown["run"]
    return run
