"""How attempts join the queue of their pool."""

from __future__ import annotations

from tests.core.mapped import WHERE, begun, kinds, lease, succeed
from tests.core.scenes import NOW, task
from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.deadlines import timers_of
from tidewheel.core.workflow import Concurrency, Retry
from tidewheel.testing.playbook import Outcome


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


QUEUE_TIMEOUT = {"queue_timeout_ms": 60_000}


def expire(outcome: Outcome, name: str, at: int, attempt: int = 1) -> Outcome:
    return outcome.when(c.ExpireQueued(**WHERE, task=name, attempt=attempt), at=at)


def test_what_nobody_takes_in_time_fails_for_good_and_leaves_the_pool() -> None:
    outcome = begun(task("a", retry=Retry(max=5), **QUEUE_TIMEOUT), task("b", "a"))
    assert list(timers_of(outcome.decision.state, 100)) == [
        (NOW + 60_000, c.ExpireQueued(**WHERE, task="a", attempt=1))
    ]
    expire(outcome, "a", NOW + 59_999).then()
    outcome = expire(outcome, "a", NOW + 60_000)
    outcome.then(e.TaskFailed, e.TaskUpstreamFailed, e.RunFailed)
    failed = outcome.decision.events[0]
    assert isinstance(failed, e.TaskFailed)
    assert (failed.kind, failed.attempt) == ("queue_timeout", 1)
    assert failed.message == "it waited in pool 'default' for longer than its queue_timeout, 60 s"
    assert [type(command).__name__ for command in outcome.decision.commands] == ["ReleaseSlot"]


def test_the_wait_for_max_tasks_counts() -> None:
    outcome = begun(task("a"), task("b", **QUEUE_TIMEOUT), concurrency=Concurrency(max_tasks=1))
    assert list(timers_of(outcome.decision.state, 100)) == [
        (NOW + 60_000, c.ExpireQueued(**WHERE, task="b", attempt=1))
    ]
    late = expire(outcome, "b", NOW + 60_000).then(e.TaskFailed)
    assert not late.decision.state.ready
    # In the pool at last, it has waited since it became ready.
    report = {**WHERE, "task": "a", "attempt": 1, "worker": "w", "started_at": NOW, "ended_at": NOW}
    queued = lease(outcome, "a").when(c.ReportSuccess(**report), at=NOW + 50_000)
    assert kinds(queued)[-1] == ("TaskQueued", "b")
    expire(queued, "b", NOW + 60_000).then(e.TaskFailed, e.RunFailed)


def test_what_was_leased_or_tried_again_in_time_is_left_alone() -> None:
    outcome = begun(task("a", **QUEUE_TIMEOUT))
    expire(lease(outcome, "a"), "a", NOW + 60_000).then()
    expire(outcome, "a", NOW + 60_000, attempt=2).then()
    outcome.when(c.ExpireQueued(dag="d", run_id="gone", task="a", attempt=1), at=NOW + 60_000).then()
