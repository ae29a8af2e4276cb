"""Deciding for a pool: who serves it, and who goes next.

The order is priority, then fair among DAGs (fewest slots in use first), then logical date, then arrival. An attempt
that is wider than what is free keeps its turn: what frees up is kept for it, and counts as held by who gave it back
until it has gone, so it cannot starve. A DAG that holds its share (``core.shares``) is not among those who could go,
until it gives something back or the pool grows.
"""

from __future__ import annotations

from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.attempt import AttemptKey, attempt_key
from tidewheel.core.decide.decision import Decision
from tidewheel.core.mail import WorkerUnknown, WorkerWelcome
from tidewheel.core.state import HeadPlace, Pool, PoolWorker, Waiting


def decide_configure_pool(d: Decision[Pool], command: c.ConfigurePool) -> None:
    """Set the limit; waiting attempts that can never fit any more are refused when slots are next allocated.

    A limit of 0 closes the pool for a while: everybody waits, and nobody is refused.
    """
    if command.slots is not None and command.slots < 0:
        d.refuse("invalid", f"a pool has 0 slots or more, not {command.slots}")
        return
    changed = d.state.seq == 0 or (d.state.slots, d.state.description) != (command.slots, command.description)
    d.accept(created=changed)
    if changed:
        d.record(
            e.PoolConfigured(
                pool=command.pool,
                at=d.now,
                actor=command.actor,
                slots=command.slots,
                description=command.description,
            )
        )


def decide_join_pool(d: Decision[Pool], command: c.JoinPool) -> None:
    """Put the worker on the list, or renew it."""
    if command.slots < 1:
        d.refuse("invalid", f"a worker serves a pool with 1 slot or more, not {command.slots}")
        return
    worker = d.state.workers.get(command.worker)
    if worker is not None and (worker.slots, worker.mail_partition) == (command.slots, command.mail_partition):
        _renew(d, command.worker, worker)
    else:
        d.record(
            e.WorkerJoined(
                pool=command.pool,
                at=d.now,
                actor=command.actor,
                worker=command.worker,
                slots=command.slots,
                mail_partition=command.mail_partition,
                expires_at=d.now + d.rules.worker_term_ms,
                host=command.host,
            )
        )
    d.post(
        WorkerWelcome(
            receiver=command.worker,
            partition=command.mail_partition,
            pool=command.pool,
            term_ms=d.rules.worker_term_ms,
        )
    )


def decide_renew_worker(d: Decision[Pool], command: c.RenewWorker) -> None:
    """The worker is there; an unknown one is told to join again."""
    worker = d.state.workers.get(command.worker)
    if worker is None:
        d.post(WorkerUnknown(receiver=command.worker, partition=command.mail_partition, pool=command.pool))
    else:
        _renew(d, command.worker, worker)


def _renew(d: Decision[Pool], name: str, worker: PoolWorker) -> None:
    """Record it only when half the term is over, or it had fallen silent: the journal need not know more."""
    if worker.suspended or worker.expires_at - d.now <= d.rules.worker_term_ms // 2:
        expires_at = d.now + d.rules.worker_term_ms
        d.record(
            e.WorkerRenewed(pool=d.state.pool, at=d.now, actor=f"worker:{name}", worker=name, expires_at=expires_at)
        )


def decide_leave_pool(d: Decision[Pool], command: c.LeavePool) -> None:
    """Give it nothing more."""
    if command.worker in d.state.workers:
        d.record(
            e.WorkerLeft(pool=command.pool, at=d.now, actor=command.actor, worker=command.worker, reason=command.reason)
        )


def decide_expire_worker(d: Decision[Pool], command: c.ExpireWorker) -> None:
    """It has not renewed in time."""
    worker = d.state.workers.get(command.worker)
    if worker is not None and worker.expires_at <= d.now:
        reason = f"not heard from for {d.rules.worker_term_ms // 1000} s"
        d.record(e.WorkerLeft(pool=command.pool, at=d.now, worker=command.worker, reason=reason))


