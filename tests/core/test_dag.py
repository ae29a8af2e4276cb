"""Deploying, pausing and the schedule's cursor."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.core.scenes import NOW, RULES, created, definition, deployed, in_run, started, task, workflow
from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.deadlines import schedule_due
from tidewheel.core.scope import slot_run_id
from tidewheel.core.state import Dag
from tidewheel.core.workflow import Catchup, Concurrency, Input, Overlap, Schedule, Workflow
from tidewheel.testing.playbook import Given, Outcome, given

MINUTE = 60_000
EVERY_TEN = Schedule(cron=("*/10 * * * *",))


def deploy(of: Workflow, version: str = "v1") -> c.DeployDag:
    return c.DeployDag(dag="d", version=version, definition=definition(of))


def nobody() -> Given:
    return given(Dag(dag="d"), rules=RULES)


def test_the_first_deploy_owes_slots_from_now_on() -> None:
    of = workflow(task("a"), schedule=EVERY_TEN)
    outcome = nobody().when(deploy(of), at=NOW).then(deployed(of, cursor=NOW))
    outcome.when(c.FireSchedule(dag="d"), at=NOW + 9 * MINUTE).then()
    outcome.when(c.FireSchedule(dag="d"), at=NOW + 10 * MINUTE).then(e.RunCreated, e.RunStarted, e.TaskQueued)


def test_the_same_version_again_changes_nothing() -> None:
    of = workflow(task("a"))
    again = nobody().when(deploy(of), at=NOW).when(deploy(of), at=NOW).then()
    answer = again.decision.answer
    assert answer is not None
    assert (answer.ok, answer.created) == (True, False)


def test_what_is_no_workflow_is_refused() -> None:
    nobody().when(c.DeployDag(dag="d", version="v", definition="{"), at=NOW).then().rejected("not a workflow")
    other = definition(Workflow(id="other", tasks=(task("a"),)))
    nobody().when(c.DeployDag(dag="d", version="v", definition=other), at=NOW).then().rejected("'other', not 'd'")
    lost = definition(workflow(task("a", "nobody")))
    nobody().when(c.DeployDag(dag="d", version="v", definition=lost), at=NOW).then().rejected("needs 'nobody'")


@pytest.mark.parametrize(
    ("of", "said"),
    [
        (workflow(task("a", "c"), task("b", "a"), task("c", "b"), task("d")), "wait for each other: a, b, c"),
        (workflow(task("a", "a")), "wait for each other: a"),
        (workflow(task("a"), task("a")), "two tasks have one id"),
        (workflow(task("a"), task("b", "a", "a")), "task 'b' names a task twice"),
        (workflow(task("a", pool_slots=0)), "task 'a' takes 0 slots"),
        (workflow(task("a"), concurrency=Concurrency(max_runs=0)), "max_runs (0)"),
        (workflow(task("a"), concurrency=Concurrency(max_tasks=0)), "max_tasks (0)"),
        (workflow(task("a"), keep_runs=1_001), "keep_runs is 0 to 1,000"),
    ],
)
def test_a_definition_whose_runs_could_never_end_is_refused(of: Workflow, said: str) -> None:
    nobody().when(deploy(of), at=NOW).then().rejected(said)


def test_a_new_version_with_the_same_slots_keeps_the_cursor() -> None:
    one, two = workflow(task("a"), schedule=EVERY_TEN), workflow(task("b"), schedule=EVERY_TEN)
    outcome = nobody().when(deploy(one), at=NOW).when(deploy(two, "v2"), at=NOW + 5 * MINUTE)
    outcome.then(replace(deployed(two, "v2", cursor=NOW), at=NOW + 5 * MINUTE))


def test_a_changed_schedule_answers_no_slot_again_when_the_clock_has_stepped_back() -> None:
    one, two = workflow(task("a"), schedule=EVERY_TEN), workflow(task("a"), schedule=Schedule(cron=("*/5 * * * *",)))
    slot = NOW + 10 * MINUTE
    outcome = nobody().when(deploy(one), at=NOW).when(c.FireSchedule(dag="d"), at=slot)
    changed = outcome.when(deploy(two, "v2"), at=NOW)
    changed.then(replace(deployed(two, "v2", cursor=slot), at=NOW))
    changed.when(c.FireSchedule(dag="d"), at=slot).then()


def test_a_schedule_that_went_and_came_back_answers_no_slot_again_when_the_clock_has_stepped_back() -> None:
    one, none = workflow(task("a"), schedule=EVERY_TEN), workflow(task("a"))
    slot = NOW + 10 * MINUTE
    ran = nobody().when(deploy(one), at=NOW).when(c.FireSchedule(dag="d"), at=slot)
    back = ran.when(deploy(none, "v2"), at=slot).when(deploy(one, "v3"), at=slot - 1_000)
    back.then(replace(deployed(one, "v3", cursor=slot), at=slot - 1_000))
    back.when(c.FireSchedule(dag="d"), at=slot).then()


def test_a_changed_schedule_loses_no_slot_that_was_due_and_invents_none() -> None:
    one = workflow(task("a"), schedule=EVERY_TEN)
    two = workflow(task("a"), schedule=Schedule(cron=("* * * * *",)))
    late = NOW + 10 * MINUTE + 30_000
    outcome = nobody().when(deploy(one), at=NOW).when(deploy(two, "v2"), at=late)
    outcome.then(e.RunCreated, e.DagDeployed, e.RunStarted, e.TaskQueued)
    assert outcome.decision.state.cursor == late


@pytest.mark.parametrize("schedule", [None, Schedule(every_ms=MINUTE)])
def test_slots_that_a_replaced_schedule_still_owes_are_recorded_as_skipped(schedule: Schedule | None) -> None:
    one = workflow(task("a"), schedule=Schedule(cron=("* * * * *",), catchup="all"))
    scene = given(Dag(dag="d"), deployed(one, cursor=NOW), rules=RULES)
    outcome = scene.when(deploy(workflow(task("a"), schedule=schedule), "v2"), at=NOW + 1_000 * MINUTE)
    events = outcome.decision.events
    created = [event for event in events if isinstance(event, e.RunCreated)]
    (skipped,) = [event for event in events if isinstance(event, e.SlotsSkipped)]
    assert len(created) + skipped.count == 1_000
    assert (skipped.first, skipped.last) == (NOW + (len(created) + 1) * MINUTE, NOW + 1_000 * MINUTE)


@pytest.mark.parametrize(("keep_runs", "known"), [(1, {"v1", "v2"}), (0, {"v2"})])
def test_a_run_of_an_old_version_keeps_its_definition_as_long_as_it_is_kept(keep_runs: int, known: set[str]) -> None:
    scene = in_run(workflow(task("a")))
    outcome = scene.when(deploy(workflow(task("b"), keep_runs=keep_runs), "v2"), at=NOW)
    assert set(outcome.decision.state.definitions) == {"v1", "v2"}
    cancelled = outcome.when(c.CancelRun(dag="d", run_id="r"), at=NOW)
    assert set(cancelled.decision.state.definitions) == known


def test_a_slot_makes_one_run_with_its_interval() -> None:
    of = workflow(task("a"), schedule=EVERY_TEN)
    fire = c.FireSchedule(dag="d")
    outcome = given(Dag(dag="d"), deployed(of, cursor=NOW), rules=RULES).when(fire, at=NOW + 10 * MINUTE)
    run = outcome.decision.events[0]
    assert isinstance(run, e.RunCreated)
    assert run.run_id == "scheduled__2026-01-05T00:10:00Z"
    assert (run.interval_start, run.interval_end) == (NOW, NOW + 10 * MINUTE)
    outcome.when(fire, at=NOW + 10 * MINUTE).then()


def test_slots_beyond_the_grace_are_recorded_as_skipped() -> None:
    of = workflow(task("a"), schedule=EVERY_TEN)
    scene = given(Dag(dag="d"), deployed(of, cursor=NOW), rules=RULES)
    outcome = scene.when(c.FireSchedule(dag="d"), at=NOW + 45 * MINUTE)
    outcome.then(e.SlotsSkipped, e.RunCreated, e.RunStarted, e.TaskQueued)
    skipped = outcome.decision.events[0]
    assert isinstance(skipped, e.SlotsSkipped)
    assert (skipped.count, skipped.last) == (3, NOW + 30 * MINUTE)


def test_a_backlog_is_created_only_as_far_as_it_may_wait() -> None:
    of = workflow(task("a"), schedule=Schedule(cron=("* * * * *",), catchup="all"))
    scene = given(Dag(dag="d"), deployed(of, cursor=NOW), e.DagPaused(dag="d", at=NOW), rules=RULES)
    outcome = scene.when(c.UnpauseDag(dag="d"), at=NOW + 600 * MINUTE)
    assert len(outcome.decision.state.queued_runs) <= RULES.backlog_runs
    assert len(outcome.decision.state.runs) >= RULES.backlog_runs - of.concurrency.max_runs


def test_a_scheduled_run_whose_inputs_can_not_be_filled_is_skipped_with_the_reason() -> None:
    of = workflow(task("a"), schedule=EVERY_TEN, inputs={"day": Input(type="date")})
    scene = given(Dag(dag="d"), deployed(of, cursor=NOW), rules=RULES)
    outcome = scene.when(c.FireSchedule(dag="d"), at=NOW + 10 * MINUTE).then(e.SlotsSkipped)
    assert "day" in outcome.decision.events[0].reason  # type: ignore[attr-defined]


def test_pause_remove_and_their_repetition() -> None:
    scene = given(Dag(dag="d"), deployed(workflow(task("a"))), rules=RULES)
    paused = scene.when(c.PauseDag(dag="d", actor="user:ann", reason="move"), at=NOW)
    paused.then(e.DagPaused(dag="d", at=NOW, actor="user:ann", reason="move"))
    paused.when(c.PauseDag(dag="d"), at=NOW).then()
    removed = scene.when(c.RemoveDag(dag="d"), at=NOW).then(e.DagRemoved)
    removed.when(c.RemoveDag(dag="d"), at=NOW).then()
    for command in (c.PauseDag(dag="d"), c.UnpauseDag(dag="d"), c.RemoveDag(dag="d")):
        nobody().when(command, at=NOW).then().rejected("no DAG 'd' is deployed")


def test_a_removed_dag_runs_nothing_and_finishes_what_lives() -> None:
    """C080."""
    of = workflow(task("a"), schedule=EVERY_TEN)
    gone = e.DagRemoved(dag="d", at=NOW)
    scene = given(Dag(dag="d"), deployed(of, cursor=NOW), created(), created("waits"), started(), gone, rules=RULES)
    outcome = scene.when(c.FireSchedule(dag="d"), at=NOW + 60 * MINUTE).then(e.RunStarted, e.TaskQueued)
    assert set(outcome.decision.state.runs) == {"r", "waits"}


def test_deployed_again_after_removal_the_policy_judges_what_passed() -> None:
    of = workflow(task("a"), schedule=Schedule(cron=("*/10 * * * *",), catchup="latest"))
    scene = given(Dag(dag="d"), deployed(of, cursor=NOW), e.DagRemoved(dag="d", at=NOW), rules=RULES)
    outcome = scene.when(deploy(of), at=NOW + 35 * MINUTE)
    assert [type(event) for event in outcome.decision.events][:3] == [e.DagDeployed, e.SlotsSkipped, e.RunCreated]


# --- bounds and overlap --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("catchup", "runs", "skipped"), [("none", 0, 0), ("latest", 1, 2), ("all", 3, 0)])
def test_a_first_deploy_catches_up_with_the_slots_since_its_start(catchup: Catchup, runs: int, skipped: int) -> None:
    schedule = replace(EVERY_TEN, start_ms=NOW - 20 * MINUTE, catchup=catchup)
    decision = nobody().when(deploy(workflow(task("a"), schedule=schedule)), at=NOW).decision
    created = [event for event in decision.events if isinstance(event, e.RunCreated)]
    assert len(created) == runs
    assert sum(event.count for event in decision.events if isinstance(event, e.SlotsSkipped)) == skipped


def test_a_start_to_come_and_an_end_that_is_past_owe_nothing() -> None:
    of = workflow(task("a"), schedule=replace(EVERY_TEN, start_ms=NOW + 20 * MINUTE, end_ms=NOW + 30 * MINUTE))
    outcome = nobody().when(deploy(of), at=NOW).then(deployed(of, cursor=NOW))
    outcome.when(c.FireSchedule(dag="d"), at=NOW + 19 * MINUTE).then()
    last = outcome.when(c.FireSchedule(dag="d"), at=NOW + 30 * MINUTE)
    assert [event.logical_date for event in last.decision.events if isinstance(event, e.RunCreated)] == [
        NOW + 30 * MINUTE
    ]
    assert schedule_due(last.decision.state, 100) is None
    last.when(c.FireSchedule(dag="d"), at=NOW + 300 * MINUTE).then()


def _second_slot(overlap: Overlap) -> Outcome:
    """The first slot's run has one task queued when the second slot comes due; ``max_runs`` is 1."""
    of = workflow(task("a"), schedule=replace(EVERY_TEN, overlap=overlap), concurrency=Concurrency(max_runs=1))
    first = nobody().when(deploy(of), at=NOW).when(c.FireSchedule(dag="d"), at=NOW + 10 * MINUTE)
    return first.when(c.FireSchedule(dag="d"), at=NOW + 20 * MINUTE)


