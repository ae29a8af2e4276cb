"""The witness of deadlines: each way in which one could be told wrongly, doubly, early, or never."""

from __future__ import annotations

from typing import Any

import pytest

from tidewheel.core import events as e
from tidewheel.core.workflow import Deadline, Run, Task, Workflow
from tidewheel.runtime.witness.deadline import DeadlineWitness
from tidewheel.runtime.witness.findings import Findings

NOW = 1_767_571_200_000
HOUR = 3_600_000
WORKFLOW = Workflow(
    id="d",
    tasks=(Task(id="a", action=Run(command="true")),),
    deadlines=(
        Deadline(within_ms=HOUR, from_="scheduled"),
        Deadline(within_ms=2 * HOUR, from_="started", action="fail"),
    ),
)


def missed(index: int = 0, **more: Any) -> e.DeadlineMissed:
    wanted = WORKFLOW.deadlines[min(index, 1)]
    fields = {"counted_from": wanted.from_, "within_ms": wanted.within_ms, "action": wanted.action, "reason": "late"}
    due = NOW + wanted.within_ms
    return e.DeadlineMissed(
        **{"dag": "d", "run_id": "r", "at": due, "due_at": due, "deadline": index, **fields, **more}
    )


def ended(at: int = NOW) -> e.RunSucceeded:
    return e.RunSucceeded(dag="d", run_id="r", at=at)


def judged(*events: e.DeadlineMissed | e.RunSucceeded, cancelled: bool = False) -> tuple[list[str], DeadlineWitness]:
    created = e.RunCreated(dag="d", run_id="r", at=NOW - 5, version="v", kind="scheduled", logical_date=NOW)
    witness, findings = DeadlineWitness("d/r", WORKFLOW, created), Findings()
    witness.started_at = NOW
    for event in events:
        if isinstance(event, e.DeadlineMissed):
            witness.miss(event, cancelled, findings)
        else:
            witness.end(event, findings)
    return [violation.message for violation in findings.violations], witness


def test_what_is_told_in_time_is_in_order() -> None:
    wrong, witness = judged(missed(), missed(1), ended(NOW + 3 * HOUR))
    assert (wrong, witness.failure) == ([], "late")
    assert judged(missed(1), cancelled=True)[1].failure == ""
    assert judged(ended(NOW + HOUR - 1))[0] == []


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([missed(7)], "its version has 2"),
        ([missed(), missed()], "a second time"),
        ([missed(at=NOW + HOUR - 1)], "it is due at"),
        ([missed(due_at=NOW)], "it is due at"),
        ([missed(action="fail")], "its version has"),
        ([missed(within_ms=5)], "its version has"),
        ([missed(reason="")], "no reason"),
        ([ended(NOW + HOUR)], "deadline 0, due at"),
    ],
)
def test_what_is_told_wrongly_is_found(events: list[Any], words: str) -> None:
    wrong, _ = judged(*events)
    assert len(wrong) == 1
    assert words in wrong[0]
