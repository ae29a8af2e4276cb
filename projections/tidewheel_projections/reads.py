"""Typed reads from the read model, each on a connection the caller gives.

Lists are paged by keyset: hand ``Page.next`` back as ``after``. Any connection to the database will do; tables are
named with their schema. A reader that must see its own write calls ``wait_for_position`` with that write's position.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime

import msgspec

from tidewheel.log.interface import EVENTS, POOL_EVENTS
from tidewheel_projections.queries import named_queries
from tidewheel_projections.rows import BadCursor as BadCursor
from tidewheel_projections.rows import Connection as Connection
from tidewheel_projections.rows import bounded, cursor_at, fetched, first, paged, place_at
from tidewheel_projections.views import (
    AttemptRow,
    BackfillRow,
    DagRow,
    DeadLetterRow,
    EventRow,
    InstanceOutput,
    LogRow,
    Page,
    PoolDagRow,
    PoolRow,
    PoolTaskRow,
    PositionRow,
    ProjectorRow,
    RunDetail,
    RunRow,
    SlotRun,
    StoppedShardRow,
    TaskDetail,
    TaskRow,
    VersionDetail,
    VersionRow,
    WorkerRow,
)

#: Outputs of a mapped task's instances that are shown with the task, and their bytes: more than a task can be handed.
OUTPUTS_SHOWN = 1_000
OUTPUTS_BYTES = 1 << 20
_AFTER_ALL = 2**62


def list_dags(
    connection: Connection,
    *,
    owner: str | None = None,
    tag: str | None = None,
    paused: bool | None = None,
    removed: bool | None = False,
    search: str | None = None,
    after: str | None = None,
    limit: int = 100,
) -> Page[DagRow]:
    """DAGs by name. ``removed=None`` lists removed ones too; ``search`` looks into names and descriptions."""
    (name,) = place_at(after, str)
    filters = {"owner": owner, "tag": tag, "paused": paused, "removed": removed, "search": search, "dag": None}
    return paged(connection, DagRow, "list_dags", {**filters, "after": name}, limit, lambda row: (row.dag,))


def get_dag(connection: Connection, dag: str) -> DagRow | None:
    """One DAG, removed or not."""
    names = ("owner", "tag", "paused", "removed", "search", "after")
    return first(connection, DagRow, "list_dags", {**dict.fromkeys(names), "dag": dag, "limit": 1})


def list_versions(connection: Connection, dag: str, *, after: str | None = None, limit: int = 100) -> Page[VersionRow]:
    """The versions of a DAG, newest first."""
    (seq,) = place_at(after, int)
    return paged(
        connection, VersionRow, "list_versions", {"dag": dag, "after": seq}, limit, lambda row: (row.shard_seq,)
    )


def get_version(connection: Connection, dag: str, version: str) -> VersionDetail | None:
    """One version with its definition and source."""
    return first(connection, VersionDetail, "get_version", {"dag": dag, "version": version})


def list_runs(
    connection: Connection,
    *,
    dag: str | None = None,
    states: Sequence[str] | None = None,
    kind: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    parent: tuple[str, str] | None = None,
    after: str | None = None,
    limit: int = 100,
) -> Page[RunRow]:
    """Runs, newest first; those created from ``since`` on and before ``until``, those that the run ``parent`` asked
    for."""
    at, after_dag, after_run = place_at(after, str, str, str)
    parameters = {
        "dag": dag,
        "states": None if states is None else list(states),
        "kind": kind,
        "since": since,
        "until": until,
        "parent_dag": None if parent is None else parent[0],
        "parent_run_id": None if parent is None else parent[1],
        "after_at": at,
        "after_dag": after_dag,
        "after_run": after_run,
    }
    return paged(connection, RunRow, "list_runs", parameters, limit, lambda row: (row.created_at, row.dag, row.run_id))


def get_run(connection: Connection, dag: str, run_id: str) -> RunDetail | None:
    """One run."""
    return first(connection, RunDetail, "get_run", {"dag": dag, "run_id": run_id})


def list_backfills(
    connection: Connection, dag: str, *, live: bool | None = None, after: str | None = None, limit: int = 100
) -> Page[BackfillRow]:
    """Backfills of a DAG, newest first; ``live``: only those that have not ended, or that have."""
    at, backfill_id = place_at(after, str, str)
    parameters = {"dag": dag, "backfill_id": None, "live": live, "after_at": at, "after_id": backfill_id}
    return paged(
        connection, BackfillRow, "list_backfills", parameters, limit, lambda row: (row.started_at, row.backfill_id)
    )


def get_backfill(connection: Connection, dag: str, backfill_id: str) -> BackfillRow | None:
    """One backfill."""
    parameters = {"dag": dag, "backfill_id": backfill_id, "limit": 1}
    parameters |= dict.fromkeys(("live", "after_at", "after_id"))
    return first(connection, BackfillRow, "list_backfills", parameters)


def list_slot_runs(connection: Connection, dag: str, first_ms: int, last_ms: int) -> list[SlotRun]:
    """The runs of slots from ``first_ms`` to ``last_ms``, both included, earliest first."""
    parameters = {"dag": dag, "first": first_ms, "last": last_ms}
    return fetched(connection, SlotRun, "list_slot_runs", parameters)


def list_tasks(
    connection: Connection,
    dag: str,
    run_id: str,
    *,
    states: Sequence[str] | None = None,
    after: str | None = None,
    limit: int = 1000,
) -> Page[TaskRow]:
    """The tasks of a run, in the order of the definition, a mapped one followed by its instances."""
    ordinal, instance, task = place_at(after, int, int, str)
    parameters = {
        "dag": dag,
        "run_id": run_id,
        "states": None if states is None else list(states),
        "after_ordinal": ordinal,
        "after_instance": instance,
        "after_task": task,
    }

    def place(row: TaskRow) -> tuple[int, int, str]:
        return (row.ordinal, -1 if row.instance is None else row.instance, row.task)

    return paged(connection, TaskRow, "list_tasks", parameters, limit, place)


def list_waits(
    connection: Connection,
    *,
    waits_for: str | None = None,
    dag: str | None = None,
    after: str | None = None,
    limit: int = 100,
) -> Page[TaskRow]:
    """Tasks of all runs that wait without a worker, by what they wait for, DAG, run and task."""
    after_for, after_dag, after_run, after_task = place_at(after, str, str, str, str)
    parameters = {
        "waits_for": waits_for,
        "dag": dag,
        "after_for": after_for,
        "after_dag": after_dag,
        "after_run": after_run,
        "after_task": after_task,
    }

    def place(row: TaskRow) -> tuple[str, str, str, str]:
        return (row.waits_for or "", row.dag, row.run_id, row.task)

    return paged(connection, TaskRow, "list_waits", parameters, limit, place)


def get_task(connection: Connection, dag: str, run_id: str, task: str) -> TaskDetail | None:
    """One task of a run with its output; of a task with ``for_each`` the first ``OUTPUTS_SHOWN`` of its instances."""
    found = first(connection, TaskDetail, "get_task", {"dag": dag, "run_id": run_id, "task": task})
    if found is None or found.outputs is None:
        return found
    page = list_outputs(connection, dag, run_id, task, limit=OUTPUTS_SHOWN)
    output = [row.output for row in page.items]
    return msgspec.structs.replace(found, output=output, outputs_next=page.next)


def list_outputs(
    connection: Connection, dag: str, run_id: str, task: str, *, after: str | None = None, limit: int = 1000
) -> Page[InstanceOutput]:
    """What the instances of a mapped task gave, in the order of its items. A page has ``OUTPUTS_BYTES`` at most, or a
    single output."""
    (index,) = place_at(after, int)
    limit = bounded(limit)

    def rows(after: int | None, limit: int) -> list[InstanceOutput]:
        place = {"dag": dag, "run_id": run_id, "task": task, "after": after}
        return fetched(connection, InstanceOutput, "list_outputs", {**place, "limit": limit, "bytes": OUTPUTS_BYTES})

    items = rows(index, limit)
    more = bool(items and rows(items[-1].index, 1))
    return Page(items=items, next=cursor_at((items[-1].index,)) if more else None)


def list_attempts(
    connection: Connection,
    dag: str,
    run_id: str,
    task: str | None = None,
    *,
    after: str | None = None,
    limit: int = 1000,
) -> Page[AttemptRow]:
    """The attempts of a task, or of all tasks of the run, by task and number."""
    after_task, attempt = place_at(after, str, int)
    parameters = {
        "dag": dag,
        "run_id": run_id,
        "task": task,
        "after_task": after_task,
        "after_attempt": attempt,
    }
    return paged(connection, AttemptRow, "list_attempts", parameters, limit, lambda row: (row.task, row.attempt))


def list_logs(
    connection: Connection,
    dag: str,
    run_id: str,
    task: str,
    attempt: int,
    *,
    after_chunk: int = -1,
    limit: int = 1000,
) -> list[LogRow]:
    """Output of an attempt after a chunk. To follow it, ask again with the last chunk got."""
    parameters = {"dag": dag, "run_id": run_id, "task": task, "attempt": attempt, "after": after_chunk}
    return fetched(connection, LogRow, "list_logs", {**parameters, "limit": bounded(limit)})


def list_events(
    connection: Connection,
    key: str,
    *,
    topic: str = EVENTS,
    run_id: str | None = None,
    task: str | None = None,
    after_seq: int | None = None,
    types: Sequence[str] | None = None,
    newest_first: bool = False,
    limit: int = 1000,
) -> list[EventRow]:
    """Events of a DAG (or with ``topic="pool-events"`` of a pool) after a ``shard_seq``; before it, if newest first."""
    assert topic in (EVENTS, POOL_EVENTS), f"no journal is called {topic}"
    start = after_seq if after_seq is not None else (_AFTER_ALL if newest_first else 0)
    parameters = {
        "topic": topic,
        "key": key,
        "run_id": run_id,
        "task": task,
        "types": None if types is None else list(types),
        "after": start,
        "limit": bounded(limit),
    }
    return fetched(connection, EventRow, "list_events_newest" if newest_first else "list_events", parameters)


def list_pools(connection: Connection, *, after: str | None = None, limit: int = 100) -> Page[PoolRow]:
    """Pools by name."""
    (name,) = place_at(after, str)
    return paged(connection, PoolRow, "list_pools", {"pool": None, "after": name}, limit, lambda row: (row.pool,))


def get_pool(connection: Connection, pool: str) -> PoolRow | None:
    """One pool."""
    return first(connection, PoolRow, "list_pools", {"pool": pool, "after": None, "limit": 1})


def list_workers(
    connection: Connection,
    *,
    pool: str | None = None,
    states: Sequence[str] | None = ("active", "suspended"),
    after: str | None = None,
    limit: int = 100,
) -> Page[WorkerRow]:
    """Workers by pool and name; ``states=None`` lists those that left, too."""
    after_pool, worker = place_at(after, str, str)
    parameters = {
        "pool": pool,
        "states": None if states is None else list(states),
        "after_pool": after_pool,
        "after_worker": worker,
    }
    return paged(connection, WorkerRow, "list_workers", parameters, limit, lambda row: (row.pool, row.worker))


def list_pool_tasks(
    connection: Connection,
    pool: str,
    *,
    state: str | None = None,
    worker: str | None = None,
    dag: str | None = None,
    run_id: str | None = None,
    after: str | None = None,
    limit: int = 1000,
) -> Page[PoolTaskRow]:
    """Who waits in a pool and who holds its slots, by DAG, run, task and attempt."""
    after_dag, after_run, after_task, attempt = place_at(after, str, str, str, int)
    parameters = {
        "pool": pool,
        "state": state,
        "worker": worker,
        "dag": dag,
        "run_id": run_id,
        "after_dag": after_dag,
        "after_run": after_run,
        "after_task": after_task,
        "after_attempt": attempt,
    }
    return paged(
        connection,
        PoolTaskRow,
        "list_pool_tasks",
        parameters,
        limit,
        lambda row: (row.dag, row.run_id, row.task, row.attempt),
    )


def list_pool_dags(
    connection: Connection, pool: str, *, dag: str | None = None, after: str | None = None, limit: int = 1000
) -> Page[PoolDagRow]:
    """The DAGs that hold slots of a pool or wait for some."""
    (name,) = place_at(after, str)
    parameters = {"pool": pool, "dag": dag, "after": name}
    return paged(connection, PoolDagRow, "list_pool_dags", parameters, limit, lambda row: (row.dag,))


def list_dead_letters(connection: Connection, *, after: str | None = None, limit: int = 100) -> Page[DeadLetterRow]:
    """Dead letters, newest first."""
    at, partition, offset = place_at(after, str, int, int)
    parameters = {"after_at": at, "after_partition": partition, "after_offset": offset}
    return paged(
        connection,
        DeadLetterRow,
        "list_dead_letters",
        parameters,
        limit,
        lambda row: (row.at, row.partition, row.offset),
    )


def get_dead_letter_value(connection: Connection, partition: int, offset: int) -> bytes | None:
    """The whole value of a dead letter; None: there is no such letter, or it is a tombstone."""
    found = connection.execute(
        named_queries()["get_dead_letter_value"], {"partition": partition, "offset": offset}
    ).fetchone()
    return None if found is None or found[0] is None else bytes(found[0])


def list_stopped_shards(connection: Connection) -> list[StoppedShardRow]:
    """The shards that stand still because their journal does not prove itself."""
    return fetched(connection, StoppedShardRow, "list_stopped_shards", {})


def list_positions(connection: Connection) -> list[PositionRow]:
    """How far each partition has been projected, and which are stopped and why."""
    return fetched(connection, PositionRow, "list_positions", {})


def get_projector(connection: Connection) -> ProjectorRow | None:
    """The projector that writes; None: none ever did."""
    return first(connection, ProjectorRow, "get_projector", {})


def get_position(connection: Connection, topic: str, partition: int) -> int:
    """The ``shard_seq`` up to which a journal partition is in the read model; 0: nothing of it is."""
    found = connection.execute(
        named_queries()["get_position"], {"topic": topic, "partition": partition}, prepare=True
    ).fetchone()
    return 0 if found is None else int(found[0])


def parse_position(text: str) -> tuple[str, int, int]:
    """``topic/partition/shard_seq``. Raises ``BadCursor`` if it is none."""
    topic, _, rest = text.partition("/")
    partition, _, shard_seq = rest.partition("/")
    if topic not in (EVENTS, POOL_EVENTS) or not (partition.isdecimal() and shard_seq.isdecimal()):
        raise BadCursor(f"'{text}' is no journal position; one looks like 'events/3/1207'")
    return topic, int(partition), int(shard_seq)


def wait_for_position(connection: Connection, position: str, timeout_s: float) -> bool:
    """Wait until the read model has reached ``topic/partition/shard_seq``; false: it did not in time.

    The connection must be in autocommit mode, or it would look at one moment for ever.
    """
    topic, partition, wanted = parse_position(position)
    deadline = time.monotonic() + timeout_s
    pause_s = 0.002
    while get_position(connection, topic, partition) < wanted:
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            return False
        time.sleep(min(pause_s, remaining))
        pause_s = min(pause_s * 1.5, 0.1)
    return True
