"""The end of a run, told to the task that waits for it."""

from __future__ import annotations

import json
from typing import Any

from tests.core.related import REPORT, Site, asks
from tests.core.scenes import task, workflow
from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.child import Child, child_of
from tidewheel.core.workflow import Concurrency, Retry, Workflow

OTHER = task("other")


def site(*tasks: Any, **more: Any) -> Site:
    """``d`` with these tasks and ``report``; the run ``r`` of ``d`` has begun."""
    made = Site(workflow(*tasks, **more), REPORT)
    made.start()
    return made


def test_a_sub_workflow_holds_nothing_and_ends_like_its_run_with_the_outputs_of_its_leaves() -> None:
    s = site(asks("t"), task("after", "t"), concurrency=Concurrency(max_tasks=1))
    s.settle()
    assert s.task("t").phase == "deferred"
    assert s.dags["d"].active_tasks == 0
    assert child_of(s.task("t").wait) == Child("report", s.child())
    s.work("report", s.child(), "build", output={"rows": 3})
    s.settle()
    assert json.loads(s.last(e.TaskSucceeded).output) == {
        "dag": "report",
        "run_id": s.child(),
        "outputs": {"build": {"rows": 3}},
    }
    assert s.task("after").phase == "queued"


def test_outputs_that_are_too_large_together_are_left_out() -> None:
    big = Workflow(id="report", tasks=tuple(task(f"t{n}") for n in range(2)))
    s = Site(workflow(asks("t"), OTHER), big)
    s.start()
    s.settle()
    child = s.child()
    for name in ("t0", "t1"):
        s.work("report", child, name, output="x" * 40_000)
    s.settle()
    assert json.loads(s.last(e.TaskSucceeded).output) == {"dag": "report", "run_id": child, "outputs": None}


def test_a_run_that_fails_fails_the_task_and_the_next_try_is_another_run() -> None:
    s = site(asks("t", retry=Retry(max=1, delay_ms=1_000)), OTHER)
    s.settle()
    first = s.child()
    s.work("report", first, "build", fails=True)
    s.settle()
    failed = s.last(e.TaskFailed)
    assert (failed.dag, failed.kind, failed.message) == (
        "d",
        "run_failed",
        f"run {first} of 'report' failed: build is failed",
    )
    s.now = failed.retry_at
    s.say(c.RetryTask(dag="d", run_id="r", task="t"))
    s.settle()
    assert s.child() != first
    s.work("report", s.child(), "build")
    s.settle()
    assert s.task("t").phase == "success"


def test_a_run_that_somebody_cancelled_is_not_tried_again() -> None:
    s = site(asks("t", retry=Retry(max=5)), OTHER)
    s.settle()
    s.say(c.CancelRun(dag="report", run_id=s.child()))
    s.settle()
    assert s.task("t").phase == "failed"
    assert "was cancelled" in s.last(e.TaskFailed).message
