"""Records of a topic that start runs in `tidewheel dev`, without any Kafka; with one: `test_listener_deaths.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx

from tests.e2e.running import dev, document, eventually, settings_of

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_without_kafka_records_are_published_by_hand(tmp_path: Path) -> None:
    flows = tmp_path / "flows"
    flows.mkdir()
    (flows / "late_files.yaml").write_text((EXAMPLES / "late_files.yaml").read_text())
    with dev(flows) as (_, env):
        env["TIDEWHEEL_LOG"] = f"sqlite://{flows}/.tidewheel/log.db"
        for file in ("f1", "f2", "f1"):
            value = json.dumps({"kind": "orders", "file": file, "day": "2026-01-31"})
            document("publish", "landing.late", "--value", value, "--header", "from=test", env=env)
        document("publish", "landing.late", "--value", '{"kind": "orders"}', env=env)

        def ended() -> list[Any]:
            runs: list[Any] = document("runs", "late_files", env=env)
            return runs if [run["state"] for run in runs] == ["success"] * 2 else []

        runs = eventually(ended, 60, "two runs")
        assert sorted(run["run_id"] for run in runs) == ["trigger__landed:f1", "trigger__landed:f2"]
        run = httpx.get(f"{env['TIDEWHEEL_API']}/api/v1/dags/late_files/runs/trigger__landed:f1", timeout=20).json()
        assert (run["kind"], run["trigger"], run["origin"]) == ("kafka", "landed", "landing.late/0/0")
        assert run["inputs"] == {"file": "f1", "day": "2026-01-31"}
        checks = {check["check"]: check for check in document("doctor", env={**env, **settings_of(flows)})}
        assert checks["Listeners"]["found"] == "1 topics that triggers name"
        (letter,) = eventually(lambda: document("dead-letters", env=env), 30, "a dead letter")
        assert letter["source_topic"] == "landing.late" and "trigger 'landed' of DAG 'late_files'" in letter["reason"]
