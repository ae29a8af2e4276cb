"""Tasks that wait for a time, and their timers."""

from __future__ import annotations

from typing import Any

from tests.core.mapped import WHERE
from tests.core.scenes import NOW
from tidewheel.core import commands as c
from tidewheel.core.waits import Wait
from tidewheel.core.workflow import Task, TimeWait, WaitFor
from tidewheel.testing.playbook import Outcome

HOUR = 3_600_000
LATER = NOW + HOUR


def wait(name: str, *needs: str, at: str | None = None, after_ms: int | None = None, **more: Any) -> Task:
    """A task that waits for a time."""
    until = {key: more.pop(key) for key in ("timeout_ms", "on_timeout") if key in more}
    what = TimeWait(at=at) if at is not None else TimeWait(after_ms=HOUR if after_ms is None else after_ms)
    return Task(id=name, needs=needs, action=WaitFor(what=what, **until), **more)


def waiting(outcome: Outcome, name: str) -> Wait:
    """What the task waits for."""
    found = outcome.decision.state.runs["r"].task(name).wait
    assert found is not None, f"{name} does not wait"
    return found  # type: ignore[no-any-return]


def resume(outcome: Outcome, name: str = "w", at: int = LATER) -> Outcome:
    """Its timer fires."""
    return outcome.when(c.ResumeTask(**WHERE, task=name, attempt=1), at=at)
