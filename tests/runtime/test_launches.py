"""Tasks that ask for runs without end, on the memory log under virtual time: who else gets a turn."""

from __future__ import annotations

import msgspec
import pytest

from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.rules import Rules
from tidewheel.core.workflow import Concurrency, Run, SubWorkflow, Task, TriggerDag, Workflow
from tidewheel.definition.expressions import CelEvaluator
from tidewheel.runtime import scheduler, work
from tidewheel.testing.world import Outcome, World

#: Each run asks for three runs of its own DAG: 3^16 of them before chains are too long.
BOMB = Workflow(
    id="bomb",
    tasks=(Task(id="again", action=TriggerDag(dag="bomb"), for_each=[1, 2, 3]),),
    concurrency=Concurrency(max_runs=1_000_000),
)
#: Of a batch, in place of 5,000 and 500.
RECORDS, INPUTS = 500, 50
OTHER = Workflow(id="other", tasks=(Task(id="t", action=Run(command="true")),))


def a_world(monkeypatch: pytest.MonkeyPatch, **bounds: int) -> World:
    """With a tenth of the usual bounds, so that it is quick."""
    monkeypatch.setattr(work, "RECORDS_IN_PLACE", RECORDS)
    monkeypatch.setattr(scheduler, "BATCH_RECORDS", INPUTS)
    evaluator = CelEvaluator()
    rules = Rules(evaluator=evaluator, **{"waiting_runs_max": 1_000, **bounds})
    world = World(evaluator, partitions=1, checkpoint_events=1_000_000, rules=rules)
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


def test_pausing_a_dag_ends_what_it_asks_of_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    world = a_world(monkeypatch, waiting_runs_max=50)
    world.send(c.StartRun(dag="bomb", run_id="r"))
    for _ in range(3):
        turn(world)
    world.send(c.PauseDag(dag="bomb"))
    world.advance(10_000)
    created = world.events(e.RunCreated)
    live = len(created) - len(world.events(e.RunSucceeded, e.RunFailed))
    assert 50 <= live <= 51, "as many wait as may, and nothing goes on"
    world.advance(60_000)
    assert len(world.events(e.RunCreated)) == len(created)
    world.check()


def test_five_thousand_items_of_a_narrow_dag_end_well_and_few_of_their_runs_wait() -> None:
    items, waiting_max = 5_000, 100
    evaluator = CelEvaluator()
    world = World(evaluator, checkpoint_events=20_000, rules=Rules(evaluator=evaluator, waiting_runs_max=waiting_max))
    world.add_worker(slots=16, behaviour=lambda _: Outcome(takes_ms=1_000))
    narrow = msgspec.structs.replace(OTHER, concurrency=Concurrency(max_runs=16))
    world.deploy(narrow)
    each = Task(id="each", action=SubWorkflow(dag="other"), for_each=list(range(items)), max_items=items)
    world.deploy(Workflow(id="wide", tasks=(each,)))
    world.send(c.StartRun(dag="wide", run_id="r"))
    for _ in range(15):
        world.advance(60_000)
        if any(event.dag == "wide" for event in world.events(e.RunSucceeded)):  # type: ignore[union-attr]
            break
    waiting = most = 0
    for event in world.events(e.RunCreated, e.RunStarted):
        if event.dag == "other":  # type: ignore[union-attr]
            waiting += 1 if isinstance(event, e.RunCreated) else -1
            most = max(most, waiting)
    assert most <= waiting_max
    succeeded = [event.run_id for event in world.events(e.RunSucceeded) if event.dag == "other"]  # type: ignore[union-attr]
    assert len(succeeded) == len(set(succeeded)) == items
    assert len(world.started) == items
    assert len(world.events(e.LaunchPostponed)) < 12 * items
    world.check()
