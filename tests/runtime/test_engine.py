"""The whole engine on the memory log under virtual time: one life of runs, tasks, workers and schedulers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import pytest

from tests.runtime.worlds import MINUTE, a_world, dead_letters, task
from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core import readiness
from tidewheel.core.mail import AssignTask
from tidewheel.core.workflow import Concurrency, Schedule, Workflow
from tidewheel.log.interface import COMMANDS, SNAPSHOTS, TRIGGERS, Append, Batch, CommitAborted
from tidewheel.log.memory import Fault, MemoryOwner
from tidewheel.log.partition import partition_of
from tidewheel.testing.world import START_MS, Outcome, World
from tidewheel.wire.codec import encode

FAN = Workflow(
    id="fan",
    tasks=(task("a"), *[task(f"b{n}", "a") for n in range(6)], task("z", *[f"b{n}" for n in range(6)])),
)


def results(world: World) -> dict[str, str]:
    names = {e.RunSucceeded: "success", e.RunFailed: "failed", e.RunCancelled: "cancelled"}
    ended = world.events(*names)  # type: ignore[arg-type]
    found = {event.run_id: names[type(event)] for event in ended}  # type: ignore[union-attr,index]
    assert len(found) == len(ended), "a run ended twice"
    return found


@pytest.mark.parametrize("schedulers", [1, 2, 3])
def test_a_fan_out_and_in_runs_to_its_end(schedulers: int) -> None:
    world = a_world(schedulers=schedulers)
    world.add_worker()
    world.deploy(FAN)
    for number in range(5):
        assert world.ask(c.StartRun(dag="fan", run_id=f"r{number}")).created
    world.settle()
    assert results(world) == {f"r{number}": "success" for number in range(5)}
    assert len(world.started) == len(set(world.started)) == 5 * 8
    world.check()


def test_a_scheduler_that_restarts_finds_everything_in_the_journal() -> None:
    """After any number of events: throw memory away, fold the log again, go on."""
    world = a_world(checkpoint_events=30)
    world.add_worker(behaviour=lambda _: Outcome(takes_ms=500))
    world.deploy(FAN)
    for number in range(3):
        world.ask(c.StartRun(dag="fan", run_id=f"r{number}"))
    for _ in range(12):
        world.advance(300)
        world.kill_scheduler("scheduler-0")
        world.start_scheduler("scheduler-0")
    world.advance(60_000)
    assert results(world) == {f"r{number}": "success" for number in range(3)}
    assert len(world.started) == len(set(world.started)) == 3 * 8
    world.check()


def test_shards_move_to_the_survivor() -> None:
    world = a_world(schedulers=2)
    world.add_worker(behaviour=lambda _: Outcome(takes_ms=2_000))
    world.deploy(FAN)
    world.ask(c.StartRun(dag="fan", run_id="r"))
    world.advance(1_000)
    world.kill_scheduler("scheduler-0")
    world.advance(60_000)
    assert world.schedulers["scheduler-1"].status.shards == (0, 1, 2, 3)
    assert results(world) == {"r": "success"}
    world.check()


@pytest.mark.parametrize("fault", list(Fault))
def test_no_fate_of_a_commit_loses_or_doubles_anything(fault: Fault) -> None:
    for at in range(0, 40, 3):
        world = a_world()
        world.add_worker()
        world.deploy(FAN)
        world.send(c.StartRun(dag="fan", run_id="r"))
        for _ in range(at):
            world.schedulers["scheduler-0"].step(0)
            for worker in world.workers:
                worker.act()
        world.log.inject(fault)
        world.settle()
        world.advance(200)
        assert results(world) == {"r": "success"}
        assert len(world.started) == len(set(world.started)) == 8
        world.check()


def test_a_batch_too_large_for_a_transaction_is_tried_again_in_smaller_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    commit = MemoryOwner.commit

    def commit_of_a_small_log(self: MemoryOwner, batch: Batch, appends: Sequence[Append]) -> Mapping[Any, int]:
        if len(appends) > 100:
            self._must_reset = True
            raise CommitAborted("injected: the transaction took too long")
        return commit(self, batch, appends)

    monkeypatch.setattr(MemoryOwner, "commit", commit_of_a_small_log)
    world = a_world(checkpoint_events=10_000)
    world.add_worker(slots=1)
    world.deploy(FAN)
    for number in range(100):
        world.send(c.StartRun(dag="fan", run_id=f"r{number}"))
    world.settle()
    assert len(results(world)) == 100
    assert world.schedulers["scheduler-0"].status.aborts < 10


def test_checkpoints_that_fail_are_not_tried_at_every_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    commit = MemoryOwner.commit
    failed = []

    def commit_no_snapshots(self: MemoryOwner, batch: Batch, appends: Sequence[Append]) -> Mapping[Any, int]:
        if any(append.topic == SNAPSHOTS for append in appends):
            failed.append(len(appends))
            self._must_reset = True
            raise CommitAborted("injected: no room for snapshots")
        return commit(self, batch, appends)

    monkeypatch.setattr(MemoryOwner, "commit", commit_no_snapshots)
    world = a_world(checkpoint_events=100)
    world.add_worker()
    world.deploy(FAN)
    for number in range(20):
        world.ask(c.StartRun(dag="fan", run_id=f"r{number}"))
    assert len(results(world)) == 20
    assert 0 < len(failed) <= len(world.journal()) / 100


def test_a_silent_worker_costs_one_lease_and_the_task_runs_again_elsewhere() -> None:
    """C054, C072."""
    world = a_world()
    world.add_worker("w1", slots=1, behaviour=lambda _: Outcome(silent=True))
    world.deploy(Workflow(id="one", tasks=(task("a"),)))
    world.ask(c.StartRun(dag="one", run_id="r"))
    world.add_worker("w2", slots=1)
    world.workers[0].alive = False
    world.advance(29_000)
    assert results(world) == {}
    world.advance(3_000)
    assert results(world) == {"r": "success"}
    assert world.started == [("one", "r", "a", 1), ("one", "r", "a", 2)]
    world.check()


def test_a_long_silent_task_that_beats_keeps_its_lease() -> None:
    """C055."""
    world = a_world()
    world.add_worker(behaviour=lambda _: Outcome(takes_ms=300_000))
    world.deploy(Workflow(id="one", tasks=(task("a"),)))
    world.ask(c.StartRun(dag="one", run_id="r"))
    world.advance(301_000)
    assert results(world) == {"r": "success"}
    assert world.started == [("one", "r", "a", 1)]
    assert len(world.events(e.TaskHeartbeat)) >= 25


def test_a_takeover_gives_every_lease_a_full_term() -> None:
    world = a_world()
    world.add_worker(behaviour=lambda _: Outcome(takes_ms=100_000))
    world.deploy(Workflow(id="one", tasks=(task("a"),)))
    world.ask(c.StartRun(dag="one", run_id="r"))
    world.advance(1_000)
    world.kill_scheduler("scheduler-0")
    world.now += 45_000  # nobody was there to hear the beats
    world.start_scheduler("scheduler-0")
    world.advance(120_000)
    assert results(world) == {"r": "success"}
    assert world.events(e.LeaseExpired) == []


def fails_until(attempt: int, kind: c.FailureKind = "exit_code") -> Callable[[AssignTask], Outcome]:
    return lambda work: Outcome(fails=kind if work.attempt < attempt else None, exit_code=1)


@pytest.mark.parametrize("catchup", ["none", "latest", "all"])
def test_a_schedule_makes_one_run_a_slot_with_touching_windows(catchup: Any) -> None:
    """C030: runs of eight minutes on a five-minute schedule, one at a time."""
    world = a_world()
    world.add_worker(behaviour=lambda _: Outcome(takes_ms=8 * MINUTE))
    schedule = Schedule(cron=("*/5 * * * *",), catchup=catchup)
    world.deploy(Workflow(id="one", tasks=(task("a"),), schedule=schedule, concurrency=Concurrency(max_runs=1)))
    world.advance(30 * MINUTE, step_ms=MINUTE)
    runs = [event for event in world.events(e.RunCreated) if isinstance(event, e.RunCreated)]
    windows = [(START_MS + minutes * MINUTE, START_MS + (minutes + 5) * MINUTE) for minutes in range(0, 30, 5)]
    assert [(run.interval_start, run.interval_end) for run in runs] == windows
    assert len(world.events(e.RunStarted)) == 4, "one at a time, and none is dropped for that"
    world.check()


@pytest.mark.parametrize(("catchup", "runs"), [("none", 0), ("latest", 1), ("all", 6)])
def test_a_pause_ends_as_the_catch_up_policy_says(catchup: Any, runs: int) -> None:
    """C025, C028."""
    world = a_world()
    world.add_worker()
    world.deploy(Workflow(id="one", tasks=(task("a"),), schedule=Schedule(cron=("*/10 * * * *",), catchup=catchup)))
    world.advance(5 * MINUTE, step_ms=MINUTE)
    world.ask(c.PauseDag(dag="one"))
    world.advance(60 * MINUTE, step_ms=10 * MINUTE)
    world.ask(c.UnpauseDag(dag="one"))
    found = [event.logical_date for event in world.events(e.RunCreated) if isinstance(event, e.RunCreated)]
    slots = [START_MS + minutes * MINUTE for minutes in range(10, 70, 10)]
    assert found == slots[6 - runs :], "each is of its own slot, in order"
    world.advance(10 * MINUTE, step_ms=MINUTE)
    assert len(world.events(e.RunCreated)) == runs + 1
    world.check()


@pytest.mark.parametrize(
    ("overlap", "states", "at_once"),
    [
        ("queue", {"success": 6}, 1),
        ("skip", {"success": 2}, 1),
        ("allow", {"success": 6}, 3),
        ("cancel_running", {"cancelled": 5, "success": 1}, 1),
    ],
)
def test_what_a_slot_does_while_a_run_is_not_finished(overlap: Any, states: dict[str, int], at_once: int) -> None:
    """A run takes 25 minutes, a slot comes every ten; six slots, and then the schedule ends."""
    world = a_world()
    world.add_worker(behaviour=lambda work: Outcome(takes_ms=25 * MINUTE))
    schedule = Schedule(cron=("*/10 * * * *",), overlap=overlap, end_ms=world.now + 60 * MINUTE)
    world.deploy(Workflow(id="one", tasks=(task("a"),), schedule=schedule, concurrency=Concurrency(max_runs=1)))
    world.advance(240 * MINUTE, step_ms=MINUTE)
    assert Counter(results(world).values()) == states
    running = most = 0
    for event in world.events(e.RunStarted, e.RunSucceeded, e.RunCancelled):
        running += 1 if isinstance(event, e.RunStarted) else -1
        most = max(most, running)
    assert most == at_once
    world.check()


def test_a_scheduler_that_was_away_owes_the_newest_slot() -> None:
    world = a_world()
    world.add_worker()
    world.deploy(Workflow(id="one", tasks=(task("a"),), schedule=Schedule(cron=("*/10 * * * *",))))
    world.kill_scheduler("scheduler-0")
    world.now += 35 * MINUTE
    world.start_scheduler("scheduler-0")
    world.advance(1_000)
    (run,) = world.events(e.RunCreated)
    assert isinstance(run, e.RunCreated)
    assert run.run_id == "scheduled__2026-01-05T00:30:00Z"
    world.check()


def test_a_clock_that_steps_back_repeats_no_slot() -> None:
    """C014, C023."""
    world = a_world()
    world.add_worker()
    world.deploy(Workflow(id="one", tasks=(task("a"),), schedule=Schedule(cron=("*/10 * * * *",))))
    world.advance(11 * MINUTE, step_ms=MINUTE)
    world.now -= 60 * MINUTE
    world.advance(70 * MINUTE, step_ms=MINUTE)
    found = [event.logical_date for event in world.events(e.RunCreated) if isinstance(event, e.RunCreated)]
    assert len(found) == len(set(found)) == 2


def test_max_runs_holds_whoever_schedules() -> None:
    """C070: one at a time, in order, two schedulers."""
    world = a_world(schedulers=2)
    world.add_worker(behaviour=lambda _: Outcome(takes_ms=1_000))
    world.deploy(Workflow(id="one", tasks=(task("a"),), concurrency=Concurrency(max_runs=1)))
    for number in range(20):
        world.send(c.StartRun(dag="one", run_id=f"r{number:02}"))
    world.advance(30_000)
    order = [key[1] for key in world.started]
    assert order == sorted(order)
    assert len(order) == 20
    assert results(world) == dict.fromkeys(order, "success")
    world.check()


def test_a_trigger_record_published_three_times_is_one_run_wherever_it_lies() -> None:
    world = a_world()
    world.add_worker()
    world.deploy(FAN)
    producer = world.log.producer()
    for partition in (0, 1, 2):
        value = msgspec.json.encode({"dag": "fan", "run_id": "r"})
        producer.send(Append(TRIGGERS, b"whatever", value, partition=partition))
    world.settle()
    assert results(world) == {"r": "success"}
    assert Counter(type(event) for event in world.events(e.RunCreated)) == {e.RunCreated: 1}
    world.check()


def test_triggers_without_an_id_are_one_run_each() -> None:
    """C036: the place of the record is the identity, topic included."""
    world = a_world()
    world.add_worker()
    world.deploy(FAN)
    for partition in range(4):
        world.log.producer().send(Append(TRIGGERS, b"fan", b'{"dag": "fan"}', partition=partition))
    world.settle()
    assert len(results(world)) == 4


def test_bad_records_become_dead_letters_and_the_engine_goes_on() -> None:
    world = a_world()
    world.add_worker()
    world.deploy(FAN)
    good = encode(c.StartRun(dag="fan", run_id="r"))
    partition = partition_of(b"fan", 4)
    bad = [b"", b"\xc3\x01", b"garbage", good[:-1], good + b"x", good[:5], None, b"\x00" * 1_000_000]
    for value in bad:
        world.log.producer().send(Append(COMMANDS, b"fan", value, partition=partition))
    bad_triggers = [b"{", b"[]", b'{"dag": "nope"}', b'{"dag": "fan", "inputs": {"x": 1}}', b'{"dga": "fan"}', b"\xff"]
    for value in bad_triggers:
        world.log.producer().send(Append(TRIGGERS, b"fan", value, partition=partition))
    world.log.producer().send(Append(COMMANDS, b"fan", good, partition=partition))
    world.settle()
    assert results(world) == {"r": "success"}
    letters = dead_letters(world)
    assert len(letters) == len(bad) + len(bad_triggers)
    assert all(letter.reason and letter.code for letter in letters)
    assert {letter.topic for letter in letters} == {COMMANDS, TRIGGERS}
    world.check()


def test_a_command_that_breaks_the_rules_is_parked_and_nobody_else_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """C052, C106: a bug met by one command is that command's alone."""
    judge = readiness.judge

    def breaks(rule: Any, tally: Any, needs: int) -> Any:
        if needs == 6:
            raise RuntimeError("injected")
        return judge(rule, tally, needs)

    world = a_world()
    world.add_worker(slots=20)
    world.deploy(FAN)
    world.deploy(Workflow(id="other", tasks=(task("a"), task("b", "a"))))
    monkeypatch.setattr(readiness, "judge", breaks)
    world.ask(c.StartRun(dag="fan", run_id="r"))
    world.ask(c.StartRun(dag="other", run_id="r2"))
    world.settle()
    assert results(world) == {"r2": "success"}
    (letter, *_) = dead_letters(world)
    assert letter.code == "failed"
    assert "injected" in letter.reason


