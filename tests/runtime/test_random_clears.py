"""Random DAGs that people clear and mark at random, while they run and when they have ended: the last word counts."""

from __future__ import annotations

import json
import random
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.runtime.random_runs import EVALUATOR, random_workflow
from tests.runtime.reference_model import expected, output_length
from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.ended import packed, restored
from tidewheel.core.mail import AssignTask
from tidewheel.core.recall import Recalled, recall
from tidewheel.core.state import Dag, RunState
from tidewheel.core.workflow import Switch, Workflow
from tidewheel.log.interface import EVENTS
from tidewheel.runtime.recovery import bring_up_to_date
from tidewheel.runtime.shard import AggregateKey, Shard, shard_of
from tidewheel.testing.world import Outcome, World
from tidewheel.wire.codec import decode_event

MARKS = ("success", "failed", "skipped")


class Operated:
    """A run of a random DAG, with somebody who changes it; and beside it what it must come to."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        drawn = random_workflow(rng)
        # Which of its other instances still end by themselves is a matter of time.
        tasks = tuple(replace(task, fail_fast=False) for task in drawn.tasks)
        self.workflow: Workflow = replace(drawn, tasks=tasks)
        self.children = {task.id: [other.id for other in tasks if task.id in other.needs] for task in tasks}
        self.switches = {task.id for task in tasks if isinstance(task.action, Switch)}
        #: What a mapped task gives depends on how far it had come when it was marked.
        self.markable = [task.id for task in tasks if task.for_each is None]
        self.n = rng.randint(0, 6)
        self.lot = rng.random()
        #: How often the luck of each task has turned.
        self.turns: dict[str, int] = {}
        self.marks: dict[str, str] = {}
        self.world = World(
            EVALUATOR,
            seed=rng.randint(0, 9),
            schedulers=rng.randint(1, 2),
            checkpoint_events=rng.choice([5, 50]),
        )
        self.world.add_worker("w1", slots=4, behaviour=self._act)
        self.world.deploy(self.workflow)
        self.world.ask(c.StartRun(dag="d", run_id="r", inputs=json.dumps({"n": self.n})))

    def fates(self, name: str) -> list[str]:
        """A task, or an instance, fails whenever it is tried, or never."""
        turn = self.turns.get(name.partition("[")[0], 0)
        return ["fail" if random.Random(f"{self.lot}{name}{turn}").random() < 0.3 else "ok"] * 8

    def _act(self, work: AssignTask) -> Outcome:
        takes_ms = self.rng.choice([0, 300, 2_000])
        fails = self.fates(work.task)[0] == "fail"
        output = list(range(output_length(work.task)))
        return Outcome(takes_ms=takes_ms, fails="exception" if fails else None, output=output)

    def below(self, names: list[str]) -> set[str]:
        """All that hangs on these tasks, and themselves."""
        found = set(names)
        todo = list(names)
        while todo:
            fresh = set(self.children[todo.pop()]) - found
            found |= fresh
            todo += fresh
        return found

    def clear(self) -> None:
        """Tasks begin anew, and their luck may have turned."""
        named = self.rng.sample(list(self.children), self.rng.randint(1, min(3, len(self.children))))
        for name in named:
            self.turns[name] = self.turns.get(name, 0) + 1
        for name in self.below(named):
            self.marks.pop(name, None)
        reply = self.world.ask(c.ClearTasks(dag="d", run_id="r", tasks=json.dumps(named), actor="user:ann"))
        assert reply.ok, reply

    def clear_failed(self) -> None:
        """What did not succeed is tried again, with the same luck; marks among it are taken back."""
        command = c.ClearTasks(dag="d", run_id="r", only_failed=True, actor="user:ann")
        shown = self.world.ask(replace(command, preview=True))
        assert shown.ok, shown
        if not {name.partition("[")[0] for name in json.loads(shown.details)["tasks"]} & self.marks.keys():
            self.world.ask(command)

    def mark(self) -> None:
        """A task ended as somebody says, and what is below it runs again."""
        if not self.markable:
            return
        name, state = self.rng.choice(self.markable), self.rng.choice(MARKS)
        for one in self.below([name]):
            self.marks.pop(one, None)
        self.marks[name] = state
        output = "[]" if state == "success" and name not in self.switches else None
        said: Any = {"dag": "d", "run_id": "r", "task": name, "state": state, "output": output, "actor": "user:ann"}
        assert self.world.ask(c.MarkTask(**said, downstream=True)).ok

    def ended(self) -> RunState | None:
        """The run as it ended, folded from the journal; None: it has not."""
        shard = Shard(shard_of("d", self.world.log.partitions))
        bring_up_to_date([shard], self.world.log, lambda: 0)
        state = shard.aggregates[AggregateKey("dag", "d")]
        assert isinstance(state, Dag)
        if not state.kept:
            return None
        run = state.kept[-1]
        assert packed(run) == self.recalled(state).run
        there = restored(run, state.definitions[run.version], order=0, inputs=run.inputs)
        return replace(there, phase=run.phase)

    def recalled(self, state: Dag) -> Recalled:
        """The same, folded from the run's own events."""
        records = self.world.log.records_of(EVENTS, shard_of("d", self.world.log.partitions))
        events = [decode_event(record.value).event for record in records if record is not None and record.value]
        own = [event for event in events if isinstance(event, e.RunEvent)]
        return recall("d", own, lambda version: state.definitions[version].source)


@given(st.integers(0, 2**32))
@example(2_737_507)  # a mapped task over one that was marked as failed, which has no output
@example(2_354)  # … and over a switch that was marked as a success, which has none either
@settings(max_examples=60, deadline=None)
def test_whatever_is_cleared_and_marked_the_run_ends_as_the_reference_says(seed: int) -> None:
    rng = random.Random(seed)
    run = Operated(rng)
    for _ in range(rng.randint(1, 5)):
        run.world.advance(rng.choice([0, 500, 3_000, 60_000]), step_ms=1_000)
        rng.choice([run.clear, run.clear, run.clear_failed, run.mark])()
    for _ in range(500):
        if (ended := run.ended()) is not None:
            break
        run.world.advance(2_000, step_ms=1_000)
    assert ended is not None, "it never ends"
    end, tasks = expected(run.workflow, run.n, run.fates, run.marks)
    assert {name: state.phase for name, state in ended.tasks.items() if name in tasks} == tasks
    assert ended.phase == end
    attempts: dict[str, int] = {}
    for _, _, task, attempt in run.world.started:
        assert attempt > attempts.get(task, 0), f"{task} was tried as {attempt} after {attempts[task]}"
        attempts[task] = attempt
    run.world.check()
