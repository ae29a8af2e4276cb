"""What a read gives: rows as JSON-ready structs.

Instants are RFC 3339 text in UTC with milliseconds; None: not (yet) so. The fields of each struct stand in the order
of the columns of its query in ``queries.sql``; ``reads`` checks that.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

T = TypeVar("T")


class Page(msgspec.Struct, Generic[T], frozen=True):
    """Some rows; ``next`` is the cursor to hand back as ``after`` for more, None at the end."""

    items: list[T]
    next: str | None


class DagRow(msgspec.Struct, frozen=True):
    """A DAG. ``slot_cursor``: schedule slots after this instant are owed. ``last_*``: its newest run."""

    dag: str
    version: str
    paused: bool
    removed: bool
    reason: str
    owner: str
    description: str
    tags: list[str]
    schedule: Any
    slot_cursor: str | None
    tasks: int
    deployed_at: str
    updated_at: str
    actor: str
    partition: int
    shard_seq: int
    live_runs: int
    last_run_id: str | None
    last_run_state: str | None
    last_run_at: str | None


class VersionRow(msgspec.Struct, frozen=True):
    """A version of a DAG's definition, without the definition."""

    dag: str
    version: str
    deployed_at: str
    actor: str
    current: bool
    shard_seq: int


class VersionDetail(VersionRow, frozen=True):
    """A version with its definition (canonical JSON, parsed) and the YAML it came from."""

    definition: Any
    source: str


class MissedDeadline(msgspec.Struct, frozen=True):
    """A deadline that a run has missed: its index among those of the version, and when it was due and found missed.

    ``before_ms`` above 0: only a warning, so long before another deadline.
    """

    deadline: int
    from_: str = msgspec.field(name="from")
    within_ms: int
    before_ms: int
    action: str
    due_at: str
    at: str
    reason: str


class ParentAttempt(msgspec.Struct, frozen=True):
    """The attempt that asked for a run, by ``trigger`` or ``workflow``."""

    dag: str
    run_id: str
    task: str
    attempt: int


class RunRow(msgspec.Struct, frozen=True):
    """A run as lists show it. ``counts``: tasks by state, zeros left out."""

    dag: str
    run_id: str
    version: str
    kind: str
    state: str
    logical_date: str | None
    created_at: str
    started_at: str | None
    ended_at: str | None
    cancel_requested_at: str | None
    reason: str
    deadlines_missed: list[MissedDeadline]
    #: The DAG's trigger that asked for it, and the record it answers as ``topic/partition/offset``; empty: none did.
    trigger: str
    origin: str
    actor: str
    #: The run that this one repeats; empty: none.
    rerun_of: str
    backfill_id: str
    #: How often it went on after it had ended.
    reopened: int
    #: None: no run asked for it.
    parent: ParentAttempt | None
    tasks: int
    counts: dict[str, int]
    shard_seq: int


class RunDetail(RunRow, frozen=True):
    """A run with its interval and inputs."""

    interval_start: str | None
    interval_end: str | None
    inputs: Any


class BackfillRow(msgspec.Struct, frozen=True):
    """A backfill. Of its ``slots``, ``skipped`` were passed and ``runs`` got a run, of which ``live`` go on."""

    dag: str
    backfill_id: str
    state: str
    first: str
    last: str
    order: str
    mode: str
    width: int
    reprocess: str
    slots: int
    skipped: int
    runs: int
    live: int
    succeeded: int
    failed: int
    cancelled: int
    cursor: str | None
    reason: str
    actor: str
    started_at: str
    ended_at: str | None
    updated_at: str
    shard_seq: int


class SlotRun(msgspec.Struct, frozen=True):
    """The run of a slot (milliseconds since the epoch)."""

    slot: int
    run_id: str
    state: str


class TaskRow(msgspec.Struct, frozen=True):
    """A task of a run as lists show it: its current or last attempt, without the output."""

    dag: str
    run_id: str
    task: str
    ordinal: int
    #: Index of the item that this instance runs for; None: it is no instance.
    instance: int | None
    state: str
    attempt: int
    pool: str
    pool_slots: int
    worker: str
    queued_at: str | None
    leased_at: str | None
    started_at: str | None
    ended_at: str | None
    retry_at: str | None
    #: While it is deferred by itself: what it waits for, when it goes on or gives up by itself, and the details.
    waits_for: str | None
    resume_at: str | None
    timeout_at: str | None
    wait: Any
    #: What an attempt left for the next one: since when, and its bytes; None: there is nothing.
    checkpoint_at: str | None
    checkpoint_bytes: int | None
    reason: str
    shard_seq: int


