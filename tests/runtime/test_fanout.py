"""Ten thousand instances and a join: nobody else waits for them, no event holds them all, and nothing stays behind."""

from __future__ import annotations

import gc
import sys
from dataclasses import dataclass, field
from typing import Any

import pytest

from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.mail import AssignTask
from tidewheel.core.rules import Rules
from tidewheel.core.snapshot import encode_snapshot
from tidewheel.core.workflow import Python, Run, Task, Workflow
from tidewheel.definition.expressions import CelEvaluator
from tidewheel.log.interface import EVENTS, JOURNALS, SNAPSHOTS
from tidewheel.log.partition import partition_of
from tidewheel.runtime.scheduler import Scheduler, Status
from tidewheel.testing.bare_engine import BareEngine
from tidewheel.testing.world import START_MS, Outcome, World
from tidewheel.wire.codec import decode_event

EVALUATOR = CelEvaluator()
LISTS, OF_EACH = 10, 1_000
ITEMS = LISTS * OF_EACH
#: The items take 400 kB together, more than any event may hold.
PADDING = "x" * 25


def fan_out() -> Workflow:
    """Lists, an instance for each item in any of them, and a join that is handed what all of these gave."""
    lists = [Task(id=f"list{number}", action=Run(command="true")) for number in range(LISTS)]
    names = tuple(task.id for task in lists)
    load = Task(
        id="load",
        needs=names,
        action=Python(callable="a:b", with_={"item": "${{ item }}"}),
        for_each="${{ " + " + ".join(f"tasks.{name}.output" for name in names) + " }}",
        max_items=ITEMS,
    )
    join = Task(id="join", needs=("load",), action=Python(callable="a:b", with_={"all": "${{ tasks.load.output }}"}))
    return Workflow(id="fan", tasks=(*lists, load, join))


def outputs(work: AssignTask) -> Any:
    """What a task of the fan-out gives: the join the number of what it was handed."""
    if work.task.startswith("list"):
        return [{"n": n, "padding": PADDING} for n in range(OF_EACH)]
    return int(work.task[5:-1]) if work.task.startswith("load") else work.action.count(",")


@dataclass
class Watched:
    """A scheduler that is asked for a run of another DAG every few turns, and how many turns that takes."""

    world: World
    inner: Scheduler
    turns: int = 0
    asked: dict[str, int] = field(default_factory=dict)
    waited: dict[str, int] = field(default_factory=dict)
    #: Events of the largest turn.
    largest: int = 0
    asking: bool = False

    def __post_init__(self) -> None:
        shard = partition_of(b"other", self.world.log.partitions)
        self._reader = self.world.log.reader({(EVENTS, shard): self.world.log.end_offset(EVENTS, shard)})

    @property
    def status(self) -> Status:
        return self.inner.status

    def step(self, timeout_s: float) -> bool:
        self.turns += 1
        if self.asking and self.turns % 5 == 0:
            name = f"r{self.turns}"
            self.asked[name] = self.turns
            self.world.send(c.StartRun(dag="other", run_id=name))
        before = self.inner.status.events
        acted = self.inner.step(timeout_s)
        self.largest = max(self.largest, self.inner.status.events - before)
        for record in self._reader.read(10_000, 0):
            event = decode_event(record.value or b"").event
            if isinstance(event, e.TaskLeased) and event.dag == "other":
                self.waited[event.run_id] = self.turns - self.asked[event.run_id]
            if isinstance(event, _RUN_ENDS) and event.dag == "fan":
                self.asking = False
        return acted


_RUN_ENDS = (e.RunSucceeded, e.RunFailed, e.RunCancelled)


def test_others_are_leased_between_its_steps_and_no_event_holds_all_items() -> None:
    world = World(EVALUATOR, partitions=1, checkpoint_events=20_000)
    world.add_worker(slots=512, behaviour=lambda work: Outcome(takes_ms=500, output=outputs(work)))
    scheduler = world.schedulers["scheduler-0"]
    assert isinstance(scheduler, Scheduler)
    watched = world.schedulers["scheduler-0"] = Watched(world, scheduler)
    world.deploy(fan_out())
    world.deploy(Workflow(id="other", tasks=(Task(id="t", action=Run(command="true"), pool="quick"),)))
    world.add_worker("quick", slots=100, pool="quick")
    world.settle()
    watched.asking = True
    world.send(c.StartRun(dag="fan", run_id="r"))
    world.advance(30_000, step_ms=5_000)
    ends = {event.run_id: type(event) for event in world.events(*_RUN_ENDS) if event.dag == "fan"}
    assert ends == {"r": e.RunSucceeded}
    (expanded, *_) = parts = world.events(e.TaskExpanded)
    assert expanded.items == ITEMS
    assert len(parts) > LISTS, "the items are named in parts"
    assert len(watched.asked) > 50
    assert watched.waited.keys() == watched.asked.keys()
    assert max(watched.waited.values()) <= 1, "asked in one turn, leased in it or the next"
    assert watched.largest <= 3_000
    sizes = {topic: largest(world, topic) for topic in (*JOURNALS, SNAPSHOTS)}
    assert max(sizes.values()) <= 64 * 1024, sizes


def largest(world: World, topic: str) -> int:
    """Bytes of the largest record there."""
    places = range(world.log.partitions)
    records = [record for number in places for record in world.log.reader({(topic, number): 0}).read(1_000_000, 0)]
    return max(len(record.value or b"") for record in records)


@pytest.mark.parametrize("cancelled", [False, True])
def test_nothing_of_it_stays_in_memory(cancelled: bool) -> None:
    # The witnesses keep the last runs that ended: they may be reopened.
    engine = BareEngine(Rules(evaluator=EVALUATOR), START_MS, witnessed=False)
    engine.deploy(fan_out())
    sizes, blocks = [], []
    for number in range(2):
        play(engine, f"r{number}", cancelled)
        engine.events.clear()
        gc.collect()
        sizes.append(len(encode_snapshot(engine.dag("fan"))) + len(encode_snapshot(engine.pool("default"))))
        blocks.append(sys.getallocatedblocks())
    assert max(sizes) < min(sizes) + 200, "only the ids of ended runs are remembered"
    assert blocks[1] < blocks[0] + ITEMS // 10, "less than an object for every tenth instance"


def play(engine: BareEngine, run_id: str, cancelled: bool) -> None:
    """A run to its end, and until its leases' terms are over."""
    engine.ask(c.JoinPool(actor="worker:w", pool="default", worker="w", slots=512, mail_partition=0))
    engine.ask(c.StartRun(dag="fan", run_id=run_id))
    for turn in range(10_000):
        engine.fire_due()
        mail, engine.mail = engine.mail, []
        work = [message for message in mail if isinstance(message, AssignTask)]
        if cancelled and turn == 3:
            engine.ask(c.CancelRun(actor="user:test", dag="fan", run_id=run_id))
        if not work and not engine.dag("fan").runs:
            break
        for each in work:
            engine.ask(report(engine, each))
    engine.now += 45_000
    engine.ask(c.JoinPool(actor="worker:w", pool="default", worker="w", slots=512, mail_partition=0))
    engine.fire_due()
    assert not engine.dag("fan").runs


def report(engine: BareEngine, work: AssignTask) -> c.Report:
    """That it succeeded."""
    output = str(outputs(work)).replace("'", '"')
    return c.ReportSuccess(
        actor="worker:w",
        worker="w",
        dag=work.dag,
        run_id=work.run_id,
        task=work.task,
        attempt=work.attempt,
        started_at=engine.now,
        ended_at=engine.now,
        output=output,
    )
