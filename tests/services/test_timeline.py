"""A run drawn for a terminal."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tidewheel_services.cli.showing import history
from tidewheel_services.cli.timeline import checkpoint, draw
from tidewheel_services.cli.waiting import reasons

AT = "2026-01-05T00:00:00Z"
RUN = {"dag": "d", "run_id": "r", "version": "v1", "state": "running", "kind": "manual", "actor": "user:a"} | {
    "created_at": AT,
    "ended_at": "2026-01-05T00:01:00Z",
    "reason": "",
}


def task(name: str, ordinal: int, state: str, instance: int | None = None, **more: Any) -> dict[str, Any]:
    times = {"queued_at": AT, "started_at": AT, "ended_at": AT, "retry_at": None}
    place = {"task": name, "ordinal": ordinal, "instance": instance, "pool": "default", "pool_slots": 1}
    return {**place, "state": state, "attempt": 1, "reason": "", **times, **more}


def fan(states: list[str]) -> list[dict[str, Any]]:
    instances = [task(f"load[{n}]", 1, state, n) for n, state in enumerate(states)]
    return [task("list", 0, "success"), task("load", 1, "deferred"), *instances, task("join", 2, "scheduled")]


def test_few_instances_stand_below_their_task_one_by_one(capsys: pytest.CaptureFixture[str]) -> None:
    draw(RUN, fan(["success", "failed"]), [])
    rows = [line.split()[0] for line in capsys.readouterr().out.splitlines()[2:] if line.strip()]
    assert rows == ["list", "load", "load[0]", "load[1]", "join"]


def test_of_many_instances_those_that_say_most_are_shown_and_the_rest_counted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    states = ["success"] * 9_000 + ["failed"] + ["running"] * 3 + ["scheduled"] * 996
    draw(RUN, fan(states), [])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) < 30
    rows = [line.split()[0] for line in lines[2:] if line.strip()]
    assert {"load[9000]", "load[9001]", "load[9003]"} <= set(rows)
    (rest,) = [line for line in lines if "more" in line]
    assert "8,984 more" in rest and "8,984 success" in rest
    assert sum("996 scheduled" in line and line.startswith("load[9004], …") for line in lines) == 1
    assert rows[-1] == "join"


def test_instances_that_wait_alike_are_one_row(capsys: pytest.CaptureFixture[str]) -> None:
    waits = [task(f"ask[{n}]", 0, "deferred", n, reason="waits for an approval") for n in range(4)]
    other = [task(f"ask[{n}]", 0, "deferred", n, reason="waits for a record") for n in range(4, 7)]
    draw(RUN, [task("ask", 0, "deferred"), *waits, *other, task("ask[7]", 0, "running", 7)], [])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()[2:]]
    assert [words[0] for words in lines] == ["ask", "ask[4]", "ask[5]", "ask[6]", "ask[7]", "ask[0],"]
    assert " ".join(lines[-1]) == "ask[0], … 4 deferred waits for an approval"


def test_reasons_name_what_they_are_said_of() -> None:
    said = {"dag": "d", "run_id": "r 1", "more": 2}
    one = {"tasks": ["load"], "count": 1, "code": "needs", "message": "waits for list (running)"}
    many = {"tasks": ["m[0]", "m[1]", "m[2]", "m[3]"], "count": 1_200, "code": "pool_full", "message": "full"}
    general = {"tasks": [], "count": 0, "code": "no_scheduler", "message": "no scheduler is at work"}
    whole = {"tasks": [], "count": 0, "code": "paused", "message": "DAG d is paused"}
    assert list(reasons({**said, "reasons": [general, whole, one, many]})) == [
        "no scheduler is at work",
        "the run: DAG d is paused",
        "load: waits for list (running)",
        "1,200 tasks (m[0], m[1], m[2], …): full",
        "… and more tasks of 2 kinds; `tidewheel why d 'r 1' TASK` says why one waits",
    ]


def test_what_people_decided_about_a_run_is_told_with_who_when_and_why() -> None:
    def decided(kind: str, task: str = "", **body: Any) -> dict[str, Any]:
        return {"type": kind, "at": AT, "actor": "user:ann", "task": task, "body": body}

    many = '["a","b","c","d","e","f[0]","f[1]"]'
    events = [
        decided("TasksCleared", tasks='["load"]', ending='["join"]', reason="the source was repaired"),
        decided("TasksCleared", tasks=many),
        decided("RunReopened", version="0123456789abcdef", reason="the source was repaired"),
        decided("TaskMarked", "check", state="success"),
        decided("RunRestarted", backfill_id="b7"),
        decided("RunCancelRequested", reason="wrong day"),
    ]
    assert list(history({**RUN, "rerun_of": "r0", "reopened": 2}, events)) == [
        "repeats run r0",
        "had ended and went on 2 times",
        f"{AT}  user:ann cleared load, join: the source was repaired",
        f"{AT}  user:ann cleared a, b, c, d, e and 2 more",
        f"{AT}  user:ann let the run go on by version 0123456789ab: the source was repaired",
        f"{AT}  user:ann marked check success",
        f"{AT}  user:ann let it begin anew for backfill b7",
        f"{AT}  user:ann cancelled the run: wrong day",
    ]
    assert list(history({**RUN, "rerun_of": "", "reopened": 0}, [])) == []


def test_a_checkpoint_is_told_with_its_size_and_age(capsys: pytest.CaptureFixture[str]) -> None:
    kept = {"checkpoint_at": AT, "checkpoint_bytes": 2_048}
    now = datetime(2026, 1, 5, 0, 3, tzinfo=UTC)
    assert checkpoint(kept, now) == "checkpoint of 2.0 KiB, saved 3 min 0 s ago"
    draw(RUN, [task("load", 0, "retrying", **kept, retry_at=AT)], [])
    assert "checkpoint of 2.0 KiB, saved" in " ".join(capsys.readouterr().out.split())


def test_a_wait_says_what_for(capsys: pytest.CaptureFixture[str]) -> None:
    wait = task("settle", 0, "deferred", waits_for="time") | {"reason": f"waits until {AT}", "ended_at": None}
    attempt = {"task": "settle", "attempt": 1, "state": "deferred", "pool": "", "queued_at": None}
    draw(RUN, [wait], [attempt | {"started_at": AT, "ended_at": None}])
    assert "░" in capsys.readouterr().out


def test_a_run_of_a_trigger_says_which_record_it_came_from(capsys: pytest.CaptureFixture[str]) -> None:
    draw({**RUN, "trigger": "late_file", "origin": "landing.files/3/1207"}, [task("load", 0, "success")], [])
    assert "by trigger late_file for record landing.files/3/1207" in capsys.readouterr().out


def test_a_traceback_stands_below_the_table_and_not_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    trace = 'Traceback (most recent call last):\n  File "etl.py", line 3, in load\nValueError: no such day'
    tasks = [task("load", 0, "failed", reason=f"ValueError: no such day\n\n{trace}"), task("tell", 1, "success")]
    draw({**RUN, "state": "failed"}, tasks, [])
    shown = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    below = ["load, attempt 1:", *(f"  {line}" for line in trace.splitlines())]
    assert shown[-len(below) :] == below
    table = "\n".join(shown[: -len(below)])
    assert "no such day" in " ".join(table.split()) and "Traceback" not in table
