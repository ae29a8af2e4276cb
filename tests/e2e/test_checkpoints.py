"""A checkpoint outlives everything that was there when it was saved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx

from tests.e2e.running import dev, document, eventually

COMMAND = """
if [ -e "$TIDEWHEEL_CHECKPOINT" ]; then
    cat "$TIDEWHEEL_CHECKPOINT" > "$TIDEWHEEL_OUTPUT"
else
    echo '{"page": 7}' > "$TIDEWHEEL_CHECKPOINT"
    while :; do sleep 0.1; done
fi
"""


def test_a_task_goes_on_from_its_checkpoint_when_all_processes_were_killed(tmp_path: Path) -> None:
    directory = tmp_path / "flows"
    directory.mkdir()
    (directory / "copy.yaml").write_text(json.dumps({"id": "copy", "tasks": [{"id": "pages", "run": COMMAND}]}))
    with dev(directory) as (process, env):
        document("trigger", "copy", "--run-id", "killed", env=env)
        task = eventually(lambda: _task(env, saved=True), 60, "the checkpoint")
        assert (task["state"], task["attempt"], task["checkpoint_bytes"]) == ("running", 1, len('{"page":7}'))
        process.kill()
    with dev(directory) as (process, env):
        task = eventually(lambda: _task(env, state="success"), 120, "the end of the task")
        assert (task["attempt"], task["output"]) == (2, {"page": 7})
        assert (task["checkpoint_at"], task["checkpoint_bytes"]) == (None, None)


def _task(env: dict[str, str], *, saved: bool = False, state: str = "") -> Any:
    answer = httpx.get(env["TIDEWHEEL_API"] + "/api/v1/dags/copy/runs/killed/tasks/pages", timeout=20)
    task = answer.json()
    if answer.status_code != 200 or (saved and not task["checkpoint_at"]) or (state and task["state"] != state):
        return None
    return task
