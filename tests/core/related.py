"""DAGs that ask each other for runs; what they say to each other is in the test's hands: late, twice, out of order."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from tests.core.scenes import NOW
from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.decide import decide
from tidewheel.core.rules import Rules
from tidewheel.core.state import Dag, TaskState
from tidewheel.core.waits import Wait
from tidewheel.core.workflow import Input, Run, SubWorkflow, Task, TriggerDag, Workflow
from tidewheel.definition.expressions import CelEvaluator
from tidewheel.testing.playbook import assert_survives_snapshot

CEL = Rules(evaluator=CelEvaluator())
#: ``report`` is run by a worker, and takes an input.
REPORT = Workflow(
    id="report",
    tasks=(Task(id="build", action=Run(command="true")),),
    inputs={"day": Input(type="string", default="today", required=False)},
)


def asks(name: str, *needs: str, waits: bool = True, dag: str = "report", inputs: Any = None, **more: Any) -> Task:
    """A task that asks for a run, and mostly waits for its end."""
    kind = SubWorkflow if waits else TriggerDag
    return Task(id=name, action=kind(dag=dag, inputs=inputs or {}), needs=needs, **more)


class Site:
    """Several DAGs. ``post`` is what one of them has said to another and nobody has heard yet."""

    def __init__(self, *workflows: Workflow, rules: Rules = CEL) -> None:
        self.rules = rules
        self.now = NOW
        self.dags: dict[str, Dag] = {}
        self.events: list[e.Event] = []
        self.post: list[Any] = []
        for workflow in workflows:
            self.say(c.DeployDag(dag=workflow.id, version="v", definition=msgspec.json.encode(workflow).decode()))

    def say(self, command: Any) -> list[str]:
        """One DAG decides; the kinds of what came of it."""
        before = self.dags.get(command.dag, Dag(dag=command.dag))
        decision = decide(before, command, self.now, self.rules)
        assert_survives_snapshot(decision.state)
        if decision.events:
            self.dags[command.dag] = decision.state
        self.events += decision.events
        self.post += [one for one in decision.commands if not hasattr(one, "pool")]
        return [type(event).__name__ for event in decision.events]

    def deliver(self, kind: type[Any] | None = None) -> Any:
        """The oldest word (of this kind) is heard, and given back so that it may be said again."""
        command = next(one for one in self.post if kind is None or isinstance(one, kind))
        self.post.remove(command)
        self.say(command)
        return command

    def settle(self) -> None:
        """All is heard."""
        while self.post:
            self.deliver()

    def start(self, dag: str = "d") -> None:
        """A run ``r`` begins."""
        self.say(c.StartRun(dag=dag, run_id="r"))

    def child(self, dag: str = "report") -> str:
        """The newest run of a DAG."""
        created = [one for one in self.events if isinstance(one, e.RunCreated) and one.dag == dag]
        return created[-1].run_id

    def work(self, dag: str, run_id: str, task: str, *, output: Any = None, fails: bool = False) -> None:
        """A worker runs the task's current attempt."""
        where: dict[str, Any] = {"dag": dag, "run_id": run_id, "task": task}
        where["attempt"] = self.dags[dag].runs[run_id].task(task).attempt
        self.say(c.GrantSlot(**where, pool="default", worker="w", mail_partition=0))
        report = {**where, "worker": "w", "started_at": self.now, "ended_at": self.now}
        if fails:
            self.say(c.ReportFailure(**report, kind="exception", message="no"))
        else:
            self.say(c.ReportSuccess(**report, output=None if output is None else json.dumps(output)))

    def task(self, name: str, dag: str = "d", run_id: str = "r") -> TaskState:
        """A task of a live run."""
        return self.dags[dag].runs[run_id].task(name)

    def wait(self, name: str, dag: str = "d", run_id: str = "r") -> Wait:
        """What a deferred task waits for."""
        found = self.task(name, dag, run_id).wait
        assert found is not None, f"{name} waits for nothing"
        return found

    def last(self, kind: type[Any]) -> Any:
        """The newest event of a kind."""
        return [one for one in self.events if isinstance(one, kind)][-1]

    def count(self, kind: type[Any], dag: str) -> int:
        """How many events of a kind a DAG has."""
        return sum(isinstance(one, kind) and one.dag == dag for one in self.events)