def test_overlap_queue_waits_for_a_place_within_max_runs() -> None:
    _second_slot("queue").then(e.RunCreated)


def test_overlap_skip_records_the_slot_with_the_run_in_its_way() -> None:
    (skipped,) = _second_slot("skip").decision.events
    assert isinstance(skipped, e.SlotsSkipped)
    assert (skipped.first, skipped.last, skipped.count) == (NOW + 20 * MINUTE, NOW + 20 * MINUTE, 1)
    assert skipped.reason == "overlap is skip, and run scheduled__2026-01-05T00:10:00Z is not finished"


def test_overlap_allow_starts_whatever_max_runs_says() -> None:
    _second_slot("allow").then(e.RunCreated, e.RunStarted, e.TaskQueued)


def test_a_slot_that_waits_for_what_it_replaces_holds_up_no_run_that_somebody_asked_for() -> None:
    """The worker of the run it replaces takes its time; ``max_runs`` has room for one more beside that."""
    schedule = replace(EVERY_TEN, overlap="cancel_running")
    of = workflow(task("a"), schedule=schedule, concurrency=Concurrency(max_runs=2))
    outcome = nobody().when(deploy(of), at=NOW).when(c.FireSchedule(dag="d"), at=NOW + 10 * MINUTE)
    where = {"dag": "d", "run_id": slot_run_id(NOW + 10 * MINUTE), "task": "a", "attempt": 1, "worker": "w"}
    outcome = outcome.when(c.GrantSlot(**where, pool="default", mail_partition=0), at=NOW + 10 * MINUTE)
    outcome = outcome.when(c.FireSchedule(dag="d"), at=NOW + 20 * MINUTE)
    outcome.then(e.RunCancelRequested, e.TaskCancelRequested, e.RunCreated)
    outcome = outcome.when(c.StartRun(dag="d", run_id="asked"), at=NOW + 20 * MINUTE)
    outcome.then(e.RunCreated, e.RunStarted, e.TaskQueued)
    outcome = outcome.when(c.StartRun(dag="d", run_id="too_many"), at=NOW + 20 * MINUTE).then(e.RunCreated)
    times = {"started_at": NOW, "ended_at": NOW}
    outcome = outcome.when(c.ReportCancelled(**where, **times), at=NOW + 21 * MINUTE)
    started = [event.run_id for event in outcome.decision.events if isinstance(event, e.RunStarted)]
    assert started == [slot_run_id(NOW + 20 * MINUTE)], "the place that has become free is the slot's, which was first"


def test_overlap_cancel_running_ends_what_waits_and_starts_anew() -> None:
    second = _second_slot("cancel_running")
    second.then(e.RunCancelRequested, e.TaskCancelled, e.RunCancelled, e.RunCreated, e.RunStarted, e.TaskQueued)
    cancel = second.decision.events[0]
    assert isinstance(cancel, e.RunCancelRequested)
    assert cancel.reason == "overlap is cancel_running, and slot 2026-01-05T00:20:00Z has come due"
