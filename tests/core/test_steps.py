"""No decision is as large as a run: what is left goes on in steps, and nothing begins in between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.core import mapped
from tests.core.mapped import CEL, WHERE, fail, kinds, lease, succeed
from tests.core.scenes import NOW, task
from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.deadlines import AT_ONCE, due_at, timers_of
from tidewheel.core.state import Dag, RunState
from tidewheel.core.workflow import Concurrency, Deadline, SubWorkflow, TimeWait, WaitFor
from tidewheel.testing.playbook import Given, Outcome

STEP = 10
RULES = msgspec.structs.replace(CEL, step=STEP)
#: Three steps and one instance more.
ITEMS = 3 * STEP + 1
LAST = f"m[{ITEMS - 1}]"
MORE = c.ContinueRun(**WHERE)


def begun(*tasks: Any, **more: Any) -> Outcome:
    """The run has started."""
    return mapped.begun(*tasks, rules=RULES, **more)


def fan(**more: Any) -> Any:
    """A mapped task of several steps."""
    return task("m", for_each=list(range(ITEMS)), max_items=ITEMS, **more)


def is_due(outcome: Outcome) -> bool:
    """Whether the run goes on with a step; an owner that has just folded its state says the same."""
    state = outcome.decision.state
    said = (AT_ONCE, MORE) in timers_of(state, 100)
    assert said == (due_at(state, MORE, 100) == AT_ONCE)
    return said


def rest(outcome: Outcome) -> list[Outcome]:
    """Every step that is left."""
    steps = []
    while is_due(outcome):
        outcome = outcome.when(MORE, at=NOW)
        steps.append(outcome)
        assert len(steps) <= ITEMS, "it does not come to an end"
    return steps


def whole(*tasks: Any, **more: Any) -> Outcome:
    """The run has begun all that it begins."""
    start = begun(*tasks, **more)
    return [start, *rest(start)][-1]


def run_of(outcome: Outcome) -> RunState:
    """The run, which lives."""
    found: RunState = outcome.decision.state.runs["r"]
    return found


def ended(steps: list[Outcome]) -> list[str]:
    """The instances that are cancelled or told to end."""
    of_instance = (e.TaskCancelled, e.TaskCancelRequested)
    events = [event for step in steps for event in step.decision.events]
    return [event.task for event in events if isinstance(event, of_instance) and event.task != "m"]


def cancel(scene: Outcome) -> Outcome:
    return scene.when(c.CancelRun(**WHERE, actor="user:ann", reason="wrong"), at=NOW)


def time_out(scene: Outcome) -> Outcome:
    return scene.when(c.FireDeadline(**WHERE), at=NOW + 5_000)


def recall(scene: Outcome) -> Outcome:
    return scene.when(c.RecallRun(**WHERE, actor="dag:parent", reason="its task was cancelled"), at=NOW)


def mark(scene: Outcome) -> Outcome:
    return scene.when(c.MarkTask(**WHERE, actor="user:ann", task="m", state="success"), at=NOW)


def clear(scene: Outcome) -> Outcome:
    return scene.when(c.ClearTasks(**WHERE, actor="user:ann", tasks='["m"]'), at=NOW)


def fail_one(scene: Outcome) -> Outcome:
    return fail(scene, "m[7]")


ENDS = [cancel, time_out, recall, mark, clear, fail_one]
LATE = (Deadline(from_="started", within_ms=5_000, action="fail"),)


WAITING = ["in the pool", "for max_parallel", "for max_tasks", "for a time", "live"]


@pytest.mark.parametrize(
    ("end", "waiting"),
    # Nobody reports that something fails which waits for its time.
    [(end, waiting) for end in ENDS for waiting in WAITING if (end, waiting) != (fail_one, "for a time")],
)
def test_what_waits_is_ended_in_steps(end: Callable[[Outcome], Outcome], waiting: str) -> None:
    of_task: dict[str, Any] = {}
    of_dag: dict[str, Any] = {}
    if waiting == "for max_parallel":
        of_task = {"max_parallel": 9}
    elif waiting == "for max_tasks":
        of_dag = {"concurrency": Concurrency(max_tasks=9)}
    load = fan(fail_fast=True, **of_task)
    if waiting == "for a time":
        load = msgspec.structs.replace(load, action=WaitFor(what=TimeWait(after_ms=60_000)))
    scene = whole(load, deadlines=LATE, **of_dag)
    if waiting == "live":
        for index in range(ITEMS):
            scene = scene if end is fail_one and index == 7 else lease(scene, f"m[{index}]")
    first = end(scene)
    steps = [first, *rest(first)]
    expected = ITEMS - (end is fail_one)
    assert len(steps) >= expected // STEP
    assert max(len(ended([step])) for step in steps) == STEP
    assert max(len(step.decision.events) for step in steps) <= STEP + 5
    assert max(len(step.decision.commands) for step in steps) <= STEP + 1
    assert max(len(step.decision.mail) for step in steps) <= STEP
    assert len(ended(steps)) == len(set(ended(steps))) == expected, "each once, none forgotten"


@pytest.mark.parametrize("end", ENDS)
def test_whatever_comes_between_its_steps_begins_nothing_of_it(end: Callable[[Outcome], Outcome]) -> None:
    scene = whole(fan(fail_fast=True), deadlines=LATE)
    scene = lease(scene, LAST)
    stopping = end(scene)
    granted = lease(stopping, f"m[{ITEMS - 2}]").then()
    assert granted.decision.commands == [], "its slot comes back with its step, not to be given to the next of them"
    assert granted.decision.mail == []
    report = {**WHERE, "task": LAST, "attempt": 1, "worker": "w", "started_at": NOW, "ended_at": NOW}
    lost = stopping.when(c.ReportFailure(**report, kind="worker_lost", message="gone"), at=NOW)
    assert kinds(lost) == [("TaskFailed", LAST)]
    assert run_of(lost).task(LAST).phase == "failed", "and is not tried again"
    assert f"m[{ITEMS - 2}]" in ended(rest(lost))
    released = [command for step in rest(lost) for command in step.decision.commands]
    assert f"m[{ITEMS - 2}]" in [command.task for command in released if isinstance(command, c.ReleaseSlot)]


def test_a_back_off_that_is_over_between_two_steps_begins_nothing() -> None:
    retried = msgspec.structs.replace(fan(), infra_retries=3)
    scene = lease(whole(retried), LAST)
    report = {**WHERE, "task": LAST, "attempt": 1, "worker": "w", "started_at": NOW, "ended_at": NOW}
    scene = cancel(scene.when(c.ReportFailure(**report, kind="worker_lost", message="gone"), at=NOW))
    again = c.RetryTask(**WHERE, task=LAST)
    assert run_of(scene).task(again.task).phase == "retrying"
    assert due_at(scene.decision.state, again, 100) is None
    scene.when(again, at=NOW + 3_600_000).then()


def test_another_run_waits_for_the_last_of_max_tasks_only_until_it_has_been_ended() -> None:
    scene = begun(fan(), concurrency=Concurrency(max_tasks=1, max_runs=2))
    scene = [scene, *rest(scene)][-1].when(c.StartRun(dag="d", run_id="s"), at=NOW)
    stopping = cancel(scene)
    between = stopping.decision.state
    assert between.active_tasks == 0, "the only one queued was ended by the first step"
    steps = rest(stopping)
    begins = [event for step in steps for event in step.decision.events if isinstance(event, e.TaskQueued)]
    assert [(event.run_id, event.task) for event in begins] == [("s", "m[0]")]
    assert begins[0] in steps[-1].decision.events


def test_a_run_that_waits_for_its_turn_does_not_get_it_while_it_is_ended() -> None:
    tasks = [task(f"t{number}") for number in range(ITEMS)]
    scene = whole(*tasks, concurrency=Concurrency(max_runs=1))
    scene = scene.when(c.StartRun(dag="d", run_id="s"), at=NOW).when(c.CancelRun(dag="d", run_id="s"), at=NOW)
    assert scene.decision.state.runs["s"].phase == "queued"
    scene = cancel(scene)
    steps = [scene, *rest(scene)]
    assert not [event for step in steps for event in step.decision.events if isinstance(event, e.RunStarted)]
    scene = steps[-1]
    more = c.ContinueRun(dag="d", run_id="s")
    while due_at(scene.decision.state, more, 100) is not None:
        scene = scene.when(more, at=NOW)
    assert dict(scene.decision.state.runs) == {}


def test_the_last_step_ends_the_run_and_says_for_whom() -> None:
    steps = rest(cancel(whole(fan(), task("z", "m"))))
    assert kinds(steps[-1])[-2:] == [("TaskCancelled", "z"), ("RunCancelled", "")]
    events = [event for step in steps for event in step.decision.events if isinstance(event, e.TaskCancelled)]
    assert {(event.actor, event.reason) for event in events} == {("user:ann", "wrong")}


def test_a_fan_out_that_failed_fast_fails_with_the_last_of_its_instances() -> None:
    scene = fail(lease(whole(fan(fail_fast=True), task("z", "m")), LAST), "m[7]")
    assert ("TaskCancelRequested", "m") in kinds(scene)
    scene = rest(scene)[-1]
    assert run_of(scene).task("m").phase == "deferred", "one is live yet"
    scene.when(c.ClearTasks(**WHERE, tasks='["m[7]"]'), at=NOW).rejected("m is being ended")
    report = {**WHERE, "task": LAST, "attempt": 1, "worker": "w", "started_at": NOW, "ended_at": NOW}
    scene = scene.when(c.ReportCancelled(**report), at=NOW)
    assert kinds(scene) == [
        ("TaskCancelled", LAST),
        ("TaskFailed", "m"),
        ("TaskUpstreamFailed", "z"),
        ("RunFailed", ""),
    ]


def test_a_mark_takes_effect_with_the_last_step() -> None:
    steps = rest(mark(whole(fan(), task("z", "m"))))
    assert kinds(steps[-1])[-2:] == [("TaskCancelled", "m"), ("TaskQueued", "z")]
    assert run_of(steps[-1]).task("m").phase == "success"


def test_a_cleared_fan_out_begins_anew_with_its_last_step_in_steps_of_its_own() -> None:
    scene = clear(whole(fan()))
    steps = [scene, *rest(scene)]
    assert len(steps) >= 2 * (ITEMS // STEP)
    assert max(len(step.decision.events) for step in steps) <= 2 * STEP + 5
    queued = [event.task for step in steps for event in step.decision.events if isinstance(event, e.TaskQueued)]
    assert queued == [f"m[{index}]" for index in range(ITEMS)]


def test_a_run_that_goes_on_with_many_instances_begins_them_in_steps() -> None:
    scene = cancel(whole(fan()))
    scene = [scene, *rest(scene)][-1].when(c.ClearTasks(**WHERE, only_failed=True), at=NOW)
    steps = [scene, *rest(scene)]
    begun_ = [[event for event in step.decision.events if isinstance(event, e.TaskQueued)] for step in steps]
    assert [len(events) for events in begun_] == [STEP, STEP, STEP, 1]
    assert [event.task for events in begun_ for event in events] == [f"m[{index}]" for index in range(ITEMS)]


def test_the_runs_of_a_cancelled_task_are_called_back_in_steps() -> None:
    children = msgspec.structs.replace(fan(), action=SubWorkflow(dag="other"))
    scene = cancel(whole(children))
    steps = [scene, *rest(scene)]
    recalls = [[command for command in step.decision.commands if isinstance(command, c.RecallRun)] for step in steps]
    assert [len(commands) for commands in recalls] == [STEP, STEP, STEP, 1]
    assert not is_due(steps[-1]), "what is left is to hear that they have ended"


def test_a_small_run_is_ended_by_one_decision() -> None:
    scene = cancel(begun(task("m", for_each=list(range(STEP - 1))), task("z", "m")))
    assert kinds(scene)[-1] == ("RunCancelled", "")


def test_a_decision_names_the_runs_of_which_it_leaves_something() -> None:
    small = begun(task("m", for_each=[1, 2]))
    assert list(small.decision.unfinished) == list(cancel(small).decision.unfinished) == []
    large = begun(fan())
    assert list(large.decision.unfinished) == list(cancel(large).decision.unfinished) == ["r"]


def started(steps: list[Outcome]) -> list[list[str]]:
    """What each step begins."""
    return [[event.task for event in step.decision.events if isinstance(event, e.TaskQueued)] for step in steps]


def test_a_run_of_many_written_tasks_begins_in_steps_in_the_order_of_the_file() -> None:
    scene = begun(*(task(f"t{number}") for number in range(ITEMS)))
    steps = [scene, *rest(scene)]
    assert [len(names) for names in started(steps)] == [STEP, STEP, STEP, 1]
    assert [name for names in started(steps) for name in names] == [f"t{number}" for number in range(ITEMS)]


def test_what_is_downstream_of_one_task_begins_in_steps() -> None:
    scene = succeed(begun(task("a"), *(task(f"t{number}", "a") for number in range(ITEMS))), "a")
    steps = [scene, *rest(scene)]
    assert [len(names) for names in started(steps)] == [STEP, STEP, STEP, 1]


def test_a_long_chain_of_skips_is_gone_down_in_steps() -> None:
    chain = [task("t0", if_="false"), *(task(f"t{number}", f"t{number - 1}") for number in range(1, ITEMS))]
    scene = begun(*chain)
    steps = [scene, *rest(scene)]
    skips = [sum(isinstance(event, e.TaskSkipped) for event in step.decision.events) for step in steps]
    assert skips == [STEP, STEP, STEP, 1]
    assert kinds(steps[-1])[-1] == ("RunSucceeded", "")


def test_many_runs_that_start_at_once_begin_their_tasks_in_steps() -> None:
    scene = begun(*(task(f"t{number}") for number in range(4)), concurrency=Concurrency(max_runs=10))
    scene = scene.when(c.PauseDag(dag="d"), at=NOW)
    for number in range(9):
        scene = scene.when(c.StartRun(dag="d", run_id=f"s{number}"), at=NOW)
    scene = scene.when(c.UnpauseDag(dag="d"), at=NOW)
    assert sum(isinstance(event, e.RunStarted) for event in scene.decision.events) == 9
    assert len(started([scene])[0]) == STEP
    left = list(scene.decision.unfinished)
    assert left == [f"s{number}" for number in range(2, 9)], "of s2 two tasks have begun"
    for run_id in left:
        scene = scene.when(c.ContinueRun(dag="d", run_id=run_id), at=NOW)
        assert len(started([scene])[0]) == (2 if run_id == "s2" else 4)


def test_steps_of_any_size_come_to_the_same_end() -> None:
    ends = set()
    for step in (1, 7, STEP):
        rules = msgspec.structs.replace(CEL, step=step)
        scene = begun(task("m", for_each=list(range(30)), max_parallel=4), task("z", "m"))
        scene = succeed(lease(scene, "m[3]"), "m[1]")
        scene = Given(scene.decision.state, rules).when(c.CancelRun(**WHERE), at=NOW)
        scene = [scene, *rest(scene)][-1]
        run = run_of(scene)
        ends.add(tuple(sorted((name, state.phase, state.cancel_requested) for name, state in run.tasks.items())))
    assert len(ends) == 1


def test_a_state_without_runs_needs_no_step() -> None:
    assert list(timers_of(Dag(dag="d"), 100)) == []
    assert due_at(Dag(dag="d"), MORE, 100) is None
