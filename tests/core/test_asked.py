"""Runs that tasks of other DAGs ask for: created or refused, and called back, in whatever order that is heard."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.related import REPORT, Site, asks
from tests.core.scenes import task, workflow
from tidewheel.core import commands as c
from tidewheel.core import events as e

OTHER = task("other")


def site(*tasks: Any, **more: Any) -> Site:
    """``d`` with these tasks and ``report``; the run ``r`` of ``d`` has begun."""
    made = Site(workflow(*tasks, **more), REPORT)
    made.start()
    return made


@pytest.mark.parametrize(
    ("prepare", "inputs", "words"),
    [
        ([], {"dya": 1}, "unknown input 'dya'; did you mean 'day'?"),
        ([], {"day": 1}, "input 'day': expected a text, got 1"),
        ([c.RemoveDag(dag="report")], {}, "DAG 'report' was removed"),
    ],
)
def test_a_run_that_is_refused_fails_the_task_with_the_reason(prepare: list[Any], inputs: Any, words: str) -> None:
    for waits in (True, False):
        s = Site(workflow(asks("t", waits=waits, inputs=inputs), OTHER), REPORT)
        for command in prepare:
            s.say(command)
        s.start()
        s.settle()
        failed = s.last(e.TaskFailed)
        assert failed.kind == "launch_refused"
        assert words in failed.message
        assert s.count(e.RunCreated, "report") == 0


def test_a_dag_that_was_never_deployed_refuses_and_gets_no_history() -> None:
    s = site(asks("t", dag="nobody"), OTHER)
    s.settle()
    assert s.last(e.TaskFailed).message == "no DAG 'nobody' is deployed"
    assert "nobody" not in s.dags


def test_a_cancel_that_comes_before_the_request_still_finds_the_run() -> None:
    s = site(asks("t"))
    s.say(c.CancelRun(dag="d", run_id="r"))
    s.deliver(c.RecallRun)
    assert s.count(e.RunCreated, "report") == 0
    s.settle()
    assert s.count(e.RunCreated, "report") == s.count(e.RunCancelled, "report") == s.count(e.RunCancelled, "d") == 1


def test_a_run_that_comes_to_be_after_its_attempt_timed_out_is_called_back() -> None:
    s = site(asks("t", timeout_ms=5_000), OTHER)
    s.now += 5_000
    s.say(c.ResumeTask(dag="d", run_id="r", task="t", attempt=1))
    s.deliver(c.RecallRun)
    s.settle()
    assert s.count(e.RunCreated, "report") == s.count(e.RunCancelled, "report") == 1


def test_who_asks_again_for_a_run_whose_end_was_told_fails_instead_of_waiting_for_ever() -> None:
    """As after a repair of the journal that lost the end."""
    s = site(asks("t"), OTHER)
    launch = s.deliver(c.LaunchRun)
    s.post.clear()
    s.work("report", s.child(), "build")
    s.post.clear()
    s.say(launch)
    s.settle()
    assert s.last(e.TaskFailed).kind == "launch_refused"


def test_a_paused_dag_lets_the_run_wait_and_a_removed_one_lets_it_end() -> None:
    s = Site(workflow(asks("t"), OTHER), REPORT)
    s.say(c.PauseDag(dag="report"))
    s.start()
    s.settle()
    assert s.dags["report"].runs[s.child()].phase == "queued"
    s.say(c.UnpauseDag(dag="report"))
    s.say(c.RemoveDag(dag="report"))
    s.work("report", s.child(), "build")
    s.settle()
    assert s.task("t").phase == "success"


@pytest.mark.parametrize("run_id", ["triggered__d__1", "workflow__x"])
def test_nobody_else_takes_such_an_id(run_id: str) -> None:
    s = Site(REPORT)
    assert s.say(c.StartRun(dag="report", run_id=run_id)) == []
