"""What a wait leaves in the rows, without a database."""

from __future__ import annotations

from typing import Any

from tests.projections.journals import START, deployed
from tidewheel.core import events as e
from tidewheel_projections.folding import Folding, RunRows

WHERE: dict[str, Any] = {"dag": "d", "run_id": "r", "task": "extract"}
DEFERRED = e.TaskDeferred(
    **WHERE, attempt=1, at=START, waits_for="time", resume_at=START + 1_000, timeout_at=START + 5_000, detail='{"a":1}'
)


def folded(*events: e.AnyEvent) -> RunRows:
    """The rows of the run after these events, each of which comes twice."""
    folding = Folding()
    before = (deployed("d"), e.RunCreated(dag="d", run_id="r", at=START, version="v1", kind="manual"))
    for number, event in enumerate((*before, *events), 1):
        folding.fold(event, 0, number)
        folding.fold(event, 0, number)
    return folding.runs["d", "r"]


def test_while_it_waits_the_task_says_for_what_and_until_when() -> None:
    run = folded(DEFERRED)
    task, attempt = run.tasks["extract"], run.attempts["extract", 1]
    assert (task.state, task.attempt, task.waits_for, task.wait) == ("deferred", 1, "time", '{"a":1}')
    assert (task.resume_at, task.timeout_at, task.started_at) == (START + 1_000, START + 5_000, START)
    assert task.reason == "waits until 2026-09-21T14:13:21Z"
    assert (attempt.state, attempt.pool, attempt.started_at) == ("deferred", "", START)
    assert run.row.counts["deferred"] == 1


def test_its_end_is_that_of_an_attempt() -> None:
    success = e.TaskSucceeded(**WHERE, attempt=1, at=START + 9, worker="", started_at=START, ended_at=START + 9)
    run = folded(DEFERRED, success)
    task, attempt = run.tasks["extract"], run.attempts["extract", 1]
    assert (task.state, task.waits_for, task.resume_at, task.wait, task.reason) == ("success", "", None, None, "")
    assert (attempt.state, attempt.ended_at) == ("success", START + 9)
    run = folded(DEFERRED, e.TaskSkipped(**WHERE, attempt=1, at=START + 9, reason="too long"))
    task, attempt = run.tasks["extract"], run.attempts["extract", 1]
    assert (task.state, task.reason, attempt.state, attempt.message) == ("skipped", "too long", "skipped", "too long")
