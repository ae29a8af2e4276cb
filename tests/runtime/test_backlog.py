"""Back-pressure on the memory log under virtual time: what waits, where, and who does not wait for it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.rules import Rules
from tidewheel.core.workflow import Concurrency, Run, Schedule, Task, Workflow
from tidewheel.definition.expressions import CelEvaluator
from tidewheel.log.interface import COMMANDS, NOTE_BYTES_MAX, TRIGGERS, Append, LogMisconfigured, LogUnavailable
from tidewheel.log.memory import Fault, MemoryLog
from tidewheel.log.partition import partition_of
from tidewheel.runtime.backlog import Extent, Note, read_note, write_note
from tidewheel.runtime.scheduler import Scheduler
from tidewheel.testing.world import Outcome, World
from tidewheel.wire.codec import decode

MINUTE = 60_000
#: No run ends before the clock moves.
SLOW = Outcome(takes_ms=MINUTE)


def a_world(*, partitions: int = 1, schedulers: int = 1, seed: int = 0, **bounds: int) -> World:
    evaluator = CelEvaluator()
    rules = Rules(evaluator=evaluator, **{"waiting_runs_max": 10, **bounds})  # type: ignore[arg-type]
    return World(evaluator, partitions=partitions, schedulers=schedulers, seed=seed, rules=rules)


def a_dag(name: str, max_runs: int = 2, **more: Any) -> Workflow:
    task = Task(id="t", action=Run(command="true"))
    return Workflow(id=name, tasks=(task,), concurrency=Concurrency(max_runs=max_runs), **more)


def flood(world: World, dag: str, count: int, first: int = 0, partition: int | None = None, **fields: Any) -> None:
    producer = world.log.producer()
    for number in range(first, first + count):
        value = json.dumps({"dag": dag, "id": f"{dag}-{number:05}", **fields}).encode()
        producer.send(Append(TRIGGERS, dag.encode(), value, partition=partition))


def created(world: World, dag: str) -> list[str]:
    return [event.run_id for event in world.events(e.RunCreated) if event.dag == dag]  # type: ignore[union-attr]


def ids(dag: str, count: int) -> list[str]:
    return [f"kafka__{dag}-{number:05}" for number in range(count)]


def scheduler(world: World) -> Scheduler:
    (found,) = world.schedulers.values()
    return found


def note(world: World, shard: int = 0) -> Note:
    return read_note(world.log.noted(shard))


def live(world: World, dag: str) -> int:
    ended = world.events(e.RunSucceeded, e.RunCancelled, e.RunFailed)
    return len(created(world, dag)) - sum(event.dag == dag for event in ended)  # type: ignore[union-attr]


def test_a_flood_waits_on_its_topic_and_comes_in_order_as_room_comes() -> None:
    world = a_world()
    world.add_worker(slots=10, behaviour=lambda _: SLOW)
    world.deploy(a_dag("flood"))
    flood(world, "flood", 80)
    world.settle()
    assert len(created(world, "flood")) == 12, "two run, ten wait"
    assert scheduler(world).status.postponed_dags == ("flood",)
    assert note(world) == Note(postponed={"flood": Extent(12, 79)})
    assert world.log.committed(0)[TRIGGERS] == 80, "nobody stands behind it"
    most = 0
    while len(created(world, "flood")) < 80:
        world.advance(MINUTE)
        most = max(most, live(world, "flood"))
    assert most <= 12
    world.advance(10 * MINUTE)
    assert created(world, "flood") == ids("flood", 80)
    assert note(world) == Note()
    assert world.log.noted(0) == ""
    assert scheduler(world).status.postponed_dags == ()
    world.check()


def test_one_dags_flood_does_not_stand_before_the_others() -> None:
    world = a_world()
    world.add_worker(slots=10, behaviour=lambda _: SLOW)
    for name in ("flood", "second", "calm"):
        world.deploy(a_dag(name))
    flood(world, "flood", 3_000)
    flood(world, "second", 50)
    flood(world, "calm", 5)
    world.settle()
    assert created(world, "calm") == ids("calm", 5)
    assert len(created(world, "second")) == 12
    for _ in range(30):
        world.advance(MINUTE)
    assert created(world, "second") == ids("second", 50), "the lesser flood does not wait for the end of the greater"
    assert len(created(world, "flood")) < 100


def test_triggers_that_come_meanwhile_stand_behind_those_that_wait() -> None:
    world = a_world()
    world.add_worker(slots=10, behaviour=lambda _: SLOW)
    world.deploy(a_dag("flood"))
    flood(world, "flood", 30)
    for number in range(30, 60):
        flood(world, "flood", 1, first=number)
        world.advance(MINUTE // 2)
    world.advance(40 * MINUTE)
    assert created(world, "flood") == ids("flood", 60)


@pytest.mark.parametrize("seed", range(4))
def test_whatever_becomes_of_commits_and_owners_each_trigger_is_one_run(seed: int) -> None:
    """Aborts, doubts, owners that die, shards that move: what waits is in the log, and nobody's memory is asked."""
    world = a_world(partitions=2, schedulers=2, seed=seed, waiting_runs_max=6, shard_runs_max=25)
    world.add_worker(slots=8, behaviour=lambda _: Outcome(takes_ms=20_000))
    names = ["one", "two", "three", "four"]
    for name in names:
        world.deploy(a_dag(name))
        flood(world, name, 40)
    for step in range(60):
        fate = world.random.random()
        if fate < 0.4:
            world.log.inject(world.random.choice(list(Fault)))
        elif fate < 0.5:
            victim = world.random.choice(sorted(world.schedulers))
            world.kill_scheduler(victim)
            world.start_scheduler(victim)
        if step % 10 == 0:
            flood(world, world.random.choice(names), 1, first=40 + step)
        world.advance(5_000)
    world.advance(20 * MINUTE, step_ms=20_000)
    wanted = {name: ids(name, 40) for name in names}
    found = {name: [run_id for run_id in created(world, name) if run_id in wanted[name]] for name in names}
    assert found == wanted
    assert sum(len(created(world, name)) for name in names) == 166
    assert len(world.events(e.RunSucceeded)) == 166
    assert {world.log.noted(shard) for shard in range(2)} == {""}
    world.check()


