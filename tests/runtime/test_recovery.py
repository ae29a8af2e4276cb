"""Bringing a shard up to date: snapshots are only a shorter way, and a journal that does not prove itself stops it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import pytest

from tidewheel.core import commands as c
from tidewheel.core.snapshot import encode_snapshot
from tidewheel.core.workflow import Run, Task, Workflow
from tidewheel.definition.expressions import CelEvaluator
from tidewheel.log.interface import EVENTS, JOURNALS, SNAPSHOTS, Append, Batch, Record
from tidewheel.log.memory import MemoryLog, MemoryOwner
from tidewheel.log.partition import partition_of
from tidewheel.runtime.checkpoints import Round
from tidewheel.runtime.recovery import JournalBroken, bring_up_to_date
from tidewheel.runtime.shard import Shard
from tidewheel.runtime.snapshots import restore
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
        if record.topic == SNAPSHOTS and record.key != b"checkpoint" and record.value is not None:
            return [msgspec.structs.replace(record, value=cut(record.value))]
        return [record]

    assert images(folded(copy(world.log, damage))) == images(folded(world.log))


def test_a_missing_part_of_a_snapshot_is_noticed(world: World) -> None:
    """A large state travels in parts; without one of them the journal is read."""
    big = World(CelEvaluator(), checkpoint_events=1)
    big.deploy(Workflow(id="one", tasks=tuple(Task(id=f"t{n}", action=Run(command="x" * 100)) for n in range(1_500))))
    big.settle()
    keys = sorted(record.key for record in records(big.log, SNAPSHOTS) if record.key and record.value is not None)
    victim = next(key for key in keys if key.startswith(b"dag/one/") and key.endswith(b"/1"))
    assert max(len(record.value or b"") for record in records(big.log, SNAPSHOTS)) < 65_536
    without = copy(big.log, lambda record: [] if record.key == victim else [record])
    assert images(folded(without)) == images(folded(big.log))


def test_a_snapshot_that_is_gone_whole_is_missed(world: World) -> None:
    """Also when no event of its aggregate follows, which would give it away."""
    newest = (record for record in records(world.log, SNAPSHOTS)[::-1] if record.value is not None)
    gone = next(record.key for record in newest if record.key and record.key.startswith(b"dag/one/"))
    log = copy(world.log, lambda record: [] if record.key == gone else [record])
    assert images(folded(log)) == images(folded(copy(world.log, without_snapshots)))


def test_an_older_snapshot_in_the_place_of_one_that_is_gone_is_noticed(world: World) -> None:
    """Whether an event of its aggregate follows, or none that would give it away."""
    for follows in (False, True):
        if follows:
            world.ask(c.PauseDag(dag="one"))
        there = world.log.records_of(SNAPSHOTS, SHARD)
        sets = [record for record in there if record and record.value and (record.key or b"").startswith(b"dag/one/")]
        older, newest = sets[-2:]
        deleted = [record for record in there if record and record.key == older.key and record.value is None]
        for record in (newest, *deleted):
            there[record.offset] = None
        assert images(folded(world.log)) == images(folded(copy(world.log, without_snapshots)))


def without_snapshots(record: Record) -> list[Record]:
    return [] if record.topic == SNAPSHOTS else [record]


@pytest.mark.parametrize("key", [b"checkpoint", b"dag/one"])
def test_no_bit_of_a_snapshot_record_can_change_unnoticed(world: World, key: bytes) -> None:
    """Most changes would still decode, into a state that never was."""
    newest = next(r for r in records(world.log, SNAPSHOTS)[::-1] if r.value and (r.key or b"").startswith(key))
    assert newest.value is not None
    expected = images(folded(copy(world.log, without_snapshots)))
    for at in range(0, len(newest.value), 3):
        value = newest.value[:at] + bytes([newest.value[at] ^ 1 << at % 8]) + newest.value[at + 1 :]

        def changed(record: Record, value: bytes = value) -> list[Record]:
            return [msgspec.structs.replace(record, value=value) if record == newest else record]

        assert images(folded(copy(world.log, changed))) == expected


# --- checkpoints are written in pieces ------------------------------------------------------------------------------


def rounds(shard: Shard) -> Iterator[list[Append]]:
    """The pieces of a checkpoint of everything, each small; each is taken for committed when the next is asked for."""
    shard.dirty = set(shard.aggregates)
    writing = Round(shard, piece_bytes_max=1_000)
    while not writing.finished:
        yield writing.next_piece()
        writing.committed()


def wide(runs: int = 12) -> World:
    """Several DAGs on one shard, one of them larger than any piece."""
    world = World(CelEvaluator(), partitions=1, checkpoint_events=1_000_000)
    world.add_worker()
    for name in ("one", "two", "three"):
        world.deploy(Workflow(id=name, tasks=TASKS))
    world.deploy(Workflow(id="big", tasks=tuple(Task(id=f"t{n}", action=Run(command="x" * 100)) for n in range(1_000))))
    for number in range(runs):
        world.ask(c.StartRun(dag="one", run_id=f"r{number}"))
    return world


def test_a_checkpoint_cut_off_after_any_piece_leaves_what_was_before_or_is_whole() -> None:
    world = wide()
    first = folded(world.log, 0)
    pieces = list(rounds(first))
    assert len(pieces) > 4
    producer = world.log.producer()
    for cut in range(len(pieces)):
        for append in pieces[cut]:
            producer.send(append)
        heads = {topic: head.shard_seq for topic, head in restored(world.log).heads.items()}
        assert (heads == {topic: head.shard_seq for topic, head in first.heads.items()}) == (cut == len(pieces) - 1)
    world.ask(c.StartRun(dag="one", run_id="more"))
    world.ask(c.StartRun(dag="big", run_id="big"))
    expected = images(folded(copy(world.log, lambda record: [] if record.topic == SNAPSHOTS else [record]), 0))
    for piece in rounds(folded(world.log, 0)):
        for append in piece:
            world.log.producer().send(append)
        assert restored(world.log).aggregates, "the checkpoint before, or the new one: there always is one"
        assert images(folded(world.log, 0)) == expected


def restored(log: MemoryLog) -> Shard:
    """Shard 0 from its snapshots alone."""
    shard = Shard(0)
    restore(shard, records(log, SNAPSHOTS, 0))
    return shard


def test_what_a_checkpoint_replaces_is_deleted() -> None:
    world = wide()
    for number in range(3):
        world.ask(c.StartRun(dag="one", run_id=f"more{number}"))
        shard = folded(world.log, 0)
        for piece in rounds(shard):
            for append in piece:
                world.log.producer().send(append)
        kept = compacted(world.log)
        assert kept == {key for keys in shard.stored.values() for key in keys} | {b"checkpoint"}
    assert sum(key.startswith(b"dag/big/") for key in kept) > 1
    # What a round that was cut off left behind goes with the next.
    abandoned = rounds(folded(world.log, 0))
    world.ask(c.StartRun(dag="one", run_id="last"))
    for append in next(abandoned):
        world.log.producer().send(append)
    shard = folded(world.log, 0)
    for piece in rounds(shard):
        for append in piece:
            world.log.producer().send(append)
    assert compacted(world.log) == {key for keys in shard.stored.values() for key in keys} | {b"checkpoint"}


def compacted(log: MemoryLog) -> set[bytes]:
    """The keys that compaction keeps."""
    newest = {record.key: record.value for record in records(log, SNAPSHOTS, 0)}
    return {key for key, value in newest.items() if key is not None and value is not None}


def test_a_round_that_is_given_up_is_written_again_whole() -> None:
    world = wide()
    shard = folded(world.log, 0)
    writing = Round(shard, piece_bytes_max=1_000)
    for append in writing.next_piece():
        world.log.producer().send(append)
    writing.give_up()
    assert shard.dirty == set(shard.aggregates)
    for piece in rounds(shard):
        for append in piece:
            world.log.producer().send(append)
    assert images(restored(world.log)) == images(shard)


def test_a_checkpoint_under_load_never_writes_more_than_a_piece_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidewheel.runtime.checkpoints.PIECE_BYTES_MAX", 20_000)
    sizes = []
    commit = MemoryOwner.commit

    def measured(self: MemoryOwner, batch: Batch, appends: Sequence[Append]) -> Mapping[Any, int]:
        sizes.append(sum(len(append.value or b"") for append in appends if append.topic == SNAPSHOTS))
        return commit(self, batch, appends)

    monkeypatch.setattr(MemoryOwner, "commit", measured)
    world = World(CelEvaluator(), partitions=1, checkpoint_events=200)
    world.add_worker()
    for number in range(60):
        world.deploy(Workflow(id=f"d{number}", tasks=TASKS))
    for number in range(60):
        world.send(c.StartRun(dag=f"d{number}", run_id="r"))
    world.settle()
    assert max(sizes) < 40_000
    assert sum(size > 0 for size in sizes) > 3
    assert images(folded(world.log, 0)) == images(
        folded(copy(world.log, lambda record: [] if record.topic == SNAPSHOTS else [record]), 0)
    )
    world.check()


def test_a_shard_that_went_long_ago_is_forgotten(world: World) -> None:
    (scheduler,) = world.schedulers.values()
    world.start_scheduler("second")
    world.settle()
    assert len(scheduler._lost) == 2
    world.advance(120_000)
    assert scheduler._lost == {}


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


def test_a_seal_holds_in_the_version_it_was_written_in(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later release writes other fields; what an earlier one sealed is still what it sealed."""
    monkeypatch.setattr("tidewheel.runtime.seals.encode", lambda message: b"another version")
    assert restored_of(world.log, SHARD).aggregates


def restored_of(log: MemoryLog, number: int) -> Shard:
    """A shard from its snapshots alone."""
    shard = Shard(number)
    restore(shard, records(log, SNAPSHOTS, number))
    return shard
