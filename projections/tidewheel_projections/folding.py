"""The rows in memory that events are folded into, and which of them changed since they were last written.

Folding reads no clock and no database: ``needed`` says which rows must be loaded first, ``store`` loads them. A row
older than an event takes it in, a row that is not lets it pass, so that any event may come twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, get_args

import msgspec

from tidewheel.core import events as e
from tidewheel.core.mapping import instance_name, written_task
from tidewheel.core.transitions import TASK_ENDED
from tidewheel_projections.backfills import (
    BACKFILL_ENDED,
    Backfill,
    BackfillChange,
    fold_backfill_changed,
    fold_backfill_started,
)
from tidewheel_projections.dags import (
    Dag,
    TaskOutline,
    Version,
    fold_dag_changed,
    fold_dag_deployed,
    fold_slot_answered,
    outline_of,
    version_of,
)
from tidewheel_projections.pools import Pool, PoolRows
from tidewheel_projections.runs import RUN_ENDED, Run, RunChange, fold_run_changed, fold_run_created, fold_run_restarted
from tidewheel_projections.tasks import (
    Attempt,
    AttemptEvent,
    Task,
    TaskAndAttemptChange,
    TaskChange,
    begin_anew,
    cleared_by,
    deferred_attempt,
    fold_attempt,
    fold_task,
    instance_tasks,
    instances_of,
    queued_attempt,
    scheduled_task,
)

#: Events of runs that may not be, or not be any more.
_ROWLESS = frozenset({e.ReportRefused, e.RunWatched, e.RunUnwatched})

RunKey: TypeAlias = tuple[str, str]
TaskAttempt: TypeAlias = tuple[str, int]
VersionKey: TypeAlias = tuple[str, str]
BackfillKey: TypeAlias = tuple[str, str]

#: Task rows kept in memory of runs that have not ended; beyond it the runs longest untouched are loaded again when
#: needed.
TASKS_KEPT = 100_000
DAGS_KEPT = 10_000
#: An output counts as one task row more for each of these bytes.
OUTPUT_WEIGHT = 512


class RunRows:
    """A run with its tasks and attempts."""

    __slots__ = ("attempts", "changed", "changed_attempts", "changed_tasks", "gone_tasks", "row", "tasks", "weight")

    def __init__(self, row: Run) -> None:
        self.row = row
        self.tasks: dict[str, Task] = {}
        self.attempts: dict[TaskAttempt, Attempt] = {}
        self.changed = False
        self.changed_tasks: set[str] = set()
        self.changed_attempts: set[TaskAttempt] = set()
        #: Rows that are to be deleted.
        self.gone_tasks: set[str] = set()
        self.weight = 0

    def moved(self, task: Task, before: str, shard_seq: int) -> None:
        """The task's row has changed, perhaps its state: the run counts its tasks by that."""
        task.shard_seq = shard_seq
        self.changed_tasks.add(task.task)
        if task.state != before:
            self.row.counts[before] -= 1
            self.row.counts[task.state] = self.row.counts.get(task.state, 0) + 1
            self.row.shard_seq = shard_seq
            self.changed = True

    def drop(self, names: Iterable[str], shard_seq: int) -> None:
        """These tasks are none of the run any more; what they were is in ``events`` and ``attempts``."""
        for name in names:
            task = self.tasks.pop(name)
            self.row.tasks -= 1
            self.row.counts[task.state] -= 1
            self.row.shard_seq = shard_seq
            self.changed = True
            self.changed_tasks.discard(name)
            self.gone_tasks.add(name)

    def begin_anew(self, outlines: Sequence[TaskOutline], attempts: int, shard_seq: int) -> None:
        """Every task waits as if it never had begun, but for the number of its last attempt."""
        self.drop(list(self.tasks), shard_seq)
        for ordinal, outline in enumerate(outlines):
            fresh = scheduled_task(self.row.dag, self.row.run_id, outline, ordinal, shard_seq)
            fresh.attempt = attempts
            self.tasks[outline.id] = fresh
        self.changed_tasks.update(self.tasks)
        self.gone_tasks.difference_update(self.tasks)
        self.row.tasks = len(self.tasks)
        self.row.counts = {"scheduled": len(self.tasks)}

    def wait_for_instance(self, name: str, at: int, shard_seq: int) -> None:
        """Of an instance that begins anew, the mapped task is at work again if it had ended."""
        mapped = self.tasks[written_task(name)]
        if mapped.task != name and mapped.state in TASK_ENDED:
            before, mapped.state = mapped.state, "deferred"
            mapped.output, mapped.ended_at, mapped.started_at, mapped.reason = None, None, at, ""
            self.moved(mapped, before, shard_seq)

    def take_version(self, outlines: Sequence[TaskOutline], shard_seq: int) -> None:
        """The run goes on with another version: tasks that it does not have are gone, new ones are there; so are
        switches and what is not mapped any more, which begin anew."""
        places = {outline.id: ordinal for ordinal, outline in enumerate(outlines)}
        staying = {
            outline.id
            for outline in outlines
            if not outline.switch and (outline.mapped or instance_name(outline.id, 0) not in self.tasks)
        }
        self.drop([name for name in self.tasks if written_task(name) not in staying], shard_seq)
        for task in self.tasks.values():
            task.ordinal = places[written_task(task.task)]
            self.moved(task, task.state, shard_seq)
        for outline in outlines:
            if outline.id not in self.tasks:
                fresh = scheduled_task(self.row.dag, self.row.run_id, outline, places[outline.id], shard_seq)
                self.tasks[outline.id] = fresh
                self.changed_tasks.add(outline.id)
                self.gone_tasks.discard(outline.id)
                self.row.tasks += 1
                self.row.counts["scheduled"] = self.row.counts.get("scheduled", 0) + 1

    def weigh(self) -> int:
        """Its share of what may be kept, in task rows."""
        outputs = sum(len(task.output or "") + len(task.item or "") for task in self.tasks.values())
        self.weight = 1 + len(self.tasks) + outputs // OUTPUT_WEIGHT
        return self.weight


