"""What the read model knows of why a run or a task waits: open tasks, the queue of runs, a pool's queue."""

from __future__ import annotations

from typing import Any

import msgspec

from tidewheel_projections.locks import Lock
from tidewheel_projections.rows import Connection, fetched, first

#: A task in one of these has not ended.
OPEN_STATES = frozenset({"scheduled", "queued", "leased", "running", "deferred", "retrying"})
#: Kinds of open, or lost, tasks of one run that are told apart.
OPEN_MAX = 500


class OpenTasks(msgspec.Struct, frozen=True):
    """Tasks of a run that have not ended and are alike: ``count`` of them, of which ``tasks`` are the first five.
    ``attempt``, ``worker`` and ``wait`` are the first one's, the instants the earliest."""

    ordinal: int
    #: Whether they are instances of the task at ``ordinal``.
    instances: bool
    state: str
    reason: str
    pool: str
    pool_slots: int
    waits_for: str | None
    count: int
    tasks: list[str]
    attempt: int
    worker: str
    wait: Any
    queued_at: str | None
    leased_at: str | None
    started_at: str | None
    retry_at: str | None
    resume_at: str | None
    timeout_at: str | None


class LostTasks(msgspec.Struct, frozen=True):
    """Tasks of a run that are ``failed`` in the same way, or ``upstream_failed``: ``count`` of them, of which ``tasks``
    are the first five. ``reason``: how, without a traceback."""

    ordinal: int
    #: Whether they are instances of the task at ``ordinal``.
    instances: bool
    state: str
    attempt: int
    reason: str
    count: int
    tasks: list[str]


class QueueOfRuns(msgspec.Struct, frozen=True):
    """A DAG's live runs, seen from one of them: how many are at work (without those of backfills), wait before it, wait
    at all, and have tasks under way; scheduled ones that are at work, three at most."""

    running: int
    before: int
    queued: int
    queued_scheduled: int
    tasks_under_way: int
    scheduled: list[str] | None


class PoolHead(msgspec.Struct, frozen=True):
    """The attempt of a DAG that goes next in a pool, and the slots that the DAG holds there."""

    dag: str
    run_id: str
    task: str
    attempt: int
    pool_slots: int
    priority: int
    logical_date: str
    enqueued_at: str
    max_pool_share: int | None
    held_slots: int
    shard_seq: int


class PoolHolder(msgspec.Struct, frozen=True):
    """A DAG that holds slots of a pool."""

    dag: str
    slots: int


class PlaceInPool(msgspec.Struct, frozen=True):
    """An attempt that waits in a pool; ``before``: how many of its DAG go before it."""

    dag: str
    run_id: str
    task: str
    attempt: int
    pool_slots: int
    priority: int
    enqueued_at: str
    before: int


class Held(msgspec.Struct, frozen=True):
    """Whether somebody holds a lock."""

    held: bool


def is_held(connection: Connection, lock: Lock) -> bool:
    """Whether the one of its kind is at work."""
    found = first(connection, Held, "get_held", {"lock": int(lock)})
    return found is not None and found.held


def list_open_tasks(connection: Connection, dag: str, run_id: str) -> list[OpenTasks]:
    """Tasks of a run that have not ended, in the order of the definition, ``OPEN_MAX`` kinds of them at most."""
    return fetched(connection, OpenTasks, "list_open_tasks", {"dag": dag, "run_id": run_id, "limit": OPEN_MAX})


def list_lost_tasks(connection: Connection, dag: str, run_id: str) -> list[LostTasks]:
    """Tasks of a run that failed, or did not run for those, in the order of the definition, ``OPEN_MAX`` kinds of them
    at most."""
    return fetched(connection, LostTasks, "list_lost_tasks", {"dag": dag, "run_id": run_id, "limit": OPEN_MAX})


def get_queue_of_runs(connection: Connection, dag: str, run_id: str) -> QueueOfRuns:
    """The DAG's live runs as ``run_id`` sees them."""
    found = first(connection, QueueOfRuns, "get_queue_of_runs", {"dag": dag, "run_id": run_id})
    assert found is not None, "an aggregate gives one row"
    return found


def list_pool_heads(connection: Connection, pool: str) -> list[PoolHead]:
    """The next attempt of each DAG that waits in the pool, in the order in which the pool looks at them."""
    heads = fetched(connection, PoolHead, "list_pool_heads", {"pool": pool})
    heads.sort(key=lambda head: (-head.priority, head.held_slots, head.logical_date, head.shard_seq, head.dag))
    return heads


def list_pool_holders(connection: Connection, pool: str, limit: int = 3) -> list[PoolHolder]:
    """The DAGs that hold most of a pool."""
    return fetched(connection, PoolHolder, "list_pool_holders", {"pool": pool, "limit": limit})


def get_place_in_pool(
    connection: Connection, pool: str, dag: str, run_id: str, task: str, attempt: int
) -> PlaceInPool | None:
    """Where an attempt stands in a pool's queue; None: it is not there."""
    place = {"pool": pool, "dag": dag, "run_id": run_id, "task": task, "attempt": attempt}
    return first(connection, PlaceInPool, "get_place_in_pool", place)
