"""What people decide about the tasks of a run."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.mapped import WHERE, begun, fail, kinds, lease, succeed
from tests.core.scenes import NOW, definition, task, workflow
from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.mail import StopAttempt
from tidewheel.core.scope import task_name
from tidewheel.core.workflow import Concurrency, Retry
from tidewheel.testing.playbook import Outcome


def mark(outcome: Outcome, name: str, state: str, **more: Any) -> Outcome:
    """A person says how it ended."""
    said: dict[str, Any] = {"actor": "user:ann", "reason": "looked at it", **more}
    return outcome.when(c.MarkTask(**WHERE, task=name, state=state, **said), at=NOW)  # type: ignore[arg-type]


def report(outcome: Outcome, command: type[c.ClosingReport], name: str, **more: Any) -> Outcome:
    """The worker says that the attempt has ended."""
    times = {"worker": "w", "started_at": NOW, "ended_at": NOW}
    return outcome.when(command(**WHERE, task=name, attempt=1, **times, **more), at=NOW)


def test_what_waits_in_its_pool_ends_at_once_and_downstream_goes_on_before_the_place_is_given_back() -> None:
    outcome = mark(begun(task("load"), task("report", "load")), "load", "success", output='{"rows": 3}')
    said: dict[str, Any] = {"actor": "user:ann", "state": "success", "reason": "looked at it", "output": '{"rows": 3}'}
    outcome.then(e.TaskMarked(dag="d", run_id="r", task="load", attempt=1, at=NOW, **said), e.TaskQueued)
    assert [type(command) for command in outcome.decision.commands] == [c.EnqueueTask, c.ReleaseSlot]
    assert outcome.decision.state.runs["r"].task("load").output == '{"rows": 3}'
    assert outcome.decision.state.active_tasks == 1


def test_a_live_attempt_is_ended_first_and_its_result_counts_for_nothing() -> None:
    outcome = mark(lease(begun(task("load"), task("report", "load")), "load"), "load", "skipped")
    assert kinds(outcome) == [("TaskMarked", "load")]
    assert [type(mail) for mail in outcome.decision.mail] == [StopAttempt]
    answer = outcome.decision.answer
    assert answer is not None and "once what is live of it has ended" in answer.message
    ended = report(outcome, c.ReportSuccess, "load", output="7")
    assert kinds(ended) == [("TaskCancelled", "load"), ("TaskSkipped", "report"), ("RunSucceeded", "")]
    assert [type(command) for command in ended.decision.commands] == [c.ReleaseSlot]
    report(ended, c.ReportSuccess, "load").rejected("run r is not live")


def test_a_mapped_task_that_is_given_an_output_hands_on_that_one_and_not_its_instances() -> None:
    mapped = task("load", for_each=["x", "y"])
    scene = begun(mapped, task("report", "load", env={"ALL": "${{ tasks.load.output }}"}))
    outcome = succeed(fail(scene, "load[0]"), "load[1]", 2)
    run = mark(outcome, "load", "success", output='"by hand"', downstream=True).decision.state.runs["r"]
    assert task_name(run, "load") == {"state": "success", "output": "by hand"}
    without = mark(outcome, "load", "success", downstream=True).decision.state.runs["r"]
    assert task_name(without, "load") == {"state": "success", "output": [None, 2]}


@pytest.mark.parametrize(
    ("state", "after"),
    [("success", ["TaskCancelled", "TaskQueued"]), ("failed", ["TaskCancelled", "TaskUpstreamFailed", "RunFailed"])],
)
@pytest.mark.parametrize("way", ["cancelled", "failure", "silence"])
def test_however_a_live_attempt_ends_the_mark_stands_and_is_not_retried(state: str, after: list[str], way: str) -> None:
    scene = lease(begun(task("load", retry=Retry(max=3)), task("report", "load")), "load")
    outcome = mark(scene, "load", state)
    if way == "cancelled":
        outcome = report(outcome, c.ReportCancelled, "load")
    elif way == "failure":
        outcome = report(outcome, c.ReportFailure, "load", kind="exception")
    else:
        outcome = outcome.when(c.ExpireLease(**WHERE, task="load", attempt=1), at=NOW + 60_000)
    assert [name for name, _ in kinds(outcome)] == after


def test_the_last_word_counts() -> None:
    outcome = mark(mark(lease(begun(task("load")), "load"), "load", "failed"), "load", "success")
    assert kinds(report(outcome, c.ReportCancelled, "load")) == [("TaskCancelled", "load"), ("RunSucceeded", "")]


def test_the_cancel_of_the_run_counts_for_more() -> None:
    outcome = mark(lease(begun(task("load")), "load"), "load", "success")
    outcome = outcome.when(c.CancelRun(dag="d", run_id="r"), at=NOW)
    assert kinds(outcome) == [("RunCancelRequested", "")]
    assert kinds(report(outcome, c.ReportCancelled, "load")) == [("TaskCancelled", "load"), ("RunCancelled", "")]
    mark(outcome, "load", "failed").rejected("run r is being ended")


def test_a_failed_task_of_a_live_run_is_marked_and_what_has_ended_downstream_stays() -> None:
    scene = fail(begun(task("load"), task("other"), task("report", "load"), task("sum", "load", "other")), "load")
    assert kinds(scene) == [("TaskFailed", "load"), ("TaskUpstreamFailed", "report"), ("TaskUpstreamFailed", "sum")]
    outcome = mark(scene, "load", "success")
    assert kinds(outcome) == [("TaskMarked", "load")]
    ended = succeed(outcome, "other")
    assert kinds(ended) == [("TaskSucceeded", "other"), ("RunFailed", "")]


def test_what_waits_downstream_of_a_marked_task_is_judged_anew() -> None:
    scene = fail(begun(task("load"), task("other"), task("sum", "load", "other", trigger_rule="all_done")), "load")
    outcome = succeed(mark(scene, "load", "skipped"), "other")
    assert kinds(outcome) == [("TaskSucceeded", "other"), ("TaskQueued", "sum")]
    assert outcome.decision.state.runs["r"].task("sum").upstreams == (1, 0, 1, 0, 0)


def test_a_task_that_waits_for_max_tasks_leaves_its_place() -> None:
    scene = begun(task("a"), task("b"), task("c"), concurrency=Concurrency(max_tasks=1))
    outcome = mark(scene, "b", "skipped")
    assert [place[-1] for place in outcome.decision.state.ready] == ["c"]
    outcome = mark(outcome, "a", "success")
    assert kinds(outcome) == [("TaskMarked", "a"), ("TaskQueued", "c")]


def test_a_run_that_waits_for_its_turn_takes_marks_and_goes_on_from_them() -> None:
    scene = begun(task("load"), task("report", "load"), concurrency=Concurrency(max_runs=1))
    scene = scene.when(c.StartRun(dag="d", run_id="s"), at=NOW)
    outcome = scene.when(c.MarkTask(dag="d", run_id="s", task="load", state="success"), at=NOW)
    assert kinds(outcome) == [("TaskMarked", "load")]
    outcome = outcome.when(c.CancelRun(dag="d", run_id="r"), at=NOW)
    assert kinds(outcome)[-2:] == [("RunStarted", ""), ("TaskQueued", "report")]


def test_a_mark_in_a_run_that_waits_for_its_turn_begins_no_other_instance() -> None:
    """A run that goes on anew and waits for ``max_runs`` has its instances already."""
    scene = begun(task("m", for_each=list("ab"), max_parallel=1), concurrency=Concurrency(max_runs=1))
    scene = mark(scene, "m", "success").when(c.StartRun(dag="d", run_id="s"), at=NOW)
    scene = scene.when(c.ClearTasks(**WHERE, tasks='["m[0]","m[1]"]', actor="user:ann", reason=""), at=NOW)
    assert scene.decision.state.runs["r"].phase == "queued"
    outcome = mark(scene, "m[0]", "success")
    assert kinds(outcome) == [("TaskMarked", "m[0]")]
    outcome = outcome.when(c.CancelRun(dag="d", run_id="s"), at=NOW)
    assert kinds(outcome)[-2:] == [("RunStarted", ""), ("TaskQueued", "m[1]")]


def test_an_instance_is_marked_before_its_turn_and_the_others_begin_in_order() -> None:
    scene = begun(task("m", for_each=list("abcd"), max_parallel=1), task("after", "m"))
    outcome = mark(scene, "m[2]", "skipped")
    assert kinds(outcome) == [("TaskMarked", "m[2]")]
    outcome = succeed(outcome, "m[0]")
    assert kinds(outcome) == [("TaskSucceeded", "m[0]"), ("TaskQueued", "m[1]")]
    outcome = succeed(outcome, "m[1]")
    assert kinds(outcome) == [("TaskSucceeded", "m[1]"), ("TaskQueued", "m[3]")]
    outcome = succeed(outcome, "m[3]")
    assert kinds(outcome) == [("TaskSucceeded", "m[3]"), ("TaskSucceeded", "m"), ("TaskQueued", "after")]
    mark(outcome, "m[2]", "success").rejected("m has ended as success; mark m itself")


def test_a_mapped_task_that_is_marked_ends_when_its_live_instances_have() -> None:
    scene = lease(begun(task("m", for_each=list("abc"), max_parallel=2), task("after", "m")), "m[0]")
    outcome = mark(scene, "m", "success")
    assert kinds(outcome) == [
        ("TaskMarked", "m"),
        ("TaskCancelRequested", "m[0]"),
        ("TaskCancelled", "m[1]"),
        ("TaskCancelled", "m[2]"),
    ]
    outcome = report(outcome, c.ReportCancelled, "m[0]")
    assert kinds(outcome) == [("TaskCancelled", "m[0]"), ("TaskCancelled", "m"), ("TaskQueued", "after")]
    assert outcome.decision.state.runs["r"].task("m").phase == "success"


def test_a_mapped_task_of_which_nothing_is_live_is_marked_at_once() -> None:
    outcome = mark(begun(task("m", for_each=list("ab")), task("after", "m")), "m", "failed")
    assert kinds(outcome)[-3:] == [("TaskCancelled", "m"), ("TaskUpstreamFailed", "after"), ("RunFailed", "")]


def test_saying_what_is_so_changes_nothing() -> None:
    scene = succeed(begun(task("load"), task("other")), "load")
    outcome = mark(scene, "load", "success")
    assert outcome.decision.events == []
    assert outcome.decision.answer is not None and not outcome.decision.answer.created


@pytest.mark.parametrize(
    ("name", "more", "refusal"),
    [
        ("lod", {}, "run r has no task 'lod'; did you mean 'load'?"),
        ("load", {"state": "failed", "output": "1"}, "only a task that is marked success has an output"),
        ("load", {"output": "{"}, "the output is not JSON"),
        ("load", {"run_id": "s"}, "DAG 'd' has no run s"),
    ],
)
def test_a_mark_that_means_nothing_is_refused(name: str, more: dict[str, str], refusal: str) -> None:
    said: Any = {**WHERE, "task": name, "state": "success", **more}
    outcome = begun(task("load")).when(c.MarkTask(**said), at=NOW)
    outcome.then().rejected(refusal)


def test_a_mark_that_ends_the_last_run_of_a_version_gives_the_place_in_the_pool_back() -> None:
    newer = c.DeployDag(dag="d", version="v2", definition=definition(workflow(task("other"))))
    outcome = mark(begun(task("load")).when(newer, at=NOW), "load", "success")
    assert kinds(outcome) == [("TaskMarked", "load"), ("RunSucceeded", "")]
    assert [type(command) for command in outcome.decision.commands] == [c.ReleaseSlot]
