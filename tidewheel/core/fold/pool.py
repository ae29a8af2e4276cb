"""Folding a pool's events: who serves it, who waits, who holds slots, and the indexes that make choosing O(log n)."""

from __future__ import annotations

from immutables import Map
from msgspec.structs import replace

from tidewheel.core import events as e
from tidewheel.core.attempt import AttemptKey, attempt_key
from tidewheel.core.ordered import Ordered
from tidewheel.core.shares import capacity_needed
from tidewheel.core.state import HeadPlace, Pool, PoolWorker, QueuePlace, SlotLease, Waiting

_NO_QUEUE: Ordered[QueuePlace] = Ordered()


def fold_pool_configured(state: Pool, event: e.PoolConfigured) -> Pool:
    """The limit is set."""
    configured = replace(state, seq=state.seq + 1, slots=event.slots, description=event.description)
    return _resized(configured, state.capacity)


def fold_worker_joined(state: Pool, event: e.WorkerJoined) -> Pool:
    """The worker serves; what it already holds (it joined again) stays counted."""
    worker = PoolWorker(
        slots=event.slots, mail_partition=event.mail_partition, expires_at=event.expires_at, host=event.host
    )
    return _with_worker(state, event.worker, worker)


def fold_worker_renewed(state: Pool, event: e.WorkerRenewed) -> Pool:
    """It is there."""
    worker = state.workers[event.worker]
    return _with_worker(state, event.worker, replace(worker, expires_at=event.expires_at, suspended=False))


def fold_worker_suspended(state: Pool, event: e.WorkerSuspended) -> Pool:
    """Nothing more for it, for now."""
    return _with_worker(state, event.worker, replace(state.workers[event.worker], suspended=True))


def fold_worker_left(state: Pool, event: e.WorkerLeft) -> Pool:
    """It is gone; its leases stay until released."""
    left = replace(
        state,
        seq=state.seq + 1,
        workers=state.workers.delete(event.worker),
        free=_without_free(state, event.worker),
        offered=state.offered - _offers(state.workers[event.worker]),
    )
    return _resized(left, state.capacity)


def fold_task_enqueued(state: Pool, event: e.TaskEnqueued) -> Pool:
    """The attempt joins its DAG's queue."""
    item = Waiting(
        key=attempt_key(event),
        pool_slots=event.pool_slots,
        priority=event.priority,
        logical_date=event.logical_date,
        arrival=state.arrivals,
        max_pool_share=event.max_pool_share,
    )
    joined = replace(state, seq=state.seq + 1, arrivals=state.arrivals + 1, waiting=state.waiting.set(item.key, item))
    queue = state.queues.get(event.dag, _NO_QUEUE).add(item.place)
    return _requeued(joined, event.dag, queue, state.live.get(event.dag, 0))


def fold_slot_granted(state: Pool, event: e.SlotGranted) -> Pool:
    """From the queue to a worker."""
    item = state.waiting[attempt_key(event)]
    lease = SlotLease(key=item.key, pool_slots=item.pool_slots, worker=event.worker)
    left = _left_queue(state, item, live_after=state.live.get(event.dag, 0) + item.pool_slots)
    granted = replace(left, seq=state.seq + 1, leases=left.leases.set(lease.key, lease))
    return _counted(granted, lease, lease.pool_slots)


def fold_slot_released(state: Pool, event: e.SlotReleased) -> Pool:
    """Out of the queue, or its slots are free."""
    key = attempt_key(event)
    item = state.waiting.get(key)
    if item is not None:
        return replace(_left_queue(state, item, live_after=state.live.get(event.dag, 0)), seq=state.seq + 1)
    lease = state.leases[key]
    freed = replace(state, seq=state.seq + 1, leases=state.leases.delete(key))
    queue = state.queues.get(event.dag, _NO_QUEUE)
    moved = _requeued(freed, event.dag, queue, state.live[event.dag] - lease.pool_slots)
    return _counted(moved, lease, -lease.pool_slots)


def fold_slot_refused(state: Pool, event: e.SlotRefused) -> Pool:
    """Out of the queue for good."""
    item = state.waiting[attempt_key(event)]
    return replace(_left_queue(state, item, live_after=state.live.get(event.dag, 0)), seq=state.seq + 1)


