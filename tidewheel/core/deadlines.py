"""The instants at which somebody must wake up: each is a pair of a time and the timer command to decide then.

The shell keeps them in a heap and never removes one: a timer that comes up is asked (``due_at``) whether its subject
still stands and until when. So a renewed lease costs nothing here, and what ended its subject has ended its timer.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter, itemgetter
from typing import Final, TypeAlias

from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.attempt import attempt_fields
from tidewheel.core.calendar import fires_at, next_slot
from tidewheel.core.overdue import next_deadline
from tidewheel.core.state import Aggregate, Dag, Pool, RunState
from tidewheel.core.steps import has_more
from tidewheel.core.waits import wait_of

Timer: TypeAlias = (
    c.FireSchedule
    | c.FireDeadline
    | c.ExpireLease
    | c.ExpireQueued
    | c.RetryTask
    | c.ResumeTask
    | c.ContinueRun
    | c.ExpireWorker
)

#: After any of these the next slot may fire at another time or may fire at all, or a backfill may go on.
_SCHEDULE_EVENTS = (
    e.DagDeployed,
    e.DagUnpaused,
    e.SlotsSkipped,
    e.RunSucceeded,
    e.RunFailed,
    e.RunCancelled,
    e.RunStarted,
    e.RunRestarted,
    e.BackfillStarted,
    e.BackfillSlotsSkipped,
    e.BackfillResumed,
)


def due_at(state: Aggregate, timer: Timer, backlog_runs: int) -> int | None:
    """When ``timer`` is due by the present state; None if its subject is gone."""
    match timer:
        case c.FireSchedule():
            assert isinstance(state, Dag)
            return own_work_due(state, backlog_runs)
        case c.ExpireWorker():
            assert isinstance(state, Pool)
            worker = state.workers.get(timer.worker)
            return None if worker is None else worker.expires_at
    assert isinstance(state, Dag)
    run = state.runs.get(timer.run_id)
    if run is None:
        return None
    if isinstance(timer, c.FireDeadline):
        return next_deadline(state, run)
    if isinstance(timer, c.ContinueRun):
        return AT_ONCE if has_more(state, run) else None
    task = run.task(timer.task)
    match timer:
        case c.ExpireLease():
            return task.expires_at if task.live and task.attempt == timer.attempt else None
        case c.ExpireQueued():
            attempt = task.attempt + (task.phase != "queued")
            return _queue_deadline(state, run, timer.task) if timer.attempt == attempt else None
        case c.RetryTask():
            return task.retry_at if task.phase == "retrying" and not run.stops(timer.task) else None
        case c.ResumeTask():
            wait = task.waiting(timer.attempt)
            over = wait is None or task.cancel_requested or run.stops(timer.task)
            return None if wait is None or over else wait.wakes_at


def _queue_deadline(state: Dag, run: RunState, name: str) -> int | None:
    """When a task that is ready is so for too long; None: never, or it is not."""
    task = run.task(name)
    if task.phase != "queued" and task.ready_order is None:
        return None
    longest = state.definitions[run.version].task(name).queue_timeout_ms
    return None if longest is None else task.ready_at + longest


#: Has passed by any clock, also by one behind that of whoever began the work.
AT_ONCE: Final = 0


def own_work_due(state: Dag, backlog_runs: int) -> int | None:
    """When the DAG does something by itself: its schedule's next slot fires, or a backfill that may go on does so."""
    for backfill in state.backfills:
        if backfill.is_due(state.live_of.get(backfill.backfill_id, 0)):
            return AT_ONCE
    return schedule_due(state, backlog_runs)


def schedule_due(state: Dag, backlog_runs: int) -> int | None:
    """When the schedule's next slot fires; None if there is none, while paused, or while too many of its runs wait."""
    if not state.version or state.paused or state.removed or state.cursor is None:
        return None
    schedule = state.definition.workflow.schedule
    if schedule is None or state.queued_scheduled >= backlog_runs:
        return None
    slot = next_slot(schedule, state.cursor)
    return None if slot is None else fires_at(schedule, state.dag, slot)