def decide_enqueue_task(d: Decision[Pool], command: c.EnqueueTask) -> None:
    """The attempt joins the queue; one that is there already stays where it is. One that holds slots is offered them
    again: a DAG asks twice only if its journal lost the first answer."""
    key = attempt_key(command)
    if lease := d.state.leases.get(key):
        if lease.worker in d.state.workers:
            _offer(d, key, lease.worker)
        return
    if key in d.state.waiting:
        return
    d.record(
        e.TaskEnqueued(
            pool=command.pool,
            at=d.now,
            dag=command.dag,
            run_id=command.run_id,
            task=command.task,
            attempt=command.attempt,
            pool_slots=command.pool_slots,
            priority=command.priority,
            logical_date=command.logical_date,
            max_pool_share=command.max_pool_share,
        )
    )


def decide_release_slot(d: Decision[Pool], command: c.ReleaseSlot) -> None:
    """The attempt leaves, from the queue or from its slots; one that is not here has left before."""
    key = attempt_key(command)
    lease = d.state.leases.get(key)
    if lease is None and key not in d.state.waiting:
        return
    d.record(
        e.SlotReleased(
            pool=command.pool,
            at=d.now,
            dag=command.dag,
            run_id=command.run_id,
            task=command.task,
            attempt=command.attempt,
            reason=command.reason,
        )
    )
    if lease is not None and command.worker_silent:
        worker = d.state.workers.get(lease.worker)
        if worker is not None and not worker.suspended:
            d.record(e.WorkerSuspended(pool=command.pool, at=d.now, worker=lease.worker, reason=command.reason))


def decide_allocate_slots(d: Decision[Pool], command: c.AllocateSlots) -> None:
    """Give what is free to who is next, until the next one does not fit."""
    passed: HeadPlace | None = None
    while d.state.heads:
        head = d.state.heads.first() if passed is None else d.state.heads.after(passed)
        if head is None:
            return
        item = d.state.waiting[d.state.queues[head[4]].first()[3]]
        if d.state.slots and item.pool_slots > d.state.slots:
            _refuse(d, item, d.state.slots)
            continue
        worker = _place(d.state, item)
        if worker is not None:
            _grant(d, item, worker)
        elif d.state.free and item.pool_slots > d.state.widest:
            passed = head  # no worker here is that wide: it must not hold up the others
        else:
            return


def _place(state: Pool, item: Waiting) -> str | None:
    """The emptiest worker, if the attempt fits there and into the pool."""
    if state.slots is not None and state.used + item.pool_slots > state.slots:
        return None
    if not state.free:
        return None
    used_up, worker = state.free.first()
    return worker if -used_up >= item.pool_slots else None


def _grant(d: Decision[Pool], item: Waiting, worker: str) -> None:
    dag, run_id, task, attempt = item.key
    d.record(
        e.SlotGranted(pool=d.state.pool, at=d.now, dag=dag, run_id=run_id, task=task, attempt=attempt, worker=worker)
    )
    _offer(d, item.key, worker)


def _offer(d: Decision[Pool], key: AttemptKey, worker: str) -> None:
    dag, run_id, task, attempt = key
    d.ask(
        c.GrantSlot(
            dag=dag,
            run_id=run_id,
            task=task,
            attempt=attempt,
            pool=d.state.pool,
            worker=worker,
            mail_partition=d.state.workers[worker].mail_partition,
        )
    )


def _refuse(d: Decision[Pool], item: Waiting, slots: int) -> None:
    dag, run_id, task, attempt = item.key
    reason = f"it takes {item.pool_slots} slots, and pool '{d.state.pool}' has {slots}"
    d.record(
        e.SlotRefused(pool=d.state.pool, at=d.now, dag=dag, run_id=run_id, task=task, attempt=attempt, reason=reason)
    )
    d.ask(c.RefuseSlot(dag=dag, run_id=run_id, task=task, attempt=attempt, pool=d.state.pool, reason=reason))
