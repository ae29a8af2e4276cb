"""Creating, starting and cancelling runs."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.core.scenes import NOW, RULES, created, deployed, in_run, leased, queued, started, succeeded, task, workflow
from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.fold import run
from tidewheel.core.mail import StopAttempt
from tidewheel.core.state import Dag
from tidewheel.core.workflow import Concurrency, Input
from tidewheel.testing.playbook import Given, given


def dag(of: Any, *events: e.Event) -> Given:
    return given(Dag(dag="d"), deployed(of), *events, rules=RULES)


def start(run_id: str = "r", **more: Any) -> c.StartRun:
    return c.StartRun(dag="d", run_id=run_id, actor="user:ann", **more)


def test_a_run_starts_at_once_when_there_is_room() -> None:
    outcome = dag(workflow(task("a"), task("b", "a"))).when(start(), at=NOW)
    outcome.then(replace(created(), actor="user:ann"), started(), queued("a"))


def test_the_same_id_again_is_the_same_run() -> None:
    scene = dag(workflow(task("a")))
    again = scene.when(start(), at=NOW).when(start(), at=NOW).then()
    answer = again.decision.answer
    assert answer is not None
    assert (answer.ok, answer.created, answer.run_id) == (True, False, "r")


def test_the_same_id_after_the_run_ended_is_still_that_run() -> None:
    scene = in_run(
        workflow(task("a")), queued("a"), leased("a"), succeeded("a"), e.RunSucceeded(dag="d", run_id="r", at=NOW)
    )
    answer = scene.when(start(), at=NOW).then().decision.answer
    assert answer is not None
    assert not answer.created


def test_memory_of_finished_runs_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    of = workflow(task("a"))
    monkeypatch.setattr(run, "REMEMBERED_RUNS", 100)
    state = dag(of).state
    for number in range(110):
        run_id = f"r{number}"
        ended = [
            created(run_id),
            started(run_id),
            queued("a", run_id=run_id),
            leased("a", run_id=run_id),
            succeeded("a", run_id=run_id),
            e.RunSucceeded(dag="d", run_id=run_id, at=NOW),
        ]
        state = given(state, *ended, rules=RULES).state
    assert len(state.finished) == 100 == len(state.finished_order)
    assert "r9" not in state.finished
    assert "r10" in state.finished
    assert not state.runs


def test_max_runs_lets_the_others_wait_in_order() -> None:
    of = workflow(task("a"), concurrency=Concurrency(max_runs=1))
    scene = dag(of).when(start("r1"), at=NOW).when(start("r3"), at=NOW + 2).when(start("r2"), at=NOW + 1)
    assert [scene.decision.state.runs[run].phase for run in ("r1", "r2", "r3")] == ["running", "queued", "queued"]
    cancelled = scene.when(c.CancelRun(dag="d", run_id="r1"), at=NOW + 3)
    assert [event.run_id for event in cancelled.decision.events if isinstance(event, e.RunStarted)] == ["r2"]


def test_runs_that_end_at_once_do_not_nest() -> None:
    """Five hundred waiting runs, each over as soon as it starts: a loop, not a recursion."""
    of = workflow(task("a", if_="false"), concurrency=Concurrency(max_runs=1))
    paused = e.DagPaused(dag="d", at=NOW)
    scene = dag(of, paused, *[created(f"r{number}") for number in range(500)])
    steps = [scene.when(c.UnpauseDag(dag="d"), at=NOW)]
    while unfinished := list(steps[-1].decision.unfinished):
        (run_id,) = unfinished
        steps.append(steps[-1].when(c.ContinueRun(dag="d", run_id=run_id), at=NOW))
    ends = [sum(isinstance(event, e.RunSucceeded) for event in step.decision.events) for step in steps]
    assert ends == [200, 200, 100], "a step of each decision, and no stack of five hundred"


def test_a_paused_dag_lets_requested_runs_wait() -> None:
    scene = dag(workflow(task("a")), e.DagPaused(dag="d", at=NOW))
    scene.when(start(), at=NOW).then(e.RunCreated).when(c.UnpauseDag(dag="d"), at=NOW).then(
        e.DagUnpaused, e.RunStarted, e.TaskQueued
    )


def test_unknown_removed_and_wrong_inputs_are_refused_with_a_reason() -> None:
    given(Dag(dag="d"), rules=RULES).when(start(), at=NOW).then().rejected("no DAG 'd' is deployed")
    dag(workflow(task("a")), e.DagRemoved(dag="d", at=NOW)).when(start(), at=NOW).then().rejected("was removed")
    typed = workflow(task("a"), inputs={"day": Input(type="integer")})
    dag(typed).when(start(inputs='{"day": "x", "dya": 1}'), at=NOW).then().rejected("day")
    dag(typed).when(start(inputs="[1]"), at=NOW).then().rejected("no JSON object")
    huge = '{"day": "' + "x" * 70_000 + '"}'
    dag(typed).when(start(inputs=huge), at=NOW).then().rejected("the limit is 65,536")


def test_a_running_run_keeps_its_version() -> None:
    """C078: a task added meanwhile is not this run's."""
    scene = in_run(workflow(task("a")), queued("a"), leased("a"))
    newer = deployed(workflow(task("a"), task("b", "a")), version="v2")
    changed = given(scene.state, newer, rules=RULES)
    report = c.ReportSuccess(dag="d", run_id="r", task="a", attempt=1, worker="w1", started_at=NOW, ended_at=NOW)
    outcome = changed.when(report, at=NOW).then(e.TaskSucceeded, e.RunSucceeded)
    assert set(outcome.decision.state.definitions) == {"v1", "v2"}, "the run is kept, and could go on"


