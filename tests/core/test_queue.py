"""How attempts join the queue of their pool."""

from __future__ import annotations

from mapped import WHERE, begun, kinds, succeed
from scenes import NOW, task

from tidewheel.core import commands as c
from tidewheel.core.workflow import Concurrency


def test_max_tasks_holds_instances_back_like_any_task() -> None:
    outcome = begun(task("m", for_each=list("abc")), concurrency=Concurrency(max_tasks=1))
    assert [kind for kind, _ in kinds(outcome)][-3:] == ["TaskQueued", "TaskReady", "TaskReady"]
    assert kinds(succeed(outcome, "m[0]")) == [("TaskSucceeded", "m[0]"), ("TaskQueued", "m[1]")]


def test_what_waited_for_max_tasks_goes_in_the_order_in_which_it_became_ready() -> None:
    outcome = begun(task("a"), task("b"), task("c"), concurrency=Concurrency(max_tasks=1))
    outcome = succeed(outcome, "a")
    assert kinds(outcome) == [("TaskSucceeded", "a"), ("TaskQueued", "b")]
    (enqueue, _) = outcome.decision.commands
    assert enqueue == c.EnqueueTask(
        pool="default", **WHERE, task="b", attempt=1, pool_slots=1, priority=0, logical_date=NOW
    )