class TaskDetail(TaskRow, frozen=True):
    """A task of a run with its output, and its item if it is an instance.

    The output of a task with ``for_each`` is the list of its instances', in the order of the items. ``outputs``: how
    many that are; None: the output is its own. ``outputs_next``: the cursor of ``InstanceOutput`` behind the last one
    listed; None: all are.
    """

    item: Any
    output: Any
    outputs: int | None
    outputs_next: str | None


class InstanceOutput(msgspec.Struct, frozen=True):
    """What an instance gave for the item at ``index``; null if it gave nothing, or has not yet."""

    index: int
    task: str
    state: str
    output: Any


class AttemptRow(msgspec.Struct, frozen=True):
    """One try at a task. ``kind``, ``message``, ``exit_code``: how it failed."""

    dag: str
    run_id: str
    task: str
    attempt: int
    state: str
    pool: str
    worker: str
    queued_at: str | None
    leased_at: str | None
    started_at: str | None
    ended_at: str | None
    expires_at: str | None
    heartbeat_at: str | None
    cancel_requested_at: str | None
    progress: Any
    kind: str
    message: str
    exit_code: int | None
    retry_at: str | None
    shard_seq: int


class LogRow(msgspec.Struct, frozen=True):
    """A piece of an attempt's output."""

    attempt: int
    chunk: int
    at: str
    stream: str
    text: str


class EventRow(msgspec.Struct, frozen=True):
    """An event of the journal. ``key``: the DAG or pool. ``body``: its fields beyond these."""

    topic: str
    partition: int
    shard_seq: int
    offset: int
    seq: int
    key: str
    run_id: str
    task: str
    attempt: int
    type: str
    at: str
    actor: str
    cause: str
    body: Any


class PoolRow(msgspec.Struct, frozen=True):
    """A pool. ``slots`` None: as many as ``worker_slots``, those of its active workers."""

    pool: str
    slots: int | None
    description: str
    used: int
    held: int
    waiting: int
    updated_at: str
    shard_seq: int
    workers: int
    worker_slots: int


class WorkerRow(msgspec.Struct, frozen=True):
    """A worker of a pool. ``used``: slots held on it now."""

    pool: str
    worker: str
    state: str
    slots: int
    used: int
    host: str
    mail_partition: int
    joined_at: str
    renewed_at: str
    expires_at: str
    left_at: str | None
    reason: str
    shard_seq: int


class PoolTaskRow(msgspec.Struct, frozen=True):
    """An attempt in a pool's queue (``waiting``) or on one of its workers (``held``)."""

    pool: str
    dag: str
    run_id: str
    task: str
    attempt: int
    state: str
    pool_slots: int
    priority: int
    logical_date: str
    worker: str
    enqueued_at: str
    granted_at: str | None
    shard_seq: int


class PoolDagRow(msgspec.Struct, frozen=True):
    """What a DAG has of a pool now. ``share_slots``: what ``max_pool_share`` (percent) comes to; None: no bound."""

    dag: str
    used: int
    held: int
    waiting: int
    max_pool_share: int | None
    share_slots: int | None


class DeadLetterRow(msgspec.Struct, frozen=True):
    """A record nobody could use. ``key`` and ``value`` are what can be shown of them as text."""

    partition: int
    offset: int
    at: str
    source_topic: str
    source_partition: int
    source_offset: int
    key: str | None
    value_bytes: int | None
    code: str
    reason: str


class StoppedShardRow(msgspec.Struct, frozen=True):
    """A shard whose journal does not prove itself: it decides nothing, and what comes for it waits."""

    shard: int
    since: str
    #: The journal record at which it stopped.
    topic: str
    offset: int
    reason: str


class PositionRow(msgspec.Struct, frozen=True):
    """How far one partition has been projected. ``behind``: offsets up to the log's end when last looked at."""

    topic: str
    partition: int
    next_offset: int
    end_offset: int
    behind: int
    shard_seq: int
    last_at: str | None
    stopped: str


class ProjectorRow(msgspec.Struct, frozen=True):
    """The projector that writes the read model; ``silent_s``: since it was last heard of, by the database's clock."""

    instance: str
    started_at: str
    seen_at: str
    silent_s: float
