"""Tasks and attempts: what their events leave in ``tasks`` (one row a task of a run) and ``attempts`` (one row a try).

Times of the work itself (``started_at``, ``ended_at``) are the worker's clock, all others the decider's.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from itertools import count, takewhile
from typing import TypeAlias, cast

import msgspec

from tidewheel.core import events as e
from tidewheel.core.explain import explain_wait
from tidewheel.core.mapping import instance_name
from tidewheel.core.transitions import TASK_ENDED
from tidewheel.core.waits import Wait, wait_of
from tidewheel_projections.dags import TaskOutline

WAITS_FOR_MAX_TASKS = "waits: as many tasks of the DAG are under way as its max_tasks allows"


class Task(msgspec.Struct):
    """A row of ``tasks``: the current or last attempt."""

    dag: str
    run_id: str
    task: str
    #: Its place in the definition, or that of the task it is an instance of.
    ordinal: int
    #: Index of the instance's item, -1 if it is none; and the item as JSON.
    instance: int
    item: str | None
    state: str
    attempt: int
    pool: str
    pool_slots: int
    worker: str = ""
    queued_at: int | None = None
    leased_at: int | None = None
    started_at: int | None = None
    ended_at: int | None = None
    retry_at: int | None = None
    #: While it is deferred by itself: what it waits for (empty: it does not), until when at most, and the details.
    waits_for: str = ""
    resume_at: int | None = None
    timeout_at: int | None = None
    wait: str | None = None
    reason: str = ""
    output: str | None = None
    #: What an attempt left for the next one, gone once the task has ended: since when, and its bytes.
    checkpoint_at: int | None = None
    checkpoint_bytes: int | None = None
    shard_seq: int = 0


class Attempt(msgspec.Struct):
    """A row of ``attempts``. It is never ``retrying``: it failed, and ``retry_at`` is when the next is queued."""

    dag: str
    run_id: str
    task: str
    attempt: int
    state: str
    pool: str
    worker: str = ""
    queued_at: int | None = None
    leased_at: int | None = None
    started_at: int | None = None
    ended_at: int | None = None
    expires_at: int | None = None
    heartbeat_at: int | None = None
    cancel_requested_at: int | None = None
    progress: str | None = None
    kind: str = ""
    message: str = ""
    exit_code: int | None = None
    retry_at: int | None = None
    shard_seq: int = 0


TaskAndAttemptChange: TypeAlias = (
    e.TaskLeased
    | e.TaskStarted
    | e.TaskSucceeded
    | e.TaskFailed
    | e.LeaseExpired
    | e.TaskCancelRequested
    | e.TaskCancelled
    | e.TaskMarked
    | e.TaskSkipped
    | e.TaskUpstreamFailed
)
#: What changes a task's row; a heartbeat says nothing of the task.
TaskChange: TypeAlias = (
    e.TaskReady
    | e.TaskExpanded
    | e.TaskDeferred
    | e.LaunchPostponed
    | e.TaskQueued
    | e.TaskCheckpointed
    | TaskAndAttemptChange
)
AttemptEvent: TypeAlias = e.TaskHeartbeat | TaskAndAttemptChange


def scheduled_task(dag: str, run_id: str, outline: TaskOutline, ordinal: int, shard_seq: int) -> Task:
    """A task that nothing has happened to yet."""
    return Task(
        dag=dag,
        run_id=run_id,
        task=outline.id,
        ordinal=ordinal,
        instance=-1,
        item=None,
        state="scheduled",
        attempt=0,
        pool=outline.pool,
        pool_slots=outline.pool_slots,
        shard_seq=shard_seq,
    )


def instance_tasks(mapped: Task, event: e.TaskExpanded, shard_seq: int) -> Iterator[Task]:
    """The instances that the event names."""
    for index, item in enumerate(msgspec.json.decode(event.values), event.first):
        yield Task(
            dag=event.dag,
            run_id=event.run_id,
            task=instance_name(event.task, index),
            ordinal=mapped.ordinal,
            instance=index,
            item=msgspec.json.encode(item).decode(),
            state="scheduled",
            attempt=0,
            pool=mapped.pool,
            pool_slots=mapped.pool_slots,
            shard_seq=shard_seq,
        )


def instances_of(tasks: Container[str], mapped: str) -> list[str]:
    """Those of the tasks that are instances of ``mapped``."""
    return list(takewhile(lambda name: name in tasks, (instance_name(mapped, index) for index in count())))


def cleared_by(event: e.TasksCleared) -> str:
    """Who cleared, and why, for people."""
    said = f"cleared by {event.actor}"
    return f"{said}: {event.reason}" if event.reason else said


def queued_attempt(event: e.TaskQueued, shard_seq: int) -> Attempt:
    """A new attempt."""
    return Attempt(
        dag=event.dag,
        run_id=event.run_id,
        task=event.task,
        attempt=event.attempt,
        state="queued",
        pool=event.pool,
        queued_at=event.at,
        shard_seq=shard_seq,
    )


def deferred_attempt(event: e.TaskDeferred, shard_seq: int) -> Attempt:
    """A new attempt, which no worker runs."""
    return Attempt(
        dag=event.dag,
        run_id=event.run_id,
        task=event.task,
        attempt=event.attempt,
        state="deferred",
        pool="",
        started_at=event.at,
        shard_seq=shard_seq,
    )


def fold_task(row: Task, event: TaskChange, shard_seq: int) -> None:
    """What the event says of the task."""
    row.shard_seq = shard_seq
    if isinstance(event, e.LaunchPostponed):
        wait = Wait(
            cast(e.WaitsFor, row.waits_for), timeout_at=row.timeout_at, detail=row.wait or "{}", ask_at=event.ask_at
        )
        row.reason = explain_wait(wait)
        return
    row.waits_for, row.resume_at, row.timeout_at, row.wait = "", None, None, None
    match event:
        case e.TaskDeferred():
            _defer(row, event)
        case e.TaskQueued():
            _queue(row, event)
        case e.TaskLeased():
            row.state = "leased"
            row.worker = event.worker
            row.leased_at = event.at
        case e.TaskStarted():
            row.state = "running"
            row.started_at = event.started_at
        case e.TaskCheckpointed():
            row.checkpoint_at, row.checkpoint_bytes = event.at, len(event.checkpoint.encode())
        case e.TaskSucceeded():
            row.state = "success"
            row.worker = event.worker
            row.started_at = event.started_at
            row.ended_at = event.ended_at
            row.output = event.output
            row.reason = ""
        case e.TaskFailed():
            row.state = "failed" if event.retry_at is None else "retrying"
            row.worker = event.worker or row.worker
            row.started_at = row.started_at if event.started_at is None else event.started_at
            row.ended_at = event.ended_at
            row.retry_at = event.retry_at
            row.reason = event.message or event.kind
        case e.LeaseExpired():
            row.state = "failed" if event.retry_at is None else "retrying"
            row.ended_at = event.at
            row.retry_at = event.retry_at
            row.reason = event.message
        case e.TaskExpanded():
            row.state = "deferred"
            row.started_at = event.at
            row.reason = f"waits for its {event.items:,} instances"
        case e.TaskReady():
            row.state = "scheduled"
            row.retry_at = None
            row.reason = WAITS_FOR_MAX_TASKS
        case e.TaskCancelRequested():
            row.reason = event.reason
        case e.TaskMarked():
            _mark(row, event)
        case e.TaskCancelled() if event.then == "scheduled":
            begin_anew(row)
        case e.TaskCancelled() if event.then:
            # Why is told already, by whoever decided it.
            row.state = event.then
            row.ended_at = event.at
        case e.TaskCancelled():
            _end_unrun(row, "cancelled", event)
        case e.TaskSkipped():
            _end_unrun(row, "skipped", event)
        case e.TaskUpstreamFailed():
            _end_unrun(row, "upstream_failed", event)
    if row.state in TASK_ENDED:
        row.checkpoint_at = row.checkpoint_bytes = None


def _queue(row: Task, event: e.TaskQueued) -> None:
    row.state = "queued"
    row.attempt = event.attempt
    row.pool = event.pool
    row.pool_slots = event.pool_slots
    row.worker = ""
    row.queued_at = event.at
    row.leased_at = row.started_at = row.ended_at = row.retry_at = None
    row.reason = ""
    row.output = None


def _defer(row: Task, event: e.TaskDeferred) -> None:
    wait = wait_of(event)
    row.state = "deferred"
    row.attempt = event.attempt
    row.worker = ""
    row.started_at = event.at
    row.queued_at = row.leased_at = row.ended_at = row.retry_at = None
    row.waits_for, row.resume_at, row.timeout_at, row.wait = (
        wait.waits_for,
        wait.resume_at,
        wait.timeout_at,
        wait.detail,
    )
    row.reason = explain_wait(wait)
    row.output = None


def _mark(row: Task, event: e.TaskMarked) -> None:
    row.output = event.output
    row.reason = _marked(event)
    if not event.ending:
        row.state = event.state
        row.ended_at = event.at
        row.retry_at = None


def begin_anew(row: Task) -> None:
    """It was cleared: as if nothing had happened to it, but for the number of its last attempt."""
    row.state = "scheduled"
    row.worker = row.reason = row.waits_for = ""
    row.queued_at = row.leased_at = row.started_at = row.ended_at = row.retry_at = None
    row.resume_at = row.timeout_at = row.wait = row.output = None
    row.checkpoint_at = row.checkpoint_bytes = None


def _marked(event: e.TaskMarked) -> str:
    said = f"marked {event.state} by {event.actor}"
    return f"{said}: {event.reason}" if event.reason else said


def _end_unrun(row: Task, state: str, event: e.TaskCancelled | e.TaskSkipped | e.TaskUpstreamFailed) -> None:
    row.state = state
    row.ended_at = event.at
    row.retry_at = None
    row.reason = event.reason or row.reason


def fold_attempt(row: Attempt, event: AttemptEvent, shard_seq: int) -> None:
    """What the event says of an attempt that has not ended."""
    row.shard_seq = shard_seq
    match event:
        case e.TaskHeartbeat():
            row.expires_at = event.expires_at
            row.heartbeat_at = event.at
            if event.progress is not None:
                row.progress = event.progress
        case e.TaskLeased():
            row.state = "leased"
            row.worker = event.worker
            row.leased_at = event.at
            row.expires_at = event.expires_at
        case e.TaskStarted():
            row.state = "running"
            row.worker = event.worker
            row.started_at = event.started_at
            row.expires_at = event.expires_at
        case e.TaskSucceeded():
            row.state = "success"
            row.worker = event.worker
            row.started_at = event.started_at
            row.ended_at = event.ended_at
            row.expires_at = None
        case e.TaskFailed():
            row.state = "failed"
            row.worker = event.worker or row.worker
            row.started_at = row.started_at if event.started_at is None else event.started_at
            row.ended_at = event.ended_at
            row.expires_at = None
            row.kind = event.kind
            row.message = event.message
            row.exit_code = event.exit_code
            row.retry_at = event.retry_at
        case e.LeaseExpired():
            row.state = "failed"
            row.ended_at = event.at
            row.expires_at = None
            row.kind = "lease_expired"
            row.message = event.message
            row.retry_at = event.retry_at
        case e.TaskCancelRequested():
            row.cancel_requested_at = event.at
        case e.TaskMarked() if event.ending:
            row.cancel_requested_at = event.at
        case e.TaskMarked():
            row.state = "cancelled"
            row.ended_at = event.at
            row.expires_at = None
            row.message = _marked(event)
        case e.TaskCancelled():
            _end_attempt(row, "cancelled", event)
        case e.TaskSkipped():
            _end_attempt(row, "skipped", event)
        case e.TaskUpstreamFailed():
            _end_attempt(row, "upstream_failed", event)


def _end_attempt(row: Attempt, state: str, event: e.TaskCancelled | e.TaskSkipped | e.TaskUpstreamFailed) -> None:
    row.state = state
    row.ended_at = event.at
    row.expires_at = None
    row.message = event.reason
