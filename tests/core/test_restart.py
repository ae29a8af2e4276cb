"""Runs of slots that begin anew for a backfill."""

from __future__ import annotations

from typing import Any

from tests.core.scenes import NOW, RULES, deployed, leased, succeeded, task, workflow
from tests.core.test_backfill import FIRE, HOUR, HOURLY, dag, start
from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.state import Dag
from tidewheel.testing.playbook import Given, given

RUN = "scheduled__2026-01-04T23:00:00Z"


def failed_at(hours: int, run_id: str) -> list[e.Event]:
    """The slot's run was made by the schedule, and failed."""
    slot = NOW - hours * HOUR
    place: dict[str, Any] = {"dag": "d", "run_id": run_id, "at": NOW}
    return [
        e.RunCreated(
            **place,
            version="v1",
            kind="scheduled",
            logical_date=slot,
            interval_start=slot - HOUR,
            interval_end=slot,
        ),
        e.RunStarted(**place),
        e.TaskQueued(**place, task="a", attempt=1, pool="default", pool_slots=1),
        leased("a", run_id=run_id),
        e.TaskFailed(
            **place, task="a", attempt=1, worker="w1", started_at=NOW, ended_at=NOW, kind="exception", message="no"
        ),
        e.RunFailed(**place, reason="a is failed"),
    ]


def with_a_failure() -> Given:
    """Of the last three slots the one in the middle has failed, and the others succeeded."""
    one, two, three = (f"scheduled__2026-01-0{at}Z" for at in ("4T22:00:00", "4T23:00:00", "5T00:00:00"))
    events: list[e.Event] = []
    for hours, run_id in ((2, one), (1, two), (0, three)):
        story = failed_at(hours, run_id)
        events += (
            story
            if hours == 1
            else [*story[:-2], succeeded("a", run_id=run_id), e.RunSucceeded(dag="d", run_id=run_id, at=NOW)]
        )
    return dag(*events)


def test_what_failed_is_run_again_as_the_same_run_and_nothing_else() -> None:
    outcome = with_a_failure().when(start(4, reprocess="failed", width=9), at=NOW).when(FIRE, at=NOW)
    kinds = [type(event) for event in outcome.decision.events]
    assert kinds[:4] == [e.RunCreated, e.BackfillSlotsSkipped, e.RunRestarted, e.BackfillSlotsSkipped]
    restarted = outcome.decision.events[2]
    assert restarted == e.RunRestarted(
        dag="d",
        run_id="scheduled__2026-01-04T23:00:00Z",
        at=NOW,
        version="v1",
        logical_date=NOW - HOUR,
        interval_start=NOW - 2 * HOUR,
        interval_end=NOW - HOUR,
        attempts=1,
        backfill_id="backfill-1",
    )
    queued = [event.attempt for event in outcome.decision.events if isinstance(event, e.TaskQueued)]
    assert sorted(queued) == [1, 2], "attempts go on counting"
    live = outcome.decision.state.runs["scheduled__2026-01-04T23:00:00Z"]
    assert (live.kind, live.backfill_id) == ("backfill", "backfill-1")


def test_all_that_ended_is_run_again_and_what_lives_is_left_alone() -> None:
    outcome = with_a_failure().when(start(3, reprocess="all"), at=NOW).when(FIRE, at=NOW)
    assert [type(event) for event in outcome.decision.events][:1] == [e.RunRestarted]
    again = outcome.when(c.CancelBackfill(dag="d", backfill_id="backfill-1"), at=NOW)
    other = again.when(start(3, reprocess="all", width=9), at=NOW).when(FIRE, at=NOW)
    assert [type(event) for event in other.decision.events][:3] == [
        e.BackfillSlotsSkipped,
        e.RunRestarted,
        e.RunRestarted,
    ]


def test_a_run_of_a_backfill_that_is_over_starts_all_the_same() -> None:
    """C032. It was restarted while the DAG was paused, and its backfill ended with the schedule."""
    paused = given(with_a_failure().state, e.DagPaused(dag="d", at=NOW), rules=RULES)
    waits = paused.when(start(3, reprocess="failed", width=9), at=NOW).when(FIRE, at=NOW)
    state = waits.decision.state
    over = given(state, e.BackfillCancelled(dag="d", at=NOW, backfill_id="backfill-1", reason="x"), rules=RULES)
    over.when(c.UnpauseDag(dag="d"), at=NOW).then(e.DagUnpaused, e.RunStarted, e.TaskQueued)


def test_instances_of_a_restarted_run_go_on_counting_too() -> None:
    of = [task("a"), task("b", "a", for_each=[1, 2])]
    scene = given(Dag(dag="d"), deployed(workflow(*of, schedule=HOURLY), cursor=NOW), *failed_at(1, RUN), rules=RULES)
    again = scene.when(start(3, reprocess="failed", width=9), at=NOW).when(FIRE, at=NOW)
    leased_again = again.when(
        c.GrantSlot(dag="d", run_id=RUN, task="a", attempt=2, pool="default", worker="w1", mail_partition=0), at=NOW
    )
    ended_well = leased_again.when(
        c.ReportSuccess(dag="d", run_id=RUN, task="a", attempt=2, worker="w1", started_at=NOW, ended_at=NOW), at=NOW
    )
    queued = [(event.task, event.attempt) for event in ended_well.decision.events if isinstance(event, e.TaskQueued)]
    assert queued == [("b[0]", 2), ("b[1]", 2)]
