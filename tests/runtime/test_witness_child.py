"""The witness of runs that tasks ask for: both sides say the same, and nobody waits for what has ended."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from tidewheel.core import events as e
from tidewheel.core.child import child_run_id
from tidewheel.core.workflow import Run, SubWorkflow, Task, TriggerDag, Workflow
from tidewheel.runtime.witness.child import Asked, disagreements
from tidewheel.runtime.witness.dag import DagWitness
from tidewheel.runtime.witness.findings import Findings, Place

PARENT = Workflow(
    id="d",
    tasks=(
        Task(id="w", action=SubWorkflow(dag="c")),
        Task(id="t", action=TriggerDag(dag="c")),
        Task(id="late", action=SubWorkflow(dag="c"), timeout_ms=5),
    ),
)
CHILD = Workflow(id="c", tasks=(Task(id="x", action=Run(command="true")),))
WAITED, STARTED = child_run_id("workflow", "d", "r", "w", 1), child_run_id("triggered", "d", "r", "t", 1)
LATE = child_run_id("workflow", "d", "r", "late", 1)


def on(event: type[Any], name: str, /, **more: Any) -> Any:
    return event(**{"dag": "d", "run_id": "r", "task": name, "attempt": 1, "at": 10, **more})


def deferred(name: str, child: str, waits_for: str, **more: Any) -> Any:
    return on(e.TaskDeferred, name, waits_for=waits_for, detail=json.dumps({"dag": "c", "run_id": child}), **more)


def succeeded(name: str, run_id: str) -> Any:
    output = json.dumps({"dag": "c", "run_id": run_id})
    return on(e.TaskSucceeded, name, worker="", started_at=1, ended_at=1, output=output)


def failed(name: str, kind: str, **more: Any) -> Any:
    return on(e.TaskFailed, name, worker="", started_at=1, ended_at=1, kind=kind, message="no", **more)


def made(run_id: str, kind: str, task: str, **more: Any) -> Any:
    parent = {"parent_dag": "d", "parent_run_id": "r", "parent_task": task, "parent_attempt": 1, "depth": 1}
    return e.RunCreated(**{"dag": "c", "run_id": run_id, "at": 1, "version": "v", "kind": kind, **parent, **more})


def ended(run_id: str, state: str) -> list[Any]:
    """The run goes by, and ends so."""
    kinds: dict[str, Any] = {"success": e.TaskSucceeded, "failed": e.TaskFailed, "cancelled": e.TaskCancelled}
    where = {"dag": "c", "run_id": run_id, "at": 1}
    task = {**where, "task": "x", "attempt": 1}
    more = {"cancelled": {"reason": "x"}}.get(state, {"started_at": 1, "ended_at": 1})
    fails = {"kind": "exception", "message": "no"} if state == "failed" else {}
    return [
        e.RunStarted(**where),
        e.TaskQueued(**task, pool="default", pool_slots=1),
        e.TaskLeased(**task, worker="v", mail_partition=0, expires_at=9),
        *([e.RunCancelRequested(**where)] if state == "cancelled" else []),
        *([e.TaskCancelRequested(**task, worker="v")] if state == "cancelled" else []),
        kinds[state](**task, worker="v", **more, **fails),
        {"success": e.RunSucceeded, "failed": e.RunFailed, "cancelled": e.RunCancelled}[state](
            **where, **({} if state == "success" else {"reason": "x"})
        ),
    ]


def postponed(task: str, ask_at: int | None = 9, reason: str = "full") -> Any:
    return e.LaunchPostponed(dag="d", run_id="r", task=task, attempt=1, at=1, ask_at=ask_at, reason=reason)


def judged(*events: Any) -> tuple[list[str], list[str]]:
    """What each DAG's witness says, and where the two disagree."""
    findings = Findings()
    witnesses = {name: DagWitness(name, findings) for name in ("d", "c")}
    for workflow in (PARENT, CHILD):
        definition = msgspec.json.encode(workflow).decode()
        witnesses[workflow.id].apply(e.DagDeployed(dag=workflow.id, at=1, version="v", definition=definition))
    where: dict[str, Any] = {"dag": "d", "run_id": "r", "at": 1}
    for event in (e.RunCreated(**where, version="v", kind="manual"), e.RunStarted(**where), *events):
        witnesses[event.dag].apply(event)
    asked = {name: witness.asked for name, witness in witnesses.items()}
    return [violation.message for violation in findings.violations], [text for text, _ in disagreements(asked)]


