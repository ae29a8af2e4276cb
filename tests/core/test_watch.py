"""Waiting for runs of a DAG: over, at work, yet to come, and never."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.core.mapped import CEL, WHERE, begun, kinds, succeed
from tests.core.scenes import NOW, created, definition, deployed, started, task, workflow
from tests.core.waiting import HOUR
from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.decide import watch
from tidewheel.core.run_ids import is_past_slot
from tidewheel.core.scope import slot_run_id
from tidewheel.core.state import REMEMBERED_ENDS, Dag
from tidewheel.core.workflow import RunWait, Schedule, Task, WaitFor
from tidewheel.testing.playbook import Given, Outcome, given

HOURLY = Schedule(every_ms=HOUR)
WATCHER: dict[str, Any] = {
    "watcher_dag": "other",
    "watcher_run_id": "o",
    "watcher_task": "wait",
    "watcher_attempt": 3,
}
TOLD: dict[str, Any] = {"dag": "other", "run_id": "o", "task": "wait", "attempt": 3}


def watched(run_id: str = "r") -> c.WatchRun:
    """Somebody asks."""
    return c.WatchRun(dag="d", run_id=run_id, **WATCHER)


def end(state: str, run_id: str = "r") -> c.ReportWait:
    """What they are told."""
    return c.ReportWait(**TOLD, output=f'{{"dag":"d","run_id":"{run_id}","state":"{state}"}}')


def fault(outcome: Outcome) -> str:
    """Why it will never be."""
    (told,) = outcome.decision.commands
    assert isinstance(told, c.ReportWait) and (told.dag, told.attempt) == ("other", 3)
    return told.fault


def scene(*events: e.Event, **more: Any) -> Given:
    """The DAG and what happened in it."""
    return given(Dag(dag="d"), deployed(workflow(task("a")), **more), *events, rules=CEL)


def test_a_live_run_tells_when_it_has_ended() -> None:
    outcome = begun(task("a")).when(watched(), at=NOW)
    outcome.then(e.RunWatched(dag="d", run_id="r", at=NOW, **WATCHER)).asks()
    done = succeed(outcome, "a")
    assert end("success") in done.decision.commands
    assert not done.decision.state.watchers
    cancelled = outcome.when(c.CancelRun(dag="d", run_id="r"), at=NOW)
    assert end("cancelled") in cancelled.decision.commands


def test_a_run_that_has_ended_tells_at_once() -> None:
    failed = e.RunFailed(dag="d", run_id="r", at=NOW, reason="a is failed")
    scene(created(), started(), failed).when(watched(), at=NOW).then().asks(end("failed"))


def test_a_run_that_is_yet_to_come_is_waited_for() -> None:
    outcome = scene().when(watched("later"), at=NOW)
    outcome.then(e.RunWatched)
    outcome = outcome.when(c.StartRun(dag="d", run_id="later"), at=NOW).when(
        c.CancelRun(dag="d", run_id="later"), at=NOW
    )
    assert end("cancelled", "later") in outcome.decision.commands


def test_who_asks_twice_is_told_once() -> None:
    outcome = begun(task("a")).when(watched(), at=NOW).when(watched(), at=NOW)
    outcome.then().asks()


def test_only_the_last_ends_are_known() -> None:
    runs = [f"r{number}" for number in range(REMEMBERED_ENDS + 1)]
    ends = [
        event
        for run_id in runs
        for event in (created(run_id), started(run_id), e.RunSucceeded(dag="d", run_id=run_id, at=NOW))
    ]
    known = scene(*ends)
    known.when(watched("r1"), at=NOW).asks(end("success", "r1"))
    assert "of the last 100 such runs only" in fault(known.when(watched("r0"), at=NOW))


@pytest.mark.parametrize(
    ("events", "run_id", "words"),
    [
        ([], slot_run_id(NOW), "has no schedule"),
        ([e.DagRemoved(dag="d", at=NOW)], "later", "was removed"),
    ],
)
def test_what_never_comes_is_told_at_once(events: list[e.Event], run_id: str, words: str) -> None:
    assert words in fault(scene(*events).when(watched(run_id), at=NOW))


def test_a_dag_that_nobody_deployed_has_no_runs() -> None:
    outcome = given(Dag(dag="d"), rules=CEL).when(watched(), at=NOW)
    outcome.then()
    assert fault(outcome) == "no DAG 'd' is deployed"


def test_a_run_does_not_wait_for_itself() -> None:
    itself = {**WATCHER, "watcher_dag": "d", "watcher_run_id": "r"}
    outcome = begun(task("a")).when(c.WatchRun(dag="d", run_id="r", **itself), at=NOW)
    assert fault_of(outcome) == "run r waits for its own end"


def succeed_run(outcome: Outcome, run_id: str) -> Outcome:
    """Its only task runs well."""
    place = {"dag": "d", "run_id": run_id, "task": "a", "attempt": 1}
    outcome = outcome.when(c.GrantSlot(**place, pool="default", worker="w", mail_partition=0), at=NOW + HOUR)
    return outcome.when(c.ReportSuccess(**place, worker="w", started_at=NOW, ended_at=NOW), at=NOW + HOUR)


def fault_of(outcome: Outcome) -> str:
    """Of whoever it is told."""
    (told,) = outcome.decision.commands
    assert isinstance(told, c.ReportWait)
    return told.fault


def test_too_many_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "WATCHERS_MAX", 1)
    outcome = begun(task("a")).when(watched(), at=NOW)
    second = c.WatchRun(dag="d", run_id="r", **{**WATCHER, "watcher_attempt": 4})
    assert "wait for runs of 'd' already" in fault_of(outcome.when(second, at=NOW))


def test_a_slot_that_passes_without_a_run_is_told() -> None:
    deploy = c.DeployDag(dag="d", version="v1", definition=definition(workflow(task("a"), schedule=HOURLY)))
    outcome = given(Dag(dag="d"), rules=CEL).when(deploy, at=NOW)
    between, slot = slot_run_id(NOW + HOUR // 2), slot_run_id(NOW + HOUR)
    outcome = outcome.when(watched(between), at=NOW)
    outcome.then(e.RunWatched)
    second = c.WatchRun(dag="d", run_id=slot, **{**WATCHER, "watcher_attempt": 4})
    outcome = outcome.when(second, at=NOW).when(c.FireSchedule(dag="d"), at=NOW + HOUR)
    assert kinds(outcome)[-1] == ("RunUnwatched", "")
    told = [one for one in outcome.decision.commands if isinstance(one, c.ReportWait)]
    assert [one.attempt for one in told] == [3] and "passed without a run" in told[0].fault
    assert list(outcome.decision.state.watchers) == [slot], "that one has its run"
    assert is_past_slot(outcome.decision.state, slot)
    assert "passed without a run" in fault(outcome.when(watched(slot_run_id(NOW)), at=NOW + HOUR))
    outcome = succeed_run(outcome.when(watched(slot), at=NOW + HOUR), slot)
    assert end("success", slot) in outcome.decision.commands
    outcome.when(watched(slot), at=NOW + HOUR).then().asks(end("success", slot))
    # An instant within the interval of a run that is over is no slot, and has no run of its own.
    assert "passed without a run" in fault(outcome.when(watched(between), at=NOW + HOUR))


def test_a_removal_is_told() -> None:
    outcome = scene().when(watched("later"), at=NOW).when(c.RemoveDag(dag="d"), at=NOW)
    outcome.then(e.DagRemoved, e.RunUnwatched)
    assert fault(outcome) == "DAG 'd' was removed"


# --- the side that waits -----------------------------------------------------------------------------------------


def waits(**more: Any) -> Task:
    """It waits for a run of ``x``."""
    return Task(id="w", action=WaitFor(what=RunWait(dag="x", **more)))


def report(state: str) -> c.ReportWait:
    """The run has ended."""
    output = json.dumps({"dag": "x", "run_id": "y", "state": state})
    return c.ReportWait(**WHERE, task="w", attempt=1, output=output)


@pytest.mark.parametrize(
    ("named", "run_id"),
    [
        ({"run_id": "day-${{ run.id }}"}, "day-r"),
        ({"logical_date": "2026-01-05"}, "scheduled__2026-01-05T00:00:00Z"),
        ({"logical_date": "${{ timestamp('2026-01-05T01:00:00Z') }}"}, "scheduled__2026-01-05T01:00:00Z"),
    ],
)
def test_the_other_dag_is_asked(named: dict[str, str], run_id: str) -> None:
    outcome = begun(waits(**named))
    me = {"watcher_dag": "d", "watcher_run_id": "r", "watcher_task": "w", "watcher_attempt": 1}
    outcome.asks(c.WatchRun(dag="x", run_id=run_id, **me))
    detail = outcome.decision.state.runs["r"].task("w").wait
    assert detail is not None and detail.asked == {"dag": "x", "run_id": run_id, "states": ["success"]}


@pytest.mark.parametrize("run_id", ["${{ 1 }}", "", "${{ 'a\\nb' }}", "x" * 251])
def test_what_is_no_id_asks_nobody(run_id: str) -> None:
    outcome = begun(waits(run_id=run_id))
    outcome.asks()
    outcome = outcome.when(c.ResumeTask(**WHERE, task="w", attempt=1), at=NOW)
    failed = outcome.decision.events[0]
    assert isinstance(failed, e.TaskFailed) and "expected the id of a run" in failed.message


def test_an_end_that_was_wanted_is_a_success() -> None:
    outcome = begun(waits(run_id="y", states=("success", "failed"))).when(report("failed"), at=NOW)
    success = outcome.decision.events[0]
    assert isinstance(success, e.TaskSucceeded)
    assert json.loads(success.output or "")["state"] == "failed"
    outcome.when(report("failed"), at=NOW).rejected("waits for nothing").then()


def test_any_other_end_is_a_failure() -> None:
    outcome = begun(waits(run_id="y")).when(report("cancelled"), at=NOW)
    failed = outcome.decision.events[0]
    assert isinstance(failed, e.TaskFailed)
    assert (failed.kind, failed.message) == ("wait_failed", "run y of 'x' is cancelled, not success")
    gone = c.ReportWait(**WHERE, task="w", attempt=1, fault="no DAG 'x' is deployed")
    failed = begun(waits(run_id="y")).when(gone, at=NOW).decision.events[0]
    assert isinstance(failed, e.TaskFailed) and failed.message == "no DAG 'x' is deployed"


def test_a_report_that_does_not_say_how_the_run_ended_is_a_failure() -> None:
    outcome = begun(waits(run_id="y")).when(c.ReportWait(**WHERE, task="w", attempt=1, output="1"), at=NOW)
    failed = outcome.decision.events[0]
    assert isinstance(failed, e.TaskFailed)
    assert (failed.kind, "does not say how it ended" in failed.message) == ("wait_failed", True)
