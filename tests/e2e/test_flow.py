"""The example of branches and runs that tasks ask for, from its files to the command line and the API."""

from __future__ import annotations

import shutil
from pathlib import Path

import httpx

from tests.e2e.running import dev, document, eventually, tidewheel

EXAMPLE = Path(__file__).parents[2] / "examples" / "month_end"


def test_a_run_takes_one_way_or_another_and_both_sides_know_of_each_other(tmp_path: Path) -> None:
    flows = tmp_path / "flows"
    shutil.copytree(EXAMPLE, flows)
    assert tidewheel("validate", flows).stdout == "3 files good\n"
    with dev(flows) as (_, env):
        run = document("trigger", "month_end", "--run-id", "full", "--wait", env=env)
        assert (run["state"], run["counts"]) == ("success", {"success": 5, "skipped": 1})
        shown = document("show", "month_end", "full", env=env)
        tasks = {task["task"]: task for task in shown["tasks"]}
        assert tasks["ask_for_help"]["reason"] == "switch route took branch 1 (report)"
        assert tasks["route"]["attempt"] == 0
        children = {child["dag"]: child for child in shown["children"]}
        report, close = children["month_report"], children["close_month"]
        assert (report["kind"], close["kind"]) == ("workflow", "triggered")
        assert report["parent"] == {"dag": "month_end", "run_id": "full", "task": "report", "attempt": 1}
        with httpx.Client(base_url=env["TIDEWHEEL_API"] + "/api/v1", timeout=20) as client:
            output = client.get("/dags/month_end/runs/full/tasks/report").json()["output"]
            assert output == {
                "dag": "month_report",
                "run_id": report["run_id"],
                "outputs": {"publish": {"address": "reports/2026-01.html"}},
            }
            path = f"/dags/close_month/runs/{close['run_id']}"
            eventually(lambda: client.get(path).json()["state"] == "success")
            assert client.get(path).json()["inputs"] == {"report": "reports/2026-01.html"}
        text = tidewheel("show", "month_end", "full", env=env).stdout
        assert f"report asked for month_report {report['run_id']}: success" in text
        text = tidewheel("show", "month_report", report["run_id"], env=env).stdout
        assert "report of month_end full waits for it" in text

        run = document("trigger", "month_end", "--run-id", "few", "-i", "rows=3", "--wait", env=env)
        assert (run["state"], run["counts"]) == ("success", {"success": 4, "skipped": 2})
