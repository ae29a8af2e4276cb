"""The witness of one DAG: its versions, its schedule's slots, its runs and their limits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from tidewheel.core import events as e
from tidewheel.core.attempt import AttemptKey
from tidewheel.core.calendar import count_slots, fires_at, latest_slot, next_slot, previous_slot, same_slots
from tidewheel.core.mapping import written_task
from tidewheel.core.workflow import Schedule, Workflow
from tidewheel.runtime.witness.backfill import BackfillWitness
from tidewheel.runtime.witness.child import Asked, wrong_parent
from tidewheel.runtime.witness.definition import Definition
from tidewheel.runtime.witness.ended import EndedRuns
from tidewheel.runtime.witness.findings import Findings
from tidewheel.runtime.witness.run import RunWitness
from tidewheel.runtime.witness.task import ACTIVE, LIVE


class DagWitness:
    """Follows one DAG's events."""

    __slots__ = (
        "_answered",
        "_backfills",
        "_cursor",
        "_dates",
        "_definition",
        "_definitions",
        "_ended",
        "_findings",
        "_ids",
        "_name",
        "_paused",
        "_removed",
        "_running",
        "active",
        "asked",
        "runs",
    )

    def __init__(self, name: str, findings: Findings) -> None:
        self._name = name
        self._findings = findings
        self._definitions: dict[str, Definition] = {}
        self._definition: Definition | None = None
        self._cursor: int | None = None
        #: The newest slot that any schedule of the DAG came to.
        self._answered: int | None = None
        self._paused = False
        self._removed = False
        self._ids: set[str] = set()
        #: The logical dates that have a run, and the highest attempt of any of its tasks once it has ended.
        self._dates: dict[int, int] = {}
        self._ended = EndedRuns(name, self, findings)
        self._running = 0
        self.active = 0
        self._backfills = BackfillWitness(name, findings)
        self.asked = Asked()
        self.runs: dict[str, RunWitness] = {}

    def apply(self, event: e.DagEvent) -> None:
        """Judge the next event, and go on from it."""
        if isinstance(event, e.TaskEvent):
            run = self.runs.get(event.run_id)
            if run is not None:
                run.apply(event)
            elif not isinstance(event, e.ReportRefused):
                begins = isinstance(event, e.TaskReady | e.TaskDeferred | e.TaskQueued | e.TaskLeased)
                self._findings.add(1 if begins else 2, f"{type(event).__name__}: {self._absent(event.run_id)}")
            return
        _APPLY[type(event)](self, event)

    # --- definition and schedule ---------------------------------------------------------------------------------

    def _deployed(self, event: e.DagDeployed) -> None:
        try:
            workflow = msgspec.json.decode(event.definition, type=Workflow)
        except (msgspec.DecodeError, RecursionError) as error:
            self._findings.add(8, f"the definition of version {event.version} can not be read: {error}")
            return
        self._ended.deployed(event)
        before, self._definition = self._definition, Definition(event.version, workflow)
        used = {run.definition.version for run in self.runs.values()} | self._ended.versions | {event.version}
        self._definitions[event.version] = self._definition
        self._definitions = {version: d for version, d in self._definitions.items() if version in used}
        schedule = workflow.schedule
        if before is not None:
            self._check_nothing_dropped(before.workflow.schedule, schedule, event.at)
        if (event.cursor is None) != (schedule is None):
            self._findings.add(
                4, f"version {event.version} is deployed with cursor {event.cursor} and schedule {schedule}"
            )
        elif event.cursor is not None and event.cursor > max(
            event.at, self._cursor or event.at, self._answered or event.at
        ):
            self._findings.add(4, f"the schedule's cursor is set {event.cursor - event.at} ms into the future")
        elif before is not None and same_slots(before.workflow.schedule, schedule) and event.cursor != self._cursor:
            self._findings.add(4, f"the schedule stayed, but its cursor jumped from {self._cursor} to {event.cursor}")
        if before is None or not same_slots(before.workflow.schedule, schedule):
            self._backfills.check_none("its schedule was replaced")
        self._cursor = event.cursor
        self._paused = event.paused
        self._removed = False

    def _check_nothing_dropped(self, before: Schedule | None, after: Schedule | None, at: int) -> None:
        """A schedule that is replaced has answered every slot that was due by then."""
        if before is None or self._cursor is None or self._paused or self._removed or same_slots(before, after):
            return
        try:
            slot = next_slot(before, self._cursor)
        except ValueError:
            return  # one that can not be computed is found when it answers a slot
        if slot is not None and fires_at(before, self._name, slot) <= at:
            self._findings.add(
                4, f"slot {slot} was due before the schedule changed, and has no run and no recorded skip"
            )

    @property
    def _schedule(self) -> Schedule | None:
        return None if self._definition is None else self._definition.workflow.schedule

    def _backfill_started(self, event: e.BackfillStarted) -> None:
        self._backfills.started(event, self._schedule)

    def _backfill_skipped(self, event: e.BackfillSlotsSkipped) -> None:
        self._backfills.skipped(event, self._schedule, self._dates)

    def _backfill_switched(self, event: e.BackfillPaused | e.BackfillResumed) -> None:
        self._backfills.switched(event)

    def _backfill_ended(self, event: e.BackfillFinished | e.BackfillCancelled) -> None:
        self._backfills.ended(event)

    def _dag_removed(self, event: e.DagRemoved) -> None:
        self._backfills.check_none("its DAG was removed")
        self._removed = True

    def _dag_paused(self, event: e.DagPaused) -> None:
        self._paused = True

    def _dag_unpaused(self, event: e.DagUnpaused) -> None:
        self._paused = False

    def _skipped(self, event: e.SlotsSkipped) -> None:
        schedule = self._answers_next_slot(event.first, "SlotsSkipped")
        if not event.reason:
            self._findings.add(9, "SlotsSkipped gives no reason")
        if schedule is not None and self._cursor is not None:
            if event.last < event.first or latest_slot(schedule, event.first - 1, event.last) != event.last:
                self._findings.add(4, f"SlotsSkipped ends at {event.last}, which is no slot from {event.first} on")
            elif (count := count_slots(schedule, self._cursor, event.last)) != event.count:
                self._findings.add(4, f"SlotsSkipped counts {event.count} slots where the schedule has {count}")
        self._cursor = self._answered = event.last

    def _answers_next_slot(self, slot: int, what: str) -> Schedule | None:
        """Check that ``slot`` is the one after the cursor: every slot is answered, in order, once."""
        schedule = self._schedule
        if schedule is None or self._cursor is None:
            self._findings.add(4, f"{what} answers slot {slot}, but '{self._name}' has no schedule")
            return None
        if self._paused or self._removed:
            self._findings.add(4, f"{what} while '{self._name}' is {'removed' if self._removed else 'paused'}")
        try:
            expected = next_slot(schedule, self._cursor)
        except ValueError as error:
            self._findings.add(4, f"{what} answers slot {slot}, but the schedule can not be computed: {error}")
            return None
        if slot <= self._cursor:
            self._findings.add(4, f"{what} answers slot {slot} again: the cursor is at {self._cursor}")
            return None
        if slot != expected:
            self._findings.add(
                4,
                f"{what} answers slot {slot}, but the schedule has none after its end"
                if expected is None
                else f"{what} answers slot {slot}, but {expected} is next: it has no run and no recorded skip",
            )
        return schedule

    # --- runs ----------------------------------------------------------------------------------------------------

    def _created(self, event: e.RunCreated) -> None:
        name = f"{self._name}/{event.run_id}"
        if event.run_id in self._ids:
            self._findings.add(4, f"run {name} is created a second time")
            return
        self._ids.add(event.run_id)
        if event.kind == "scheduled":
            self._created_for_slot(event)
        if event.kind == "backfill" or event.backfill_id:
            self._backfills.made(event, self._schedule)
        if event.logical_date is not None:
            if event.logical_date in self._dates:
                self._findings.add(4, f"run {name} is the second one of logical date {event.logical_date}")
            self._dates.setdefault(event.logical_date, 0)
        if wrong := wrong_parent(event):
            self._findings.add(4, f"run {name} {wrong}")
        if event.parent_dag:
            self.asked.made[event.run_id] = ""
        definition = self._definitions.get(event.version)
        if definition is None or (definition is not self._definition and not event.rerun_of):
            current = "nothing is" if self._definition is None else f"{self._definition.version} is"
            self._findings.add(4, f"run {name} is created with version {event.version}; {current} deployed")
        if self._removed:
            self._findings.add(4, f"run {name} is created after its DAG was removed")
        if definition is not None:
            self.runs[event.run_id] = RunWitness(name, definition, self, self._findings, event)

    def _restarted(self, event: e.RunRestarted) -> None:
        name = f"{self._name}/{event.run_id}"
        if event.run_id in self.runs or event.run_id not in self._ids:
            self._findings.add(
                2, f"RunRestarted of {name}, which {'lives' if event.run_id in self.runs else 'never was'}"
            )
            return
        if event.attempts != self._dates.get(event.logical_date):
            had = self._dates.get(event.logical_date)
            self._findings.add(1, f"run {name} goes on counting attempts from {event.attempts}, but had come to {had}")
        self._backfills.made(event, self._schedule)
        if self._definition is None or event.version != self._definition.version:
            self._findings.add(4, f"run {name} is restarted with version {event.version}, which is not deployed")
        elif self._removed:
            self._findings.add(4, f"run {name} is restarted after its DAG was removed")
        else:
            created = e.RunCreated(
                dag=event.dag,
                run_id=event.run_id,
                at=event.at,
                version=event.version,
                kind="backfill",
                logical_date=event.logical_date,
                backfill_id=event.backfill_id,
            )
            self._ended.drop(event.run_id)
            run = RunWitness(name, self._definition, self, self._findings, created)
            run.attempts_from = event.attempts
            self.runs[event.run_id] = run

    def _created_for_slot(self, event: e.RunCreated) -> None:
        if event.logical_date is None:
            self._findings.add(4, f"scheduled run {event.run_id} has no logical date")
            return
        schedule = self._answers_next_slot(event.logical_date, f"run {event.run_id}")
        if schedule is not None:
            expected = (previous_slot(schedule, event.logical_date), event.logical_date)
            if (event.interval_start, event.interval_end) != expected:
                found = (event.interval_start, event.interval_end)
                self._findings.add(4, f"run {event.run_id} covers {found}, not the interval {expected} of its slot")
            others = [run for run in self.runs.values() if run.scheduled]
            if others and schedule.overlap == "skip":
                self._findings.add(5, f"run {event.run_id} is created though {others[0].name} is not finished")
            for other in others:
                if schedule.overlap == "cancel_running" and not other.cancel_requested:
                    self._findings.add(5, f"run {event.run_id} is created, and {other.name} is not cancelled for it")
        self._cursor = self._answered = event.logical_date

    def _started(self, event: e.RunStarted) -> None:
        run = self._live(event)
        if run is None:
            return
        if run.phase != "queued":
            self._findings.add(2, f"{run.name} is started a second time")
            return
        if self._paused:
            self._findings.add(5, f"{run.name} is started while its DAG is paused")
        if run.cancel_requested:
            self._findings.add(1, f"{run.name} is started after it was cancelled")
        if run.backfill_id and run.backfill_id not in self._backfills.live:
            self._findings.add(1, f"{run.name} is started, though {run.backfill_id} is over")
        limit = run.definition.workflow.concurrency.max_runs
        if self._running >= limit and run.overlap != "allow" and not run.backfill_id:
            self._findings.add(5, f"{run.name} is started beyond max_runs {limit}")
        if run.overlap == "cancel_running" and self._scheduled_at_work():
            self._findings.add(5, f"{run.name} is started while another scheduled run is not finished")
        run.phase = "running"
        run.deadlines.started_at = event.at
        self._running += not run.backfill_id  # those of a backfill keep within its width instead

    def _scheduled_at_work(self) -> bool:
        """Whether a scheduled run has started and not ended."""
        return any(run.scheduled and run.phase == "running" for run in self.runs.values())

    def _run_cancel_requested(self, event: e.RunCancelRequested) -> None:
        run = self._live(event)
        if run is not None:
            run.cancel_requested = True

    def _deadline_missed(self, event: e.DeadlineMissed) -> None:
        run = self._live(event)
        if run is not None:
            run.deadlines.miss(event, run.cancel_requested, self._findings)
            run.cancel_requested |= event.action == "fail"

    def _run_ended(self, event: e.RunSucceeded | e.RunFailed | e.RunCancelled) -> None:
        run = self._live(event)
        if run is None:
            return
        run.end(event)
        self._running -= run.phase == "running" and not run.backfill_id
        self._backfills.run_ended(run.backfill_id)
        if self.asked.made.get(event.run_id) == "":  # what it comes to if it goes on is not told any more
            self.asked.made[event.run_id] = _ENDS[type(event)]
        self.active -= sum(task.phase in ACTIVE for task in run.tasks.values())
        if run.logical_date is not None:
            self._dates[run.logical_date] = run.highest_attempt
        keep_runs = 0 if self._definition is None else self._definition.workflow.keep_runs
        self._ended.add(event.run_id, self.runs.pop(event.run_id), keep_runs)

    def _run_reopened(self, event: e.RunReopened) -> None:
        run = self._ended.reopen(event, self._definitions)
        if run is None:
            return
        if self._removed:
            self._findings.add(4, f"{run.name} is reopened after its DAG was removed")
        definition = run.definition
        if event.version != definition.version:
            if self._definition is None or event.version != self._definition.version:
                self._findings.add(4, f"{run.name} is reopened with version {event.version}, not its own or the latest")
                return
            definition = self._definition
        run.reopen(definition)
        self.runs[event.run_id] = run

    def _tasks_cleared(self, event: e.TasksCleared) -> None:
        run = self._live(event)
        if run is not None:
            run.clear(event)

    def _watched(self, event: e.RunWatched) -> None:
        if event.run_id in self._ids and event.run_id not in self.runs:
            watcher = f"{event.watcher_dag}/{event.watcher_run_id}/{event.watcher_task}"
            self._findings.add(6, f"{watcher} waits for run {self._name}/{event.run_id}, which has ended already")

    def _unwatched(self, event: e.RunUnwatched) -> None:
        if event.run_id in self.runs:
            self._findings.add(
                6, f"run {self._name}/{event.run_id} is live, but who waits for it is told that it never ends"
            )
        if not event.reason:
            self._findings.add(9, f"RunUnwatched of {self._name}/{event.run_id} gives no reason")

    def _live(self, event: e.RunEvent) -> RunWitness | None:
        run = self.runs.get(event.run_id)
        if run is None:
            self._findings.add(2, f"{type(event).__name__}: {self._absent(event.run_id)}")
        else:
            run.last = self._findings.at
            run.at = event.at
        return run

    def _absent(self, run_id: str) -> str:
        return f"run {self._name}/{run_id} {'has ended already' if run_id in self._ids else 'was never created'}"

    # --- at the end ----------------------------------------------------------------------------------------------

    def check_progress(self, now: int) -> None:
        """Invariant 6: whatever has not ended at ``now`` is explained by what it waits for."""
        for run in self.runs.values():
            if run.phase == "running":
                for name, reason in run.stuck(now):
                    self._findings.add(6, f"{run.name}{'/' if name else ': '}{name} {reason}".rstrip(), at=run.last)
        # Whoever stands first in a queue and is to end holds up the others until its next step.
        if not any(run.is_ending and run.in_steps(now) for run in self.runs.values()):
            self._check_queues()

    def _check_queues(self) -> None:
        queued = [run for run in self.runs.values() if run.phase == "queued"]
        if not self._paused and (made := next((run for run in queued if run.backfill_id), None)):
            self._findings.add(6, f"{made.name} is queued, though its backfill gave it room", at=made.last)
        waiting = [run for run in queued if not run.backfill_id]
        if self._scheduled_at_work() and any(run.overlap == "cancel_running" for run in waiting):
            # Whoever is first of them may be any one since one was reopened; it holds up the scheduled ones, no others.
            waiting = [run for run in waiting if not run.scheduled]
        room = min((run.definition.workflow.concurrency.max_runs for run in waiting), default=0) - self._running
        first = waiting[0] if waiting else None
        if first is not None and room > 0 and not self._paused:
            self._findings.add(6, f"{first.name} is queued, though there is room to start it", at=first.last)
        held = [run for run in self.runs.values() if any(task.phase == "ready" for task in run.tasks.values())]
        limits = [limit for run in held if (limit := run.definition.workflow.concurrency.max_tasks) is not None]
        if held and (len(limits) < len(held) or self.active < min(limits)):
            self._findings.add(6, f"a task of {held[0].name} is held back, though max_tasks has room", at=held[0].last)

    def attempts_at_pools(self) -> Iterator[tuple[AttemptKey, str, RunWitness]]:
        """Attempts that a pool must know: in its queue, or (live) holding slots. With the pool's name."""
        for run_id, run in self.runs.items():
            for name, task in run.tasks.items():
                if task.phase in ACTIVE:
                    yield (self._name, run_id, name, task.attempt), run.definition.tasks[written_task(name)].pool, run

    def is_live(self, run_id: str, task: str, attempt: int) -> bool:
        """Whether this attempt holds a lease."""
        run = self.runs.get(run_id)
        record = None if run is None else run.tasks.get(task)
        return record is not None and record.attempt == attempt and record.phase in LIVE