def test_what_waits_of_a_shard_that_goes_before_it_could_be_recovered_is_its_next_owners(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = a_world()
    world.add_worker(slots=10, behaviour=lambda _: SLOW)
    world.deploy(a_dag("flood"))
    flood(world, "flood", 30)
    world.settle()
    late = scheduler(world)
    assert late.status.postponed_dags == ("flood",)
    world.log.inject(Fault.ABORT)
    world.send(c.UnpauseDag(dag="flood"))
    assert not late.step(0)
    with monkeypatch.context() as away:
        away.setattr(MemoryLog, "end_offsets", raising)
        with pytest.raises(LogUnavailable):
            late.step(0)
    world.log.expel("scheduler-0")
    world.start_scheduler("a-scheduler")
    world.schedulers["a-scheduler"].step(0)
    assert not late.step(0), "it has nothing to read on"
    while len(created(world, "flood")) < 30:
        world.advance(MINUTE)
    assert created(world, "flood") == ids("flood", 30)
    world.check()


def raising(*_: object) -> None:
    raise LogUnavailable("injected: the log is away")


def test_who_can_ask_again_is_told_to_and_a_run_that_exists_is_found() -> None:
    world = a_world()
    world.add_worker(slots=10, behaviour=lambda _: SLOW)
    world.deploy(a_dag("busy"))
    world.deploy(a_dag("calm"))
    for number in range(12):
        assert world.ask(c.StartRun(dag="busy", run_id=f"r{number}")).ok
    refused = world.ask(c.StartRun(dag="busy", run_id="r12"))
    assert (refused.ok, refused.code) == (False, "overloaded")
    assert refused.message == "10 runs of DAG 'busy' wait for their turn (at most 10 may); ask later"
    again = world.ask(c.StartRun(dag="busy", run_id="r11"))
    assert (again.ok, again.created) == (True, False)
    assert world.ask(c.StartRun(dag="calm", run_id="r")).created
    assert world.ask(c.CancelRun(dag="busy", run_id="r11")).ok
    assert world.ask(c.StartRun(dag="busy", run_id="r12")).created


def test_a_full_shard_reads_no_triggers_and_goes_on_at_four_fifths() -> None:
    world = a_world(partitions=1, waiting_runs_max=1_000, shard_runs_max=50)
    world.add_worker(slots=20, behaviour=lambda _: SLOW)
    world.deploy(a_dag("flood", max_runs=20))
    world.deploy(a_dag("calm"))
    flood(world, "flood", 600)
    world.settle()
    assert scheduler(world).status.paused_shards == (0,)
    assert note(world).full
    taken = len(created(world, "flood"))
    assert 50 <= taken <= 500, "at most one batch over the bound"
    refused = world.ask(c.StartRun(dag="calm", run_id="r"))
    assert refused.code == "overloaded"
    assert refused.message.startswith("the shard of DAG 'calm' holds as many runs as it may (50)")
    before = live(world, "flood")
    while len(created(world, "flood")) == taken:
        before = live(world, "flood")
        world.advance(MINUTE, step_ms=MINUTE)
    assert before <= 60, "twenty end at a time, and 40 is four fifths"
    world.advance(30 * MINUTE, step_ms=MINUTE)
    assert created(world, "flood") == ids("flood", 600)
    assert not note(world).full
    assert world.ask(c.StartRun(dag="calm", run_id="r")).created


def test_reports_cancels_timers_and_slots_pass_while_triggers_wait() -> None:
    world = a_world(partitions=1, waiting_runs_max=3, shard_runs_max=4)
    behaviour = {"t": SLOW}
    world.add_worker(slots=10, behaviour=lambda assigned: behaviour[assigned.task])
    world.deploy(a_dag("hourly", schedule=Schedule(every_ms=10 * MINUTE)))
    world.deploy(a_dag("flood", max_runs=1))
    flood(world, "flood", 100)
    world.settle()
    assert scheduler(world).status.paused_shards == (0,)
    assert world.ask(c.CancelRun(dag="flood", run_id="kafka__flood-00001")).ok
    world.advance(30 * MINUTE)
    slots = [event for event in world.events(e.RunCreated) if event.dag == "hourly"]  # type: ignore[union-attr]
    assert len(slots) == 3, "a slot that is due is a run, however full the shard"
    assert len(world.events(e.RunSucceeded)) > 25
    world.check()


def test_a_flood_does_not_hold_back_its_own_dags_schedule() -> None:
    world = a_world(waiting_runs_max=300)
    world.add_worker(slots=10, behaviour=lambda _: SLOW)
    world.deploy(a_dag("both", max_runs=1, schedule=Schedule(every_ms=10 * MINUTE)))
    flood(world, "both", 250)
    world.advance(31 * MINUTE)
    assert sum(run_id.startswith("scheduled__") for run_id in created(world, "both")) == 3


def test_a_trigger_on_the_wrong_partition_stays_a_trigger() -> None:
    """As a command it would never wait."""
    world = a_world(partitions=4)
    world.deploy(a_dag("flood"))
    right = partition_of(b"flood", 4)
    wrong = (right + 1) % 4
    flood(world, "flood", 100, partition=wrong)
    world.settle()
    assert len(created(world, "flood")) == 12
    assert note(world, right).postponed.keys() == {"flood"}
    records = world.log.reader({(COMMANDS, right): 0}).read(1_000, 0)
    assert not any(isinstance(decode(record.value or b""), c.StartRun) for record in records)
    world.add_worker(slots=10)
    world.settle()
    assert sorted(created(world, "flood")) == ids("flood", 100)


def test_large_inputs_count_by_their_size() -> None:
    world = a_world(waiting_runs_max=1_000, waiting_bytes_max=100_000)
    declared = a_dag("large")
    world.deploy(declared)
    flood(world, "large", 50, inputs={})
    world.settle()
    assert len(created(world, "large")) == 50
    state = world.schedulers["scheduler-0"]._owned[0]
    assert (state.runs, state.input_bytes) == (50, 100)


def test_a_note_that_has_no_place_for_another_dag_pauses_the_shard() -> None:
    world = a_world(waiting_runs_max=1)
    names = [f"{'x' * 180}_{number:03}" for number in range(30)]
    for name in names:
        world.deploy(a_dag(name, max_runs=1))
    for _ in range(3):
        for name in names:
            flood(world, name, 10)
    world.settle()
    assert len(world.log.noted(0)) <= NOTE_BYTES_MAX
    assert scheduler(world).status.paused_shards == (0,)
    world.add_worker(slots=40)
    world.settle()
    assert {name: len(created(world, name)) for name in names} == dict.fromkeys(names, 10)
    assert world.log.noted(0) == ""


def test_notes_are_read_back_and_foreign_ones_refused() -> None:
    full = Note(full=True, postponed={"a": Extent(1, 2)})
    assert read_note(write_note(full)) == full
    assert (read_note(""), write_note(Note())) == (Note(), "")
    with pytest.raises(LogMisconfigured, match="nothing else may commit positions"):
        read_note("commit by another program")