class Needed:
    """What a batch of events needs loaded, because memory does not have it."""

    __slots__ = ("backfills", "dags", "pools", "runs", "versions")

    def __init__(self) -> None:
        self.dags: set[str] = set()
        self.versions: set[VersionKey] = set()
        self.runs: set[RunKey] = set()
        self.pools: set[str] = set()
        self.backfills: set[BackfillKey] = set()


class Folding:
    """All rows in memory. Whoever writes them clears the marks by ``written``."""

    def __init__(self) -> None:
        self.dags: dict[str, Dag] = {}
        self.outlines: dict[VersionKey, tuple[TaskOutline, ...]] = {}
        self.runs: dict[RunKey, RunRows] = {}
        self.pools: dict[str, PoolRows] = {}
        self.backfills: dict[BackfillKey, Backfill] = {}
        self.changed_backfills: set[BackfillKey] = set()
        self.changed_dags: set[str] = set()
        self.new_versions: list[Version] = []
        self.touched_runs: dict[RunKey, RunRows] = {}
        self.touched_pools: set[str] = set()
        self._weight = 0

    def needed(self, events: Iterable[e.AnyEvent]) -> Needed:
        """What to load before folding these events."""
        needed = Needed()
        runs, pools, dags = self.runs, self.pools, self.dags
        for event in events:
            if isinstance(event, e.RunEvent):
                key = (event.dag, event.run_id)
                if key not in runs and type(event) not in _ROWLESS:
                    needed.runs.add(key)
                if isinstance(event, e.RunCreated | e.RunRestarted | e.RunReopened):
                    if event.dag not in dags:
                        needed.dags.add(event.dag)
                    if (event.dag, event.version) not in self.outlines:
                        needed.versions.add((event.dag, event.version))
                    if (
                        not isinstance(event, e.RunReopened)
                        and event.backfill_id
                        and (event.dag, event.backfill_id) not in self.backfills
                    ):
                        needed.backfills.add((event.dag, event.backfill_id))
            elif isinstance(event, e.PoolEvent):
                if event.pool not in pools:
                    needed.pools.add(event.pool)
            elif isinstance(event, e.BackfillEvent):
                if (event.dag, event.backfill_id) not in self.backfills:
                    needed.backfills.add((event.dag, event.backfill_id))
            elif isinstance(event, e.DagEvent) and event.dag not in dags:
                needed.dags.add(event.dag)
        return needed

    def fold(self, event: e.AnyEvent, partition: int, shard_seq: int) -> None:
        """Fold one event; everything ``needed`` is loaded."""
        _FOLDS[type(event)](self, event, partition, shard_seq)

    def written(self) -> None:
        """The changes are in the database: clear the marks, and drop what is not needed soon."""
        self.changed_dags.clear()
        self.new_versions.clear()
        for key, run in self.touched_runs.items():
            run.changed = False
            run.changed_tasks.clear()
            run.changed_attempts.clear()
            run.gone_tasks.clear()
            self._weight -= run.weight
            # Out and in again: the order of the dict is the order of last use.
            del self.runs[key]
            if run.row.state not in RUN_ENDED:
                self.runs[key] = run
                self._weight += run.weigh()
        self.touched_runs.clear()
        for pool in self.touched_pools:
            self.pools[pool].changed_tasks.clear()
            self.pools[pool].changed_workers.clear()
        self.touched_pools.clear()
        for backfill in self.changed_backfills:
            if self.backfills[backfill].state in BACKFILL_ENDED:
                del self.backfills[backfill]
        self.changed_backfills.clear()
        while self._weight > TASKS_KEPT and len(self.runs) > 1:
            oldest = next(iter(self.runs))
            self._weight -= self.runs.pop(oldest).weight
        if len(self.dags) > DAGS_KEPT:
            self.dags.clear()
        if len(self.outlines) > DAGS_KEPT:
            self.outlines.clear()

    def _dag_deployed(self, event: e.DagDeployed, partition: int, shard_seq: int) -> None:
        outline = outline_of(event.definition)
        self.outlines[event.dag, event.version] = outline.tasks
        row = self.dags.get(event.dag)
        if row is not None and shard_seq <= row.shard_seq:
            return
        self.dags[event.dag] = fold_dag_deployed(event, outline, partition, shard_seq)
        self.changed_dags.add(event.dag)
        self.new_versions.append(version_of(event, shard_seq))

    def _dag_changed(
        self, event: e.DagRemoved | e.DagPaused | e.DagUnpaused | e.SlotsSkipped, partition: int, shard_seq: int
    ) -> None:
        row = self.dags[event.dag]
        if shard_seq > row.shard_seq:
            fold_dag_changed(row, event, shard_seq)
            self.changed_dags.add(event.dag)

    def _backfill_started(self, event: e.BackfillStarted, partition: int, shard_seq: int) -> None:
        key = (event.dag, event.backfill_id)
        row = self.backfills.get(key)
        if row is None or shard_seq > row.shard_seq:
            self.backfills[key] = fold_backfill_started(event, shard_seq)
            self.changed_backfills.add(key)

    def _backfill_changed(self, event: BackfillChange, partition: int, shard_seq: int) -> None:
        key = (event.dag, event.backfill_id)
        row = self.backfills[key]
        if shard_seq > row.shard_seq:
            fold_backfill_changed(row, event, shard_seq)
            self.changed_backfills.add(key)

    def _run_created(self, event: e.RunCreated, partition: int, shard_seq: int) -> None:
        if event.kind == "scheduled":
            dag = self.dags[event.dag]
            if shard_seq > dag.shard_seq:
                fold_slot_answered(dag, event.logical_date, shard_seq)
                self.changed_dags.add(event.dag)
        if event.backfill_id:
            self._backfill_changed(event, partition, shard_seq)
        key = (event.dag, event.run_id)
        before = self.runs.get(key)
        if before is not None and shard_seq <= before.row.shard_seq:
            return
        outlines = self.outlines[event.dag, event.version]
        run = RunRows(fold_run_created(event, len(outlines), shard_seq))
        for ordinal, outline in enumerate(outlines):
            run.tasks[outline.id] = scheduled_task(event.dag, event.run_id, outline, ordinal, shard_seq)
        run.changed = True
        run.changed_tasks.update(run.tasks)
        if before is not None:
            self._weight -= before.weight
        self.runs[key] = self.touched_runs[key] = run

    def _run_restarted(self, event: e.RunRestarted, partition: int, shard_seq: int) -> None:
        self._backfill_changed(event, partition, shard_seq)
        key = (event.dag, event.run_id)
        run = self.runs[key]
        if shard_seq > run.row.shard_seq:
            fold_run_restarted(run.row, event, shard_seq)
            run.begin_anew(self.outlines[event.dag, event.version], event.attempts, shard_seq)
            run.changed = True
            self.touched_runs[key] = run

    def _run_changed(
        self,
        event: RunChange,
        partition: int,
        shard_seq: int,
    ) -> None:
        key = (event.dag, event.run_id)
        run = self.runs[key]
        if shard_seq > run.row.shard_seq:
            fold_run_changed(run.row, event, shard_seq)
            run.changed = True
            self.touched_runs[key] = run

    def _run_reopened(self, event: e.RunReopened, partition: int, shard_seq: int) -> None:
        run = self.runs[event.dag, event.run_id]
        if shard_seq <= run.row.shard_seq:
            return
        before = run.row.version
        self._run_changed(event, partition, shard_seq)
        if event.version != before:
            run.take_version(self.outlines[event.dag, event.version], shard_seq)

    def _tasks_cleared(self, event: e.TasksCleared, partition: int, shard_seq: int) -> None:
        key = (event.dag, event.run_id)
        run = self.runs[key]
        self.touched_runs[key] = run
        for name in msgspec.json.decode(event.tasks, type=list[str]):
            task = run.tasks.get(name)
            if task is None or shard_seq <= task.shard_seq:
                continue
            run.wait_for_instance(name, event.at, shard_seq)
            self._end_attempt(run, task, event, shard_seq)
            before = task.state
            begin_anew(task)
            run.moved(task, before, shard_seq)
            run.drop(instances_of(run.tasks, name), shard_seq)
        for name in msgspec.json.decode(event.ending, type=list[str]):
            task = run.tasks.get(name)
            if task is not None and shard_seq > task.shard_seq:
                task.reason = cleared_by(event)
                run.moved(task, task.state, shard_seq)
                attempt = run.attempts.get((name, task.attempt))
                if attempt is not None and shard_seq > attempt.shard_seq:
                    attempt.cancel_requested_at = event.at
                    attempt.shard_seq = shard_seq
                    run.changed_attempts.add((name, task.attempt))

    def _end_attempt(self, run: RunRows, task: Task, event: e.TasksCleared, shard_seq: int) -> None:
        """An attempt that waited when its task was cleared is over."""
        attempt = run.attempts.get((task.task, task.attempt))
        if attempt is not None and shard_seq > attempt.shard_seq and attempt.state not in TASK_ENDED:
            attempt.state = "cancelled"
            attempt.ended_at = event.at
            attempt.message = cleared_by(event)
            attempt.shard_seq = shard_seq
            run.changed_attempts.add((task.task, task.attempt))

    def _task_changed(self, event: TaskChange, partition: int, shard_seq: int) -> None:
        key = (event.dag, event.run_id)
        run = self.runs[key]
        task = run.tasks.get(event.task)
        if task is None:
            return  # an event that is known already, of a task that went since
        if shard_seq > task.shard_seq:
            before = task.state
            fold_task(task, event, shard_seq)
            run.moved(task, before, shard_seq)
            self.touched_runs[key] = run
            if task.state == "scheduled" and type(event) is e.TaskCancelled:
                run.drop(instances_of(run.tasks, event.task), shard_seq)

    def _task_expanded(self, event: e.TaskExpanded, partition: int, shard_seq: int) -> None:
        key = (event.dag, event.run_id)
        run = self.runs[key]
        mapped = run.tasks.get(event.task)
        if mapped is None or shard_seq <= mapped.shard_seq:
            return
        self._task_changed(event, partition, shard_seq)
        fresh = list(instance_tasks(mapped, event, shard_seq))
        if fresh:
            row = run.row
            row.tasks += len(fresh)
            row.counts["scheduled"] = row.counts.get("scheduled", 0) + len(fresh)
            row.shard_seq = shard_seq
            run.tasks.update((task.task, task) for task in fresh)
            run.changed_tasks.update(task.task for task in fresh)
            run.gone_tasks.difference_update(task.task for task in fresh)
            run.changed = True
            self.touched_runs[key] = run

    def _task_queued(self, event: e.TaskQueued, partition: int, shard_seq: int) -> None:
        self._task_changed(event, partition, shard_seq)
        self._attempt_begins(queued_attempt(event, shard_seq))

    def _task_deferred(self, event: e.TaskDeferred, partition: int, shard_seq: int) -> None:
        self._task_changed(event, partition, shard_seq)
        self._attempt_begins(deferred_attempt(event, shard_seq))

    def _attempt_begins(self, attempt: Attempt) -> None:
        key = (attempt.dag, attempt.run_id)
        run = self.runs[key]
        number = (attempt.task, attempt.attempt)
        known = run.attempts.get(number)
        if known is None or attempt.shard_seq > known.shard_seq:
            run.attempts[number] = attempt
            run.changed_attempts.add(number)
            self.touched_runs[key] = run

    def _attempt_changed(self, event: AttemptEvent, partition: int, shard_seq: int) -> None:
        key = (event.dag, event.run_id)
        run = self.runs[key]
        number = (event.task, event.attempt)
        attempt = run.attempts.get(number)
        if attempt is None:
            return  # of a restarted run, a task that ended before it had an attempt of its own
        # A task may end after its last attempt did: skipped or cancelled while it waits to be tried again.
        if shard_seq > attempt.shard_seq and attempt.state not in TASK_ENDED:
            fold_attempt(attempt, event, shard_seq)
            run.changed_attempts.add(number)
            self.touched_runs[key] = run

    def _task_and_attempt_changed(self, event: TaskAndAttemptChange, partition: int, shard_seq: int) -> None:
        self._task_changed(event, partition, shard_seq)
        if event.attempt:
            self._attempt_changed(event, partition, shard_seq)

    def _report_refused(self, event: e.ReportRefused, partition: int, shard_seq: int) -> None:
        """It changed nothing; only ``events`` tells of it."""

    def _run_watched(self, event: e.RunWatched | e.RunUnwatched, partition: int, shard_seq: int) -> None:
        """It changed no row; only ``events`` tells of it."""

    def _journal_repaired(self, event: e.JournalRepaired, partition: int, shard_seq: int) -> None:
        """It changed no row; only ``events`` tells of it."""

    def _pool_changed(self, event: e.AnyPoolEvent, partition: int, shard_seq: int) -> None:
        rows = self.pools.get(event.pool)
        if rows is None:
            rows = self.pools[event.pool] = PoolRows(Pool(event.pool))
        rows.fold(event, shard_seq)
        self.touched_pools.add(event.pool)


