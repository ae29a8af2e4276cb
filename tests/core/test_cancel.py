"""Ending tasks before their time."""

from __future__ import annotations

from tests.core.mapped import WHERE, begun, kinds, lease
from tests.core.scenes import NOW, task
from tidewheel.core import commands as c


def test_a_cancelled_run_ends_its_mapped_task_with_the_last_live_instance() -> None:
    outcome = lease(begun(task("m", for_each=list("abc"), max_parallel=2)), "m[0]")
    outcome = outcome.when(c.CancelRun(dag="d", run_id="r", reason="wrong"), at=NOW)
    assert kinds(outcome) == [
        ("RunCancelRequested", ""),
        ("TaskCancelRequested", "m[0]"),
        ("TaskCancelled", "m[1]"),
        ("TaskCancelled", "m[2]"),
    ]
    gone = {**WHERE, "task": "m[0]", "attempt": 1, "worker": "w", "started_at": NOW, "ended_at": NOW}
    outcome = outcome.when(c.ReportCancelled(**gone), at=NOW)
    assert kinds(outcome) == [("TaskCancelled", "m[0]"), ("TaskCancelled", "m"), ("RunCancelled", "")]


def test_a_cancel_ends_what_waits_gives_queued_places_back_and_tells_the_worker_once() -> None:
    outcome = lease(begun(task("live"), task("queued"), task("later", "live")), "live")
    outcome = outcome.when(c.CancelRun(dag="d", run_id="r", reason="wrong"), at=NOW)
    assert kinds(outcome) == [
        ("RunCancelRequested", ""),
        ("TaskCancelRequested", "live"),
        ("TaskCancelled", "queued"),
        ("TaskCancelled", "later"),
    ]
    assert [type(command).__name__ for command in outcome.decision.commands] == ["ReleaseSlot"]
    assert [type(mail).__name__ for mail in outcome.decision.mail] == ["StopAttempt"]
    again = outcome.when(c.CancelRun(dag="d", run_id="r", reason="wrong"), at=NOW)
    assert (again.decision.events, again.decision.mail) == ([], [])
