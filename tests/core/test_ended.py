"""What is kept of a run that has ended, and the run as it goes on."""

from __future__ import annotations

import pytest
from immutables import Map

from tests.core.scenes import definition, task, workflow
from tidewheel.core.ended import ended_run, keep, restored
from tidewheel.core.graph import Definition, Tally, define
from tidewheel.core.mapping import Fan
from tidewheel.core.state import EndedRun, RunState, TaskState
from tidewheel.core.transitions import TaskPhase
from tidewheel.core.workflow import Branch, Switch, Task


def run(version: str = "v1", run_id: str = "r", **tasks: TaskState) -> RunState:
    return RunState(run_id=run_id, version=version, kind="manual", order=0, phase="running", tasks=Map(tasks))


def end(phase: TaskPhase = "success", attempt: int = 1, output: str | None = None) -> TaskState:
    return TaskState(phase=phase, attempt=attempt, output=output, worker="w", failures=2)


def kept(of: RunState) -> EndedRun:
    return ended_run(of, "success")


def defined(*tasks: Task, version: str = "v1") -> Definition:
    return define(version, definition(workflow(*tasks)))


def test_a_run_goes_on_as_it_ended() -> None:
    there = restored(
        kept(run(a=end(output="3"), b=end("failed", 2))), defined(task("a"), task("b", "a")), order=7, inputs="{}"
    )
    assert (there.phase, there.order, there.open_tasks) == ("queued", 7, 0)
    assert there.task("a") == TaskState(phase="success", attempt=1, output="3")
    assert there.task("b") == TaskState(phase="failed", attempt=2, upstreams=Tally(success=1))


def test_the_same_run_is_the_same_bytes_in_whatever_order_its_tasks_were_touched() -> None:
    names = [f"t{number}" for number in range(50)]
    one = run(**{name: end() for name in names})
    other = run(**{name: end() for name in reversed(names)})
    assert kept(one) == kept(other)


def test_the_oldest_make_room_by_number_and_by_size(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: tuple[EndedRun, ...] = ()
    for number in range(5):
        runs, gone = keep(runs, kept(run(run_id=f"r{number}", a=end())), 3)
    assert [one.run_id for one in runs] == ["r2", "r3", "r4"]
    assert [one.run_id for one in gone] == ["r1"]
    monkeypatch.setattr("tidewheel.core.ended.KEPT_BYTES", runs[0].size * 2)
    runs, gone = keep(runs, kept(run(run_id="r5", a=end())), 3)
    assert [one.run_id for one in runs] == ["r4", "r5"]
    runs, gone = keep(runs, kept(run(run_id="r6", a=end())), 0)
    assert (runs, [one.run_id for one in gone]) == ((), ["r4", "r5", "r6"]), "who keeps none keeps none that were kept"


def test_a_run_that_alone_is_too_large_goes_and_with_it_all_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidewheel.core.ended.KEPT_BYTES", 1_000)
    runs, gone = keep((kept(run(a=end())),), kept(run(run_id="large", a=end(output="x" * 2_000))), 20)
    assert runs == ()
    assert [one.run_id for one in gone] == ["r", "large"]


def test_under_another_version_what_is_new_waits_and_what_is_gone_keeps_its_number() -> None:
    ended = kept(run(a=end(), old=end(attempt=4)))
    newer = restored(ended, defined(task("a"), task("new", "a"), version="v2"), order=1, inputs="{}")
    assert newer.open_tasks == 1
    assert newer.task("new").upstreams == Tally(success=1)
    assert dict(newer.attempts) == {"old": 4}
    again = restored(kept(newer), defined(task("a"), task("old", "a"), version="v3"), order=2, inputs="{}")
    assert again.task("old") == TaskState(attempt=4, upstreams=Tally(success=1))
    assert dict(again.attempts) == {}


def test_switches_and_what_is_not_mapped_any_more_begin_anew_under_another_version() -> None:
    fan = TaskState(phase="success", attempt=0, fan=Fan(1, 1, Tally(success=1)))
    ended = kept(run(**{"m": fan, "m[0]": end(attempt=3), "s": end(attempt=0, output='{"branch":0}'), "x": end()}))
    switch = Task(id="s", action=Switch(branches=(Branch(then=("x",)),)))
    same = restored(ended, defined(task("m", for_each=[1]), switch, task("x", "s")), order=1, inputs="{}")
    assert same.open_tasks == 0
    other = restored(ended, defined(task("m"), switch, task("x", "s"), version="v2"), order=1, inputs="{}")
    assert {name: state.phase for name, state in other.tasks.items()} == {"x": "success"}
    assert (other.open_tasks, dict(other.attempts)) == (2, {"m[0]": 3})
