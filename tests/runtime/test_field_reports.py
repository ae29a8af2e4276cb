"""What broke in other engines, tried on the whole of ours under virtual time (docs/field-reports.md)."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from tests.runtime.test_recovery import copy, folded, images, records
from tests.runtime.worlds import HOUR, MINUTE, a_world, dead_letters, ends, restart, task
from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.fold import FOLDS
from tidewheel.core.workflow import Concurrency, Retry, Schedule, Task, TimeWait, WaitFor, Workflow
from tidewheel.log.interface import SNAPSHOTS, Batch
from tidewheel.log.memory import MemoryOwner
from tidewheel.log.partition import partition_of
from tidewheel.runtime.scheduler import POLL_S_MAX, Scheduler
from tidewheel.testing.world import START_MS, Outcome, World


@pytest.mark.parametrize(
    ("cron", "zone", "start", "slot"),
    [
        ("59 1 * * *", "America/New_York", "2026-11-01T04:00:00", "2026-11-01T05:59:00Z"),
        ("30 2 * * *", "America/New_York", "2026-03-08T05:00:00", "2026-03-08T07:00:00Z"),
        ("35 5 * * *", "Europe/Zurich", "2026-01-15T02:00:00", "2026-01-15T04:35:00Z"),
    ],
)
def test_one_run_that_day_however_often_the_scheduler_restarts(cron: str, zone: str, start: str, slot: str) -> None:
    """C002, C014, C022: also between the two showings of a wall time, and 65 minutes after a slot that may be two hours
    late in a zone an hour from UTC."""
    world = a_world()
    world.now = int(datetime.fromisoformat(start).replace(tzinfo=UTC).timestamp() * 1000)
    world.add_worker()
    schedule = Schedule(cron=(cron,), timezone=zone, misfire_grace_ms=2 * HOUR)
    world.deploy(Workflow(id="one", tasks=(task("a"),), schedule=schedule))
    for _ in range(48):
        world.advance(5 * MINUTE, step_ms=5 * MINUTE)
        restart(world)
    assert ends(world) == {f"scheduled__{slot}": "RunSucceeded"}
    world.check()


def test_a_clock_that_is_set_back_by_an_hour_costs_nobody_a_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """C023: nobody sleeps for that hour, no worker is given up, no shard moves, and no slot comes twice."""
    world = a_world(schedulers=2)
    world.add_worker(behaviour=lambda _: Outcome(takes_ms=40 * MINUTE))
    world.deploy(Workflow(id="one", tasks=(task("a"),), schedule=Schedule(cron=("*/10 * * * *",))))
    world.advance(11 * MINUTE, step_ms=10_000)
    owners = {name: scheduler.status.shards for name, scheduler in world.schedulers.items()}
    world.now -= HOUR
    world.settle()
    slept: list[float] = []
    poll = MemoryOwner.poll

    def never_sleeps(owner: MemoryOwner, most: int, timeout_s: float) -> Batch:
        slept.append(timeout_s)
        return poll(owner, most, 0)

    with monkeypatch.context() as patched:
        patched.setattr(MemoryOwner, "poll", never_sleeps)
        for scheduler in world.schedulers.values():
            scheduler.step(POLL_S_MAX)
    assert len(slept) == 2 and max(slept) <= POLL_S_MAX
    world.ask(c.StartRun(dag="one", run_id="asked"))
    assert [run for _, run, *_ in world.started] == ["scheduled__2026-01-05T00:10:00Z", "asked"], "at once"
    world.advance(70 * MINUTE, step_ms=10_000)
    assert {name: scheduler.status.shards for name, scheduler in world.schedulers.items()} == owners
    assert world.events(e.LeaseExpired, e.WorkerLeft, e.WorkerSuspended) == []
    found = [event.logical_date for event in world.events(e.RunCreated) if isinstance(event, e.RunCreated)]
    assert found == [START_MS + 10 * MINUTE, None, START_MS + 20 * MINUTE]
    assert {attempt for *_, attempt in world.started} == {1}
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


def test_a_start_that_is_put_off_for_much_longer_than_a_lease_is_one_start() -> None:
    """C056: it waits for six hours, leases are of 30 s, the scheduler restarts in between."""
    world = a_world()
    world.add_worker()
    later = Task(id="later", action=WaitFor(what=TimeWait(after_ms=6 * HOUR)))
    world.deploy(Workflow(id="one", tasks=(later, task("a", "later"))))
    world.ask(c.StartRun(dag="one", run_id="r"))
    for _ in range(35):
        world.advance(10 * MINUTE, step_ms=MINUTE)
        restart(world)
        assert world.started == []
    world.advance(HOUR, step_ms=MINUTE)
    assert world.started == [("one", "r", "a", 1)]
    assert ends(world) == {"r": "RunSucceeded"}
    (queued,) = (event for event in world.events(e.TaskQueued) if isinstance(event, e.TaskQueued))
    assert queued.at == START_MS + 6 * HOUR
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


def test_an_event_that_can_not_be_folded_is_parked_once_and_a_restart_finds_the_same_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """C106: the fold raises at one event after a checkpoint; the owner restarts, with and without that checkpoint."""
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
    world.advance(12_000)
    letters = dead_letters(world)
    assert [(letter.code, "injected" in letter.reason) for letter in letters] == [("failed", True)]
    scheduler = world.schedulers["scheduler-0"]
    assert isinstance(scheduler, Scheduler)
    before = {number: images(shard) for number, shard in scheduler._owned.items()}
    restart(world)
    world.settle()
    assert dead_letters(world) == letters, "it is not read again"
    whole = copy(world.log, lambda record: [] if record.topic == SNAPSHOTS else [record])
    assert records(world.log, SNAPSHOTS, partition_of(b"good", 4))
    for number, shard in before.items():
        assert images(folded(world.log, number)) == images(folded(whole, number)) == shard
    world.advance(80_000)
    assert ends(world) == {"bad_run": "RunSucceeded", "good_run": "RunSucceeded"}
    assert not [event for event in world.events(e.TaskHeartbeat) if event.dag == "bad"]  # type: ignore[union-attr]
    assert {letter.code for letter in dead_letters(world)} == {"failed"}
    world.check()


def at_once(world: World) -> list[str]:
    """Run ids in the order they started; fails if ``max_runs`` of their DAG, 1, was ever passed."""
    order: list[str] = []
    live = 0
    for event in world.events(e.RunStarted, e.RunSucceeded, e.RunFailed):
        assert isinstance(event, e.RunStarted | e.RunSucceeded | e.RunFailed)
        live += 1 if isinstance(event, e.RunStarted) else -1
        assert live <= 1, f"{event.run_id} makes {live} at once"
        if isinstance(event, e.RunStarted):
            order.append(event.run_id)
    return order


def test_fifty_dates_caught_up_one_at_a_time_and_by_date_by_two_schedulers() -> None:
    """C070: a daily schedule that was paused for 50 days; the schedulers take turns in dying."""
    dice = random.Random(70)
    world = a_world(schedulers=2, checkpoint_events=50)
    schedule = Schedule(cron=("0 6 * * *",), catchup="all")
    limits = Concurrency(max_runs=1)
    world.deploy(Workflow(id="daily", tasks=(task("a"), task("b", "a")), schedule=schedule, concurrency=limits))
    world.ask(c.PauseDag(dag="daily"))
    world.now += 50 * 24 * HOUR
    world.add_worker(slots=20, behaviour=lambda _: Outcome(takes_ms=dice.randrange(2_000)))
    world.ask(c.UnpauseDag(dag="daily"))
    for turn in range(12):
        world.advance(10_000, step_ms=500)
        restart(world, f"scheduler-{turn % 2}")
    world.advance(30_000)
    order = at_once(world)
    assert order == sorted(order)
    assert (len(order), order[0], order[-1]) == (
        50,
        "scheduled__2026-01-05T06:00:00Z",
        "scheduled__2026-02-23T06:00:00Z",
    )
    assert set(ends(world).values()) == {"RunSucceeded"}
    world.check()


def test_of_four_triggers_two_run_and_two_wait_whatever_is_refused_in_between() -> None:
    """C075: nothing that was refused, said twice or cancelled counts."""
    world = a_world()
    world.add_worker(slots=9, behaviour=lambda _: Outcome(takes_ms=10_000))
    world.deploy(Workflow(id="two", tasks=(task("a"),), concurrency=Concurrency(max_runs=2)))
    for number in range(1, 6):
        assert world.ask(c.StartRun(dag="two", run_id=f"r{number}")).ok
        assert not world.ask(c.StartRun(dag="two", run_id=f"r{number}")).created
        assert world.ask(c.StartRun(dag="two", run_id=f"x{number}", inputs='{"surplus": 1}')).code == "invalid"
    assert world.ask(c.CancelRun(dag="two", run_id="r4")).ok
    assert world.ask(c.CancelRun(dag="two", run_id="r4")).code == "conflict"

    def started() -> list[str]:
        return [event.run_id for event in world.events(e.RunStarted) if isinstance(event, e.RunStarted)]

    assert started() == ["r1", "r2"]
    restart(world)
    world.advance(5_000)
    assert started() == ["r1", "r2"]
    world.advance(11_000)
    assert started() == ["r1", "r2", "r3", "r5"]
    world.advance(11_000)
    assert ends(world) == {**{f"r{number}": "RunSucceeded" for number in (1, 2, 3, 5)}, "r4": "RunCancelled"}
    world.check()


@pytest.mark.parametrize("paused", [False, True])
def test_a_definition_that_goes_takes_no_run_along(paused: bool) -> None:
    """C080: 10 running and 10 waiting; all finish, none is cancelled, and no new one is made."""
    world = a_world()
    world.add_worker(slots=20, behaviour=lambda _: Outcome(takes_ms=5_000))
    flow = Workflow(
        id="going",
        tasks=(task("a"), task("b", "a")),
        schedule=Schedule(every_ms=MINUTE),
        concurrency=Concurrency(max_runs=10),
    )
    world.deploy(flow)
    for number in range(20):
        world.ask(c.StartRun(dag="going", run_id=f"r{number:02}"))
    world.advance(1_000)
    assert len(world.events(e.RunStarted)) == 10
    if paused:
        world.ask(c.PauseDag(dag="going"))
    assert world.ask(c.RemoveDag(dag="going", reason="its file is gone")).ok
    restart(world)
    refused = world.ask(c.StartRun(dag="going", run_id="late"))
    assert (refused.code, "removed" in refused.message) == ("conflict", True)
    if paused:
        world.advance(5 * MINUTE)
        assert len(ends(world)) == 10, "what waits goes on waiting"
        world.ask(c.UnpauseDag(dag="going"))
    world.advance(5 * MINUTE)
    assert ends(world) == {f"r{number:02}": "RunSucceeded" for number in range(20)}
    world.check()


def test_who_got_no_answer_from_a_dead_owner_gets_the_same_run_when_asking_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """C112: the owner dies between its commit and the answer, and before it has read the request at all."""
    world = a_world()
    world.add_worker()
    world.deploy(Workflow(id="one", tasks=(task("a"),)))
    request = c.StartRun(dag="one", run_id="r")
    with monkeypatch.context() as patched:
        patched.setattr(world.schedulers["scheduler-0"], "_send", lambda mail: None)
        with pytest.raises(AssertionError, match="no reply"):
            world.ask(request)
    assert len(world.events(e.RunCreated)) == 1
    world.kill_scheduler("scheduler-0")
    with pytest.raises(AssertionError, match="no reply"):
        world.ask(request)
    world.start_scheduler("scheduler-1")
    again = world.ask(request)
    assert (again.ok, again.run_id, again.created) == (True, "r", False)
    world.advance(1_000)
    assert ends(world) == {"r": "RunSucceeded"}
    world.check()


_WIDE = """
import json, sys, time
from tidewheel.core import commands as c, events as e
from tidewheel.core.workflow import Concurrency, Run, Task, Workflow
from tidewheel.definition.expressions import CelEvaluator
from tidewheel.log.interface import TOPICS
from tidewheel.testing.world import World

