"""What broke elsewhere in backfills, fan-outs, joins, retries and clears, on the whole of ours under virtual time.

The ids are those of docs/field-reports.md.
"""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from tests.runtime.worlds import (
    HOUR,
    MINUTE,
    SECOND,
    a_world,
    dead_letters,
    ends,
    ends_of,
    nothing_is_left,
    restart,
    started_runs,
    task,
)
from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.mail import AssignTask
from tidewheel.core.scope import slot_run_id
from tidewheel.core.workflow import Concurrency, Retry, Schedule, Workflow
from tidewheel.log.interface import COMMANDS
from tidewheel.testing.world import START_MS, Outcome, World

# --- backfill ------------------------------------------------------------------------------------------------------

FIRST = START_MS - 4 * HOUR
DATES = [slot_run_id(FIRST + n * HOUR) for n in range(5)]


def five_dates(world: World) -> None:
    """An hourly DAG whose runs wait for each other, and a backfill of five dates that has finished."""
    world.add_worker(behaviour=lambda _: Outcome(takes_ms=5_000))
    hourly = Schedule(cron=("0 * * * *",), end_ms=START_MS)
    flow = Workflow(id="d", tasks=(task("a"), task("b", "a")), schedule=hourly, concurrency=Concurrency(max_runs=1))
    world.deploy(flow)
    assert world.ask(c.StartBackfill(dag="d", since=FIRST, until=START_MS)).ok
    world.advance(MINUTE)
    assert ends(world) == dict.fromkeys(DATES, "RunSucceeded")
    assert started_runs(world) == DATES


@pytest.mark.parametrize("order", [DATES[1:], DATES[:0:-1]], ids=["forward", "backward"])
def test_c032_cleared_dates_of_a_backfill_run_again_in_order(order: list[str]) -> None:
    """While the DAG is paused, so that all of them wait when it goes on; the scheduler restarts in between."""
    world = a_world()
    five_dates(world)
    world.ask(c.PauseDag(dag="d"))
    for run_id in order:
        assert world.ask(c.ClearTasks(dag="d", run_id=run_id, tasks="[]")).created
    assert started_runs(world) == DATES
    restart(world)
    world.ask(c.UnpauseDag(dag="d"))
    for _ in range(4):
        world.advance(15 * SECOND)
        restart(world)
    assert started_runs(world)[5:] == DATES[1:], "by date, in whatever order they were cleared"
    at_work = 0
    for event in world.events(e.RunStarted, e.RunSucceeded):
        at_work += 1 if isinstance(event, e.RunStarted) else -1
        assert at_work in (0, 1)
    assert len(world.events(e.RunSucceeded)) == 9
    assert sorted(attempt for *_, attempt in world.started) == [1] * 10 + [2] * 8
    nothing_is_left(world)


def test_c032_dates_that_a_backfill_runs_again_do_so_by_date() -> None:
    world = a_world()
    five_dates(world)
    again = c.StartBackfill(dag="d", since=FIRST + HOUR, until=START_MS, reprocess="all")
    assert world.ask(again).ok
    world.advance(MINUTE)
    assert started_runs(world)[5:] == DATES[1:]
    assert len(world.events(e.RunSucceeded)) == 9
    assert len(world.events(e.BackfillFinished)) == 2
    nothing_is_left(world)


# --- fan-out and joins ---------------------------------------------------------------------------------------------


def ten_items(work: AssignTask) -> Outcome:
    """Item n takes n seconds; those below 5 fail."""
    if not work.task.startswith("work"):
        return Outcome()
    number = int(work.task.strip("work[_]"))
    return Outcome(takes_ms=number * SECOND, fails="exit_code" if number < 5 else None, exit_code=1)


@pytest.mark.parametrize("mapped", [True, False])
def test_c040_a_join_is_ready_after_the_tenth_item(mapped: bool) -> None:
    world = a_world()
    world.add_worker(slots=10, behaviour=ten_items)
    parts = (task("work", for_each=list(range(10))),) if mapped else tuple(task(f"work_{n}") for n in range(10))
    join = task("join", *(part.id for part in parts), trigger_rule="all_done")
    world.deploy(Workflow(id="d", tasks=(*parts, join)))
    world.ask(c.StartRun(dag="d", run_id="r"))
    begun = world.now
    for second in range(9):
        assert not [event for event in world.events(e.TaskQueued) if getattr(event, "task", "") == "join"], second
        world.advance(SECOND, step_ms=100)
        restart(world)
    (queued,) = (event for event in world.events(e.TaskQueued) if getattr(event, "task", "") == "join")
    assert isinstance(queued, e.TaskQueued)
    assert queued.at == begun + 9 * SECOND
    assert len(world.events(e.TaskFailed)) == 5 + mapped, "five items; and the mapped task for them"
    assert ends(world) == {"r": "RunSucceeded"}, "by its leaf, the join"
    nothing_is_left(world)


@pytest.mark.parametrize("needs", [(), ("list",)])
def test_c038_c046_what_follows_an_empty_fan_out_runs_once(needs: tuple[str, ...]) -> None:
    """Also when the fan-out is the first task of the DAG, and when the list is what another task gave."""
    world = a_world()
    world.add_worker(behaviour=lambda work: Outcome(output=[]) if work.task == "list" else Outcome())
    work = task("work", *needs, for_each="${{ tasks.list.output }}" if needs else [])
    tasks = (*map(task, needs), work, task("join", "work", trigger_rule="all_done"), task("next", "work"))
    world.deploy(Workflow(id="d", tasks=tasks))
    world.ask(c.StartRun(dag="d", run_id="r"))
    world.advance(MINUTE)
    assert [name for _, _, name, _ in world.started] == [*needs, "join", "next"]
    assert ends(world) == {"r": "RunSucceeded"}
    nothing_is_left(world)


