"""Trimming journals: only what snapshots hold, what is old and what everybody has read; and life goes on afterwards."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tidewheel.core import commands as c
from tidewheel.core import snapshot
from tidewheel.core.snapshot import encode_snapshot, state_hash
from tidewheel.core.workflow import Run, Task, Workflow
from tidewheel.definition.expressions import CelEvaluator
from tidewheel.log.interface import EVENTS, JOURNALS, POOL_EVENTS, Log
from tidewheel.log.memory import MemoryLog
from tidewheel.runtime import retention
from tidewheel.runtime.checker import check_log
from tidewheel.runtime.journal import JournalBroken
from tidewheel.runtime.recovery import bring_up_to_date
from tidewheel.runtime.retention import SnapshotsDiffer, plan_trim, trim
from tidewheel.runtime.shard import AggregateKey, Shard
from tidewheel.testing.world import World

FAR = 1 << 60
DAGS = [f"dag{number}" for number in range(6)]


@pytest.fixture
def world() -> World:
    """History with checkpoints in it."""
    world = World(CelEvaluator(), partitions=1, checkpoint_events=40)
    world.add_worker()
    for name in DAGS:
        world.deploy(Workflow(id=name, tasks=(Task(id="a", action=Run(command="true")),)))
    for number in range(40):
        world.ask(c.StartRun(dag=DAGS[number % len(DAGS)], run_id=f"r{number}"))
        world.advance(1_000)
    return world


def states(log: Log, *, snapshots: bool = True) -> dict[AggregateKey, str]:
    found = {}
    for number in range(log.partitions):
        shard = Shard(number)
        bring_up_to_date([shard], log, lambda: 0, snapshots=snapshots)
        found.update({key: state_hash(state) for key, state in shard.aggregates.items()})
    return found


def test_what_the_snapshots_hold_may_go_and_all_goes_on(world: World) -> None:
    before = states(world.log)
    cuts = plan_trim(world.log, FAR)
    assert all(0 < cut.before <= cut.end for cut in cuts)
    assert {cut.held_by for cut in cuts} == {"snapshots"}
    trim(world.log, cuts)
    assert {(cut.topic, cut.partition): cut.before for cut in cuts} == world.log.start_offsets(
        [(topic, number) for topic in JOURNALS for number in range(1)]
    )
    assert states(world.log) == before
    report = check_log(world.log, settled=True)
    assert report.ok
    assert report.trimmed == 2
    assert report.unjudged > 0
    world.kill_scheduler("scheduler-0")
    world.start_scheduler("heir")
    world.ask(c.StartRun(dag="dag1", run_id="after"))
    world.advance(1_000)
    assert check_log(world.log).ok
    assert plan_trim(world.log, FAR)[0].start > 0
    trim(world.log, plan_trim(world.log, FAR))


def test_what_is_young_stays(world: World) -> None:
    middle = world.now - 10_000
    for cut in plan_trim(world.log, middle):
        kept = world.log.reader({(cut.topic, cut.partition): cut.before}).read(1, 0)
        assert cut.held_by == "snapshots" or kept[0].timestamp >= middle
    assert all(cut.offsets == 0 and cut.held_by == "age" for cut in plan_trim(world.log, 0))


def test_what_a_reader_has_not_read_stays(world: World) -> None:
    cuts = plan_trim(world.log, FAR, {"read model": {(EVENTS, 0): 5}})
    assert (cuts[0].before, cuts[0].held_by) == (5, "read model")
    assert (cuts[1].before, cuts[1].held_by) == (0, "read model")
    far = {(EVENTS, 0): FAR, (POOL_EVENTS, 0): FAR}
    assert {cut.held_by for cut in plan_trim(world.log, FAR, {"read model": far})} == {"snapshots"}


def test_without_snapshots_nothing_goes() -> None:
    world = World(CelEvaluator(), partitions=1)
    world.deploy(Workflow(id="one", tasks=(Task(id="a", action=Run(command="true")),)))
    assert all(cut.before == 0 for cut in plan_trim(world.log, FAR))


def test_snapshots_that_are_not_what_the_journal_says_are_not_relied_upon(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuts = plan_trim(world.log, FAR)
    restored = retention.bring_up_to_date

    def wrong(shards: list[Shard], log: Log, clock: Any, *, snapshots: bool = True) -> int:
        done = restored(shards, log, clock, snapshots=snapshots)
        if snapshots:
            for key, state in shards[0].aggregates.items():
                shards[0].aggregates[key] = msgspec.structs.replace(state, seq=state.seq + 1)  # type: ignore[assignment]
        return done

    monkeypatch.setattr(retention, "bring_up_to_date", wrong)
    with pytest.raises(SnapshotsDiffer, match=r"is not what the journal says: nothing was trimmed"):
        trim(world.log, cuts)
    assert set(world.log.start_offsets([(EVENTS, 0), (POOL_EVENTS, 0)]).values()) == {0}


def test_a_check_of_a_journal_trimmed_too_far_says_where(world: World) -> None:
    world.log.trim(EVENTS, 0, world.log.end_offset(EVENTS, 0))
    with pytest.raises(JournalBroken, match=r"events/0/[0-9]+: trimmed: the journal begins here"):
        check_log(world.log)


# --- an upgrade that changes what is stored ------------------------------------------------------------------------


def test_another_format_is_ignored_and_the_journal_read_instead(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    before = states(world.log)
    _change_format(monkeypatch, "another")
    assert states(world.log) == before
    trim_all(world.log)
    with pytest.raises(JournalBroken, match=r"trimmed: .* up to offset 0: "):
        states(world.log)


def test_a_format_that_is_upgraded_leads_on_also_from_a_trimmed_journal(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = states(world.log)
    trim_all(world.log)
    old = snapshot.FORMAT
    _change_format(monkeypatch, "another")
    monkeypatch.setitem(snapshot.UPGRADES, old, snapshot.unchanged)
    assert states(world.log) == before
    shard = Shard(0)
    bring_up_to_date([shard], world.log, lambda: 0)
    assert shard.dirty == set(shard.aggregates), "all of it is written anew with the next checkpoint"


def test_an_upgrade_brings_old_data_to_todays_shape(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    shard = Shard(0)
    bring_up_to_date([shard], world.log, lambda: 0)
    (key, state) = next((key, state) for key, state in shard.aggregates.items() if key.kind == "dag")
    plain = msgspec.msgpack.decode(encode_snapshot(state))
    plain["stopped"] = plain.pop("paused")

    def renamed(kind: str, data: dict[str, Any]) -> dict[str, Any]:
        return {**data, "paused": data["stopped"]} if kind == "dag" else data

    monkeypatch.setitem(snapshot.UPGRADES, "before", renamed)
    assert snapshot.is_readable("before")
    again = snapshot.decode_snapshot(key.kind, msgspec.msgpack.encode(plain), "before")
    assert state_hash(again) == state_hash(state)


def _change_format(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for module in ("tidewheel.core.snapshot", "tidewheel.runtime.snapshots", "tidewheel.runtime.checkpoints"):
        monkeypatch.setattr(f"{module}.FORMAT", name)


def trim_all(log: MemoryLog) -> None:
    """As the release before would have."""
    for topic in JOURNALS:
        for number in range(log.partitions):
            log.trim(topic, number, 3)