ASKED = [deferred("w", WAITED, "workflow"), deferred("t", STARTED, "trigger")]
MADE = [made(WAITED, "workflow", "w"), made(STARTED, "triggered", "t")]


@pytest.mark.parametrize(
    "events",
    [
        [*ASKED, *MADE],
        [*ASKED, *MADE, succeeded("t", STARTED), *ended(WAITED, "success"), succeeded("w", WAITED)],
        [*ASKED, *MADE, *ended(WAITED, "failed"), failed("w", "run_failed", retry_at=99)],
        [*ASKED, *MADE, *ended(WAITED, "cancelled"), failed("w", "run_failed")],
        [ASKED[1], failed("t", "launch_refused")],
        [*ASKED, postponed("w"), postponed("t"), postponed("w", 99)],
        [*ASKED, postponed("w"), postponed("w", None), *MADE],
        [deferred("late", LATE, "workflow", timeout_at=15), failed("late", "timeout", at=15)],
    ],
)
def test_two_sides_that_fit_are_good(events: list[Any]) -> None:
    assert judged(*events) == ([], [])


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([deferred("w", "another", "workflow")], "asks for ('c', 'another'), not for"),
        ([deferred("w", WAITED, "trigger")], "waits for trigger, but its action is workflow"),
        ([ASKED[0], MADE[0], succeeded("w", "another")], "was its run, not ('c',"),
        ([deferred("late", LATE, "workflow", timeout_at=15), failed("late", "timeout")], "before the end of its time"),
        ([ASKED[0], postponed("w", 1)], "asks again at 1, but that is not later"),
        ([ASKED[0], postponed("w", reason="")], "no reason is given"),
        ([ASKED[1], postponed("t", None)], "it ends once there is its run"),
        ([postponed("w")], "attempt 1"),
        ([made("workflow__d__x", "workflow", "w")], "is not the one that"),
        ([made(WAITED, "manual", "w")], "names a parent"),
        ([made(WAITED, "workflow", "w", depth=17)], "stands below 17 others"),
        ([made(WAITED, "workflow", "w", parent_attempt=2)], "is not the one that"),
    ],
)
def test_one_side_that_is_wrong_by_itself_is_found(events: list[Any], words: str) -> None:
    assert words in "\n".join(judged(*events)[0])


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([ASKED[0]], "waits for c/" + WAITED + ", which is never created"),
        ([*ASKED, *MADE, *ended(WAITED, "success")], "waits for c/" + WAITED + ", which is success"),
        ([ASKED[0], succeeded("w", WAITED)], "was its run, which was never created"),
        ([ASKED[0], MADE[0], succeeded("w", WAITED)], "(success), which is live"),
        ([ASKED[0], MADE[0], *ended(WAITED, "failed"), succeeded("w", WAITED)], "(success), which is failed"),
        ([ASKED[0], MADE[0], *ended(WAITED, "success"), failed("w", "run_failed")], "(failed), which is success"),
        (
            [ASKED[0], MADE[0], *ended(WAITED, "cancelled"), failed("w", "run_failed", retry_at=99)],
            "(again), which is cancelled",
        ),
    ],
)
def test_two_sides_that_disagree_are_found(events: list[Any], words: str) -> None:
    assert words in "\n".join(judged(*events)[1])


def test_a_dag_that_nobody_knows_has_made_nothing() -> None:
    asked = Asked()
    asked.told.append((("gone", "x"), "exists", Place("events", 0, 1)))
    assert "never created" in next(disagreements({"d": asked}))[0]