@pytest.mark.parametrize("seed", range(4))
def test_c045_no_join_waits_for_ever_when_schedulers_die_at_random(seed: int) -> None:
    """A quarter of a thousand runs each of a fan-out to 30; a scheduler dies every second or so."""
    dice = random.Random(seed)
    world = a_world(schedulers=2, checkpoint_events=2_000)
    world.add_worker(slots=500, behaviour=lambda _: Outcome(takes_ms=dice.randrange(100, 3_000, 100)))
    written = [task(f"part_{n}", "list") for n in range(30)]
    mapped = [task("parts", "list", for_each=list(range(30)), max_parallel=dice.choice([None, 7]))]
    parts = written if seed % 2 else mapped
    tasks = (task("list"), *parts, task("join", *(part.id for part in parts)))
    world.deploy(Workflow(id="wide", tasks=tasks, concurrency=Concurrency(max_runs=50)))
    names = [f"r{number}" for number in range(250)]
    for name in names:
        world.send(c.StartRun(dag="wide", run_id=name))
    for _ in range(40):
        world.advance(dice.randrange(200, 2_000, 100), step_ms=200)
        restart(world, f"scheduler-{dice.randrange(2)}")
    world.advance(30 * SECOND)
    assert ends(world) == dict.fromkeys(names, "RunSucceeded")
    assert len(world.started) == len(set(world.started)) == 250 * 32, "no attempt began twice, none was lost"
    nothing_is_left(world)


# --- retries -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("silent", [False, True])
def test_c048_a_task_that_fails_twice_feeds_two_levels_and_nothing_runs_on(silent: bool) -> None:
    """Failing by its own code, or with its worker; the task of the next level has its failures too."""

    def act(work: AssignTask) -> Outcome:
        if work.attempt == 3 or work.task == "c":
            return Outcome()
        return Outcome(silent=True) if silent else Outcome(fails="exit_code", exit_code=1)

    world = a_world()
    world.add_worker(behaviour=act)
    twice = {"retry": Retry(max=2, delay_ms=10_000), "infra_retries": 2}
    world.deploy(Workflow(id="d", tasks=(task("a", **twice), task("b", "a", **twice), task("c", "b"))))
    world.ask(c.StartRun(dag="d", run_id="r"))
    world.advance(4 * MINUTE)
    tries = [("a", 1), ("a", 2), ("a", 3), ("b", 1), ("b", 2), ("b", 3), ("c", 1)]
    assert [key[2:] for key in world.started] == tries
    assert ends(world) == {"r": "RunSucceeded"}
    nothing_is_left(world)


def test_c052_a_retry_plan_that_raises_stops_its_own_run_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    from tidewheel.core.decide import task as deciding

    sound = deciding.retry_at

    def raises(of: Any, **more: Any) -> int | None:
        if of.id == "poison":
            raise OverflowError("injected: the delay has no end")
        return sound(of, **more)

    world = a_world()
    world.add_worker(slots=4, behaviour=lambda work: Outcome(fails="exit_code" if work.attempt == 1 else None))
    retry = Retry(max=1, delay_ms=5_000, jitter=False)
    for number in range(20):
        every = Schedule(cron=("* * * * *",))
        world.deploy(Workflow(id=f"good_{number}", tasks=(task("a", retry=retry),), schedule=every))
    world.deploy(Workflow(id="bad", tasks=(task("poison", retry=retry),)))
    with monkeypatch.context() as patched:
        patched.setattr(deciding, "retry_at", raises)
        world.ask(c.StartRun(dag="bad", run_id="r"))
        world.advance(5 * MINUTE + 30 * SECOND, step_ms=5_000)
        done = [event for event in world.events(e.RunSucceeded) if isinstance(event, e.RunSucceeded)]
        assert len(done) == 20 * 5
        assert {event.at % MINUTE for event in done} == {5_000}, "on time, each with its one retry"
        letters = dead_letters(world)
        assert {letter.code for letter in letters} == {"failed"}
        assert all("injected" in letter.reason and "bad" in letter.reason for letter in letters)
        assert [letter.topic for letter in letters] == [COMMANDS, "engine"], "its report, and the end of its lease"
        restart(world)
        world.advance(MINUTE)
        assert "r" not in ends_of(world, "bad")
    restart(world)
    world.advance(MINUTE)
    assert ends_of(world, "bad") == {"r": "RunSucceeded"}, "with the fault mended it goes on"
    world.check()


# --- clear ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("asked", [{"only_failed": True}, {"tasks": '["a"]'}], ids=["from failed", "with downstream"])
def test_c063_what_was_repaired_upstream_runs_again_downstream(asked: dict[str, Any]) -> None:
    repaired = False
    world = a_world()
    world.add_worker(behaviour=lambda work: Outcome(fails=None if repaired or work.task != "a" else "exit_code"))
    world.deploy(Workflow(id="d", tasks=(task("a"), task("b", "a"), task("c", "b"), task("beside"))))
    world.ask(c.StartRun(dag="d", run_id="r"))
    world.settle()
    assert ends(world) == {"r": "RunFailed"}
    assert len(world.events(e.TaskUpstreamFailed)) == 2
    repaired = True
    reply = world.ask(c.ClearTasks(**{"dag": "d", "run_id": "r", "tasks": "[]", **asked}))
    assert json.loads(reply.details)["tasks"] == ["a", "b", "c"]
    world.settle()
    assert sorted(key[2:] for key in world.started) == [("a", 1), ("a", 2), ("b", 1), ("beside", 1), ("c", 1)]
    assert len(world.events(e.RunSucceeded)) == 1
    nothing_is_left(world)
