"""An attempt that no worker runs begins with an event that says what it waits for."""

from __future__ import annotations

from tests.core.scenes import NOW, RULES, in_run, task, workflow
from tidewheel.core import events as e
from tidewheel.core.decide.decision import Decision
from tidewheel.core.decide.defer import defer


def test_it_is_the_next_attempt() -> None:
    d = Decision(in_run(workflow(task("t"))).state, NOW, RULES)
    defer(d, "r", "t", "run", {"b": 1, "a": [2]}, resume_at=NOW + 1, timeout_at=NOW + 2)
    assert d.events == [
        e.TaskDeferred(
            dag="d",
            run_id="r",
            task="t",
            attempt=1,
            at=NOW,
            waits_for="run",
            resume_at=NOW + 1,
            timeout_at=NOW + 2,
            detail='{"b":1,"a":[2]}',
        )
    ]
    assert d.state.runs["r"].task("t").phase == "deferred"
