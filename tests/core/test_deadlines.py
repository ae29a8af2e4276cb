"""Every wait of a state has its timer, and no other."""

from __future__ import annotations

from tests.core.scenes import NOW, RULES, deployed, in_run, joined, leased, pool, queued, succeeded, task, workflow
from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.attempt import AttemptFields
from tidewheel.core.deadlines import armed_by, due_at, timers_of
from tidewheel.core.state import Dag
from tidewheel.core.workflow import Schedule
from tidewheel.testing.playbook import given

BACKLOG = RULES.backlog_runs
WAIT: AttemptFields = {"dag": "d", "run_id": "r", "task": "a", "attempt": 1}
LEASE = c.ExpireLease(**WAIT)


def test_a_lease_has_a_timer_until_it_ends() -> None:
    scene = in_run(workflow(task("a"), task("b", "a")), queued("a"), leased("a"))
    assert list(timers_of(scene.state, BACKLOG)) == [(NOW + 30_000, LEASE)]
    assert armed_by(leased("a"), scene.state, BACKLOG) == (NOW + 30_000, LEASE)
    ended = given(scene.state, succeeded("a"), queued("b"), rules=RULES)
    assert list(timers_of(ended.state, BACKLOG)) == []
    assert due_at(ended.state, LEASE, BACKLOG) is None


def test_a_renewed_lease_moves_its_timer() -> None:
    scene = in_run(workflow(task("a")), queued("a"), leased("a"))
    beat = e.TaskHeartbeat(dag="d", run_id="r", task="a", attempt=1, at=NOW, worker="w1", expires_at=NOW + 50_000)
    assert due_at(given(scene.state, beat, rules=RULES).state, LEASE, BACKLOG) == NOW + 50_000


def test_a_back_off_has_a_timer() -> None:
    lost = e.LeaseExpired(dag="d", run_id="r", task="a", attempt=1, at=NOW, worker="w1", message="", retry_at=NOW + 5)
    scene = in_run(workflow(task("a")), queued("a"), leased("a"), lost)
    timer = (NOW + 5, c.RetryTask(dag="d", run_id="r", task="a"))
    assert list(timers_of(scene.state, BACKLOG)) == [timer]
    assert armed_by(lost, scene.state, BACKLOG) == timer


def test_a_schedule_has_a_timer_unless_paused_removed_or_held_back() -> None:
    of = workflow(task("a"), schedule=Schedule(every_ms=60_000))
    scene = given(Dag(dag="d"), deployed(of, cursor=NOW), rules=RULES)
    timer = (NOW + 60_000, c.FireSchedule(dag="d"))
    assert list(timers_of(scene.state, BACKLOG)) == [timer]
    assert armed_by(deployed(of, cursor=NOW), scene.state, BACKLOG) == timer
    for stop in (e.DagPaused(dag="d", at=NOW), e.DagRemoved(dag="d", at=NOW)):
        stopped = given(scene.state, stop, rules=RULES)
        assert list(timers_of(stopped.state, BACKLOG)) == []
        assert due_at(stopped.state, timer[1], BACKLOG) is None
    asked = [e.RunCreated(dag="d", run_id=f"m{n}", at=NOW, version="v1", kind="manual") for n in range(BACKLOG)]
    assert due_at(given(scene.state, *asked, rules=RULES).state, timer[1], BACKLOG) == timer[0], "not its own runs"
    slots = [(f"r{n}", NOW - (BACKLOG - n) * 60_000) for n in range(BACKLOG)]
    waiting = [
        e.RunCreated(dag="d", run_id=run_id, at=NOW, version="v1", kind="scheduled", logical_date=slot)
        for run_id, slot in slots
    ]
    full = given(scene.state, *waiting, rules=RULES)
    assert due_at(full.state, timer[1], BACKLOG) is None
    start = e.RunStarted(dag="d", run_id="r0", at=NOW)
    due = (slots[-1][1] + 60_000, timer[1])
    assert armed_by(start, given(full.state, start, rules=RULES).state, BACKLOG) == due


def test_a_worker_has_a_timer_until_it_leaves() -> None:
    scene = pool(joined())
    timer = (NOW + 60_000, c.ExpireWorker(pool="default", worker="w1"))
    assert list(timers_of(scene.state, BACKLOG)) == [timer]
    assert armed_by(joined(), scene.state, BACKLOG) == timer
    left = e.WorkerLeft(pool="default", at=NOW, worker="w1")
    assert due_at(given(scene.state, left, rules=RULES).state, timer[1], BACKLOG) is None


def test_a_wait_that_ends_in_the_decision_that_began_it_needs_no_timer() -> None:
    """The run that a task was queued in may be over, by a cancel that came of the same decision."""
    scene = in_run(workflow(task("a", queue_timeout_ms=1_000)), queued("a"))
    assert armed_by(queued("a"), scene.state, BACKLOG) == (NOW + 1_000, c.ExpireQueued(**WAIT))
    assert armed_by(queued("a"), Dag(dag="d"), BACKLOG) is None
