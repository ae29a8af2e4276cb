"""Asking another DAG for a run: one run an attempt, whoever repeats itself."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from tests.core.related import CEL, REPORT, Site, asks
from tests.core.scenes import task, workflow
from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.child import DEPTH_MAX, child_run_id
from tidewheel.core.deadlines import timers_of
from tidewheel.core.explain import explain_wait
from tidewheel.core.parent import Parent
from tidewheel.core.workflow import Concurrency, Retry, Workflow

OTHER = task("other")


def site(*tasks: Any, **more: Any) -> Site:
    """``d`` with these tasks and ``report``; the run ``r`` of ``d`` has begun."""
    made = Site(workflow(*tasks, **more), REPORT)
    made.start()
    return made


def test_a_trigger_ends_when_the_run_exists_and_does_not_wait_for_it() -> None:
    s = site(asks("t", waits=False, inputs={"day": "${{ run.id }}"}), task("after", "t"))
    assert s.task("t").phase == "deferred"
    s.deliver(c.LaunchRun)
    created = s.last(e.RunCreated)
    assert created.run_id == child_run_id("triggered", "d", "r", "t", 1)
    assert (created.kind, created.actor, json.loads(created.inputs)) == ("triggered", "run:d/r", {"day": "r"})
    assert s.dags["report"].runs[created.run_id].parent == Parent("d", "r", "t", 1, 1)
    s.settle()
    assert json.loads(s.last(e.TaskSucceeded).output) == {"dag": "report", "run_id": created.run_id}
    assert s.task("after").phase == "queued"
    s.work("report", created.run_id, "build")
    assert s.post == []


def test_the_same_attempt_makes_one_run_however_often_it_asks() -> None:
    s = site(asks("t", waits=False), OTHER)
    command = s.deliver(c.LaunchRun)
    s.say(command)
    s.settle()
    s.work("report", s.child(), "build")
    s.say(command)
    s.settle()
    assert s.count(e.RunCreated, "report") == 1
    assert s.count(e.TaskSucceeded, "d") == 1


def test_a_refusal_is_tried_again_within_the_retries_and_then_there_is_a_run() -> None:
    s = Site(workflow(asks("t", retry=Retry(max=1, delay_ms=1_000)), OTHER))
    s.start()
    s.settle()
    assert s.task("t").phase == "retrying"
    s.say(c.DeployDag(dag="report", version="v", definition=msgspec.json.encode(REPORT).decode()))
    s.now += 10_000
    s.say(c.RetryTask(dag="d", run_id="r", task="t"))
    s.settle()
    assert s.child() == child_run_id("workflow", "d", "r", "t", 2)


def test_inputs_that_do_not_evaluate_fail_the_task_and_ask_nobody() -> None:
    s = site(asks("t", inputs={"day": "${{ inputs.nothing }}"}), OTHER)
    assert s.post == []
    (due, timer), *_ = timers_of(s.dags["d"], 10)
    assert (due, type(timer)) == (s.now, c.ResumeTask)
    s.say(timer)
    failed = s.last(e.TaskFailed)
    assert failed.kind == "expression"
    assert failed.message.startswith("inputs: ")


def test_one_run_for_each_item() -> None:
    s = site(asks("t", for_each=["a", "b"], inputs={"day": "${{ item }}"}, max_parallel=1), OTHER)
    s.settle()
    first = s.child()
    s.work("report", first, "build", output=1)
    s.settle()
    second = s.child()
    assert first != second
    assert [json.loads(one.inputs) for one in s.events if isinstance(one, e.RunCreated) and one.dag == "report"] == [
        {"day": "a"},
        {"day": "b"},
    ]
    s.work("report", second, "build", output=2)
    s.settle()
    assert s.task("t").phase == "success"


def test_a_chain_without_an_end_is_stopped() -> None:
    endless = Workflow(id="d", tasks=(asks("t", waits=False, dag="d"),), concurrency=Concurrency(max_runs=100))
    s = Site(endless)
    s.start()
    s.settle()
    assert s.count(e.RunCreated, "d") == 1 + DEPTH_MAX
    assert f"at most {DEPTH_MAX} may" in s.last(e.TaskFailed).message


def test_a_definition_that_waits_for_itself_is_refused() -> None:
    s = Site()
    definition = msgspec.json.encode(workflow(asks("t", dag="d"))).decode()
    assert s.say(c.DeployDag(dag="d", version="v", definition=definition)) == []


FEW = msgspec.structs.replace(CEL, waiting_runs_max=1)


def crowded(*tasks: Any, **more: Any) -> Site:
    """``report`` is paused, and one run of it waits, which is all that may."""
    s = Site(workflow(*tasks, **more), REPORT, rules=FEW)
    s.say(c.PauseDag(dag="report"))
    s.say(c.StartRun(dag="report", run_id="first"))
    s.start()
    s.settle()
    return s


def timers(s: Site) -> list[tuple[int, Any]]:
    return [one for one in timers_of(s.dags["d"], 10) if isinstance(one[1], c.ResumeTask)]


@pytest.mark.parametrize("waits", [True, False])
def test_a_dag_without_room_is_asked_again_for_the_same_run_until_it_has_some(waits: bool) -> None:
    s = crowded(asks("t", waits=waits), OTHER)
    assert s.count(e.RunCreated, "report") == 1
    postponed = s.last(e.LaunchPostponed)
    assert postponed.reason == "1 runs of DAG 'report' wait for their turn (at most 1 may)"
    assert explain_wait(s.wait("t")).startswith("waits for room in DAG 'report', asks again at ")
    delays = []
    for _ in range(8):
        ((due, timer),) = timers(s)
        assert due == s.last(e.LaunchPostponed).ask_at
        delays.append(due - s.now)
        s.now = due
        s.say(timer)
        s.settle()
    assert delays == sorted(delays)
    assert 5_000 <= delays[0] <= 7_500
    assert 120_000 <= delays[-1] <= 180_000
    s.say(c.UnpauseDag(dag="report"))
    ((s.now, timer),) = timers(s)
    s.say(timer)
    s.settle()
    assert s.child() == child_run_id("workflow" if waits else "triggered", "d", "r", "t", 1)
    assert s.count(e.RunCreated, "report") == 2
    assert timers(s) == []
    if waits:
        assert s.last(e.LaunchPostponed).ask_at is None
        s.work("report", s.child(), "build")
        s.settle()
    assert s.task("t").phase == "success"


def test_what_waits_for_room_can_be_cut_short_at_once_and_a_run_that_comes_then_is_called_back() -> None:
    end = c.CancelRun(dag="d", run_id="r")
    mark = c.MarkTask(dag="d", run_id="r", task="t", state="success", reason="by hand")
    for command, kind in ((end, e.TaskCancelled), (mark, e.TaskMarked)):
        s = crowded(asks("t"), OTHER)
        ((s.now, timer),) = timers(s)
        s.say(timer)
        s.say(c.UnpauseDag(dag="report"))
        s.deliver(c.LaunchRun)
        s.say(command)
        assert isinstance(s.last(kind), kind)
        assert "r" not in s.dags["d"].runs or s.task("t").phase == "success"
        s.settle()
        assert s.last(e.RunCancelRequested).run_id == s.child()


def test_a_cancel_that_crosses_the_answer_that_there_is_no_room_ends_the_attempt() -> None:
    s = Site(workflow(asks("t")), REPORT, rules=FEW)
    s.say(c.PauseDag(dag="report"))
    s.say(c.StartRun(dag="report", run_id="first"))
    s.start()
    s.say(c.CancelRun(dag="d", run_id="r"))
    assert s.task("t").cancel_requested
    s.settle()
    assert s.count(e.RunCancelled, "d") == 1


def test_waiting_for_room_counts_toward_the_time_out() -> None:
    s = crowded(asks("t", timeout_ms=6_000), OTHER)
    s.now += 6_000
    s.say(c.ResumeTask(dag="d", run_id="r", task="t", attempt=1))
    assert s.last(e.TaskFailed).kind == "timeout"


def test_a_dag_without_room_refuses_its_own_runs_which_would_wait_for_each_other() -> None:
    many = Workflow(id="d", tasks=(asks("t", waits=False, dag="d", for_each=[1, 2, 3]),))
    s = Site(many, rules=FEW)
    s.start()
    s.deliver(c.LaunchRun)
    s.deliver(c.LaunchRun)
    s.say(c.PauseDag(dag="d"))
    while any(isinstance(one, c.LaunchRun) for one in s.post):
        s.deliver(c.LaunchRun)
    s.settle()
    assert s.last(e.TaskFailed).kind in ("launch_refused", "instances")
    assert s.count(e.LaunchPostponed, "d") == 0
