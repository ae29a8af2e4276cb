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
    worker = state.workers[event.worker]
    left = replace(
        state,
        seq=state.seq + 1,
        workers=state.workers.delete(event.worker),
        free=_without_free(state, event.worker),
        widths=state.widths.remove((-worker.slots, event.worker)),
        offered=state.offered - _offers(worker),
    )
    return _turn_that_can_come(_resized(left, state.capacity))


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
    joined = replace(
        state,
        seq=state.seq + 1,
        arrivals=state.arrivals + 1,
        waiting=state.waiting.set(item.key, item),
        queues=state.queues.set(event.dag, state.queues.get(event.dag, _NO_QUEUE).add(item.place)),
    )
    return _stood_anew(state, joined, event.dag)


def fold_slot_granted(state: Pool, event: e.SlotGranted) -> Pool:
    """From the queue to a worker."""
    item = state.waiting[attempt_key(event)]
    lease = SlotLease(key=item.key, pool_slots=item.pool_slots, worker=event.worker)
    left = _without_waiting(state, item)
    granted = replace(left, seq=state.seq + 1, leases=left.leases.set(lease.key, lease))
    return _stood_anew(state, _counted(granted, lease, lease.pool_slots), event.dag)


def fold_slot_released(state: Pool, event: e.SlotReleased) -> Pool:
    """Out of the queue, or its slots are free."""
    key = attempt_key(event)
    item = state.waiting.get(key)
    if item is not None:
        return _stood_anew(state, replace(_without_waiting(state, item), seq=state.seq + 1), event.dag)
    lease = state.leases[key]
    turn = state.turn or _next_if_wide(state)
    given_back = state.given_back
    if turn is not None and turn[0] != event.dag:
        given_back = _changed(given_back, event.dag, lease.pool_slots)
    freed = replace(state, seq=state.seq + 1, leases=state.leases.delete(key), turn=turn, given_back=given_back)
    return _stood_anew(state, _counted(freed, lease, -lease.pool_slots), event.dag)


def fold_slot_refused(state: Pool, event: e.SlotRefused) -> Pool:
    """Out of the queue for good."""
    item = state.waiting[attempt_key(event)]
    return _stood_anew(state, replace(_without_waiting(state, item), seq=state.seq + 1), event.dag)


def head_place(state: Pool, dag: str) -> HeadPlace:
    """Where a DAG with a queue stands among the others."""
    priority, logical_date, arrival, _ = state.queues[dag].first()
    slots = state.live.get(dag, 0) + state.given_back.get(dag, 0)
    return (priority, slots, logical_date, arrival, dag)


def share_needs(state: Pool, dag: str) -> int:
    """The capacity at which the share of a DAG with a queue allows its next attempt; 0: any."""
    head = state.waiting[state.queues[dag].first()[3]]
    return capacity_needed(head.max_pool_share, state.live.get(dag, 0), head.pool_slots)


def _next_if_wide(state: Pool) -> AttemptKey | None:
    """The first of those that a worker here could run, if it takes more than one slot."""
    head = state.heads.first() if state.heads else None
    while head is not None:
        item = state.waiting[state.queues[head[4]].first()[3]]
        if item.pool_slots <= state.widest:
            return item.key if item.pool_slots > 1 else None
        head = state.heads.after(head)
    return None


def _turn_that_can_come(state: Pool) -> Pool:
    """Without the turn of an attempt that no worker is wide enough for any more."""
    if state.turn is None or state.waiting[state.turn].pool_slots <= state.widest:
        return state
    return _stood_anew(state, replace(state, turn=None, given_back=Map()), state.turn[0])


def _without_waiting(state: Pool, item: Waiting) -> Pool:
    """Without the attempt in its queue; if it was its turn, that has ended."""
    dag = item.key[0]
    queue = state.queues[dag].remove(item.place)
    left = replace(
        state,
        waiting=state.waiting.delete(item.key),
        queues=state.queues.set(dag, queue) if queue else state.queues.delete(dag),
    )
    return replace(left, turn=None, given_back=Map()) if state.turn == item.key else left


def _stood_anew(before: Pool, after: Pool, dag: str) -> Pool:
    """``after`` with the indexes of who goes next brought from ``before``: of ``dag``, and of all who count again for
    what they hold when a turn has ended. The pool's capacity is the same in both."""
    heads, shares = before.heads, before.shares
    for name in (dag, *before.given_back) if after.turn != before.turn else (dag,):
        stood = head_place(before, name) if name in before.queues else None
        stands = head_place(after, name) if name in after.queues else None
        needed = share_needs(before, name) if stood is not None else 0
        needs = share_needs(after, name) if stands is not None else 0
        if (stood, needed) != (stands, needs):
            if stood is not None and needed <= before.capacity:
                heads = heads.remove(stood)
            if stands is not None and needs <= before.capacity:
                heads = heads.add(stands)
        if needed != needs:
            shares = shares.remove((needed, name)) if needed else shares
            shares = shares.add((needs, name)) if needs else shares
    return replace(after, heads=heads, shares=shares)


def _resized(state: Pool, before: int) -> Pool:
    """The pool had the capacity ``before``: let in whom shares now allow to go, or take out whom they forbid it.

    Only those whose share lies between the two are touched.
    """
    after = state.capacity
    heads = state.heads
    share = state.shares.after((min(before, after) + 1, ""))
    while share is not None and share[0] <= max(before, after):
        place = head_place(state, share[1])
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
    widths = state.widths if before is None else state.widths.remove((-before.slots, name))
    changed = replace(
        state,
        seq=state.seq + 1,
        workers=state.workers.set(name, worker),
        free=free,
        offered=offered,
        widths=widths.add((-worker.slots, name)),
    )
    return _turn_that_can_come(_resized(changed, state.capacity))


def _offers(worker: PoolWorker) -> int:
    """What it adds to the pool's capacity."""
    return 0 if worker.suspended else worker.slots


def _without_free(state: Pool, name: str) -> Ordered[tuple[int, str]]:
    before = state.workers.get(name)
    if before is None or before.suspended:
        return state.free
    return state.free.remove((state.held.get(name, 0) - before.slots, name))
