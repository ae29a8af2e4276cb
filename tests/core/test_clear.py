"""Tasks that are cleared begin anew; ended runs are live again by that."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from immutables import Map

from tests.core.mapped import CEL, WHERE, begun, fail, kinds, lease, succeed
from tests.core.scenes import NOW, definition, task, workflow
from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.mail import StopAttempt
from tidewheel.core.scope import slot_run_id
from tidewheel.core.state import Dag
from tidewheel.core.workflow import Concurrency, Deadline, Input, Overlap, Retry, Schedule
from tidewheel.testing.playbook import Given, Outcome, given

MINUTE = 60_000


def clear(outcome: Outcome, *tasks: str, at: int = NOW, **more: Any) -> Outcome:
    """A person lets tasks begin anew."""
    said: dict[str, Any] = {**WHERE, "actor": "user:ann", "reason": "again", **more}
    return outcome.when(c.ClearTasks(tasks=json.dumps(tasks), **said), at=at)


def report(outcome: Outcome, command: type[c.ClosingReport], name: str, attempt: int = 1, **more: Any) -> Outcome:
    times = {"worker": "w", "started_at": NOW, "ended_at": NOW}
    return outcome.when(command(**WHERE, task=name, attempt=attempt, **times, **more), at=NOW)


def answered(outcome: Outcome) -> dict[str, Any]:
    answer = outcome.decision.answer
    assert answer is not None and answer.ok, answer
    found: dict[str, Any] = json.loads(answer.details)
    return found


def states(outcome: Outcome) -> dict[str, str]:
    return {name: task.phase for name, task in sorted(outcome.decision.state.runs["r"].tasks.items())}


def chain(**more: Any) -> Outcome:
    """``a``, then ``b``, then ``c``; and ``x`` beside them, which has not ended."""
    return begun(task("a"), task("b", "a"), task("c", "b"), task("x"), **more)


def test_a_task_and_all_below_it_begin_anew_and_attempts_go_on_counting() -> None:
    scene = succeed(succeed(succeed(chain(), "a", 1), "b", 2), "c", 3)
    outcome = clear(scene, "b")
    cleared = e.TasksCleared(dag="d", run_id="r", at=NOW, actor="user:ann", tasks='["b","c"]', reason="again")
    outcome.then(cleared, e.TaskQueued)
    queued = outcome.decision.events[1]
    assert isinstance(queued, e.TaskQueued) and (queued.task, queued.attempt) == ("b", 2)
    assert answered(outcome) == {"count": 2, "tasks": ["b", "c"], "ending": [], "version": "v1", "reopens": False}
    run = outcome.decision.state.runs["r"]
    assert (run.task("c").output, run.task("c").attempt, run.task("c").upstreams) == (None, 1, (0, 0, 0, 0, 0))
    assert (run.task("a").output, run.open_tasks) == ("1", 3)
    report(outcome, c.ReportSuccess, "b").then(e.ReportRefused)


@pytest.mark.parametrize(
    ("asked", "more", "comes_to"),
    [
        (["b"], {"downstream": False}, ["b"]),
        (["b"], {"downstream": False, "upstream": True}, ["a", "b"]),
        (["b"], {"upstream": True}, ["a", "b", "c"]),
        ([], {}, ["a", "b", "c", "x"]),
        (["a"], {"only_failed": True}, ["b", "c"]),
        ([], {"only_failed": True}, ["b", "c"]),
    ],
)
def test_what_it_comes_to_is_shown_first(asked: list[str], more: dict[str, Any], comes_to: list[str]) -> None:
    scene = fail(succeed(chain(), "a"), "b")
    shown = clear(scene, *asked, preview=True, **more).then()
    assert answered(shown)["tasks"] == comes_to
    done = clear(scene, *asked, **more)
    assert answered(done) == answered(shown)
    named = [json.loads(event.tasks) for event in done.decision.events if isinstance(event, e.TasksCleared)]
    assert [name for part in named for name in part] == comes_to


def test_what_has_not_begun_is_not_cleared() -> None:
    outcome = clear(begun(task("a"), task("b", "a")), "b").then()
    assert outcome.decision.answer is not None and "nothing to clear" in outcome.decision.answer.message


def test_a_live_attempt_ends_before_the_next_one_begins_and_its_result_counts_for_nothing() -> None:
    scene = lease(succeed(chain(), "a"), "b")
    outcome = clear(scene, "a")
    assert kinds(outcome) == [("TasksCleared", ""), ("TasksCleared", ""), ("TaskQueued", "a")]
    assert [type(mail) for mail in outcome.decision.mail] == [StopAttempt]
    assert answered(outcome)["ending"] == ["b"]
    outcome = succeed(outcome, "a", attempt=2)
    assert kinds(outcome) == [("TaskSucceeded", "a")], "b is still at work"
    ended = report(outcome, c.ReportSuccess, "b", output="7")
    assert kinds(ended) == [("TaskCancelled", "b"), ("TaskQueued", "b")]
    assert ended.decision.state.runs["r"].task("b").attempt == 2


def test_a_queued_attempt_leaves_its_pool_after_the_next_has_joined() -> None:
    outcome = clear(begun(task("a")), "a")
    assert kinds(outcome) == [("TasksCleared", ""), ("TaskQueued", "a")]
    asked = [(type(command).__name__, command.attempt) for command in outcome.decision.commands]  # type: ignore[attr-defined]
    assert asked == [("EnqueueTask", 2), ("ReleaseSlot", 1)]
    assert outcome.decision.state.active_tasks == 1


def test_budgets_begin_anew_with_a_clear() -> None:
    scene = begun(task("a", retry=Retry(max=1, delay_ms=0)), task("x"))
    failed = fail(scene, "a").when(c.RetryTask(**WHERE, task="a"), at=NOW + 1)
    failed = report(lease(failed, "a", 2), c.ReportFailure, "a", 2, kind="exception")
    assert kinds(failed) == [("TaskFailed", "a")]
    outcome = lease(clear(failed, "a"), "a", 3)
    again = report(outcome, c.ReportFailure, "a", 3, kind="exception").decision.events[0]
    assert isinstance(again, e.TaskFailed) and again.retry_at is not None


def test_the_cancel_of_a_run_counts_for_more_than_a_clear() -> None:
    outcome = clear(lease(begun(task("a")), "a"), "a").when(c.CancelRun(**WHERE), at=NOW)
    assert kinds(report(outcome, c.ReportCancelled, "a")) == [("TaskCancelled", "a"), ("RunCancelled", "")]
    clear(outcome, "a").then().rejected("run r is being ended")


# --- ended runs ------------------------------------------------------------------------------------------------------


def ended(**more: Any) -> Outcome:
    """``a`` failed, so ``b`` is upstream_failed and the run has failed."""
    return fail(begun(task("a"), task("b", "a"), **more), "a")


def test_an_ended_run_is_live_again_and_ends_by_its_new_results() -> None:
    outcome = clear(ended(), "a")
    reopened = e.RunReopened(dag="d", run_id="r", at=NOW, actor="user:ann", version="v1", inputs="{}", reason="again")
    outcome.then(reopened, e.TasksCleared, e.RunStarted, e.TaskQueued)
    assert answered(outcome)["reopens"]
    outcome = succeed(outcome, "a", attempt=2)
    outcome = succeed(outcome, "b", attempt=1)
    assert kinds(outcome) == [("TaskSucceeded", "b"), ("RunSucceeded", "")]
    clear(outcome, "b", downstream=False).then(e.RunReopened, e.TasksCleared, e.RunStarted, e.TaskQueued)


def test_a_reopened_run_waits_for_its_turn_among_the_others() -> None:
    scene = ended(concurrency=Concurrency(max_runs=1)).when(c.StartRun(dag="d", run_id="s"), at=NOW)
    outcome = clear(scene, "a").then(e.RunReopened, e.TasksCleared)
    assert outcome.decision.state.runs["r"].phase == "queued"
    assert outcome.when(c.StartRun(dag="d", run_id="r"), at=NOW).decision.answer.created is False  # type: ignore[union-attr]
    outcome = outcome.when(c.CancelRun(dag="d", run_id="s"), at=NOW)
    assert kinds(outcome)[-2:] == [("RunStarted", ""), ("TaskQueued", "a")]


def slots(scene: Given | Outcome, *ends: int, overlap: Overlap = "cancel_running", max_runs: int = 1) -> Outcome:
    """Slots of a schedule of ten minutes come due at these minutes, and the run of each succeeds."""
    schedule = Schedule(cron=("*/10 * * * *",), overlap=overlap)
    of = workflow(task("a"), schedule=schedule, concurrency=Concurrency(max_runs=max_runs))
    outcome = scene.when(c.DeployDag(dag="d", version=overlap, definition=definition(of)), at=NOW)
    for minute in ends:
        outcome = of_slot(outcome.when(c.FireSchedule(dag="d"), at=NOW + minute * MINUTE), minute)
    return outcome


def of_slot(outcome: Outcome, minute: int, attempt: int = 1) -> Outcome:
    """The run of the slot succeeds."""
    at = {"run_id": slot_run_id(NOW + minute * MINUTE), "dag": "d", "task": "a", "attempt": attempt, "worker": "w"}
    outcome = outcome.when(c.GrantSlot(**at, pool="default", mail_partition=0), at=NOW)
    return outcome.when(c.ReportSuccess(**at, started_at=NOW, ended_at=NOW), at=NOW)


def moves(outcome: Outcome) -> list[tuple[str, str]]:
    """What runs come to by the last command, with the hour and minute of their slots."""
    events = [event for event in outcome.decision.events if type(event) in (e.RunStarted, e.RunSucceeded)]
    return [(type(event).__name__, event.run_id[-9:-4]) for event in events if isinstance(event, e.RunEvent)]


def test_of_runs_that_replace_each_other_those_reopened_are_at_work_one_by_one() -> None:
    """By the time of their slots, in whatever order they were reopened."""
    scene = slots(given(Dag(dag="d"), rules=CEL), 10, 20, max_runs=2)
    scene = scene.when(c.PauseDag(dag="d"), at=NOW)
    for minute in (20, 10):
        scene = clear(scene, "a", run_id=slot_run_id(NOW + minute * MINUTE)).then(e.RunReopened, e.TasksCleared)
    outcome = scene.when(c.UnpauseDag(dag="d"), at=NOW)
    assert moves(outcome) == [("RunStarted", "00:10")]
    outcome = of_slot(outcome, 10, attempt=2)
    assert moves(outcome) == [("RunSucceeded", "00:10"), ("RunStarted", "00:20")]
    assert moves(of_slot(outcome, 20, attempt=2)) == [("RunSucceeded", "00:20")]


def test_a_reopened_run_that_replaces_others_waits_for_what_is_at_work_and_not_for_what_waits_behind_it() -> None:
    """The DAG has another ``overlap`` meanwhile, so that nothing cancels the runs before it and behind it."""
    scene = slots(given(Dag(dag="d"), rules=CEL), 10)
    scene = slots(scene, overlap="queue")
    for minute in (20, 30):
        scene = scene.when(c.FireSchedule(dag="d"), at=NOW + minute * MINUTE)
    scene = clear(scene, "a", run_id=slot_run_id(NOW + 10 * MINUTE)).then(e.RunReopened, e.TasksCleared)
    outcome = of_slot(scene, 20)
    assert moves(outcome) == [("RunSucceeded", "00:20"), ("RunStarted", "00:10")]
    outcome = of_slot(outcome, 10, attempt=2)
    assert moves(outcome) == [("RunSucceeded", "00:10"), ("RunStarted", "00:30")]


def test_a_run_goes_on_with_the_latest_definition_if_asked() -> None:
    scene = ended()
    newer = workflow(task("a"), task("c", "a"), inputs={"day": Input(type="string", default="monday", required=False)})
    scene = scene.when(c.DeployDag(dag="d", version="v2", definition=definition(newer)), at=NOW)
    assert clear(scene, "a", preview=True).decision.state.runs == Map()
    outcome = clear(scene, "a", latest=True)
    reopened = outcome.decision.events[0]
    assert isinstance(reopened, e.RunReopened)
    assert (reopened.version, reopened.inputs) == ("v2", '{"day":"monday"}')
    assert states(outcome) == {"a": "queued", "c": "scheduled"}
    assert "v1" not in outcome.decision.state.definitions, "no run of it is kept any more"
    outcome = succeed(succeed(outcome, "a", attempt=2), "c")
    assert kinds(outcome) == [("TaskSucceeded", "c"), ("RunSucceeded", "")]


def test_the_latest_definition_must_take_the_inputs() -> None:
    newer = workflow(task("a"), inputs={"day": Input(type="string")})
    scene = ended().when(c.DeployDag(dag="d", version="v2", definition=definition(newer)), at=NOW)
    clear(scene, "a", latest=True).then().rejected("its inputs do not fit version v2")


def test_deadlines_do_not_fire_for_what_was_reopened() -> None:
    scene = ended(deadlines=(Deadline(within_ms=60_000, from_="queued", action="fail"),))
    outcome = clear(scene, "a", at=NOW + 3_600_000)
    outcome.when(c.FireDeadline(**WHERE), at=NOW + 7_200_000).then()


def test_only_the_last_runs_are_kept_and_a_refusal_names_the_other_way() -> None:
    scene = ended(keep_runs=2)
    for number in range(2):
        scene = scene.when(c.StartRun(dag="d", run_id=f"s{number}"), at=NOW)
        scene = scene.when(c.CancelRun(dag="d", run_id=f"s{number}"), at=NOW)
    clear(scene, "a").then().rejected("its DAG keeps the last 2 ended runs")
    clear(scene, "a").then().rejected("`tidewheel rerun d r` repeats it as a new run")
    assert [run.run_id for run in scene.decision.state.kept] == ["s0", "s1"]
    clear(scene, "a", run_id="nobody").then().rejected("DAG 'd' has no run nobody")


def test_a_run_that_is_too_large_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidewheel.core.ended.KEPT_BYTES", 10)
    scene = ended()
    assert scene.decision.state.kept == ()
    clear(scene, "a").then().rejected("its DAG keeps the last 20 ended runs, up to 1 MiB of them")


def test_a_removed_dag_reopens_nothing() -> None:
    clear(ended().when(c.RemoveDag(dag="d"), at=NOW), "a").then().rejected("was removed")


# --- marks in ended runs ---------------------------------------------------------------------------------------------


def mark(outcome: Outcome, name: str, state: Any, **more: Any) -> Outcome:
    return outcome.when(c.MarkTask(**WHERE, task=name, state=state, actor="user:ann", **more), at=NOW)


def test_a_mark_in_an_ended_run_gives_it_a_new_end() -> None:
    outcome = mark(ended(), "b", "success")
    assert kinds(outcome) == [("RunReopened", ""), ("TaskMarked", "b"), ("RunStarted", ""), ("RunSucceeded", "")]


def test_what_is_below_a_mark_runs_again_if_asked() -> None:
    outcome = mark(ended(), "a", "success", downstream=True, output="3")
    assert kinds(outcome) == [
        ("RunReopened", ""),
        ("TaskMarked", "a"),
        ("TasksCleared", ""),
        ("RunStarted", ""),
        ("TaskQueued", "b"),
    ]
    assert outcome.decision.state.runs["r"].task("a").output == "3"


def test_saying_of_an_ended_run_what_is_so_reopens_nothing() -> None:
    mark(ended(), "a", "failed").then()


# --- mapped tasks ----------------------------------------------------------------------------------------------------


def fan(**more: Any) -> Outcome:
    """``m`` over three items, of which the one in the middle failed; the run has failed."""
    scene = begun(task("m", for_each=[1, 2, 3], **more), task("after", "m"))
    return succeed(fail(succeed(scene, "m[0]", "x"), "m[1]"), "m[2]", "z")


def test_one_instance_is_cleared_and_its_task_waits_for_it_alone() -> None:
    outcome = clear(fan(), "m[1]")
    assert kinds(outcome) == [
        ("RunReopened", ""),
        ("TasksCleared", ""),
        ("TasksCleared", ""),
        ("RunStarted", ""),
        ("TaskQueued", "m[1]"),
    ]
    assert states(outcome)["m"] == "deferred"
    outcome = succeed(outcome, "m[1]", "y", attempt=2)
    assert kinds(outcome) == [("TaskSucceeded", "m[1]"), ("TaskSucceeded", "m"), ("TaskQueued", "after")]


def test_only_failed_instances_of_a_mapped_task_are_cleared() -> None:
    assert answered(clear(fan(), only_failed=True))["tasks"] == ["m[1]", "after"]


def test_cleared_instances_begin_in_order_within_max_parallel() -> None:
    outcome = clear(fan(max_parallel=1), "m[2]", "m[0]")
    assert kinds(outcome)[-1] == ("TaskQueued", "m[0]")
    outcome = succeed(outcome, "m[0]", attempt=2)
    assert kinds(outcome) == [("TaskSucceeded", "m[0]"), ("TaskQueued", "m[2]")]
    outcome = succeed(outcome, "m[2]", attempt=2)
    assert kinds(outcome)[:2] == [("TaskSucceeded", "m[2]"), ("TaskFailed", "m")], "m[1] has failed"


def test_a_mapped_task_is_expanded_anew_and_its_instances_go_on_counting() -> None:
    outcome = clear(fan(), "m")
    assert kinds(outcome)[3:] == [
        ("TaskExpanded", "m"),
        ("TaskQueued", "m[0]"),
        ("TaskQueued", "m[1]"),
        ("TaskQueued", "m[2]"),
    ]
    assert [event.attempt for event in outcome.decision.events if isinstance(event, e.TaskQueued)] == [2, 2, 2]


def test_a_mapped_task_with_live_instances_is_expanded_anew_once_they_have_ended() -> None:
    scene = lease(begun(task("m", for_each=[1, 2], max_parallel=1), task("after", "m")), "m[0]")
    outcome = clear(scene, "m")
    assert kinds(outcome) == [("TasksCleared", ""), ("TaskCancelRequested", "m[0]"), ("TaskCancelled", "m[1]")]
    clear(outcome, "m[0]").rejected("m is being ended")
    outcome = report(outcome, c.ReportCancelled, "m[0]")
    assert kinds(outcome) == [
        ("TaskCancelled", "m[0]"),
        ("TaskCancelled", "m"),
        ("TaskExpanded", "m"),
        ("TaskQueued", "m[0]"),
    ]


def test_a_live_instance_that_is_cleared_takes_its_turn_again() -> None:
    scene = lease(begun(task("m", for_each=[1, 2]), task("after", "m")), "m[0]")
    outcome = report(clear(scene, "m[0]"), c.ReportSuccess, "m[0]")
    assert kinds(outcome) == [("TaskCancelled", "m[0]"), ("TaskQueued", "m[0]")]
    outcome = succeed(succeed(outcome, "m[0]", attempt=2), "m[1]")
    assert kinds(outcome)[1] == ("TaskSucceeded", "m")


def test_a_large_clear_is_told_in_several_events() -> None:
    scene = begun(
        task("m", for_each=list(range(3_000)), max_parallel=1, max_items=3_000),
        task("n", for_each=[1]),
        task("x"),
        rules=msgspec.structs.replace(CEL, step=5_000),
    )
    scene = clear(scene.when(c.CancelRun(**WHERE), at=NOW), only_failed=True)
    cleared = [event for event in scene.decision.events if isinstance(event, e.TasksCleared)]
    assert sum(len(json.loads(event.tasks)) for event in cleared) == 3_002
    assert all(len(msgspec.json.encode(event)) < 100_000 for event in cleared)
    assert {("TaskQueued", "m[0]"), ("TaskQueued", "n[0]"), ("TaskQueued", "x")} < set(kinds(scene))


@pytest.mark.parametrize(
    ("tasks", "refusal"),
    [
        ('["lod"]', "run r has no task 'lod'"),
        ('["a[0]"]', "run r has no task 'a[0]'"),
        ("[1]", "no JSON list of names"),
    ],
)
def test_a_clear_that_means_nothing_is_refused(tasks: str, refusal: str) -> None:
    begun(task("a")).when(c.ClearTasks(**WHERE, tasks=tasks), at=NOW).then().rejected(refusal)