def armed_by(event: e.Event, state: Aggregate, backlog_runs: int) -> tuple[int, Timer] | None:
    """The timer that ``event`` arms, given the state after it."""
    match event:
        case e.TaskLeased():
            lease = c.ExpireLease(dag=event.dag, run_id=event.run_id, task=event.task, attempt=event.attempt)
            return (event.expires_at, lease)
        case e.TaskQueued() | e.TaskReady():
            assert isinstance(state, Dag)
            run = state.runs.get(event.run_id)  # what follows in the same decision may have ended it
            deadline = None if run is None else _queue_deadline(state, run, event.task)
            return None if deadline is None else (deadline, c.ExpireQueued(**attempt_fields(event)))
        case e.TaskFailed() | e.LeaseExpired() if event.retry_at is not None:
            return (event.retry_at, c.RetryTask(dag=event.dag, run_id=event.run_id, task=event.task))
        case e.TaskDeferred():
            wakes_at = wait_of(event).wakes_at
            return None if wakes_at is None else (wakes_at, c.ResumeTask(**attempt_fields(event)))
        case e.LaunchPostponed():
            assert isinstance(state, Dag)
            asking = state.runs.get(event.run_id)
            wait = None if asking is None else asking.task(event.task).waiting(event.attempt)
            again = None if wait is None else wait.wakes_at
            return None if again is None else (again, c.ResumeTask(**attempt_fields(event)))
        case e.WorkerJoined():
            return (event.expires_at, c.ExpireWorker(pool=event.pool, worker=event.worker))
        case e.RunCreated() if event.logical_date is None:
            return None
    if isinstance(event, (*_SCHEDULE_EVENTS, e.RunCreated)):
        assert isinstance(state, Dag)
        due = own_work_due(state, backlog_runs)
        return None if due is None else (due, c.FireSchedule(dag=state.dag))
    return None


def deadline_armed_by(event: e.Event, state: Aggregate) -> tuple[int, Timer] | None:
    """The run's deadline that ``event`` arms, beside what it arms otherwise."""
    if not isinstance(event, e.RunCreated | e.RunRestarted | e.RunStarted | e.DeadlineMissed):
        return None
    assert isinstance(state, Dag)
    run = state.runs.get(event.run_id)
    due = None if run is None else next_deadline(state, run)
    return None if due is None else (due, c.FireDeadline(dag=event.dag, run_id=event.run_id))


def timers_of(state: Aggregate, backlog_runs: int) -> Iterator[tuple[int, Timer]]:
    """Every timer of an aggregate, for an owner that has just folded it.

    In an order of its own, not that of a map, which differs from process to process: a simulation is then the same
    each time.
    """
    if isinstance(state, Pool):
        for name, worker in sorted(state.workers.items(), key=itemgetter(0)):
            yield (worker.expires_at, c.ExpireWorker(pool=state.pool, worker=name))
        return
    due = own_work_due(state, backlog_runs)
    if due is not None:
        yield (due, c.FireSchedule(dag=state.dag))
    for run in sorted(state.runs.values(), key=attrgetter("order")):
        if (passes := next_deadline(state, run)) is not None:
            yield (passes, c.FireDeadline(dag=state.dag, run_id=run.run_id))
        if has_more(state, run):
            yield (AT_ONCE, c.ContinueRun(dag=state.dag, run_id=run.run_id))
        for name, task in sorted(run.tasks.items(), key=itemgetter(0)):
            if task.live:
                lease = c.ExpireLease(dag=state.dag, run_id=run.run_id, task=name, attempt=task.attempt)
                yield (task.expires_at, lease)
            elif (deadline := _queue_deadline(state, run, name)) is not None:
                attempt = task.attempt + (task.phase != "queued")
                yield (
                    deadline,
                    c.ExpireQueued(dag=state.dag, run_id=run.run_id, task=name, attempt=attempt),
                )
            elif task.phase == "retrying" and task.retry_at is not None:
                yield (task.retry_at, c.RetryTask(dag=state.dag, run_id=run.run_id, task=name))
            elif task.wait is not None and task.wait.wakes_at is not None and not task.cancel_requested:
                resume = c.ResumeTask(dag=state.dag, run_id=run.run_id, task=name, attempt=task.attempt)
                yield (task.wait.wakes_at, resume)
