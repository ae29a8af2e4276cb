"""A journal that does not prove itself stops its shard, and nothing else; what comes for it waits."""

from __future__ import annotations

import pytest

from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.workflow import Run, Task, Workflow
from tidewheel.definition.expressions import CelEvaluator
from tidewheel.log.interface import COMMANDS, DEAD_LETTERS, EVENTS, Append
from tidewheel.log.partition import partition_of
from tidewheel.runtime.quarantine import RESUMED, STOPPED
from tidewheel.testing.world import World
from tidewheel.wire.codec import decode, decode_event, encode, encode_event
from tidewheel.wire.messages import DeadLetter

PARTITIONS = 4
BROKEN_DAG = "etl"
BROKEN = partition_of(BROKEN_DAG.encode(), PARTITIONS)
POOL = partition_of(b"default", PARTITIONS)
#: On another shard than the broken one, as is the pool.
SOUND_DAG = next(name for name in ("two", "orders") if partition_of(name.encode(), PARTITIONS) != BROKEN)


@pytest.fixture
def world() -> World:
    assert POOL != BROKEN
    world = World(CelEvaluator(), partitions=PARTITIONS)
    world.add_worker()
    for dag in (BROKEN_DAG, SOUND_DAG):
        world.deploy(Workflow(id=dag, tasks=(Task(id="a", action=Run(command="true")),)))
        world.ask(c.StartRun(dag=dag, run_id="before"))
    world.settle()
    return world


def restart(world: World) -> None:
    """Only a scheduler that reads the journal anew meets what lies in it, or one that reads its own back."""
    world.kill_scheduler("scheduler-0")
    world.start_scheduler("scheduler-0")
    world.settle()


def start(world: World, dag: str, run_id: str) -> None:
    world.send(c.StartRun(dag=dag, run_id=run_id))


def ended(world: World) -> set[tuple[str, str]]:
    return {(event.dag, event.run_id) for event in world.events(e.RunSucceeded) if isinstance(event, e.RunSucceeded)}


def letters(world: World) -> list[DeadLetter]:
    found = []
    for partition in range(PARTITIONS):
        for record in world.log.reader({(DEAD_LETTERS, partition): 0}).read(1_000, 0):
            message = decode(record.value or b"")
            assert isinstance(message, DeadLetter)
            found.append(message)
    return found


def mark(world: World, void_from: int, void_to: int) -> None:
    """A repair as the tool writes it."""
    reader = world.log.reader({(EVENTS, BROKEN): 0})
    kept = [record for record in reader.read(100_000, 0) if not void_from <= record.offset < void_to]
    last = decode_event(kept[-1].value or b"")
    event = e.JournalRepaired(at=world.now, actor="user:ann", void_from=void_from, void_to=void_to, records=1)
    data, _ = encode_event(
        event, seq=0, shard_seq=last.shard_seq + 1, writer=last.writer + 1, cause="repair", previous=last.chain
    )
    world.write_foreign(EVENTS, BROKEN, data)


def test_one_broken_shard_stands_still_and_all_others_go_on(world: World) -> None:
    place = world.log.end_offset(EVENTS, BROKEN)
    positions = world.log.committed(BROKEN)
    world.write_foreign(EVENTS, BROKEN, b"hello")
    restart(world)
    start(world, BROKEN_DAG, "waits")
    start(world, SOUND_DAG, "goes-on")
    world.advance(20_000)
    assert ended(world) == {(BROKEN_DAG, "before"), (SOUND_DAG, "before"), (SOUND_DAG, "goes-on")}
    assert world.log.committed(BROKEN) == positions
    assert (world.log.committed(POOL)[COMMANDS] or 0) > 0
    (stopped,) = world.schedulers["scheduler-0"].status.stopped
    fault = stopped.fault
    assert (stopped.shard, fault.topic, fault.partition, fault.offset) == (BROKEN, EVENTS, BROKEN, place)
    assert (fault.kind, fault.last_good_offset) == ("not_an_event", place - 2)
    assert f"{EVENTS}/{BROKEN}/{place}: not_an_event" in fault.report
    (letter,) = letters(world)
    assert (letter.code, letter.topic, letter.partition, letter.offset) == (STOPPED, EVENTS, BROKEN, place)


def test_a_repair_is_noticed_and_what_waited_is_done(world: World) -> None:
    place = world.log.end_offset(EVENTS, BROKEN)
    world.write_foreign(EVENTS, BROKEN, b"hello")
    restart(world)
    start(world, BROKEN_DAG, "waited")
    world.advance(20_000)
    assert (BROKEN_DAG, "waited") not in ended(world)
    mark(world, place, place + 1)
    world.advance(20_000)
    assert (BROKEN_DAG, "waited") in ended(world)
    assert world.schedulers["scheduler-0"].status.stopped == ()
    assert [letter.code for letter in letters(world)] == [STOPPED, RESUMED]
    restart(world)
    start(world, BROKEN_DAG, "later")
    world.advance(5_000)
    assert (BROKEN_DAG, "later") in ended(world)


def test_a_forged_repair_changes_nothing(world: World) -> None:
    place = world.log.end_offset(EVENTS, BROKEN)
    world.write_foreign(EVENTS, BROKEN, b"hello")
    event = e.JournalRepaired(at=world.now, actor="user:eve", void_from=place, void_to=place + 1, records=1)
    data, _ = encode_event(event, seq=0, shard_seq=3, writer=9, cause="repair", previous=b"\1" * 8)
    world.write_foreign(EVENTS, BROKEN, data)
    restart(world)
    world.advance(60_000)
    assert [stopped.shard for stopped in world.schedulers["scheduler-0"].status.stopped] == [BROKEN]


def test_a_stopped_shard_stays_so_with_whoever_owns_it(world: World) -> None:
    world.write_foreign(EVENTS, BROKEN, b"hello")
    restart(world)
    world.start_scheduler("scheduler-1")
    world.advance(5_000)
    stopped = [s.shard for scheduler in world.schedulers.values() for s in scheduler.status.stopped]
    owned = [n for scheduler in world.schedulers.values() for n in scheduler.status.shards]
    assert stopped == [BROKEN]
    assert sorted(owned) == [number for number in range(PARTITIONS) if number != BROKEN]
    world.kill_scheduler("scheduler-0")
    world.advance(5_000)
    assert [s.shard for s in world.schedulers["scheduler-1"].status.stopped] == [BROKEN]


def test_a_command_for_a_stopped_shard_is_sent_there_and_waits(world: World) -> None:
    """The pool's owner is the DAG's owner too, but what it decides for the stopped shard goes to its topic."""
    start(world, BROKEN_DAG, "under-way")
    world.settle()
    world.write_foreign(EVENTS, BROKEN, b"hello")
    restart(world)
    before = world.log.end_offset(COMMANDS, BROKEN)
    producer = world.log.producer()
    wrongly_keyed = c.StartRun(dag=BROKEN_DAG, run_id="forwarded")
    producer.send(Append(COMMANDS, b"x", encode(wrongly_keyed), partition=(BROKEN + 1) % PARTITIONS))
    world.settle()
    assert world.log.end_offset(COMMANDS, BROKEN) > before
    assert world.log.committed(BROKEN)[COMMANDS] == before
