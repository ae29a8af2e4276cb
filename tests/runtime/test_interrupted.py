"""A turn of the loop that the log cuts short anywhere: nothing that was read is lost, nothing promised is forgotten."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.workflow import Run, Task, Workflow
from tidewheel.definition.expressions import CelEvaluator
from tidewheel.log.interface import SNAPSHOTS, LogUnavailable
from tidewheel.log.memory import Fault, MemoryLog, MemoryOwner, MemoryProducer
from tidewheel.runtime.recovery import bring_up_to_date
from tidewheel.runtime.shard import Shard
from tidewheel.testing.world import World

ONE = Workflow(id="one", tasks=(Task(id="a", action=Run(command="true")),))


def once_away(method: Callable[..., Any]) -> Callable[..., Any]:
    """The method, which finds the log away the first time it is called."""
    calls = []

    def call(*args: Any, **more: Any) -> Any:
        calls.append(args)
        if len(calls) == 1:
            raise LogUnavailable("injected: the log is away")
        return method(*args, **more)

    return call


def steps(world: World, instance: str = "scheduler-0") -> None:
    """The scheduler's own loop: a log that is away is tried again."""
    away = 0
    for _ in range(30):
        try:
            world.schedulers[instance].step(0)
        except LogUnavailable:
            away += 1
        for worker in world.workers:
            worker.act()
    assert away == 1, "the fault was not met"
    world.settle()


@pytest.fixture
def world() -> World:
    world = World(CelEvaluator())
    world.add_worker()
    world.deploy(ONE)
    world.settle()
    return world


def test_what_was_read_while_a_shard_could_not_be_recovered_is_read_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.kill_scheduler("scheduler-0")
    world.send(c.StartRun(dag="one", run_id="r"))
    world.start_scheduler("scheduler-0")
    monkeypatch.setattr(MemoryLog, "reader", once_away(MemoryLog.reader))
    steps(world)
    assert len(world.events(e.RunSucceeded)) == 1


def test_mail_that_could_not_be_sent_after_its_commit_is_sent_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.send(c.StartRun(dag="one", run_id="r"))
    monkeypatch.setattr(MemoryProducer, "send", once_away(MemoryProducer.send))
    (scheduler,) = world.schedulers.values()
    with pytest.raises(LogUnavailable):
        while True:
            scheduler.step(0)
    world.settle()
    assert len(world.events(e.RunSucceeded)) == 1
    assert world.started == [("one", "r", "a", 1)]


def test_a_doubtful_commit_that_can_not_be_settled_yet_is_settled_later(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.send(c.StartRun(dag="one", run_id="r"))
    world.log.inject(Fault.DOUBT_LANDED)
    monkeypatch.setattr(MemoryOwner, "reset", once_away(MemoryOwner.reset))
    steps(world)
    assert len(world.events(e.RunSucceeded)) == 1
    assert world.started == [("one", "r", "a", 1)]


def test_a_piece_of_a_checkpoint_that_the_log_did_not_take_is_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(CelEvaluator(), partitions=1, checkpoint_events=1)
    world.add_worker()
    commit = MemoryOwner.commit
    fails = once_away(commit)

    def of_snapshots(owner: MemoryOwner, batch: Any, appends: Any) -> Any:
        return (fails if appends and appends[0].topic == SNAPSHOTS else commit)(owner, batch, appends)

    monkeypatch.setattr(MemoryOwner, "commit", of_snapshots)
    world.send(c.ConfigurePool(pool="never changed again", slots=1))
    steps(world)
    world.deploy(ONE)
    with_snapshots, without = Shard(0), Shard(0)
    bring_up_to_date([with_snapshots], world.log, lambda: 0)
    bring_up_to_date([without], world.log, lambda: 0, snapshots=False)
    assert with_snapshots.events_since_checkpoint < without.events_since_checkpoint
    assert with_snapshots.aggregates == without.aggregates
