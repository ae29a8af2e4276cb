"""Tasks that ask for runs without end, on the memory log under virtual time: who else gets a turn."""

from __future__ import annotations

import pytest

from tidewheel.core import commands as c
from tidewheel.core.workflow import Concurrency, Run, Task, TriggerDag, Workflow
from tidewheel.definition.expressions import CelEvaluator
from tidewheel.runtime import scheduler, work
from tidewheel.testing.world import World

#: Each run asks for three runs of its own DAG: 3^16 of them before chains are too long.
BOMB = Workflow(
    id="bomb",
    tasks=(Task(id="again", action=TriggerDag(dag="bomb"), for_each=[1, 2, 3]),),
    concurrency=Concurrency(max_runs=1_000_000),
)
#: Of a batch, in place of 5,000 and 500.
RECORDS, INPUTS = 500, 50
OTHER = Workflow(id="other", tasks=(Task(id="t", action=Run(command="true")),))


def a_world(monkeypatch: pytest.MonkeyPatch) -> World:
    """With a tenth of the usual bounds, so that it is quick."""
    monkeypatch.setattr(work, "RECORDS_IN_PLACE", RECORDS)
    monkeypatch.setattr(scheduler, "BATCH_RECORDS", INPUTS)
    world = World(CelEvaluator(), partitions=1, checkpoint_events=1_000_000)
    world.add_worker()
    world.deploy(BOMB)
    world.deploy(OTHER)
    return world


def turn(world: World) -> int:
    """Everybody acts once. Gives the events that the scheduler wrote."""
    (one,) = world.schedulers.values()
    before = one.status.events
    one.step(0)
    for worker in world.workers:
        worker.act()
    return one.status.events - before


def test_runs_that_ask_for_runs_without_end_leave_turns_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    world = a_world(monkeypatch)
    world.send(c.StartRun(dag="bomb", run_id="r"))
    sizes = [turn(world)]
    assert sizes[0] >= RECORDS, "one launch leads to the next within a batch, up to the bound"
    world.send(c.StartRun(dag="other", run_id="o"))
    while not world.started:
        sizes.append(turn(world))
        assert len(sizes) < 20, "others wait for what was said before them, and no longer"
    assert world.started == [("other", "o", "t", 1)]
    assert max(sizes) < 3 * RECORDS
    world.check()
