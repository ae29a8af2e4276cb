"""Timers are never lost: whatever happens in the batch in which one comes up, its subject still has an end."""

from __future__ import annotations

from typing import Any

import msgspec

from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.rules import Rules
from tidewheel.core.workflow import Retry, Run, Schedule, Task, Workflow
from tidewheel.definition.expressions import CelEvaluator
from tidewheel.log.memory import Fault
from tidewheel.runtime.scheduler import Scheduler
from tidewheel.runtime.timers import Timers
from tidewheel.testing.world import Outcome, World

ONE = Workflow(id="one", tasks=(Task(id="a", action=Run(command="true")),))


def a_world(**more: Any) -> World:
    return World(CelEvaluator(), **more)


def test_a_lease_renewed_in_the_very_batch_in_which_it_runs_out_still_ends_when_its_worker_dies() -> None:
    world = a_world()
    worker = world.add_worker(behaviour=lambda _: Outcome(silent=True))
    world.deploy(ONE)
    world.ask(c.StartRun(dag="one", run_id="r"))
    worker.alive = False
    world.advance(world.rules.lease_ms - 1)
    world.now += 1
    place: dict[str, Any] = {"dag": "one", "run_id": "r", "task": "a", "attempt": 1, "worker": "w1"}
    world.send(c.ReportHeartbeat(**place, beat=1))
    world.settle()
    assert world.events(e.LeaseExpired) == []
    world.advance(world.rules.lease_ms + 1_000)
    assert len(world.events(e.LeaseExpired)) == 1


def test_a_machine_that_slept_or_a_clock_set_forward_expires_nobody_who_is_still_there() -> None:
    world = a_world()
    world.add_worker(behaviour=lambda _: Outcome(takes_ms=60_000))
    world.deploy(ONE)
    world.ask(c.StartRun(dag="one", run_id="r"))
    world.advance(5_000)
    world.now += 3_600_000
    world.schedulers["scheduler-0"].step(0)  # it is back first
    world.advance(90_000)
    assert world.events(e.LeaseExpired, e.WorkerLeft) == []
    assert len(world.events(e.RunSucceeded)) == 1


def test_time_that_was_granted_is_not_taken_back_by_a_clock_that_was_set_back_and_jumps() -> None:
    world = a_world()
    world.settle()
    scheduler = world.schedulers["scheduler-0"]
    granted = {number: shard.grace_until for number, shard in scheduler._owned.items()}
    for shift in (-60_000, 20_000):
        world.now += shift
        scheduler.step(0)
    assert granted
    assert all(shard.grace_until >= granted[number] for number, shard in scheduler._owned.items())


def test_a_clock_that_ticks_while_a_batch_is_decided_loses_no_timer() -> None:
    """Each look at the clock shows a later millisecond, so that something comes due at every point of a turn."""
    world = a_world()
    del world.schedulers["scheduler-0"]
    world.log.expel("scheduler-0")

    def clock() -> int:
        world.now += 1
        return world.now

    scheduler = Scheduler(world.log, "ticking", world.rules.evaluator, clock=clock, rules=world.rules)
    world.schedulers["ticking"] = scheduler
    world.add_worker(behaviour=lambda work: Outcome(fails="exception" if work.attempt < 40 else None))
    retry = Retry(max=100, delay_ms=40, backoff="fixed")
    world.deploy(Workflow(id="one", tasks=(Task(id="a", action=Run(command="true"), retry=retry),)))
    world.send(c.StartRun(dag="one", run_id="r"))
    for _ in range(2_000):
        scheduler.step(0)
        for worker in world.workers:
            worker.act()
        while world._later and world._later[0][0] <= world.now:
            world._later.pop(0)[2]()
        if world.events(e.RunSucceeded):
            return
    raise AssertionError("a retry was never made")


def test_the_heap_holds_each_timer_once_however_often_it_is_armed() -> None:
    timers = Timers(Rules(evaluator=CelEvaluator()), 4)
    lease = c.ExpireLease(dag="one", run_id="r", task="a", attempt=1)
    for due in (500, 400, 600, 400, 500):
        timers.arm(due, lease)
    assert len(timers) == 2  # 500, and then the earlier 400
    assert timers.next_due() == 400


def test_aborts_leave_no_copies_of_timers_behind() -> None:
    world = a_world()
    world.add_worker()
    world.deploy(msgspec.structs.replace(ONE, schedule=Schedule(every_ms=3_600_000)))
    world.settle()
    (scheduler,) = world.schedulers.values()
    before = len(scheduler._timers)
    for number in range(50):
        world.log.inject(Fault.ABORT)
        world.ask(c.StartRun(dag="one", run_id=f"r{number}"))
        world.advance(1_000)
    assert len(scheduler._timers) <= before + 50  # leases that ended stay until their time, nothing else
    world.advance(120_000)
    assert len(scheduler._timers) == before
