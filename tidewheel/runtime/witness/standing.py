"""Where one live run stands for the witness: what its tasks came to, and what must hold of what is said of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, TypeAlias

from tidewheel.core import events as e
from tidewheel.core.mapping import index_of, instance_name, written_task
from tidewheel.core.workflow import Switch, Task
from tidewheel.runtime.witness.child import Asked
from tidewheel.runtime.witness.deadline import DeadlineWitness
from tidewheel.runtime.witness.definition import Definition
from tidewheel.runtime.witness.findings import Findings
from tidewheel.runtime.witness.rules import ENDS, Ends, ends_of, holds, may_hold
from tidewheel.runtime.witness.task import ACTIVE, LIVE, UNSTARTED, TaskRecord, output_hash

Report: TypeAlias = (
    e.TaskStarted
    | e.TaskHeartbeat
    | e.TaskCheckpointed
    | e.TaskSucceeded
    | e.TaskFailed
    | e.LeaseExpired
    | e.TaskCancelled
)


#: A large run goes on in steps, a turn of its scheduler apart. One of which nothing is said for so long, while the log
#: goes on, has been forgotten.
STEPS_MS_MAX = 60_000


class Limits(Protocol):
    """What the run shares with the other runs of its DAG."""

    #: Attempts queued, leased or running, over all runs.
    active: int
    #: What is said of runs that tasks ask for.
    asked: Asked


class RunStanding:
    """Where the tasks of one run stand. ``phase`` is ``queued`` or ``running``: an ended run is forgotten."""

    __slots__ = (
        "_findings",
        "_limits",
        "at",
        "attempts",
        "attempts_from",
        "backfill_id",
        "cancel_requested",
        "deadlines",
        "definition",
        "last",
        "logical_date",
        "name",
        "open",
        "phase",
        "scheduled",
        "taken",
        "tasks",
    )

    def __init__(
        self, name: str, definition: Definition, limits: Limits, findings: Findings, created: e.RunCreated
    ) -> None:
        self.name = name
        self.scheduled = created.kind == "scheduled"
        self.backfill_id = created.backfill_id
        self.logical_date = created.logical_date
        #: Of a restarted run: the attempt from which its tasks go on counting.
        self.attempts_from = 0
        self.definition = definition
        self.phase = "queued"
        self.cancel_requested = False
        self.tasks: dict[str, TaskRecord] = {}
        self.open = len(definition.tasks)
        #: Of instances and tasks that are gone, the last attempt.
        self.attempts: dict[str, int] = {}
        #: Of each switch that has decided: the tasks that its branch names, and all below them.
        self.taken: dict[str, frozenset[str]] = {}
        self.last = findings.at
        #: When something was last said of it.
        self.at = created.at
        self.deadlines = DeadlineWitness(name, definition.workflow, created)
        self._limits = limits
        self._findings = findings

    @property
    def overlap(self) -> str:
        """The policy that it was created under; "" for a run that was asked for."""
        schedule = self.definition.workflow.schedule
        return schedule.overlap if self.scheduled and schedule is not None else ""

    @property
    def highest_attempt(self) -> int:
        """Of all tasks that it has or had."""
        return max([*(task.attempt for task in self.tasks.values()), *self.attempts.values(), self.attempts_from])

    def end(self, event: e.RunSucceeded | e.RunFailed | e.RunCancelled) -> None:
        """Judge the run's end: nothing live, nothing open, and the result that its leaves give."""
        for name, task in self.tasks.items():
            if task.phase in LIVE:
                self._findings.add(1, f"{self.name} ended while attempt {task.attempt} of {name} is {task.phase}")
        if self.open:
            waiting = [n for n in self.definition.tasks if self._phase(n) not in ENDS and self._phase(n) not in LIVE]
            if waiting:
                self._findings.add(6, f"{self.name} ended while {waiting[0]} is {self._phase(waiting[0])}")
        self.deadlines.end(event, self._findings)
        if self.phase == "queued" and not isinstance(event, e.RunCancelled) and not self.deadlines.failure:
            self._findings.add(6, f"{self.name} ended without having started")
        failed = [name for name in self.definition.leaves if self._phase(name) in ("failed", "upstream_failed")]
        right: type[e.RunEvent] = e.RunFailed if failed else e.RunSucceeded
        if self.deadlines.failure:
            right = e.RunFailed
        elif self.cancel_requested:
            right = e.RunCancelled
        if type(event) is not right:
            because = (
                "it was cancelled" if self.cancel_requested else f"failed leaves: {', '.join(failed[:3]) or 'none'}"
            )
            self._findings.add(6, f"{self.name} ended by {type(event).__name__}, not {right.__name__}: {because}")
        if not isinstance(event, e.RunSucceeded) and not event.reason:
            self._findings.add(9, f"{type(event).__name__} of {self.name} gives no reason")

    def in_steps(self, now: int) -> bool:
        """Whether something of it may be left for a step that is yet to come."""
        return now - self.at <= STEPS_MS_MAX

    @property
    def is_ending(self) -> bool:
        """Whether it is to end, or a mapped task of it."""
        return self.cancel_requested or any(
            task.items is not None and task.phase == "deferred" and task.cancel_requested
            for task in self.tasks.values()
        )

    def stuck(self, now: int) -> Iterator[tuple[str, str]]:
        """Tasks that nothing will ever move on, with the reason (of a started run)."""
        if not self.open:
            yield "", "every task has ended, but the run has not"
        for name, task in self.tasks.items():
            if task.phase == "deferred" and task.ended == task.items:
                yield name, "is deferred, though every instance of it has ended"
        if self.in_steps(now):
            return
        for name, task in self.tasks.items():
            if task.phase in UNSTARTED | {"queued"} and self._is_to_end(name):
                yield name, f"is {task.phase}, though it is to end"
        for name, definition in self.definition.tasks.items():
            if self._phase(name) == "scheduled" and (reason := self._forgotten(name, definition)):
                yield name, f"is scheduled{reason}"

    def _forgotten(self, name: str, definition: Task) -> str:
        """Why a task that waits for its turn should have had it."""
        ends = self._ends(definition)
        if self.cancel_requested:
            return " in a cancelled run"
        if self._left_out(name):
            return ", though a switch left it out"
        if self._undecided(name):
            return ""
        if holds(definition.trigger_rule, ends):
            return f", though its rule {definition.trigger_rule} holds"
        if not may_hold(definition.trigger_rule, ends):
            return f", though its rule {definition.trigger_rule} can not hold any more"
        return ""

    def _is_to_end(self, name: str) -> bool:
        """Whether it is an instance that is to end, with its mapped task or with the run."""
        return name not in self.definition.tasks and (
            self.cancel_requested or self.tasks[written_task(name)].cancel_requested
        )

    def _phase(self, name: str) -> str:
        task = self.tasks.get(name)
        return "scheduled" if task is None else task.phase

    def _undecided(self, name: str) -> bool:
        """Whether a switch that names the task has not ended."""
        return any(self._phase(switch) not in ENDS for switch in self.definition.switches.get(name, ()))

    def _left_out(self, name: str) -> bool:
        """Whether every switch that names the task has ended, and one of them took a branch without it."""
        naming = self.definition.switches.get(name, ())
        left_out = any(switch in self.taken and name not in self.taken[switch] for switch in naming)
        return left_out and not self._undecided(name)

    def _ends(self, task: Task) -> Ends:
        return ends_of(self._phase(name) for name in task.needs)

    def _check_instance(self, event: e.TaskEvent) -> None:
        """An instance begins: in the order of the items, within ``max_parallel``."""
        written = written_task(event.task)
        mapped, limit = self.tasks[written], self.definition.tasks[written].max_parallel
        if index_in(event) != mapped.next:
            self._findings.add(3, f"{named(event)} begins, but instance {mapped.next} is next")
        if mapped.phase != "deferred":
            self._findings.add(3, f"{named(event)} begins while {written} is {mapped.phase}")
        if limit is not None and mapped.at_work >= limit:
            self._findings.add(5, f"{named(event)} begins beyond max_parallel {limit}")
        mapped.begin(index_in(event))

    def _check_rule(self, event: e.TaskEvent) -> None:
        task = self.definition.tasks[event.task]
        ends = self._ends(task)
        if not holds(task.trigger_rule, ends):
            states = f"{ends.success} succeeded, {ends.bad} failed, {ends.skipped} skipped, {ends.open} open"
            self._findings.add(3, f"{named(event)} begins though {task.trigger_rule} does not hold: {states}")
        if self._undecided(event.task) or self._left_out(event.task):
            self._findings.add(3, f"{named(event)} begins, but not by the word of every switch that names it")

    def _leave_turn(self, task: TaskRecord, event: e.TaskEvent) -> None:
        """An instance that waited for its turn does not any more."""
        if event.task not in self.definition.tasks and task.phase == "scheduled":
            self.tasks[written_task(event.task)].begin(index_in(event))

    def _reopen(self, name: str, task: TaskRecord) -> None:
        """What had ended has not, for the count of what is open; with an instance, its mapped task has not either."""
        self.open += 1
        if name in self.definition.tasks:
            return
        mapped = self.tasks[written_task(name)]
        mapped.count(task.phase, -1)
        if mapped.phase in ENDS:
            mapped.phase = "deferred"
            mapped.output = b""
            mapped.cancel_requested = False
            self.open += 1

    def _begin_anew(self, name: str, task: TaskRecord, event: e.RunEvent) -> None:
        """A task that is open waits as if it never had begun; the instances of a mapped one are gone."""
        self._limits.active -= task.phase in ACTIVE
        self._waits_no_more(task, event)
        if name not in self.definition.tasks and task.phase != "scheduled":
            mapped, index = self.tasks[written_task(name)], index_of(name)
            assert index is not None, f"{name} is no instance"
            mapped.wait_again(index)
        for index in range(task.items or 0):
            instance = instance_name(name, index)
            gone = self.tasks.pop(instance)
            if gone.phase not in ENDS:
                self._findings.add(2, f"{self.name}: {instance} is gone while it is {gone.phase}")
            self.attempts[instance] = gone.attempt
        task.begin_anew()

    def reopen(self, definition: Definition) -> None:
        """The run had ended and goes on with ``definition``."""
        if definition is not self.definition:
            self._take(definition)
        self.open = sum(self._phase(name) not in ENDS for name in definition.tasks)
        self.phase = "queued"
        self.cancel_requested = False
        self.backfill_id = ""
        self.deadlines.settle(definition.workflow)
        self.last = self._findings.at

    def _take(self, definition: Definition) -> None:
        """Another version: what is not in it is gone, or begins anew if it was mapped and is not any more; so do its
        switches."""
        fans = {name for name, task in self.tasks.items() if task.items}
        for name in list(self.tasks):
            written = written_task(name)
            task = definition.tasks.get(written)
            unmapped = task is not None and written in fans and task.for_each is None
            if task is None or unmapped or isinstance(task.action, Switch):
                self.attempts[name] = self.tasks.pop(name).attempt
        for name in definition.tasks:
            if name not in self.tasks and name in self.attempts:
                self.tasks[name] = TaskRecord(self.attempts.pop(name))
        self.taken.clear()
        self.definition = definition

    def _is_now(self, task: TaskRecord, event: e.TaskEvent, phases: frozenset[str]) -> bool:
        """Whether the event is of the current attempt, in one of ``phases``; else that is a finding."""
        name = f"{type(event).__name__} of {named(event)}"
        if event.attempt != task.attempt:
            older = event.attempt < task.attempt
            self._findings.add(2 if older else 1, f"{name}: attempt {task.attempt} is the current one ({task.phase})")
            return False
        if task.phase not in phases:
            over = task.phase in ENDS or task.phase == "retrying"
            self._findings.add(2 if over else 1, f"{name}: the attempt is {task.phase}")
            return False
        return True

    def _check_worker(self, task: TaskRecord, event: Report | e.TaskCancelRequested) -> None:
        if event.worker != task.worker:
            name = f"{type(event).__name__} of {named(event)}"
            self._findings.add(9, f"{name} names worker '{event.worker}'; the lease is '{task.worker}'s")

    def _ended(self, task: TaskRecord, phase: str, event: e.TaskEvent) -> None:
        self._limits.active -= task.phase in ACTIVE
        if task.then and not isinstance(event, e.TaskCancelled):
            self._findings.add(2, f"{type(event).__name__} of {named(event)}: a person had decided '{task.then}'")
        task.then = ""
        self._waits_no_more(task, event)
        if isinstance(event, e.TaskSucceeded):
            task.output = output_hash(event.output)
        task.phase = phase
        self.open -= 1
        if event.task not in self.definition.tasks:
            self.tasks[written_task(event.task)].count(phase, 1)

    def _waits_no_more(self, task: TaskRecord, event: e.RunEvent) -> None:
        if task.wait is not None and task.wait.waits_for in ("trigger", "workflow"):
            self._limits.asked.ends_wait(task.wait, event, self._findings.at)
        task.wait = None


def index_in(event: e.TaskEvent) -> int:
    index = index_of(event.task)
    assert index is not None, f"{event.task} is no instance"
    return index


def named(event: e.TaskEvent) -> str:
    return f"{event.dag}/{event.run_id}/{event.task} attempt {event.attempt}"
