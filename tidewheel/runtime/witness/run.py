"""The witness of one live run: each task's attempts, one after the other, and what the run may still do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeAlias

import msgspec

from tidewheel.core import events as e
from tidewheel.core.mapping import index_of, instance_name, written_task
from tidewheel.core.workflow import Switch, Task, TimeWait, WaitFor
from tidewheel.runtime.witness.deadline import DeadlineWitness
from tidewheel.runtime.witness.definition import Definition
from tidewheel.runtime.witness.findings import Findings
from tidewheel.runtime.witness.rules import ENDS, Ends, ends_of, holds, may_hold
from tidewheel.runtime.witness.task import ACTIVE, LIVE, UNSTARTED, TaskRecord

_Report: TypeAlias = e.TaskStarted | e.TaskHeartbeat | e.TaskSucceeded | e.TaskFailed | e.LeaseExpired | e.TaskCancelled


class Limits(Protocol):
    """What the run shares with the other runs of its DAG."""

    #: Attempts queued, leased or running, over all runs.
    active: int


class RunWitness:
    """Follows the task events of one run. ``phase`` is ``queued`` or ``running``: an ended run is forgotten."""

    __slots__ = (
        "_findings",
        "_limits",
        "cancel_requested",
        "deadlines",
        "definition",
        "last",
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
        self.definition = definition
        self.phase = "queued"
        self.cancel_requested = False
        self.tasks: dict[str, TaskRecord] = {}
        self.open = len(definition.tasks)
        #: Of each switch that has decided: the tasks that its branch names, and all below them.
        self.taken: dict[str, frozenset[str]] = {}
        self.last = findings.at
        self.deadlines = DeadlineWitness(name, definition.workflow, created)
        self._limits = limits
        self._findings = findings

    @property
    def overlap(self) -> str:
        """The policy that it was created under; "" for a run that was asked for."""
        schedule = self.definition.workflow.schedule
        return schedule.overlap if self.scheduled and schedule is not None else ""

    def apply(self, event: e.TaskEvent) -> None:
        """Judge the next event of a task, and go on from it."""
        self.last = self._findings.at
        task = self.tasks.get(event.task)
        if task is None:
            if event.task not in self.definition.tasks:
                self._findings.add(3, f"{_named(event)}: version {self.definition.version} has no such task")
                return
            task = self.tasks[event.task] = TaskRecord()
        _APPLY[type(event)](self, task, event)

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

    def stuck(self) -> Iterator[tuple[str, str]]:
        """Tasks that nothing will ever move on, with the reason (of a started run)."""
        if not self.open:
            yield "", "every task has ended, but the run has not"
        for name, definition in self.definition.tasks.items():
            if self._phase(name) != "scheduled":
                continue
            ends = self._ends(definition)
            if self.cancel_requested:
                yield name, "is scheduled in a cancelled run"
            elif self._left_out(name):
                yield name, "is scheduled, though a switch left it out"
            elif self._undecided(name):
                continue
            elif holds(definition.trigger_rule, ends):
                yield name, f"is scheduled, though its rule {definition.trigger_rule} holds"
            elif not may_hold(definition.trigger_rule, ends):
                yield name, f"is scheduled, though its rule {definition.trigger_rule} can not hold any more"
        for name, task in self.tasks.items():
            if task.phase == "deferred" and task.ended == task.items:
                yield name, "is deferred, though every instance of it has ended"

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

    # --- before an attempt has a lease ---------------------------------------------------------------------------

    def _ready(self, task: TaskRecord, event: e.TaskReady) -> None:
        if self._begins(task, event):
            task.phase = "ready"
            task.cancel_requested = False

    def _expanded(self, task: TaskRecord, event: e.TaskExpanded) -> None:
        name = f"{type(event).__name__} of {_named(event)}"
        if self.definition.tasks[event.task].for_each is None:
            self._findings.add(3, f"{name}: the task has no for_each")
        values = msgspec.json.decode(event.values)
        if task.items is None:
            if self._is_now(task, event, frozenset({"scheduled"})):
                self._check_rule(event)
            task.items = event.items
        named = [instance_name(event.task, index) for index in range(event.first, event.first + len(values))]
        before = event.first and instance_name(event.task, event.first - 1) not in self.tasks
        if before or event.items != task.items or any(instance in self.tasks for instance in named):
            self._findings.add(2, f"{name} names {len(values)} of {event.items} items from {event.first} on")
        task.phase = "deferred"
        self.tasks.update((instance, TaskRecord()) for instance in named)
        self.open += len(values)

    def _deferred(self, task: TaskRecord, event: e.TaskDeferred) -> None:
        action = self.definition.tasks[written_task(event.task)].action
        if not isinstance(action, WaitFor):
            self._findings.add(3, f"{_named(event)} is deferred, but a worker runs the task")
        elif isinstance(action.what, TimeWait) and action.what.after_ms is not None:
            until = event.at + action.what.after_ms
            if event.resume_at != until:
                self._findings.add(3, f"{_named(event)} waits until {event.resume_at}, not {until}")
        if self._begins(task, event):
            task.phase = "deferred"
            task.attempt = event.attempt
            task.worker = ""
            task.cancel_requested = False
            task.wait = event

    def _queued(self, task: TaskRecord, event: e.TaskQueued) -> None:
        definition = self.definition.tasks[written_task(event.task)]
        if (event.pool, event.pool_slots) != (definition.pool, definition.pool_slots):
            wanted = f"{definition.pool_slots} of '{definition.pool}'"
            self._findings.add(5, f"{_named(event)} asks {event.pool_slots} slots of '{event.pool}', not {wanted}")
        if not self._begins(task, event):
            return
        limit = self.definition.workflow.concurrency.max_tasks
        if limit is not None and self._limits.active >= limit:
            self._findings.add(5, f"{_named(event)} is queued beyond max_tasks {limit}")
        self._limits.active += 1
        task.phase = "queued"
        task.attempt = event.attempt
        task.worker = ""
        task.cancel_requested = False

    def _begins(self, task: TaskRecord, event: e.TaskReady | e.TaskQueued | e.TaskDeferred) -> bool:
        """Whether a new attempt may be on its way; an attempt that is not the next one is taken as it is."""
        name = _named(event)
        if task.phase not in UNSTARTED:
            self._findings.add(
                2 if task.phase in ENDS else 1, f"{name} begins while attempt {task.attempt} is {task.phase}"
            )
            return False
        if event.attempt != task.attempt + 1:
            self._findings.add(1, f"{name} follows attempt {task.attempt}")
        if self.phase != "running":
            self._findings.add(3, f"{name} begins before its run has started")
        if self.cancel_requested:
            self._findings.add(1, f"{name} begins in a cancelled run")
        if event.task in self.definition.tasks:
            self._check_rule(event)
        elif task.phase == "scheduled" and not task.attempt:
            self._check_instance(event)
        return True

    def _check_instance(self, event: e.TaskEvent) -> None:
        """An instance begins: in the order of the items, within ``max_parallel``."""
        written = written_task(event.task)
        mapped, limit = self.tasks[written], self.definition.tasks[written].max_parallel
        if index_of(event.task) != mapped.begun:
            self._findings.add(3, f"{_named(event)} begins, but instance {mapped.begun} is next")
        if mapped.phase != "deferred":
            self._findings.add(3, f"{_named(event)} begins while {written} is {mapped.phase}")
        if limit is not None and mapped.begun - mapped.ended >= limit:
            self._findings.add(5, f"{_named(event)} begins beyond max_parallel {limit}")
        mapped.begun += 1

    def _check_rule(self, event: e.TaskEvent) -> None:
        task = self.definition.tasks[event.task]
        ends = self._ends(task)
        if not holds(task.trigger_rule, ends):
            states = f"{ends.success} succeeded, {ends.bad} failed, {ends.skipped} skipped, {ends.open} open"
            self._findings.add(3, f"{_named(event)} begins though {task.trigger_rule} does not hold: {states}")
        if self._undecided(event.task) or self._left_out(event.task):
            self._findings.add(3, f"{_named(event)} begins, but not by the word of every switch that names it")

    def _unrun(self, task: TaskRecord, event: e.TaskSkipped | e.TaskUpstreamFailed) -> None:
        name = f"{type(event).__name__} of {_named(event)}"
        if task.wait is not None and isinstance(event, e.TaskSkipped):
            self._gave_up(task, event, event.reason)
            return
        if task.phase != "scheduled":
            self._findings.add(2 if task.phase in ENDS else 1, f"{name}: the task is {task.phase}")
            return
        definition = self.definition.tasks[event.task]
        ends = self._ends(definition)
        by_condition = definition.if_ is not None and isinstance(event, e.TaskSkipped)
        by_switch = isinstance(event, e.TaskSkipped) and self._left_out(event.task)
        if self._undecided(event.task) or (not by_switch and self._left_out(event.task)):
            self._findings.add(3, f"{name}: a switch that names it says otherwise, or nothing yet")
        allowed = by_switch or (by_condition and holds(definition.trigger_rule, ends))
        if may_hold(definition.trigger_rule, ends) and not allowed:
            self._findings.add(3, f"{name}: its rule {definition.trigger_rule} holds or still may")
        if isinstance(event, e.TaskUpstreamFailed) and not ends.bad:
            self._findings.add(3, f"{name}: no upstream failed")
        if not event.reason:
            self._findings.add(9, f"{name} gives no reason")
        self._ended(task, "skipped" if isinstance(event, e.TaskSkipped) else "upstream_failed", event)

    # --- an attempt's life ---------------------------------------------------------------------------------------

    def _leased(self, task: TaskRecord, event: e.TaskLeased) -> None:
        if self._is_now(task, event, frozenset({"queued"})):
            task.phase = "leased"
            task.worker = event.worker
            task.expires_at = event.expires_at
            if not event.worker:
                self._findings.add(9, f"{_named(event)} is leased to nobody")

    def _started(self, task: TaskRecord, event: e.TaskStarted) -> None:
        if self._is_now(task, event, frozenset({"leased"})):
            self._check_worker(task, event)
            task.phase = "running"
            task.expires_at = event.expires_at

    def _heartbeat(self, task: TaskRecord, event: e.TaskHeartbeat) -> None:
        if self._is_now(task, event, LIVE):
            self._check_worker(task, event)
            task.expires_at = event.expires_at

    def _succeeded(self, task: TaskRecord, event: e.TaskSucceeded) -> None:
        if task.items is not None:
            if self._is_over(task, event) and task.failed:
                self._findings.add(3, f"{_named(event)} succeeds, though {task.failed} instances did not")
            self._ended(task, "success", event)
        elif event.task in self.definition.tasks and isinstance(self.definition.tasks[event.task].action, Switch):
            if self._is_now(task, event, frozenset({"scheduled"})):
                self._check_rule(event)
                self.taken[event.task], wrong = self.definition.decided(event.task, event.output)
                if wrong:
                    self._findings.add(3, f"switch {_named(event)} {wrong}")
                self._ended(task, "success", event)
        elif task.wait is not None:
            self._came(task, event)
        elif self._is_now(task, event, LIVE):
            self._check_worker(task, event)
            self._ended(task, "success", event)

    def _came(self, task: TaskRecord, event: e.TaskSucceeded) -> None:
        """What the task waited for came: an instant not before its time."""
        if not self._is_now(task, event, frozenset({"deferred"})):
            return
        assert task.wait is not None
        if task.wait.waits_for == "time" and (task.wait.resume_at is None or event.at < task.wait.resume_at):
            self._findings.add(3, f"{_named(event)} goes on before the time it waits for, {task.wait.resume_at}")
        if event.worker:
            self._findings.add(9, f"{_named(event)} was deferred, and names worker '{event.worker}'")
        self._ended(task, "success", event)

    def _gave_up(self, task: TaskRecord, event: e.TaskFailed | e.TaskSkipped, why: str) -> None:
        """The task waits no longer: its time is over, or what it waits for can not come."""
        if not self._is_now(task, event, frozenset({"deferred"})):
            return
        assert task.wait is not None
        late = task.wait.timeout_at is not None and event.at >= task.wait.timeout_at
        if not late and (isinstance(event, e.TaskSkipped) or event.kind == "wait_timeout"):
            self._findings.add(3, f"{_named(event)} gives up before the end of its time, {task.wait.timeout_at}")
        if not why:
            self._findings.add(9, f"{type(event).__name__} of {_named(event)} gives no reason")
        self._ended(task, "skipped" if isinstance(event, e.TaskSkipped) else "failed", event)

    def _is_over(self, task: TaskRecord, event: e.TaskEvent) -> bool:
        """Whether a mapped task may end: every instance of it has."""
        if not self._is_now(task, event, frozenset({"deferred"})):
            return False
        if task.ended != task.items:
            self._findings.add(3, f"{_named(event)} ends, but {task.ended} of {task.items} instances have")
        return True

    def _failed(self, task: TaskRecord, event: e.TaskFailed) -> None:
        if task.items is not None:
            if self._is_over(task, event) and not task.failed:
                self._findings.add(3, f"{_named(event)} fails, though no instance did")
            self._ended(task, "failed", event)
            return
        if task.wait is not None:
            self._gave_up(task, event, event.message)
            return
        unrun = not event.worker
        if not self._is_now(task, event, frozenset({"scheduled", "ready", "queued"}) if unrun else LIVE):
            return
        if not unrun:
            self._check_worker(task, event)
        elif task.phase == "scheduled":
            self._check_rule(event)
        self._lost_or_failed(task, event, event.retry_at)

    def _expired(self, task: TaskRecord, event: e.LeaseExpired) -> None:
        if not self._is_now(task, event, LIVE):
            return
        self._check_worker(task, event)
        if event.at < task.expires_at:
            early = task.expires_at - event.at
            self._findings.add(1, f"the lease of {_named(event)} is called expired {early} ms before its end")
        if not event.message:
            self._findings.add(9, f"LeaseExpired of {_named(event)} gives no reason")
        self._lost_or_failed(task, event, event.retry_at)

    def _lost_or_failed(self, task: TaskRecord, event: e.TaskEvent, retry_at: int | None) -> None:
        if retry_at is None:
            self._ended(task, "failed", event)
            return
        if self.cancel_requested:
            self._findings.add(1, f"{_named(event)} is to be tried again in a cancelled run")
        self._limits.active -= task.phase in ACTIVE
        task.phase = "retrying"

    def _cancel_requested(self, task: TaskRecord, event: e.TaskCancelRequested) -> None:
        if self._is_now(task, event, LIVE):
            self._check_worker(task, event)
            task.cancel_requested = True

    def _cancelled(self, task: TaskRecord, event: e.TaskCancelled) -> None:
        if not self._is_now(task, event, UNSTARTED | ACTIVE | {"deferred"}):
            return
        if task.phase == "deferred" and task.wait is None:
            self._is_over(task, event)
        if task.phase in LIVE:
            self._check_worker(task, event)
            if not task.cancel_requested:
                self._findings.add(9, f"{_named(event)} is cancelled, but its worker was never told")
        if not self.cancel_requested and not self._fails_fast(event.task):
            self._findings.add(9, f"{_named(event)} is cancelled in a run that nobody cancelled")
        if event.task not in self.definition.tasks and task.phase == "scheduled" and not task.attempt:
            self.tasks[written_task(event.task)].begun += 1
        if not event.reason:
            self._findings.add(9, f"TaskCancelled of {_named(event)} gives no reason")
        self._ended(task, "cancelled", event)

    def _fails_fast(self, name: str) -> bool:
        """Whether it is an instance that another one's failure may end."""
        written = written_task(name)
        return written != name and self.definition.tasks[written].fail_fast and self.tasks[written].failed > 0

    def _refused(self, task: TaskRecord, event: e.ReportRefused) -> None:
        if not event.reason:
            self._findings.add(9, f"ReportRefused of {_named(event)} gives no reason")

    def _is_now(self, task: TaskRecord, event: e.TaskEvent, phases: frozenset[str]) -> bool:
        """Whether the event is of the current attempt, in one of ``phases``; else that is a finding."""
        name = f"{type(event).__name__} of {_named(event)}"
        if event.attempt != task.attempt:
            older = event.attempt < task.attempt
            self._findings.add(2 if older else 1, f"{name}: attempt {task.attempt} is the current one ({task.phase})")
            return False
        if task.phase not in phases:
            over = task.phase in ENDS or task.phase == "retrying"
            self._findings.add(2 if over else 1, f"{name}: the attempt is {task.phase}")
            return False
        return True

    def _check_worker(self, task: TaskRecord, event: _Report | e.TaskCancelRequested) -> None:
        if event.worker != task.worker:
            name = f"{type(event).__name__} of {_named(event)}"
            self._findings.add(9, f"{name} names worker '{event.worker}'; the lease is '{task.worker}'s")

    def _ended(self, task: TaskRecord, phase: str, event: e.TaskEvent) -> None:
        self._limits.active -= task.phase in ACTIVE
        task.phase = phase
        task.wait = None
        self.open -= 1
        if event.task not in self.definition.tasks:
            mapped = self.tasks[written_task(event.task)]
            mapped.ended += 1
            mapped.failed += phase != "success"


_APPLY: dict[type[e.Event], Callable[[RunWitness, TaskRecord, Any], None]] = {
    e.TaskReady: RunWitness._ready,
    e.TaskExpanded: RunWitness._expanded,
    e.TaskDeferred: RunWitness._deferred,
    e.TaskQueued: RunWitness._queued,
    e.TaskLeased: RunWitness._leased,
    e.TaskStarted: RunWitness._started,
    e.TaskHeartbeat: RunWitness._heartbeat,
    e.TaskSucceeded: RunWitness._succeeded,
    e.TaskFailed: RunWitness._failed,
    e.LeaseExpired: RunWitness._expired,
    e.TaskSkipped: RunWitness._unrun,
    e.TaskUpstreamFailed: RunWitness._unrun,
    e.TaskCancelRequested: RunWitness._cancel_requested,
    e.TaskCancelled: RunWitness._cancelled,
    e.ReportRefused: RunWitness._refused,
}


def _named(event: e.TaskEvent) -> str:
    return f"{event.dag}/{event.run_id}/{event.task} attempt {event.attempt}"