_FOLDS: Mapping[type[e.Event], Callable[[Folding, Any, int, int], None]] = {
    e.DagDeployed: Folding._dag_deployed,
    **dict.fromkeys((e.DagRemoved, e.DagPaused, e.DagUnpaused, e.SlotsSkipped), Folding._dag_changed),
    e.BackfillStarted: Folding._backfill_started,
    **dict.fromkeys(
        (e.BackfillSlotsSkipped, e.BackfillPaused, e.BackfillResumed, e.BackfillCancelled, e.BackfillFinished),
        Folding._backfill_changed,
    ),
    e.RunCreated: Folding._run_created,
    e.RunRestarted: Folding._run_restarted,
    e.RunReopened: Folding._run_reopened,
    e.TasksCleared: Folding._tasks_cleared,
    **dict.fromkeys(
        (e.RunStarted, e.RunCancelRequested, e.DeadlineMissed, e.RunSucceeded, e.RunFailed, e.RunCancelled),
        Folding._run_changed,
    ),
    e.RunWatched: Folding._run_watched,
    e.RunUnwatched: Folding._run_watched,
    e.TaskReady: Folding._task_changed,
    e.TaskExpanded: Folding._task_expanded,
    e.TaskDeferred: Folding._task_deferred,
    e.LaunchPostponed: Folding._task_changed,
    e.TaskQueued: Folding._task_queued,
    e.TaskHeartbeat: Folding._attempt_changed,
    e.TaskCheckpointed: Folding._task_changed,
    **dict.fromkeys(get_args(TaskAndAttemptChange), Folding._task_and_attempt_changed),
    e.ReportRefused: Folding._report_refused,
    **dict.fromkeys(get_args(e.AnyPoolEvent), Folding._pool_changed),
    e.JournalRepaired: Folding._journal_repaired,
}
