"""The witness of one live run: each task's attempts, one after the other, and what the run may still do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from tidewheel.core import events as e
from tidewheel.core.mapping import instance_name, written_task
from tidewheel.core.workflow import RunWait, SubWorkflow, Switch, TriggerDag, WaitFor
from tidewheel.runtime.witness.child import names_child, wrong_output, wrong_postponement, wrong_wait
from tidewheel.runtime.witness.rules import ENDS, holds, may_hold
from tidewheel.runtime.witness.standing import RunStanding, named
from tidewheel.runtime.witness.task import ACTIVE, LIVE, UNSTARTED, TaskRecord, output_hash
from tidewheel.runtime.witness.wait import wrong_give_up, wrong_times


class RunWitness(RunStanding):
    """Follows the task events of one run."""

    __slots__ = ()

    def apply(self, event: e.TaskEvent) -> None:
        """Judge the next event of a task, and go on from it."""
        self.last = self._findings.at
        self.at = event.at
        task = self.tasks.get(event.task)
        if task is None:
            if isinstance(event, e.ReportRefused):
                task = TaskRecord()  # of a task that went, or never was: the refusal is all there is to it
                _APPLY[type(event)](self, task, event)
                return
            if event.task not in self.definition.tasks:
                self._findings.add(3, f"{named(event)}: version {self.definition.version} has no such task")
                return
            task = self.tasks[event.task] = TaskRecord(self.attempts_from)
        _APPLY[type(event)](self, task, event)

    # --- before an attempt has a lease ---------------------------------------------------------------------------

    def _ready(self, task: TaskRecord, event: e.TaskReady) -> None:
        if self._begins(task, event):
            task.phase = "ready"
            task.cancel_requested = False

    def _expanded(self, task: TaskRecord, event: e.TaskExpanded) -> None:
        name = f"{type(event).__name__} of {named(event)}"
        if self.definition.tasks[event.task].for_each is None:
            self._findings.add(3, f"{name}: the task has no for_each")
        values = msgspec.json.decode(event.values)
        if task.items is None:
            if self._is_now(task, event, frozenset({"scheduled"})):
                self._check_rule(event)
            task.items = event.items
        fresh = [instance_name(event.task, index) for index in range(event.first, event.first + len(values))]
        before = event.first and instance_name(event.task, event.first - 1) not in self.tasks
        if before or event.items != task.items or any(instance in self.tasks for instance in fresh):
            self._findings.add(2, f"{name} names {len(values)} of {event.items} items from {event.first} on")
        task.phase = "deferred"
        self.tasks.update((instance, TaskRecord(self.attempts.get(instance, self.attempts_from))) for instance in fresh)
        self.open += len(values)

    def _deferred(self, task: TaskRecord, event: e.TaskDeferred) -> None:
        definition = self.definition.tasks[written_task(event.task)]
        action = definition.action
        wrong = wrong_times(event, definition)
        if isinstance(action, TriggerDag | SubWorkflow):
            wrong = wrong_wait(event, action) or wrong
            self._limits.asked.begins(event, self._findings.at)
        elif not isinstance(action, WaitFor):
            wrong = "is deferred, but a worker runs the task"
        if wrong:
            self._findings.add(3, f"{named(event)} {wrong}")
        if self._begins(task, event):
            task.phase = "deferred"
            task.attempt = event.attempt
            task.output = b""
            task.worker = ""
            task.cancel_requested = False
            task.wait = event
            task.postponed = False

    def _postponed(self, task: TaskRecord, event: e.LaunchPostponed) -> None:
        if not self._is_now(task, event, frozenset({"deferred"})):
            return
        if task.cancel_requested or (wrong := wrong_postponement(event, task.wait)):
            wrong = "is to end" if task.cancel_requested else wrong
            self._findings.add(3, f"{named(event)} asks again at {event.ask_at}, but {wrong}")
        elif task.wait is not None:
            task.postponed = event.ask_at is not None
            self._limits.asked.postponed(task.wait, event, self._findings.at)

    def _queued(self, task: TaskRecord, event: e.TaskQueued) -> None:
        definition = self.definition.tasks[written_task(event.task)]
        if (event.pool, event.pool_slots) != (definition.pool, definition.pool_slots):
            wanted = f"{definition.pool_slots} of '{definition.pool}'"
            self._findings.add(5, f"{named(event)} asks {event.pool_slots} slots of '{event.pool}', not {wanted}")
        if not self._begins(task, event):
            return
        limit = self.definition.workflow.concurrency.max_tasks
        if limit is not None and self._limits.active >= limit:
            self._findings.add(5, f"{named(event)} is queued beyond max_tasks {limit}")
        self._limits.active += 1
        task.phase = "queued"
        task.attempt = event.attempt
        task.output = b""
        task.worker = ""
        task.cancel_requested = False

    def _begins(self, task: TaskRecord, event: e.TaskReady | e.TaskQueued | e.TaskDeferred) -> bool:
        """Whether a new attempt may be on its way; an attempt that is not the next one is taken as it is."""
        name = named(event)
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
        if self._ends_with_mapped(event.task):
            self._findings.add(1, f"{name} begins, though its mapped task is to end")
        if task.phase == "scheduled":  # else it was judged when its turn came
            if event.task in self.definition.tasks:
                self._check_rule(event)
            else:
                self._check_instance(event)
        return True

    def _unrun(self, task: TaskRecord, event: e.TaskSkipped | e.TaskUpstreamFailed) -> None:
        name = f"{type(event).__name__} of {named(event)}"
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
            if self.cancel_requested or self._ends_with_mapped(event.task):
                self._findings.add(1, f"{named(event)} is leased, though it is to end")
            task.phase = "leased"
            task.worker = event.worker
            task.expires_at = event.expires_at
            if not event.worker:
                self._findings.add(9, f"{named(event)} is leased to nobody")

    def _started(self, task: TaskRecord, event: e.TaskStarted) -> None:
        if self._is_now(task, event, frozenset({"leased"})):
            self._check_worker(task, event)
            task.phase = "running"
            task.expires_at = event.expires_at

    def _heartbeat(self, task: TaskRecord, event: e.TaskHeartbeat) -> None:
        if self._is_now(task, event, LIVE):
            self._check_worker(task, event)
            task.expires_at = event.expires_at

    def _checkpointed(self, task: TaskRecord, event: e.TaskCheckpointed) -> None:
        if self._is_now(task, event, LIVE):
            self._check_worker(task, event)

    def _succeeded(self, task: TaskRecord, event: e.TaskSucceeded) -> None:
        if task.items is not None:
            if self._is_over(task, event) and task.failed:
                self._findings.add(3, f"{named(event)} succeeds, though {task.failed} instances did not")
            self._ended(task, "success", event)
        elif event.task in self.definition.tasks and isinstance(self.definition.tasks[event.task].action, Switch):
            if self._is_now(task, event, frozenset({"scheduled"})):
                self._check_rule(event)
                self.taken[event.task], wrong = self.definition.decided(event.task, event.output)
                if wrong:
                    self._findings.add(3, f"switch {named(event)} {wrong}")
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
            self._findings.add(3, f"{named(event)} goes on before the time it waits for, {task.wait.resume_at}")
        if task.wait.waits_for == "approval" and event.actor == "scheduler":
            self._findings.add(9, f"{named(event)} is approved, and does not say by whom")
        if task.wait.waits_for == "run" and not self._is_wanted(event):
            self._findings.add(
                3, f"{named(event)} goes on, though the run it waited for did not end so: {event.output}"
            )
        if event.worker:
            self._findings.add(9, f"{named(event)} was deferred, and names worker '{event.worker}'")
        if task.wait.waits_for in ("trigger", "workflow") and (wrong := wrong_output(event, task.wait)):
            self._findings.add(3, f"{named(event)} {wrong}")
        self._ended(task, "success", event)

    def _is_wanted(self, event: e.TaskSucceeded) -> bool:
        """Whether the run that it waited for ended as it was to."""
        action = self.definition.tasks[written_task(event.task)].action
        assert isinstance(action, WaitFor) and isinstance(action.what, RunWait)
        said = msgspec.json.decode(event.output or "null")
        return isinstance(said, dict) and said.get("state") in action.what.states

    def _gave_up(self, task: TaskRecord, event: e.TaskFailed | e.TaskSkipped, why: str) -> None:
        """The task waits no longer: its time is over, or what it waits for can not come."""
        if not self._is_now(task, event, frozenset({"deferred"})):
            return
        assert task.wait is not None
        late = task.wait.timeout_at is not None and event.at >= task.wait.timeout_at
        if isinstance(event, e.TaskSkipped) or event.kind in ("wait_timeout", "timeout"):
            if not late:
                self._findings.add(3, f"{named(event)} gives up before the end of its time, {task.wait.timeout_at}")
            if wrong := wrong_give_up(event, self.definition.tasks[written_task(event.task)]):
                self._findings.add(3, f"{named(event)} {wrong}")
        if not why:
            self._findings.add(9, f"{type(event).__name__} of {named(event)} gives no reason")
        if isinstance(event, e.TaskSkipped):
            self._ended(task, "skipped", event)
        else:
            self._lost_or_failed(task, event, event.retry_at)

    def _is_over(self, task: TaskRecord, event: e.TaskEvent) -> bool:
        """Whether a mapped task may end: every instance of it has."""
        if not self._is_now(task, event, frozenset({"deferred"})):
            return False
        if task.ended != task.items:
            self._findings.add(3, f"{named(event)} ends, but {task.ended} of {task.items} instances have")
        return True

    def _failed(self, task: TaskRecord, event: e.TaskFailed) -> None:
        if task.items is not None:
            if self._is_over(task, event) and not task.failed:
                self._findings.add(3, f"{named(event)} fails, though no instance did")
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
            self._findings.add(1, f"the lease of {named(event)} is called expired {early} ms before its end")
        if not event.message:
            self._findings.add(9, f"LeaseExpired of {named(event)} gives no reason")
        self._lost_or_failed(task, event, event.retry_at)

    def _lost_or_failed(self, task: TaskRecord, event: e.TaskEvent, retry_at: int | None) -> None:
        if retry_at is None or task.then:
            self._ended(task, "failed", event)
            return
        if self.cancel_requested:
            self._findings.add(1, f"{named(event)} is to be tried again in a cancelled run")
        if self._ends_with_mapped(event.task):
            self._findings.add(1, f"{named(event)} is to be tried again, though its mapped task is to end")
        self._limits.active -= task.phase in ACTIVE
        self._waits_no_more(task, event)
        task.phase = "retrying"

    def _cancel_requested(self, task: TaskRecord, event: e.TaskCancelRequested) -> None:
        if task.items is not None:
            self._told_by_failure(task, event)
            return
        waits = task.wait is not None and task.wait.waits_for == "workflow" and not task.postponed
        if self._is_now(task, event, LIVE | {"deferred"} if waits else LIVE):
            self._check_worker(task, event)
            if not self._may_be_cancelled(event.task):
                self._findings.add(9, f"{named(event)} is told to end in a run that nobody cancelled")
            task.cancel_requested = True

    def _told_by_failure(self, task: TaskRecord, event: e.TaskCancelRequested) -> None:
        """The instances of a mapped task are to end, since one of them has failed."""
        if not self._is_now(task, event, frozenset({"deferred"})):
            return
        if not self.definition.tasks[event.task].fail_fast or not task.failed:
            self._findings.add(9, f"{named(event)} is to end, but not since an instance of it has failed")
        if not event.reason:
            self._findings.add(9, f"TaskCancelRequested of {named(event)} gives no reason")
        task.cancel_requested = True

    def _cancelled(self, task: TaskRecord, event: e.TaskCancelled) -> None:
        if not self._is_now(task, event, UNSTARTED | ACTIVE | {"deferred"}):
            return
        if task.phase == "deferred" and task.wait is None:
            self._is_over(task, event)
        if task.phase in LIVE:
            self._check_worker(task, event)
            if not task.cancel_requested:
                self._findings.add(9, f"{named(event)} is cancelled, but its worker was never told")
        overruled = self.cancel_requested or bool(self._mapped_then(event.task))
        if event.then != ("" if overruled else task.then):
            self._findings.add(9, f"{named(event)} becomes '{event.then}', and a person had decided '{task.then}'")
        elif not task.then and not task.cancel_requested and not self._may_be_cancelled(event.task):
            self._findings.add(9, f"{named(event)} is cancelled in a run that nobody cancelled")
        if not event.reason:
            self._findings.add(9, f"TaskCancelled of {named(event)} gives no reason")
        if event.then == "scheduled":
            self._begin_anew(event.task, task, event)
            return
        self._leave_turn(task, event)
        self._ended(task, event.then or "cancelled", event)

    def _marked(self, task: TaskRecord, event: e.TaskMarked) -> None:
        """A person decided: at once, or for when nothing of it is live any more."""
        name = f"TaskMarked of {named(event)}"
        if self.cancel_requested:
            self._findings.add(1, f"{name}: the run is being cancelled")
        if not self._is_now(task, event, UNSTARTED | ACTIVE | ENDS | {"deferred"}):
            return
        if event.ending != self._must_end(task):
            self._findings.add(2, f"{name} {'waits for' if event.ending else 'does not end'} it: it is {task.phase}")
        if event.task not in self.definition.tasks and self.tasks[written_task(event.task)].phase != "deferred":
            self._findings.add(2, f"{name}: its mapped task has ended")
        self.taken.pop(event.task, None)
        task.output = output_hash(event.output)
        if event.ending:
            task.then = event.state
            task.cancel_requested = True
            return
        self._leave_turn(task, event)
        if task.phase in ENDS:
            self._reopen(event.task, task)
        self._ended(task, event.state, event)

    def _may_be_cancelled(self, name: str) -> bool:
        """Whether the run is being cancelled, or what the task is an instance of, or one of its kind has failed.

        Once it was told to end, it may, whatever a person says of these.
        """
        return self.cancel_requested or self._ends_with_mapped(name) or self._ends_with_others(name)

    def _ends_with_others(self, name: str) -> bool:
        """Whether it is an instance that another one's failure may end."""
        written = written_task(name)
        if written == name:
            return False
        return self.definition.tasks[written].fail_fast and self.tasks[written].failed > 0

    def _ends_with_mapped(self, name: str) -> bool:
        """Whether it is an instance of a mapped task that was told to end."""
        written = written_task(name)
        return written != name and self.tasks[written].cancel_requested

    def _mapped_then(self, name: str) -> str:
        """What a person decided about the mapped task that it is an instance of."""
        written = written_task(name)
        return "" if written == name else self.tasks[written].then

    def clear(self, event: e.TasksCleared) -> None:
        """A person let tasks begin anew: at once, or once nothing of them is live any more."""
        name = f"TasksCleared of {self.name}"
        if self.cancel_requested:
            self._findings.add(1, f"{name}: the run is being cancelled")
        for task in msgspec.json.decode(event.tasks, type=list[str]):
            record = self._cleared(name, task)
            if record is None:
                continue
            if self._must_end(record):
                self._findings.add(1, f"{name}: {task} is {record.phase}")
            if record.phase in ENDS:
                self._reopen(task, record)
            self._begin_anew(task, record, event)
        for task in msgspec.json.decode(event.ending, type=list[str]):
            record = self._cleared(name, task)
            if record is None:
                continue
            if not self._must_end(record):
                self._findings.add(2, f"{name} waits for {task}, which is {record.phase}")
            record.then = "scheduled"
            record.cancel_requested = True

    def _must_end(self, task: TaskRecord) -> bool:
        """Whether something of the task is at work: an attempt, instances, or a run that it waits for."""
        waits = task.wait is None or (names_child(task.wait) and not task.postponed)
        return task.phase in LIVE or (task.phase == "deferred" and waits)

    def _cleared(self, name: str, task: str) -> TaskRecord | None:
        self.taken.pop(task, None)
        if task not in self.tasks and task in self.definition.tasks:
            self.tasks[task] = TaskRecord(self.attempts_from)
        if task not in self.tasks:
            self._findings.add(3, f"{name}: there is no {task}")
        return self.tasks.get(task)

    def _refused(self, task: TaskRecord, event: e.ReportRefused) -> None:
        if not event.reason:
            self._findings.add(9, f"ReportRefused of {named(event)} gives no reason")


_APPLY: dict[type[e.Event], Callable[[RunWitness, TaskRecord, Any], None]] = {
    e.TaskReady: RunWitness._ready,
    e.TaskExpanded: RunWitness._expanded,
    e.TaskDeferred: RunWitness._deferred,
    e.LaunchPostponed: RunWitness._postponed,
    e.TaskQueued: RunWitness._queued,
    e.TaskLeased: RunWitness._leased,
    e.TaskStarted: RunWitness._started,
    e.TaskHeartbeat: RunWitness._heartbeat,
    e.TaskCheckpointed: RunWitness._checkpointed,
    e.TaskSucceeded: RunWitness._succeeded,
    e.TaskFailed: RunWitness._failed,
    e.LeaseExpired: RunWitness._expired,
    e.TaskSkipped: RunWitness._unrun,
    e.TaskUpstreamFailed: RunWitness._unrun,
    e.TaskCancelRequested: RunWitness._cancel_requested,
    e.TaskCancelled: RunWitness._cancelled,
    e.TaskMarked: RunWitness._marked,
    e.ReportRefused: RunWitness._refused,
}
