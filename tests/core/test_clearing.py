"""Which tasks a clear comes to."""

from __future__ import annotations

import pytest
from immutables import Map

from tests.core.scenes import definition, task, workflow
from tidewheel.core.clearing import below, cleared_tasks
from tidewheel.core.graph import define
from tidewheel.core.mapping import Fan
from tidewheel.core.state import RunState, TaskState
from tidewheel.core.transitions import TaskPhase

#: a ─► b ─► d ─► e, c ─► d; m is mapped.
DIAMOND = define(
    "v1",
    definition(
        workflow(
            task("a"), task("b", "a"), task("c"), task("d", "b", "c"), task("m", "b", for_each=[1, 2]), task("e", "d")
        )
    ),
)


def run(default: TaskPhase = "success", **phases: TaskPhase) -> RunState:
    states = {name: TaskState(phase=phases.get(name, default), attempt=1) for name in DIAMOND.tasks}
    states["m"] = TaskState(phase="failed", fan=Fan(2, 2))
    states |= {"m[0]": TaskState(phase="success", attempt=1), "m[1]": TaskState(phase="failed", attempt=1)}
    return RunState(run_id="r", version="v1", kind="manual", order=0, tasks=Map(states))


@pytest.mark.parametrize(
    ("named", "more", "found"),
    [
        (["b"], {}, ["b", "d", "m", "e"]),
        (["b"], {"downstream": False}, ["b"]),
        (["d"], {"downstream": False, "upstream": True}, ["a", "b", "c", "d"]),
        (["d"], {"upstream": True}, ["a", "b", "c", "d", "e"]),
        ([], {}, ["a", "b", "c", "d", "m", "e"]),
        (["m[1]"], {}, ["m[1]"]),
        (["m[1]", "m[0]", "m[1]"], {}, ["m[0]", "m[1]"]),
        (["m[1]", "b"], {}, ["b", "d", "m", "e"]),
        ([], {"only_failed": True}, ["m[1]"]),
        (["m[0]", "m[1]"], {"only_failed": True}, ["m[1]"]),
    ],
)
def test_what_is_named_and_what_hangs_on_it(named: list[str], more: dict[str, bool], found: list[str]) -> None:
    choices = {"downstream": True, "upstream": False, "only_failed": False, **more}
    assert cleared_tasks(DIAMOND, run(), named, **choices) == found


def test_what_waits_for_its_turn_is_left_out() -> None:
    there = run(d="scheduled", e="scheduled")
    assert cleared_tasks(DIAMOND, there, ["c"], downstream=True, upstream=False, only_failed=False) == ["c"]


def test_a_failed_mapped_task_without_instances_is_cleared_whole() -> None:
    there = run()
    there = RunState(
        run_id="r", version="v1", kind="manual", order=0, tasks=there.tasks.set("m", TaskState(phase="failed"))
    )
    assert cleared_tasks(DIAMOND, there, [], downstream=True, upstream=False, only_failed=True) == ["m"]


def test_below_is_all_that_needs_it() -> None:
    assert below(DIAMOND, ["b"]) == {"d", "m", "e"}
    assert below(DIAMOND, ["e"]) == set()
