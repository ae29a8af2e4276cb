"""A reason, and all reasons of one answer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

Code = Literal[
    # Nobody decides, or what is said here is old.
    "log_unavailable",
    "no_scheduler",
    "shard_silent",
    "shard_stopped",
    "read_model_behind",
    # A DAG without a next run.
    "removed",
    "no_schedule",
    "schedule_ended",
    "schedule",
    "slots_held_back",
    "slots_skipped",
    "backfill",
    "triggers_held_back",
    # A run before its start.
    "paused",
    "overlap",
    "max_runs",
    "queue",
    "starting",
    # A task before its attempt.
    "needs",
    "instances",
    "max_parallel",
    "max_tasks",
    "retry",
    # An attempt in its pool.
    "pool_full",
    "pool_closed",
    "max_pool_share",
    "wider_task",
    "too_wide",
    "no_worker",
    "worker_silent",
    # A wait without a worker.
    "time",
    "approval",
    "http",
    "kafka",
    "no_waiter",
    "run",
    "trigger",
    "workflow",
    "no_room",
    # At work, or over.
    "leased",
    "running",
    "cancelling",
    "failed",
    "ended",
]

#: Tasks that a reason names.
NAMED_MAX = 5


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """Why ``count`` tasks wait, or how they ended, of which ``tasks`` are the first five; without tasks it is the run,
    or the DAG. ``until``: when that is over by itself at the latest, where it is known."""

    code: Code
    message: str
    tasks: tuple[str, ...] = ()
    count: int = 0
    until: str | None = None


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """Why a run of a DAG, or a task of it, does not go on or failed; of an empty ``run_id`` why the DAG has no further
    run. ``more``: how many kinds of tasks are not among the reasons."""

    dag: str
    run_id: str
    state: str
    reasons: tuple[Reason, ...]
    more: int = 0


def of_tasks(code: Code, message: str, tasks: Iterable[str], count: int, until: str | None = None) -> Reason:
    """A reason of these tasks."""
    return Reason(code=code, message=message, tasks=tuple(tasks)[:NAMED_MAX], count=count, until=until)


def number(count: int, thing: str) -> str:
    """``1 slot``, ``2,000 slots``."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"
