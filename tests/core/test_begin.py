"""How attempts begin: in a queue, or deferred."""

from __future__ import annotations

from tests.core.scenes import NOW, RULES, in_run, task, workflow
from tests.core.waiting import wait
from tidewheel.core import events as e
from tidewheel.core.decide.begin import begin_task
from tidewheel.core.decide.decision import Decision
from tidewheel.core.decide.defer import defer
from tidewheel.core.state import Dag


def decision() -> Decision[Dag]:
    """One that may begin tasks of a run."""
    return Decision(in_run(workflow(task("work"), wait("wait"))).state, NOW, RULES)


def test_work_is_queued_and_a_wait_is_deferred() -> None:
    d = decision()
    begin_task(d, "r", "work")
    begin_task(d, "r", "wait")
    assert [type(event) for event in d.events] == [e.TaskQueued, e.TaskDeferred]
    assert [getattr(command, "task", "") for command in d.commands] == ["work"]


def test_each_deferral_is_the_next_attempt() -> None:
    d = decision()
    defer(d, "r", "wait", "http", {"url": "ü"}, timeout_at=NOW + 5)
    assert d.events == [
        e.TaskDeferred(
            dag="d",
            run_id="r",
            task="wait",
            attempt=1,
            at=NOW,
            waits_for="http",
            timeout_at=NOW + 5,
            detail='{"url":"ü"}',
        )
    ]
