"""The rules of the engine and nothing else: one shard in memory, each command decided at once with all that follows
from it.

There is no log, no wire and no process here, so tens of thousands of runs cost seconds. What those add is tested with
``tidewheel.testing.world``. The journal's witnesses follow every event, as they do in the checker.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, cast

import msgspec

from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.deadlines import AT_ONCE, armed_by, deadline_armed_by
from tidewheel.core.decide import Answer, decide
from tidewheel.core.mail import AnyMail
from tidewheel.core.rules import Rules
from tidewheel.core.snapshot import empty
from tidewheel.core.state import Dag, Pool
from tidewheel.core.workflow import Workflow
from tidewheel.runtime.shard import AggregateKey, Shard, target_of
from tidewheel.runtime.timers import Timers
from tidewheel.runtime.witness.dag import DagWitness
from tidewheel.runtime.witness.findings import Findings
from tidewheel.runtime.witness.pool import PoolWitness


class BareEngine:
    """Decides commands at ``now`` (ms since the epoch), which only the caller moves."""

    def __init__(self, rules: Rules, now: int, *, witnessed: bool = True) -> None:
        self.now = now
        self.events: list[e.Event] = []
        #: What was posted; whoever acts on it takes it out.
        self.mail: list[AnyMail] = []
        self._rules = rules
        self._shard = Shard(0)
        self._timers = Timers(rules, partitions=1)
        self._findings = Findings()
        self._witnessed = witnessed
        self._witnesses: dict[AggregateKey, DagWitness | PoolWitness] = {}
        self._pools: dict[AggregateKey, None] = {}

    def deploy(self, workflow: Workflow, version: str = "v1") -> None:
        """Make ``workflow`` current; AssertionError if it is refused."""
        definition = msgspec.json.encode(workflow).decode()
        answer = self.ask(c.DeployDag(actor="user:test", dag=workflow.id, version=version, definition=definition))
        assert answer is not None and answer.ok, answer

    def ask(self, command: c.Command, *, allocate: bool = True) -> Answer | None:
        """Decide a command and all that follows. Without ``allocate`` what is free then is given out with the next
        command, as within one batch."""
        answer = self._decide(command)
        if allocate:
            self.allocate()
        return answer

    def allocate(self) -> None:
        """Give out what is free."""
        while self._pools:
            key, _ = self._pools.popitem()
            self._decide(c.AllocateSlots(pool=key.name))

    def next_due(self) -> int | None:
        """When to come back at the latest."""
        return self._timers.next_due()

    def fire_due(self) -> None:
        """Let every timer fire that is due by now, once, as in one turn of a scheduler."""
        timers = self._timers.pop_due({0: self._shard}, self.now, len(self._timers))
        for timer in timers:
            self.ask(timer)
        self._timers.keep(timers, {0: self._shard}, self.now)

    def violations(self) -> list[str]:
        """What the witnesses found, also of what stands still now."""
        for witness in self._witnesses.values():
            if isinstance(witness, DagWitness):
                witness.check_progress(self.now)
        return [violation.message for violation in self._findings.violations]

    def dag(self, name: str) -> Dag:
        """The DAG's present state; KeyError if it was never deployed."""
        state = self._shard.aggregates[AggregateKey("dag", name)]
        assert isinstance(state, Dag)
        return state

    def pool(self, name: str) -> Pool:
        """The pool's present state; KeyError if nobody has spoken of it."""
        state = self._shard.aggregates[AggregateKey("pool", name)]
        assert isinstance(state, Pool)
        return state

    def _decide(self, command: c.Command) -> Answer | None:
        """Decide it and what follows; gives the first one's answer."""
        answers = []
        todo = deque([command])
        while todo:
            command = todo.popleft()
            key = target_of(cast("c.DagCommand | c.PoolCommand", command))
            state = self._shard.aggregates.get(key) or empty(*key)
            decision = decide(state, command, self.now, self._rules)
            self._shard.aggregates[key] = decision.state
            self._follow(key, decision.events)
            for run_id in decision.unfinished:
                self._timers.arm(AT_ONCE, c.ContinueRun(dag=key.name, run_id=run_id))
            if isinstance(decision.state, Pool) and decision.events and decision.state.heads:
                self._pools[key] = None
            answers.append(decision.answer)
            self.mail += decision.mail
            todo += decision.commands
        return answers[0]

    def _follow(self, key: AggregateKey, events: Iterable[e.Event]) -> None:
        witness: Any = self._witnesses.get(key)
        if witness is None and self._witnessed:
            kind = DagWitness if key.kind == "dag" else PoolWitness
            witness = self._witnesses[key] = kind(key.name, self._findings)
        state = self._shard.aggregates[key]
        for event in events:
            self.events.append(event)
            if witness is not None:
                witness.apply(event)
            of_task = armed_by(event, state, self._rules.backlog_runs)
            for armed in (of_task, deadline_armed_by(event, state)):
                if armed is not None:
                    self._timers.arm(*armed)
