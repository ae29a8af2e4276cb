"""What an attempt leaves for the next one: who may, who is given it, and how long it is kept."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.scenes import NOW, RULES, in_run, leased, queued, task, workflow
from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.decide import resend_leases
from tidewheel.core.mail import AssignTask
from tidewheel.core.state import TaskState
from tidewheel.core.workflow import Retry
from tidewheel.testing.playbook import Given, Outcome, assert_survives_snapshot

AGAIN = workflow(task("load", retry=Retry(max=3, delay_ms=0)))
ATTEMPT: dict[str, Any] = {"dag": "d", "run_id": "r", "task": "load"}


def save(checkpoint: str = '{"page":7}', attempt: int = 1, worker: str = "w1") -> c.ReportCheckpoint:
    return c.ReportCheckpoint(**ATTEMPT, attempt=attempt, worker=worker, checkpoint=checkpoint)


def saved(checkpoint: str = '{"page":7}', attempt: int = 1) -> e.TaskCheckpointed:
    return e.TaskCheckpointed(**ATTEMPT, attempt=attempt, at=NOW, worker="w1", checkpoint=checkpoint)


def failed(attempt: int = 1, retry_at: int | None = NOW) -> e.TaskFailed:
    return e.TaskFailed(
        **ATTEMPT,
        attempt=attempt,
        at=NOW,
        worker="w1",
        started_at=NOW,
        ended_at=NOW,
        kind="exception",
        message="x",
        retry_at=retry_at,
    )


def running(*events: e.Event) -> Given:
    return in_run(AGAIN, queued("load"), leased("load"), *events)


def load(outcome: Outcome) -> TaskState:
    return outcome.decision.state.runs["r"].task("load")  # type: ignore[no-any-return]


def assigned(scene: Given, attempt: int) -> AssignTask:
    """The mail that gives the attempt to a worker."""
    grant = c.GrantSlot(**ATTEMPT, attempt=attempt, pool="default", worker="w2", mail_partition=0)
    (mail,) = scene.when(grant, at=NOW).then(e.TaskLeased).decision.mail
    assert isinstance(mail, AssignTask)
    return mail


def test_the_next_attempt_is_given_what_this_one_left() -> None:
    assert assigned(in_run(AGAIN, queued("load")), 1).checkpoint is None
    assert assigned(running(saved(), failed(), queued("load", 2)), 2).checkpoint == '{"page":7}'


def test_a_lost_worker_loses_nothing_of_it() -> None:
    lost = e.LeaseExpired(**ATTEMPT, attempt=1, at=NOW, worker="w1", message="silent", retry_at=NOW)
    assert assigned(running(saved(), lost, queued("load", 2)), 2).checkpoint == '{"page":7}'


def test_an_attempt_that_saves_nothing_hands_on_what_it_was_given() -> None:
    events = [saved(), failed(), queued("load", 2), leased("load", 2), failed(2), queued("load", 3)]
    assert assigned(running(*events), 3).checkpoint == '{"page":7}'


def test_a_new_owner_sends_it_again() -> None:
    scene = running(saved(), failed(), queued("load", 2), leased("load", 2))
    (mail,) = resend_leases(scene.state, RULES)
    assert mail.checkpoint == '{"page":7}'


def test_the_last_one_counts_and_the_same_again_is_no_event() -> None:
    outcome = running().when(save(), at=NOW).then(e.TaskCheckpointed)
    outcome.when(save(), at=NOW).then()
    replaced = outcome.when(save("8"), at=NOW).then(e.TaskCheckpointed)
    assert load(replaced).checkpoint == "8"
    assert_survives_snapshot(replaced.decision.state)


@pytest.mark.parametrize(
    ("events", "command", "reason"),
    [
        ([failed(), queued("load", 2)], save(), "attempt 1 was replaced by attempt 2"),
        ([failed()], save(), "expected attempt 1 to be leased, but attempt 1 is retrying"),
        ([], save(worker="w2"), "attempt 1 is leased to w1, not to w2"),
    ],
)
def test_only_the_attempt_that_holds_the_lease_may_write(
    events: list[e.Event], command: c.ReportCheckpoint, reason: str
) -> None:
    outcome = running(saved("1"), *events).when(command, at=NOW).then(e.ReportRefused).rejected(reason)
    assert load(outcome).checkpoint == "1"


@pytest.mark.parametrize(("text", "said"), [("{", "is not JSON"), ('"' + "x" * 70_000 + '"', "at most 65,536 travel")])
def test_what_cannot_travel_is_refused_and_the_attempt_goes_on(text: str, said: str) -> None:
    outcome = running(saved("1")).when(save(text), at=NOW).then(e.ReportRefused).rejected(said)
    assert (load(outcome).checkpoint, load(outcome).phase) == ("1", "leased")


@pytest.mark.parametrize(
    "end",
    [
        e.TaskSucceeded(**ATTEMPT, attempt=1, at=NOW, worker="w1", started_at=NOW, ended_at=NOW),
        failed(retry_at=None),
        e.TaskCancelled(**ATTEMPT, attempt=1, at=NOW, worker="w1", reason="x"),
    ],
)
def test_it_is_gone_when_the_task_has_ended(end: e.Event) -> None:
    assert running(saved(), end).state.runs["r"].task("load").checkpoint is None


def test_a_mark_is_an_end_too() -> None:
    mark = c.MarkTask(dag="d", run_id="r", task="load", state="skipped", reason="x")
    outcome = running(saved(), failed()).when(mark, at=NOW)
    run = outcome.decision.state.runs.get("r")
    assert run is None or run.task("load").checkpoint is None
