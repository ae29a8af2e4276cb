"""Asking another DAG for a run: one run an attempt, whoever repeats itself."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from related import REPORT, Site, asks
from scenes import task, workflow

from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.child import DEPTH_MAX, child_run_id
from tidewheel.core.deadlines import timers_of
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