_ENDS: dict[type[e.Event], str] = {
    e.RunSucceeded: "success",
    e.RunFailed: "failed",
    e.RunCancelled: "cancelled",
}
_APPLY: dict[type[e.Event], Callable[[DagWitness, Any], None]] = {
    e.DagDeployed: DagWitness._deployed,
    e.DagRemoved: DagWitness._dag_removed,
    e.DagPaused: DagWitness._dag_paused,
    e.DagUnpaused: DagWitness._dag_unpaused,
    e.SlotsSkipped: DagWitness._skipped,
    e.BackfillStarted: DagWitness._backfill_started,
    e.BackfillSlotsSkipped: DagWitness._backfill_skipped,
    e.BackfillPaused: DagWitness._backfill_switched,
    e.BackfillResumed: DagWitness._backfill_switched,
    e.BackfillFinished: DagWitness._backfill_ended,
    e.BackfillCancelled: DagWitness._backfill_ended,
    e.RunCreated: DagWitness._created,
    e.RunRestarted: DagWitness._restarted,
    e.RunStarted: DagWitness._started,
    e.RunReopened: DagWitness._run_reopened,
    e.TasksCleared: DagWitness._tasks_cleared,
    e.RunCancelRequested: DagWitness._run_cancel_requested,
    e.DeadlineMissed: DagWitness._deadline_missed,
    e.RunSucceeded: DagWitness._run_ended,
    e.RunFailed: DagWitness._run_ended,
    e.RunCancelled: DagWitness._run_ended,
    e.RunWatched: DagWitness._watched,
    e.RunUnwatched: DagWitness._unwatched,
}