def test_a_cancel_stops_what_runs_and_the_slot_is_free() -> None:
    world = a_world()
    world.add_worker(slots=1, behaviour=lambda work: Outcome(takes_ms=600_000 if work.run_id == "r" else 0))
    world.deploy(Workflow(id="one", tasks=(task("a"), task("b", "a"))))
    world.ask(c.StartRun(dag="one", run_id="r"))
    world.advance(5_000)
    assert world.ask(c.CancelRun(dag="one", run_id="r", actor="user:ann", reason="wrong")).ok
    world.ask(c.StartRun(dag="one", run_id="next"))
    world.settle()
    assert results(world) == {"r": "cancelled", "next": "success"}
    world.check()


def test_outputs_reach_the_tasks_downstream() -> None:
    seen: list[Any] = []

    def act(work: AssignTask) -> Outcome:
        if work.task == "a":
            return Outcome(output={"rows": 3, "names": ["x", "y"]})
        seen.append(msgspec.json.decode(work.action)["env"])
        return Outcome()

    world = a_world()
    world.add_worker(behaviour=act)
    env = {"ROWS": "${{ tasks.a.output.rows }}", "RUN": "${{ run.id }}"}
    big = "${{ tasks.a.output.rows > 100 }}"
    tasks = (task("a"), task("b", "a", env=env), task("c", "a", if_="tasks.a.output.rows > 100", env={"X": big}))
    world.deploy(Workflow(id="one", tasks=tasks))
    world.ask(c.StartRun(dag="one", run_id="r"))
    world.settle()
    assert seen == [{"ROWS": ["3"], "RUN": ["r"]}]
    assert [event.task for event in world.events(e.TaskSkipped)] == ["c"]  # type: ignore[union-attr]
    assert results(world) == {"r": "success"}
