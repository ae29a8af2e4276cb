"""What broke in other engines, tried on the whole of ours under virtual time (docs/field-reports.md)."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.fold import FOLDS
from tidewheel.core.workflow import Concurrency, Retry, Run, Schedule, Task, Workflow
from tidewheel.definition.expressions import CelEvaluator
from tidewheel.testing.world import Outcome, World

MINUTE = 60_000
HOUR = 60 * MINUTE


def task(id_: str, *needs: str, **more: Any) -> Task:
    return Task(id=id_, action=Run(command="true"), needs=needs, **more)


def a_world(**more: Any) -> World:
    return World(CelEvaluator(), **more)


def restart(world: World, name: str = "scheduler-0") -> None:
    world.kill_scheduler(name)
    world.start_scheduler(name)


def ends(world: World) -> dict[str, str]:
    found: dict[str, str] = {}
    for event in world.events(e.RunSucceeded, e.RunFailed, e.RunCancelled):
        assert isinstance(event, e.RunSucceeded | e.RunFailed | e.RunCancelled)
        assert event.run_id not in found, "a run ended twice"
        found[event.run_id] = type(event).__name__
    return found


@pytest.mark.parametrize(
    ("cron", "zone", "start", "slot"),
    [
        ("59 1 * * *", "America/New_York", "2026-11-01T04:00:00", "2026-11-01T05:59:00Z"),
        ("30 2 * * *", "America/New_York", "2026-03-08T05:00:00", "2026-03-08T07:00:00Z"),
        ("35 5 * * *", "Europe/Zurich", "2026-06-01T03:00:00", "2026-06-01T03:35:00Z"),
    ],
)
def test_one_run_that_day_however_often_the_scheduler_restarts(cron: str, zone: str, start: str, slot: str) -> None:
    """C002, C014, C022: also between the two showings of a wall time, and an hour after a slot."""
    world = a_world()
    world.now = int(datetime.fromisoformat(start).replace(tzinfo=UTC).timestamp() * 1000)
    world.add_worker()
    world.deploy(Workflow(id="one", tasks=(task("a"),), schedule=Schedule(cron=(cron,), timezone=zone)))
    for _ in range(16):
        world.advance(15 * MINUTE, step_ms=5 * MINUTE)
        restart(world)
    assert ends(world) == {f"scheduled__{slot}": "RunSucceeded"}
    world.check()


def test_when_everything_died_every_task_is_tried_again() -> None:
    """C054: all workers and the scheduler killed; started again after two leases."""
    world = a_world()
    world.add_worker("w1", slots=8, behaviour=lambda _: Outcome(takes_ms=HOUR))
    world.deploy(Workflow(id="wide", tasks=tuple(task(f"t{n}") for n in range(8))))
    world.ask(c.StartRun(dag="wide", run_id="r"))
    world.advance(5_000)
    world.workers[0].alive = False
    world.kill_scheduler("scheduler-0")
    world.now += 60_000
    world.start_scheduler("scheduler-0")
    world.add_worker("w2", slots=8)
    world.advance(40_000)
    assert ends(world) == {"r": "RunSucceeded"}
    assert sorted(world.started) == [("wide", "r", f"t{n}", attempt) for n in range(8) for attempt in (1, 2)]
    world.check()


def test_a_delay_much_longer_than_a_lease_is_waited_out_once() -> None:
    """C056: six hours of back-off, leases of 30 s, restarts in between."""
    world = a_world()
    world.add_worker(behaviour=lambda work: Outcome(fails="exit_code" if work.attempt == 1 else None, exit_code=1))
    retry = Retry(max=1, delay_ms=6 * HOUR, jitter=False)
    world.deploy(Workflow(id="one", tasks=(task("a", retry=retry),)))
    world.ask(c.StartRun(dag="one", run_id="r"))
    world.settle()
    begun = world.now
    for _ in range(5):
        world.advance(HOUR, step_ms=10 * MINUTE)
        restart(world)
        assert world.started == [("one", "r", "a", 1)]
    world.advance(2 * HOUR, step_ms=MINUTE)
    assert world.started == [("one", "r", "a", 1), ("one", "r", "a", 2)]
    (again,) = (event for event in world.events(e.TaskQueued) if isinstance(event, e.TaskQueued) and event.attempt == 2)
    assert 6 * HOUR <= again.at - begun < 6 * HOUR + MINUTE
    world.check()


@pytest.mark.parametrize("seed", range(3))
def test_no_join_waits_for_ever_when_schedulers_die_at_random(seed: int) -> None:
    """C045, as far as virtual time goes: a 30-way fan-out, schedulers killed at random."""
    dice = random.Random(seed)
    world = a_world(schedulers=2, checkpoint_events=100)
    world.add_worker(slots=40, behaviour=lambda _: Outcome(takes_ms=dice.randrange(3_000)))
    names = [f"b{n}" for n in range(30)]
    tasks = (task("a"), *(task(name, "a") for name in names), task("z", *names))
    world.deploy(Workflow(id="wide", tasks=tasks, concurrency=Concurrency(max_runs=3)))
    for number in range(6):
        world.send(c.StartRun(dag="wide", run_id=f"r{number}"))
    for _ in range(15):
        world.advance(dice.randrange(100, 1_500), step_ms=100)
        restart(world, f"scheduler-{dice.randrange(2)}")
    world.advance(120_000)
    assert ends(world) == {f"r{number}": "RunSucceeded" for number in range(6)}
    world.check()


def test_an_event_that_can_not_be_folded_is_never_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """C106: the fold raises at one event; its command is parked once, and a restart finds the state of before."""
    sound = FOLDS[e.TaskHeartbeat]

    def breaks(state: Any, event: Any) -> Any:
        if event.dag == "bad":
            raise RuntimeError("injected")
        return sound(state, event)

    world = a_world(checkpoint_events=20)
    world.add_worker(slots=10, behaviour=lambda work: Outcome(takes_ms=25_000 if work.dag == "good" else 15_000))
    for dag in ("good", "bad"):
        world.deploy(Workflow(id=dag, tasks=(task("a"), task("b", "a"))))
        world.ask(c.StartRun(dag=dag, run_id=f"{dag}_run"))
    monkeypatch.setitem(cast("dict[Any, Any]", FOLDS), e.TaskHeartbeat, breaks)
    world.advance(5_000)
    restart(world)
    world.advance(80_000)
    assert ends(world) == {"bad_run": "RunSucceeded", "good_run": "RunSucceeded"}
    assert not [event for event in world.events(e.TaskHeartbeat) if event.dag == "bad"]  # type: ignore[union-attr]
    world.check()
