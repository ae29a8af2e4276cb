"""The legal life of a run and of a task, at a glance. A pair that is not in the table is a bug in ``decide`` and
raises.

::

    scheduled ─► queued ─► leased ─► running ─► success
        │           ▲         │         ├─────► failed        (also from leased: quick tasks report start and end in
        one) │           │         └────┬────┴─────► cancelled │           └── retrying ◄─┘ └─► skipped,
        upstream_failed, cancelled, failed (its ``if`` does not evaluate)

A ``TaskFailed`` or ``LeaseExpired`` that carries ``retry_at`` leads to ``retrying`` instead of the state the table
names. A person may say more: ``TaskMarked`` leads to the state that it names, from any state but those of
a live attempt, which ends first; its ``TaskCancelled`` then leads there by ``then``. ``TasksCleared`` leads back to
``scheduled`` in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from tidewheel.core import events as e

TaskPhase: TypeAlias = Literal[
    "scheduled",
    "queued",
    "leased",
    "running",
    "deferred",
    "retrying",
    "success",
    "failed",
    "skipped",
    "upstream_failed",
    "cancelled",
]
RunPhase: TypeAlias = Literal["queued", "running", "success", "failed", "cancelled"]
BackfillPhase: TypeAlias = Literal["running", "paused", "finished", "cancelled"]

#: A task in one of these has ended.
TASK_ENDED: frozenset[TaskPhase] = frozenset({"success", "failed", "skipped", "upstream_failed", "cancelled"})
#: An attempt in one of these holds a lease.
LIVE: frozenset[TaskPhase] = frozenset({"leased", "running"})
#: An attempt in one of these counts toward the DAG's ``max_tasks``.
ACTIVE: frozenset[TaskPhase] = frozenset({"queued", "leased", "running"})

TASK: Mapping[tuple[TaskPhase, type[e.Event]], TaskPhase] = {
    ("scheduled", e.TaskReady): "scheduled",
    ("scheduled", e.TaskExpanded): "deferred",
    ("scheduled", e.TaskDeferred): "deferred",
    ("retrying", e.TaskDeferred): "deferred",
    ("deferred", e.TaskExpanded): "deferred",
    ("deferred", e.LaunchPostponed): "deferred",
    ("deferred", e.TaskSucceeded): "success",
    ("deferred", e.TaskFailed): "failed",
    ("deferred", e.TaskSkipped): "skipped",
    ("deferred", e.TaskCancelRequested): "deferred",
    ("deferred", e.TaskCancelled): "cancelled",
    ("scheduled", e.TaskQueued): "queued",
    ("scheduled", e.TaskSucceeded): "success",
    ("scheduled", e.TaskSkipped): "skipped",
    ("scheduled", e.TaskUpstreamFailed): "upstream_failed",
    ("scheduled", e.TaskFailed): "failed",
    ("scheduled", e.TaskCancelled): "cancelled",
    ("queued", e.TaskLeased): "leased",
    ("queued", e.TaskFailed): "failed",
    ("queued", e.TaskCancelled): "cancelled",
    ("leased", e.TaskStarted): "running",
    ("leased", e.TaskHeartbeat): "leased",
    ("leased", e.TaskCheckpointed): "leased",
    ("leased", e.TaskSucceeded): "success",
    ("leased", e.TaskFailed): "failed",
    ("leased", e.LeaseExpired): "failed",
    ("leased", e.TaskCancelRequested): "leased",
    ("leased", e.TaskCancelled): "cancelled",
    ("running", e.TaskHeartbeat): "running",
    ("running", e.TaskCheckpointed): "running",
    ("running", e.TaskSucceeded): "success",
    ("running", e.TaskFailed): "failed",
    ("running", e.LeaseExpired): "failed",
    ("running", e.TaskCancelRequested): "running",
    ("running", e.TaskCancelled): "cancelled",
    ("retrying", e.TaskReady): "scheduled",
    ("retrying", e.TaskQueued): "queued",
    ("retrying", e.TaskCancelled): "cancelled",
}

RUN: Mapping[tuple[RunPhase, type[e.Event]], RunPhase] = {
    ("success", e.RunRestarted): "queued",
    ("failed", e.RunRestarted): "queued",
    ("cancelled", e.RunRestarted): "queued",
    ("queued", e.RunStarted): "running",
    ("queued", e.RunCancelRequested): "queued",
    ("queued", e.DeadlineMissed): "queued",
    ("queued", e.RunFailed): "failed",
    ("queued", e.RunCancelled): "cancelled",
    ("running", e.RunCancelRequested): "running",
    ("running", e.DeadlineMissed): "running",
    ("running", e.RunSucceeded): "success",
    ("running", e.RunFailed): "failed",
    ("running", e.RunCancelled): "cancelled",
    ("success", e.RunReopened): "queued",
    ("failed", e.RunReopened): "queued",
    ("cancelled", e.RunReopened): "queued",
}


BACKFILL: Mapping[tuple[BackfillPhase, type[e.Event]], BackfillPhase] = {
    ("running", e.BackfillPaused): "paused",
    ("paused", e.BackfillResumed): "running",
    ("running", e.BackfillFinished): "finished",
    ("paused", e.BackfillFinished): "finished",
    ("running", e.BackfillCancelled): "cancelled",
    ("paused", e.BackfillCancelled): "cancelled",
}

#: From here a task can be marked at once. What is live, or waits for instances that are, is told to end first.
MARKED_AT_ONCE: frozenset[TaskPhase] = TASK_ENDED | {"scheduled", "queued", "retrying", "deferred"}
MARKED_LATER: frozenset[TaskPhase] = LIVE | {"deferred"}
#: What a person can have decided about a task while it was live.
DECIDED: Mapping[str, TaskPhase] = {
    "scheduled": "scheduled",
    "success": "success",
    "failed": "failed",
    "skipped": "skipped",
}


class IllegalTransition(AssertionError):
    """An event that the state does not allow: a bug in ``decide``, or a journal that is not ours."""


def next_task_phase(phase: TaskPhase, event: e.TaskEvent) -> TaskPhase:
    """The state of a task after ``event``."""
    if isinstance(event, e.TaskMarked):
        if phase in (MARKED_LATER if event.ending else MARKED_AT_ONCE):
            return phase if event.ending else event.state
        raise _illegal(phase, event)
    try:
        after = TASK[phase, type(event)]
    except KeyError:
        raise _illegal(phase, event) from None
    if isinstance(event, e.TaskCancelled) and event.then:
        if event.then not in DECIDED:
            raise _illegal(phase, event)
        return DECIDED[event.then]
    if after == "failed" and getattr(event, "retry_at", None) is not None:
        return "retrying"
    return after


def _illegal(phase: TaskPhase, event: e.TaskEvent) -> IllegalTransition:
    subject = f"{event.dag}/{event.run_id}/{event.task} attempt {event.attempt}"
    return IllegalTransition(f"{type(event).__name__} of {subject}: the task is {phase}")


def next_run_phase(phase: RunPhase, event: e.RunEvent) -> RunPhase:
    """The state of a run after ``event``."""
    try:
        return RUN[phase, type(event)]
    except KeyError:
        raise IllegalTransition(f"{type(event).__name__} of {event.dag}/{event.run_id}: the run is {phase}") from None


def next_backfill_phase(phase: BackfillPhase, event: e.BackfillEvent) -> BackfillPhase:
    """The state of a backfill after ``event``."""
    try:
        return BACKFILL[phase, type(event)]
    except KeyError:
        subject = f"backfill {event.backfill_id} of {event.dag}"
        raise IllegalTransition(f"{type(event).__name__} of {subject}: it is {phase}") from None
