"""The witness of runs that end in steps: nothing of them begins in between, and none is forgotten half way."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tidewheel.core import events as e
from tidewheel.core.workflow import Concurrency, Run, Task, Workflow
from tidewheel.runtime.witness.dag import DagWitness
from tidewheel.runtime.witness.findings import Findings
from tidewheel.runtime.witness.standing import STEPS_MS_MAX

WORKFLOW = Workflow(
    id="d",
    tasks=(
        Task(id="m", action=Run(command="true"), for_each=[1, 2, 3], fail_fast=True, infra_retries=3),
        Task(id="z", action=Run(command="true"), needs=("m",)),
    ),
    concurrency=Concurrency(max_tasks=2),
)


def place(at: int = 1) -> dict[str, Any]:
    return {"dag": "d", "run_id": "r", "at": at}


def on(what: type[Any], name: str, attempt: int = 1, at: int = 1, **more: Any) -> Any:
    return what(**place(at), task=name, attempt=attempt, **more)


def queued(name: str, attempt: int = 1) -> Any:
    return on(e.TaskQueued, name, attempt, pool="default", pool_slots=1)


def leased(name: str) -> Any:
    return on(e.TaskLeased, name, worker="w", mail_partition=0, expires_at=9)


def failed(name: str, attempt: int = 1, **more: Any) -> Any:
    worker = "w" if attempt else ""
    return on(
        e.TaskFailed, name, attempt, worker=worker, started_at=1, ended_at=1, kind="exception", message="x", **more
    )


def cancelled(name: str, attempt: int = 1, **more: Any) -> Any:
    return on(e.TaskCancelled, name, attempt, reason="x", **more)


STOP = e.RunCancelRequested(**place(), reason="x")
FAST = on(e.TaskCancelRequested, "m", 0, worker="", reason="fail_fast: m[0] has failed")
MARK = on(e.TaskMarked, "m", 0, state="success", reason="x", ending=True)
CLEAR = e.TasksCleared(**place(), tasks="[]", ending='["m"]', reason="x")
#: m[0] is at work, m[1] in its pool, m[2] waits for max_tasks.
BEGUN = [queued("m[0]"), leased("m[0]"), queued("m[1]"), on(e.TaskReady, "m[2]")]


def judged(*events: Any, later: int = 0) -> list[str]:
    """What the witness says of a run in which this happened, and of what is left open ``later`` ms after it."""
    findings = Findings()
    witness = DagWitness("d", findings)
    definition = msgspec.json.encode(WORKFLOW).decode()
    start = [
        e.DagDeployed(dag="d", at=1, version="v", definition=definition),
        e.RunCreated(**place(), version="v", kind="manual"),
        e.RunStarted(**place()),
        on(e.TaskExpanded, "m", 0, items=3, first=0, values="[1,2,3]"),
    ]
    for event in [*start, *events]:
        witness.apply(event)
    witness.check_progress(1 + later)
    return [violation.message for violation in findings.violations]


@pytest.mark.parametrize("stop", [[STOP], [failed("m[0]"), FAST], [MARK], [CLEAR]])
def test_a_step_is_waited_for_a_while_and_then_missed(stop: list[Any]) -> None:
    assert judged(*BEGUN, *stop, cancelled("m[1]"), later=STEPS_MS_MAX) == []
    missed = judged(*BEGUN, *stop, cancelled("m[1]"), later=STEPS_MS_MAX + 1)
    assert any("m[2] is ready, though it is to end" in message for message in missed)


def test_the_last_step_is_the_end_of_it() -> None:
    told = on(e.TaskCancelRequested, "m[0]", worker="w", reason="x")
    end = [cancelled("m[2]", 0), told, cancelled("m[0]", worker="w"), cancelled("m", 0), cancelled("z", 0)]
    done = e.RunCancelled(**place(), reason="x")
    assert judged(*BEGUN, STOP, cancelled("m[1]"), *end, done, later=STEPS_MS_MAX + 1) == []


@pytest.mark.parametrize("stop", [[STOP], [failed("m[0]"), FAST], [MARK], [CLEAR]])
@pytest.mark.parametrize(
    ("event", "words"),
    [(leased("m[1]"), "is leased, though it is to end"), (queued("m[2]"), "begins")],
)
def test_what_begins_between_two_steps_is_found(stop: list[Any], event: Any, words: str) -> None:
    found = judged(*BEGUN, *stop, event)
    assert words in found[0]
    assert "to end" in found[0] or "cancelled run" in found[0]


@pytest.mark.parametrize("stop", [FAST, MARK, CLEAR])
def test_what_is_to_be_tried_again_between_two_steps_is_found(stop: Any) -> None:
    events = [*BEGUN, on(e.TaskLeased, "m[1]", worker="w", mail_partition=0, expires_at=9), failed("m[1]"), stop]
    assert "is to be tried again, though its mapped task is to end" in judged(*events, failed("m[0]", retry_at=5))[0]


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([FAST], "not since an instance of it has failed"),
        ([failed("m[0]"), msgspec.structs.replace(FAST, reason="")], "gives no reason"),
        ([failed("m[0]"), msgspec.structs.replace(FAST, attempt=1)], "is the current one"),
    ],
)
def test_a_mapped_task_is_told_to_end_only_by_a_failure(events: list[Any], words: str) -> None:
    assert words in judged(*BEGUN, *events)[0]