def task(name, *needs):
    return Task(id=name, action=Run(command="true"), needs=needs)

size, limit = int(sys.argv[1]), json.loads(sys.argv[2])
world = World(CelEvaluator(), partitions=1, checkpoint_events=max(1_000, 2 * size))
world.add_worker(slots=500)
names = [f"part_{n}" for n in range(size - 2)]
tasks = (task("first"), *(task(name, "first") for name in names), task("last", *names))
world.deploy(Workflow(id="wide", tasks=tasks, concurrency=Concurrency(max_tasks=limit)))
begun = time.process_time()
world.ask(c.StartRun(dag="wide", run_id="r"))
took = time.process_time() - begun
assert len(world.events(e.RunSucceeded)) == 1
sizes = []
for topic in TOPICS:
    records = world.log.reader({(topic, 0): 0}).read(10_000_000, 0)
    sizes += [(len(record.value or b""), topic) for record in records]
sizes.sort(reverse=True)
# Not ru_maxrss: that one begins with what the test process had when it forked.
peak = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps({"ms": took * 1e3 / size, "peak_mib": peak / 1024, "largest": sizes[:4], "records": len(sizes)}))
"""


def wide(size: int, max_tasks: int | None = None) -> Any:
    """A run of ``size`` tasks, 1 to many to 1, in a process of its own."""
    argv = [sys.executable, "-c", _WIDE, str(size), json.dumps(max_tasks)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("max_tasks", [None, 100])
def test_a_run_of_ten_thousand_tasks_is_many_small_records(max_tasks: int | None) -> None:
    """C082: no record but the definition's own grows with the run, and neither does a task's cost."""
    small, large = wide(1_000, max_tasks), wide(10_000, max_tasks)
    (_, first), (_, second), *others = large["largest"]
    assert {first, second} == {"commands", "events"}, "the definition, asked for and deployed"
    assert others[0][0] <= 64 * 1024, others
    assert others[0][1] == "snapshots", "snapshots are written, in parts"
    assert large["records"] > 70_000
    assert large["peak_mib"] < 300
    assert large["ms"] < 3 * small["ms"], (small, large)
