"""A run drawn for a terminal."""

from __future__ import annotations

from typing import Any

import pytest

from tidewheel_services.cli.timeline import draw
from tidewheel_services.cli.waiting import explain_waiting

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


class Definitions:
    """An API that knows one definition."""

    def __init__(self, tasks: list[dict[str, Any]]) -> None:
        self._tasks = tasks

    def get(self, *path: str, **_: Any) -> Any:
        if "versions" in path:
            return {"definition": {"tasks": self._tasks}}
        raise AssertionError(path)


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
    assert "9,980 more" in rest
    assert "8,984 success, 996 scheduled" in rest
    assert rows[-1] == "join"


def test_instances_that_wait_for_their_turn_are_one_line() -> None:
    api: Any = Definitions([{"id": "list"}, {"id": "load", "max_parallel": 8}, {"id": "join", "needs": ["load"]}])
    tasks = fan(["success", "running", "scheduled", "scheduled"])
    assert explain_waiting(api, RUN, tasks) == [
        "2 instances of load wait for one of the 8 before them to end (max_parallel)",
        "join waits for load (deferred)",
    ]


@pytest.mark.parametrize(("used", "said"), [(2, ""), (3, "; DAG d holds 3 and may hold 3 (30%, max_pool_share)")])
def test_a_task_whose_dag_holds_its_share_of_the_pool_says_so(used: int, said: str) -> None:
    class Pools(Definitions):
        def get(self, *path: str, **more: Any) -> Any:
            if path == ("pools", "default"):
                return {"workers": 1, "slots": None, "worker_slots": 10, "used": 4, "waiting": 9}
            if path == ("pools", "default", "dags"):
                assert more == {"dag": "d"}
                return {"items": [{"dag": "d", "used": used, "max_pool_share": 30, "share_slots": 3}]}
            return super().get(*path, **more)

    api: Any = Pools([{"id": "load"}])
    (line,) = explain_waiting(api, RUN, [task("load", 0, "queued")])
    assert line == f"load waits in pool default: 4 of 10 slots are in use, 9 wait{said}"


def test_a_wait_says_what_for(capsys: pytest.CaptureFixture[str]) -> None:
    api: Any = Definitions([{"id": "settle"}])
    wait = task("settle", 0, "deferred", waits_for="time") | {"reason": f"waits until {AT}", "ended_at": None}
    attempt = {"task": "settle", "attempt": 1, "state": "deferred", "pool": "", "queued_at": None}
    draw(RUN, [wait], [attempt | {"started_at": AT, "ended_at": None}])
    assert "░" in capsys.readouterr().out
    assert explain_waiting(api, RUN, [wait]) == [f"settle waits until {AT}"]


def test_a_run_of_a_trigger_says_which_record_it_came_from(capsys: pytest.CaptureFixture[str]) -> None:
    draw({**RUN, "trigger": "late_file", "origin": "landing.files/3/1207"}, [task("load", 0, "success")], [])
    assert "by trigger late_file for record landing.files/3/1207" in capsys.readouterr().out
