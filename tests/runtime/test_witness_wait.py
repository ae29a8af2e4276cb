"""The witness of waits, of instances that end with one another, and of backfills that are over."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tidewheel.core import events as e
from tidewheel.core.workflow import (
    ApprovalWait,
    Run,
    RunWait,
    Schedule,
    SubWorkflow,
    Task,
    TimeWait,
    WaitFor,
    Workflow,
)
from tidewheel.runtime.witness.dag import DagWitness
from tidewheel.runtime.witness.findings import Findings

WORK = Run(command="true")
SLOT = 60_000
TASKS = (
    Task(id="soon", action=WaitFor(what=TimeWait(after_ms=5))),
    Task(id="asks", action=WaitFor(what=ApprovalWait(), timeout_ms=20, on_timeout="skip")),
    Task(id="strict", action=WaitFor(what=ApprovalWait(), timeout_ms=20)),
    Task(id="other", action=WaitFor(what=RunWait(dag="c", run_id="x"))),
    Task(id="sub", action=SubWorkflow(dag="c"), timeout_ms=30),
    Task(id="m", action=WORK, for_each=[1, 2], fail_fast=True),
)


def on(event: type[Any], name: str, /, **more: Any) -> Any:
    return event(**{"dag": "d", "run_id": "r", "task": name, "attempt": 1, "at": 10, **more})


def gave_up(name: str, at: int = 30) -> Any:
    return on(e.TaskFailed, name, at=at, worker="", started_at=1, ended_at=1, kind="wait_timeout", message="no")


def skipped(name: str, at: int = 30) -> Any:
    return on(e.TaskSkipped, name, at=at, reason="it waited for too long")


def judged(*events: Any) -> list[str]:
    """What the witness says of a run of these tasks that goes on so."""
    findings = Findings()
    witness = DagWitness("d", findings)
    workflow = Workflow(id="d", tasks=TASKS, schedule=Schedule(every_ms=SLOT))
    definition = msgspec.json.encode(workflow).decode()
    where: dict[str, Any] = {"dag": "d", "run_id": "r", "at": 1}
    deployed = e.DagDeployed(dag="d", at=5 * SLOT, version="v", definition=definition, cursor=5 * SLOT)
    for event in (deployed, e.RunCreated(**where, version="v", kind="manual"), e.RunStarted(**where), *events):
        witness.apply(event)
    return [violation.message for violation in findings.violations]


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([on(e.TaskDeferred, "soon", waits_for="time", resume_at=15)], ""),
        ([on(e.TaskDeferred, "soon", waits_for="time", resume_at=16)], "waits until 16, not 15"),
        ([on(e.TaskDeferred, "asks", waits_for="approval", timeout_at=30)], ""),
        ([on(e.TaskDeferred, "asks", waits_for="approval")], "has time until None, not 30"),
        ([on(e.TaskDeferred, "strict", waits_for="approval", timeout_at=31)], "has time until 31, not 30"),
        ([on(e.TaskDeferred, "soon", waits_for="time", resume_at=10, detail='{"fault": "no such date"}')], ""),
        ([on(e.TaskDeferred, "sub", waits_for="workflow", detail='{"fault": "no"}')], ""),
        ([on(e.TaskDeferred, "sub", waits_for="workflow")], "has time until None, not 40"),
        ([on(e.TaskDeferred, "asks", waits_for="approval", timeout_at=30), skipped("asks")], ""),
        ([on(e.TaskDeferred, "asks", waits_for="approval", timeout_at=30), skipped("asks", 29)], "before the end"),
        ([on(e.TaskDeferred, "asks", waits_for="approval", timeout_at=30), gave_up("asks")], "is to skip then"),
        ([on(e.TaskDeferred, "strict", waits_for="approval", timeout_at=30), skipped("strict")], "is to fail then"),
        ([on(e.TaskDeferred, "strict", waits_for="approval", timeout_at=30), gave_up("strict")], ""),
    ],
)
def test_how_long_a_wait_lasts_and_what_becomes_of_its_task(events: list[Any], said: str) -> None:
    found = judged(*events)
    assert len(found) == bool(said) and said in "".join(found)


@pytest.mark.parametrize("output", ["1", "null", "[]", '{"state": "failed"}', None])
def test_what_says_nothing_of_a_run_is_not_its_end(output: str | None) -> None:
    wait = on(e.TaskDeferred, "other", waits_for="run")
    came = on(e.TaskSucceeded, "other", worker="", started_at=1, ended_at=1, output=output)
    (found,) = judged(wait, came)
    assert "though the run it waited for did not end so" in found


def fanned(*events: Any) -> list[str]:
    """Two instances, both leased, of which the second fails."""
    begun = [on(e.TaskExpanded, "m", attempt=0, items=2, first=0, values="[1, 2]")]
    for name in ("m[0]", "m[1]"):
        begun += [
            on(e.TaskQueued, name, pool="default", pool_slots=1),
            on(e.TaskLeased, name, worker="v", mail_partition=0, expires_at=99),
        ]
    return judged(*begun, *events)


FAILED = on(e.TaskFailed, "m[1]", worker="v", started_at=1, ended_at=1, kind="exception", message="no")
TOLD = on(e.TaskCancelRequested, "m[0]", worker="v")
GONE = on(e.TaskCancelled, "m[0]", worker="v", reason="as asked")


def test_an_instance_that_was_told_to_end_may_whatever_is_said_of_the_one_that_failed() -> None:
    assert fanned(FAILED, TOLD, GONE) == []
    assert fanned(FAILED, TOLD, on(e.TaskMarked, "m[1]", state="success"), GONE) == []


def test_without_a_failure_no_instance_is_told_to_end() -> None:
    assert fanned(TOLD) == ["d/r/m[0] attempt 1 is told to end in a run that nobody cancelled"]


def test_a_run_of_a_backfill_that_is_over_does_not_start() -> None:
    backfill: dict[str, Any] = {"dag": "d", "at": 5 * SLOT, "backfill_id": "backfill-1"}
    run: dict[str, Any] = {"dag": "d", "run_id": "b", "at": 5 * SLOT}
    slot = {"logical_date": SLOT, "interval_start": 0, "interval_end": SLOT, "backfill_id": "backfill-1"}
    begun = [
        e.BackfillStarted(
            **backfill, first=SLOT, last=SLOT, slots=1, order="forward", mode="parallel", width=1, reprocess="none"
        ),
        e.RunCreated(**run, version="v", kind="backfill", **slot),
    ]
    assert judged(*begun, e.RunStarted(**run)) == []
    cancelled = e.BackfillCancelled(**backfill, reason="enough")
    assert judged(*begun, cancelled, e.RunStarted(**run)) == ["d/b is started, though backfill-1 is over"]