def head_place(dag: str, queue: Ordered[QueuePlace], live: int) -> HeadPlace:
    """Where a DAG with this queue stands among the others."""
    priority, logical_date, arrival, _ = queue.first()
    return (priority, live, logical_date, arrival, dag)


def share_needs(waiting: Map[AttemptKey, Waiting], queue: Ordered[QueuePlace], live: int) -> int:
    """The capacity at which the share of the DAG with this queue allows its next attempt; 0: any."""
    head = waiting[queue.first()[3]]
    return capacity_needed(head.max_pool_share, live, head.pool_slots)


def _left_queue(state: Pool, item: Waiting, *, live_after: int) -> Pool:
    dag = item.key[0]
    left = _requeued(state, dag, state.queues[dag].remove(item.place), live_after)
    return replace(left, waiting=left.waiting.delete(item.key))


def _requeued(state: Pool, dag: str, queue: Ordered[QueuePlace], live: int) -> Pool:
    """Put ``queue`` in place for ``dag`` and move its head to where it stands with ``live`` slots in use. Whoever is
    first in it, or was, is still in ``waiting``."""
    before = state.queues.get(dag)
    live_before = state.live.get(dag, 0)
    stood = None if before is None else head_place(dag, before, live_before)
    stands = head_place(dag, queue, live) if queue else None
    needed = 0 if before is None else share_needs(state.waiting, before, live_before)
    needs = share_needs(state.waiting, queue, live) if queue else 0
    heads, shares = state.heads, state.shares
    if (stood, needed) != (stands, needs):
        if stood is not None and needed <= state.capacity:
            heads = heads.remove(stood)
        if stands is not None and needs <= state.capacity:
            heads = heads.add(stands)
    if needed != needs:
        shares = shares.remove((needed, dag)) if needed else shares
        shares = shares.add((needs, dag)) if needs else shares
    queues = state.queues
    if queue:
        queues = queues.set(dag, queue)
    elif before is not None:
        queues = queues.delete(dag)
    return replace(state, queues=queues, heads=heads, shares=shares)


def _resized(state: Pool, before: int) -> Pool:
    """The pool had the capacity ``before``: let in whom shares now allow to go, or take out whom they forbid it.

    Only those whose share lies between the two are touched.
    """
    after = state.capacity
    heads = state.heads
    share = state.shares.after((min(before, after) + 1, ""))
    while share is not None and share[0] <= max(before, after):
        dag = share[1]
        place = head_place(dag, state.queues[dag], state.live.get(dag, 0))
        heads = heads.add(place) if after > before else heads.remove(place)
        share = state.shares.after(share)
    return replace(state, heads=heads)


def _counted(state: Pool, lease: SlotLease, change: int) -> Pool:
    """Count ``change`` slots for the lease's DAG and worker."""
    held = _changed(state.held, lease.worker, change)
    free = state.free
    worker = state.workers.get(lease.worker)
    if worker is not None and not worker.suspended:
        free = free.remove((state.held.get(lease.worker, 0) - worker.slots, lease.worker))
        free = free.add((held.get(lease.worker, 0) - worker.slots, lease.worker))
    return replace(
        state, used=state.used + change, live=_changed(state.live, lease.key[0], change), held=held, free=free
    )


def _changed(counts: Map[str, int], name: str, change: int) -> Map[str, int]:
    count = counts.get(name, 0) + change
    assert count >= 0, f"{name} holds {count} slots"
    return counts.set(name, count) if count else counts.delete(name)


def _with_worker(state: Pool, name: str, worker: PoolWorker) -> Pool:
    free = _without_free(state, name)
    if not worker.suspended:
        free = free.add((state.held.get(name, 0) - worker.slots, name))
    before = state.workers.get(name)
    offered = state.offered + _offers(worker) - (0 if before is None else _offers(before))
    changed = replace(state, seq=state.seq + 1, workers=state.workers.set(name, worker), free=free, offered=offered)
    return _resized(changed, state.capacity)


def _offers(worker: PoolWorker) -> int:
    """What it adds to the pool's capacity."""
    return 0 if worker.suspended else worker.slots


def _without_free(state: Pool, name: str) -> Ordered[tuple[int, str]]:
    before = state.workers.get(name)
    if before is None or before.suspended:
        return state.free
    return state.free.remove((state.held.get(name, 0) - before.slots, name))