def test_cancelling_ends_what_waits_and_tells_the_workers_of_what_lives() -> None:
    of = workflow(task("a"), task("b"), task("c", "a"))
    scene = in_run(of, queued("a"), queued("b"), leased("a"))
    outcome = scene.when(c.CancelRun(dag="d", run_id="r", actor="user:ann", reason="wrong day"), at=NOW)
    outcome.then(e.RunCancelRequested, e.TaskCancelRequested, e.TaskCancelled, e.TaskCancelled)
    (mail,) = outcome.decision.mail
    assert isinstance(mail, StopAttempt)
    assert mail.cancel
    assert [type(command) for command in outcome.decision.commands] == [c.ReleaseSlot]
    report = c.ReportCancelled(dag="d", run_id="r", task="a", attempt=1, worker="w1", started_at=NOW, ended_at=NOW)
    outcome.when(report, at=NOW).then(e.TaskCancelled, e.RunCancelled)


def test_what_succeeds_although_cancelled_has_succeeded() -> None:
    scene = in_run(workflow(task("a"), task("b", "a")), queued("a"), leased("a"))
    outcome = scene.when(c.CancelRun(dag="d", run_id="r"), at=NOW)
    report = c.ReportSuccess(dag="d", run_id="r", task="a", attempt=1, worker="w1", started_at=NOW, ended_at=NOW)
    outcome.when(report, at=NOW).then(e.TaskSucceeded, e.RunCancelled)


def test_cancelling_what_ended_or_never_was_is_refused() -> None:
    scene = in_run(
        workflow(task("a")), queued("a"), leased("a"), succeeded("a"), e.RunSucceeded(dag="d", run_id="r", at=NOW)
    )
    scene.when(c.CancelRun(dag="d", run_id="r"), at=NOW).then().rejected("it has ended")
    scene.when(c.CancelRun(dag="d", run_id="q"), at=NOW).then().rejected("no live run q")


def test_ids_and_dates_of_the_schedule_are_its_own() -> None:
    scene = dag(workflow(task("a")))
    scene.when(start("scheduled__2026-01-01T00:00:00Z"), at=NOW).then().rejected("the schedule's own")
    scene.when(start(logical_date=NOW), at=NOW).then().rejected("belongs to the runs of the schedule")


def test_a_long_reason_is_kept_once_and_not_for_every_task() -> None:
    scene = in_run(workflow(*[task(f"t{number}") for number in range(5)]), queued("t0"), leased("t0"))
    events = scene.when(c.CancelRun(dag="d", run_id="r", reason="because! " * 8_000), at=NOW).decision.events
    assert sum(len(event.reason) for event in events) <= 72_000 + 5 * 200  # type: ignore[attr-defined]
    assert len(events[0].reason) == 72_000  # type: ignore[attr-defined]


def test_a_run_that_repeats_another_takes_its_version_and_interval_and_names_it() -> None:
    scene = dag(workflow(task("a")), created(), started(), deployed(workflow(task("b")), version="v2"))
    outcome = scene.when(
        start("again", rerun_of="r", version="v1", interval_start=1, interval_end=2, reason="repaired"), at=NOW
    )
    wanted = replace(created("again"), actor="user:ann", rerun_of="r", reason="repaired")
    outcome.then(replace(wanted, interval_start=1, interval_end=2), started("again"), queued("a", run_id="again"))


def test_a_version_that_is_not_there_and_an_interval_of_no_run_are_refused() -> None:
    scene = dag(workflow(task("a")))
    scene.when(start(rerun_of="old", version="v0"), at=NOW).then().rejected("version v0 of 'd' is not kept any more")
    scene.when(start(interval_start=1), at=NOW).then().rejected("an interval belongs to the runs of the schedule")
