"""What an attempt that asked for a run makes of the answers, and of a cancel, a time-out, a mark."""

from __future__ import annotations

from typing import Any

from tests.core.related import REPORT, Site, asks
from tests.core.scenes import task, workflow
from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.child import Child, child_of, launched_by
from tidewheel.core.waits import Wait
from tidewheel.core.workflow import Retry

OTHER = task("other")


def site(*tasks: Any, **more: Any) -> Site:
    """``d`` with these tasks and ``report``; the run ``r`` of ``d`` has begun."""
    made = Site(workflow(*tasks, **more), REPORT)
    made.start()
    return made


def test_cancelling_the_parent_cancels_the_run_and_ends_after_it() -> None:
    s = site(asks("t"))
    s.settle()
    child = s.child()
    where: dict[str, Any] = {"dag": "report", "run_id": child, "task": "build", "attempt": 1}
    s.say(c.GrantSlot(**where, pool="default", worker="w", mail_partition=0))
    assert s.say(c.CancelRun(dag="d", run_id="r")) == ["RunCancelRequested", "TaskCancelRequested"]
    s.settle()
    assert s.dags["report"].runs[child].cancel_requested
    assert "r" in s.dags["d"].runs, "it ends only once its run has"
    s.say(c.ReportCancelled(**where, worker="w", started_at=s.now, ended_at=s.now))
    s.settle()
    assert [type(one).__name__ for one in s.events[-2:]] == ["TaskCancelled", "RunCancelled"]


def test_a_cancelled_parent_whose_run_is_refused_ends() -> None:
    s = site(asks("t", dag="nobody", retry=Retry(max=3)))
    s.say(c.CancelRun(dag="d", run_id="r"))
    s.settle()
    assert s.count(e.RunCancelled, "d") == 1


def test_a_time_out_fails_the_attempt_and_calls_its_run_back() -> None:
    s = site(asks("t", timeout_ms=5_000, retry=Retry(max=1, delay_ms=100)), OTHER)
    s.settle()
    first = s.child()
    s.now += 5_000
    s.say(c.ResumeTask(dag="d", run_id="r", task="t", attempt=1))
    failed = s.last(e.TaskFailed)
    assert (failed.kind, failed.message) == ("timeout", "it ran for longer than its timeout, 5 s")
    assert s.task("t").phase == "retrying"
    s.settle()
    assert s.last(e.RunCancelled).run_id == first


def test_what_is_said_twice_or_too_late_changes_nothing() -> None:
    s = site(asks("t"), OTHER)
    launch = s.deliver(c.LaunchRun)
    answer = s.deliver(c.ReportLaunch)
    s.work("report", s.child(), "build")
    end = s.deliver(c.ReportRunEnd)
    before = len(s.events)
    for command in (answer, end, launch, end, answer):
        s.say(command)
        s.settle()
    assert len(s.events) == before


def test_an_end_that_comes_before_the_answer_is_the_end() -> None:
    s = site(asks("t"), OTHER)
    s.deliver(c.LaunchRun)
    s.work("report", s.child(), "build")
    s.deliver(c.ReportRunEnd)
    assert s.task("t").phase == "success"
    s.settle()
    assert s.count(e.RunCancelled, "report") == 0


def test_fail_fast_calls_the_other_runs_back() -> None:
    s = site(asks("t", for_each=[1, 2], fail_fast=True), OTHER)
    s.settle()
    first, second = (one.run_id for one in s.events if isinstance(one, e.RunCreated) and one.dag == "report")
    s.work("report", first, "build", fails=True)
    s.settle()
    assert s.last(e.RunCancelled).run_id == second
    assert s.task("t[1]").phase == "cancelled"
    assert s.task("t").phase == "failed"


def test_a_wait_names_the_run_it_is_about() -> None:
    detail = '{"dag":"report","run_id":"x"}'
    assert launched_by(Wait("trigger", detail=detail)) == Child("report", "x")
    assert child_of(Wait("trigger", detail=detail)) is None
    assert child_of(Wait("workflow", detail=detail)) == Child("report", "x")
    assert child_of(Wait("workflow", detail='{"fault":"x"}')) is None
    assert launched_by(Wait("time")) is None
    assert launched_by(None) is None


def test_a_person_who_marks_the_task_calls_its_run_back() -> None:
    s = site(asks("t"), task("after", "t"))
    s.settle()
    s.say(c.MarkTask(dag="d", run_id="r", task="t", state="success", reason="done by hand"))
    assert s.task("after").phase == "scheduled"
    s.settle()
    assert s.task("after").phase == "queued"
    assert s.last(e.RunCancelled).run_id == s.child()
    assert s.last(e.RunCancelRequested).reason == "the task that waits for it was marked success: done by hand"


def test_a_task_that_is_cleared_asks_for_another_run_once_the_first_has_ended() -> None:
    s = site(asks("t"))
    s.settle()
    first = s.child()
    s.say(c.ClearTasks(dag="d", run_id="r", tasks='["t"]'))
    assert s.task("t").attempt == 1
    s.settle()
    assert s.last(e.RunCancelled).run_id == first
    assert (s.task("t").phase, s.task("t").attempt) == ("deferred", 2)
    assert s.child() != first


def test_a_mapped_task_that_is_marked_ends_once_its_runs_have() -> None:
    s = site(asks("t", for_each=[1, 2]), OTHER)
    s.settle()
    s.say(c.MarkTask(dag="d", run_id="r", task="t", state="skipped"))
    assert s.task("t").phase == "deferred"
    s.settle()
    assert s.count(e.RunCancelled, "report") == 2
    assert s.task("t").phase == "skipped"
