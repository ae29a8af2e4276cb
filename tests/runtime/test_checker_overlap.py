"""The checker on the runs of a schedule whose ``overlap`` is ``cancel_running``: one at work at a time."""

from __future__ import annotations

from typing import Any

import pytest

from tests.runtime.test_checker import MINUTE, NOW, checked, deployed, found, of_run, of_task, scheduled
from tidewheel.core import events as e
from tidewheel.core.workflow import Concurrency, Run, Schedule, Task, Workflow

ONE_AT_A_TIME = Workflow(
    id="d",
    tasks=(Task(id="a", action=Run(command="x")),),
    schedule=Schedule(cron=("*/10 * * * *",), overlap="cancel_running"),
    concurrency=Concurrency(max_runs=2),
)
SLOTS = (NOW, NOW + 10 * MINUTE)
FIRST, SECOND = (f"scheduled__{slot}" for slot in SLOTS)


def of(kind: type[Any], run_id: str, **more: Any) -> Any:
    return of_run(kind, run_id, **{"at": SLOTS[1], **more})


def at_work(run_id: str, attempt: int = 1) -> list[e.Event]:
    more = {"run_id": run_id, "at": SLOTS[1], "pool": "default", "pool_slots": 1}
    return [of(e.RunStarted, run_id), of_task(e.TaskQueued, "a", attempt, **more)]


def cancelled(run_id: str) -> list[e.Event]:
    task = of_task(e.TaskCancelled, "a", 1, run_id=run_id, at=SLOTS[1], worker="", reason="x")
    return [of(e.RunCancelRequested, run_id), task, of(e.RunCancelled, run_id, reason="x")]


def again(run_id: str) -> list[e.Event]:
    """A person lets it go on after its end."""
    reopened = of(e.RunReopened, run_id, version="v1", inputs="{}")
    return [reopened, of(e.TasksCleared, run_id, tasks='["a"]')]


BOTH: list[e.Event] = [deployed(ONE_AT_A_TIME), scheduled(SLOTS[0]), *at_work(FIRST), *cancelled(FIRST)]
BOTH += [scheduled(SLOTS[1], at=SLOTS[1]), *at_work(SECOND), *cancelled(SECOND)]


@pytest.mark.parametrize("order", [(FIRST, SECOND), (SECOND, FIRST)])
def test_no_reopened_run_starts_beside_another_one(order: tuple[str, str]) -> None:
    one, other = order
    for reopened in ((FIRST, SECOND), (SECOND, FIRST)):
        events = [*BOTH, *again(reopened[0]), *again(reopened[1]), *at_work(one, attempt=2)]
        assert found(checked(events)) == [], "the other one waits for it"
        first = checked([*events, of(e.RunStarted, other)]).violations[0]
        assert (first.offset, first.invariant) == (len(events), 5)
        assert "started while another scheduled run is not finished" in first.message


def test_a_run_that_somebody_asked_for_does_not_wait_for_a_slot_that_waits() -> None:
    asked = e.RunCreated(dag="d", run_id="asked", at=SLOTS[1], version="v1", kind="manual")
    waits = [*BOTH, *again(FIRST), *again(SECOND), *at_work(FIRST, attempt=2), asked]
    first = checked(waits).violations[0]
    assert first.invariant == 6
    assert "asked is queued, though there is room to start it" in first.message
    assert found(checked([*waits, *at_work("asked")])) == []


@pytest.mark.parametrize("order", [(FIRST, SECOND), (SECOND, FIRST)])
def test_reopened_runs_do_not_wait_for_each_other(order: tuple[str, str]) -> None:
    first = checked([*BOTH, *again(order[0]), *again(order[1])]).violations[0]
    assert first.invariant == 6
    assert "is queued, though there is room to start it" in first.message
