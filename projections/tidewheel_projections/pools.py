"""Pools: what their events leave in ``pools``, ``workers`` and ``pool_tasks`` (the queue and the held slots, now)."""

from __future__ import annotations

import msgspec

from tidewheel.core import events as e
from tidewheel.core.attempt import AttemptKey, attempt_key

#: A worker that left stays in the table this long, by the journal's time, for people to see; its events stay for ever.
LEFT_KEPT_MS = 86_400_000


class Pool(msgspec.Struct):
    """A row of ``pools``."""

    pool: str
    slots: int | None = None
    description: str = ""
    used: int = 0
    held: int = 0
    waiting: int = 0
    updated_at: int = 0
    shard_seq: int = 0


class Worker(msgspec.Struct):
    """A row of ``workers``."""

    pool: str
    worker: str
    state: str
    slots: int
    host: str
    mail_partition: int
    joined_at: int
    renewed_at: int
    expires_at: int
    left_at: int | None
    reason: str
    shard_seq: int


class PoolTask(msgspec.Struct):
    """A row of ``pool_tasks``."""

    pool: str
    dag: str
    run_id: str
    task: str
    attempt: int
    state: str
    pool_slots: int
    priority: int
    logical_date: int
    worker: str
    enqueued_at: int
    granted_at: int | None
    #: Percent of the pool's slots that the DAG may hold; None: no bound.
    max_pool_share: int | None
    shard_seq: int


class PoolRows:
    """All rows of one pool in memory, and which of them changed since they were last written."""

    __slots__ = ("changed_tasks", "changed_workers", "row", "tasks", "workers")

    def __init__(self, row: Pool) -> None:
        self.row = row
        self.workers: dict[str, Worker] = {}
        self.tasks: dict[AttemptKey, PoolTask] = {}
        self.changed_workers: set[str] = set()
        self.changed_tasks: set[AttemptKey] = set()

    def fold(self, event: e.AnyPoolEvent, shard_seq: int) -> None:
        """What the event changes; nothing, if it is older than the rows."""
        row = self.row
        if shard_seq <= row.shard_seq:
            return
        row.shard_seq = shard_seq
        row.updated_at = event.at
        match event:
            case e.TaskEnqueued():
                self._enqueue(event, shard_seq)
            case e.SlotGranted():
                self._grant(event, shard_seq)
            case e.SlotReleased() | e.SlotRefused():
                self._leave(event)
            case e.PoolConfigured():
                row.slots = event.slots
                row.description = event.description
            case e.WorkerJoined():
                self._join(event, shard_seq)
            case e.WorkerRenewed() | e.WorkerSuspended() | e.WorkerLeft():
                self._change_worker(event, shard_seq)

    def _enqueue(self, event: e.TaskEnqueued, shard_seq: int) -> None:
        key = attempt_key(event)
        self.tasks[key] = PoolTask(
            pool=event.pool,
            dag=event.dag,
            run_id=event.run_id,
            task=event.task,
            attempt=event.attempt,
            state="waiting",
            pool_slots=event.pool_slots,
            priority=event.priority,
            logical_date=event.logical_date,
            worker="",
            enqueued_at=event.at,
            granted_at=None,
            max_pool_share=event.max_pool_share,
            shard_seq=shard_seq,
        )
        self.changed_tasks.add(key)
        self.row.waiting += 1

    def _grant(self, event: e.SlotGranted, shard_seq: int) -> None:
        key = attempt_key(event)
        task = self.tasks[key]
        task.state = "held"
        task.worker = event.worker
        task.granted_at = event.at
        task.shard_seq = shard_seq
        self.changed_tasks.add(key)
        row = self.row
        row.waiting -= 1
        row.held += 1
        row.used += task.pool_slots

    def _leave(self, event: e.SlotReleased | e.SlotRefused) -> None:
        key = attempt_key(event)
        task = self.tasks.pop(key)
        self.changed_tasks.add(key)
        row = self.row
        if task.state == "held":
            row.held -= 1
            row.used -= task.pool_slots
        else:
            row.waiting -= 1

    def _join(self, event: e.WorkerJoined, shard_seq: int) -> None:
        before = self.workers.get(event.worker)
        again = before is not None and before.state != "left"
        self.workers[event.worker] = Worker(
            pool=event.pool,
            worker=event.worker,
            state="active",
            slots=event.slots,
            host=event.host,
            mail_partition=event.mail_partition,
            joined_at=before.joined_at if before is not None and again else event.at,
            renewed_at=event.at,
            expires_at=event.expires_at,
            left_at=None,
            reason="",
            shard_seq=shard_seq,
        )
        self.changed_workers.add(event.worker)
        self._forget_left(event.at)

    def _change_worker(self, event: e.WorkerRenewed | e.WorkerSuspended | e.WorkerLeft, shard_seq: int) -> None:
        worker = self.workers[event.worker]
        worker.shard_seq = shard_seq
        match event:
            case e.WorkerRenewed():
                worker.state = "active"
                worker.reason = ""
                worker.renewed_at = event.at
                worker.expires_at = event.expires_at
            case e.WorkerSuspended():
                worker.state = "suspended"
                worker.reason = event.reason
            case e.WorkerLeft():
                worker.state = "left"
                worker.left_at = event.at
                worker.reason = event.reason
        self.changed_workers.add(event.worker)

    def _forget_left(self, now: int) -> None:
        long_gone = [
            name
            for name, worker in self.workers.items()
            if worker.left_at is not None and now - worker.left_at > LEFT_KEPT_MS
        ]
        for name in long_gone:
            del self.workers[name]
            self.changed_workers.add(name)
