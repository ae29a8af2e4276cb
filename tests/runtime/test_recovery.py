"""Bringing a shard up to date: snapshots are only a shorter way, and a journal that does not prove itself stops it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tidewheel.core import commands as c
from tidewheel.core.snapshot import encode_snapshot
from tidewheel.core.workflow import Run, Task, Workflow
from tidewheel.definition.expressions import CelEvaluator
from tidewheel.log.interface import EVENTS, JOURNALS, SNAPSHOTS, Append, Record
from tidewheel.log.memory import MemoryLog
from tidewheel.log.partition import partition_of
from tidewheel.runtime.recovery import JournalBroken, bring_up_to_date
from tidewheel.runtime.shard import Shard
from tidewheel.testing.world import Outcome, World

TASKS = tuple(
    Task(id=name, action=Run(command="true"), needs=needs)
    for name, needs in (("a", ()), ("b", ("a",)), ("c", ("a",)), ("d", ("b", "c")))
)
SHARD = partition_of(b"one", 4)


@pytest.fixture
def world() -> World:
    """Some history with checkpoints in it, a run still going."""
    world = World(CelEvaluator(), checkpoint_events=20)
    world.add_worker(behaviour=lambda work: Outcome(takes_ms=900_000 if work.run_id == "long" else 0))
    world.deploy(Workflow(id="one", tasks=TASKS))
    for number in range(4):
        world.ask(c.StartRun(dag="one", run_id=f"r{number}"))
    world.ask(c.StartRun(dag="one", run_id="long"))
    world.advance(15_000)
    return world


def records(log: MemoryLog, topic: str, partition: int = SHARD) -> list[Record]:
    return log.reader({(topic, partition): 0}).read(1_000_000, 0)


def copy(log: MemoryLog, change: Any = None) -> MemoryLog:
    """The journals and snapshots in a new log, each record passed through ``change``, which may drop, alter or double
    it."""
    other = MemoryLog(log.partitions, markers=False)
    producer = other.producer()
    for topic in (*JOURNALS, SNAPSHOTS):
        for partition in range(log.partitions):
            for record in records(log, topic, partition):
                for changed in change(record) if change else [record]:
                    producer.send(Append(topic, changed.key or b"", changed.value, partition=partition))
    return other


def folded(log: MemoryLog, number: int = SHARD) -> Shard:
    shard = Shard(number)
    bring_up_to_date([shard], log, lambda: 0)
    return shard


def images(shard: Shard) -> dict[Any, bytes]:
    return {key: encode_snapshot(state) for key, state in shard.aggregates.items()}


def test_from_zero_and_from_the_checkpoint_is_the_same_state(world: World) -> None:
    assert records(world.log, SNAPSHOTS)
    without = copy(world.log, lambda record: [] if record.topic == SNAPSHOTS else [record])
    for number in range(4):
        short, whole = folded(world.log, number), folded(without, number)
        assert images(short) == images(whole)
        assert {t: h.shard_seq for t, h in short.heads.items()} == {t: h.shard_seq for t, h in whole.heads.items()}
    assert folded(world.log).events_since_checkpoint < folded(without).events_since_checkpoint


@pytest.mark.parametrize("cut", [lambda v: v[:-1], lambda v: v[:5], lambda v: b"", lambda v: v[:40] + b"\xff" + v[41:]])
def test_a_damaged_snapshot_is_not_used(world: World, cut: Any) -> None:
    def damage(record: Record) -> list[Record]:
        if record.topic == SNAPSHOTS and record.key != b"checkpoint":
            return [msgspec.structs.replace(record, value=cut(record.value))]
        return [record]

    assert images(folded(copy(world.log, damage))) == images(folded(world.log))


def test_a_missing_part_of_a_snapshot_is_noticed(world: World) -> None:
    """A large state travels in parts; without one of them the journal is read."""
    big = World(CelEvaluator(), checkpoint_events=1)
    big.deploy(Workflow(id="one", tasks=tuple(Task(id=f"t{n}", action=Run(command="x" * 100)) for n in range(1_500))))
    big.settle()
    keys = {record.key for record in records(big.log, SNAPSHOTS)}
    assert b"dag/one/1" in keys
    assert max(len(record.value or b"") for record in records(big.log, SNAPSHOTS)) < 65_536
    without = copy(big.log, lambda record: [] if record.key == b"dag/one/1" else [record])
    assert images(folded(without)) == images(folded(big.log))


MUTATIONS = {
    "missing": lambda record: [],
    "doubled": lambda record: [record, record],
    "altered": lambda record: [Record(record.topic, record.partition, 0, record.key, _flip(record.value))],
    "truncated": lambda record: [Record(record.topic, record.partition, 0, record.key, record.value[:-3])],
    "empty": lambda record: [Record(record.topic, record.partition, 0, record.key, None)],
    "foreign": lambda record: [record, Record(record.topic, record.partition, 0, record.key, b"hello")],
}


def _flip(value: bytes | None) -> bytes:
    assert value is not None
    at = len(value) // 2
    return value[:at] + bytes([value[at] ^ 1]) + value[at + 1 :]


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_journal_that_does_not_prove_itself_stops_the_shard_there(world: World, name: str) -> None:
    victim = records(world.log, EVENTS)[10].offset

    def change(record: Record) -> list[Record]:
        if record.topic == SNAPSHOTS:
            return []
        if (record.topic, record.partition, record.offset) == (EVENTS, SHARD, victim):
            return MUTATIONS[name](record)  # type: ignore[misc, no-any-return]
        return [record]

    with pytest.raises(JournalBroken, match=rf"{EVENTS}/{SHARD}/1[01]: "):
        folded(copy(world.log, change))


def test_a_shard_that_comes_back_folds_only_what_is_new(world: World) -> None:
    shard = folded(world.log)
    before = images(shard)
    assert bring_up_to_date([shard], world.log, lambda: 0) == 0
    assert images(shard) == before
    world.ask(c.StartRun(dag="one", run_id="more"))
    assert bring_up_to_date([shard], world.log, lambda: 0) > 0
    assert images(shard) == images(folded(world.log))
