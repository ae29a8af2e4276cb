"""How an attempt joins the queue of its pool, waits before it for ``max_tasks``, and gives its place back."""

from __future__ import annotations

from tidewheel.core import events as e
from tidewheel.core.backfill import PRIORITY_DROP
from tidewheel.core.commands import EnqueueTask, ReleaseSlot
from tidewheel.core.decide.decision import Decision
from tidewheel.core.state import Dag


def queue_task(d: Decision[Dag], run_id: str, name: str) -> None:
    """Send the task's next attempt to its pool, or let it wait in the DAG while ``max_tasks`` is reached.

    Where others wait it takes its place among them: what has just become free is not the nearest's, but the next's.
    """
    run = d.state.runs[run_id]
    limit = d.state.definitions[run.version].workflow.concurrency.max_tasks
    if limit is not None and (d.state.ready or d.state.active_tasks >= limit):
        attempt = run.task(name).attempt + 1
        d.record(e.TaskReady(dag=d.state.dag, run_id=run_id, task=name, attempt=attempt, at=d.now))
        queue_held(d)
    else:
        _enqueue(d, run_id, name)


def _enqueue(d: Decision[Dag], run_id: str, name: str) -> None:
    run = d.state.runs[run_id]
    definition = d.state.definitions[run.version]
    task = definition.task(name)
    attempt = run.task(name).attempt + 1
    d.record(
        e.TaskQueued(
            dag=d.state.dag,
            run_id=run_id,
            task=name,
            attempt=attempt,
            at=d.now,
            pool=task.pool,
            pool_slots=task.pool_slots,
        )
    )
    d.ask(
        EnqueueTask(
            pool=task.pool,
            dag=d.state.dag,
            run_id=run_id,
            task=name,
            attempt=attempt,
            pool_slots=task.pool_slots,
            priority=definition.workflow.priority - (PRIORITY_DROP if run.backfill_id else 0),
            logical_date=run.created_at if run.logical_date is None else run.logical_date,
            max_pool_share=definition.workflow.concurrency.max_pool_share,
        )
    )


def queue_held(d: Decision[Dag]) -> None:
    """Queue tasks that waited for ``max_tasks``, in order, while there is room."""
    while d.state.ready:
        _, _, _, run_id, name = d.state.ready.first()
        run = d.state.runs[run_id]
        limit = d.state.definitions[run.version].workflow.concurrency.max_tasks
        if limit is not None and d.state.active_tasks >= limit:
            return
        if run.stops(name):
            return  # it will be cancelled by one of the run's next steps, each of which comes here again
        _enqueue(d, run_id, name)


def release(
    d: Decision[Dag], pool: str, run_id: str, name: str, attempt: int, reason: str, *, silent: bool = False
) -> None:
    """Give the attempt's place in its pool back."""
    d.ask(
        ReleaseSlot(
            pool=pool,
            dag=d.state.dag,
            run_id=run_id,
            task=name,
            attempt=attempt,
            reason=reason,
            worker_silent=silent,
        )
    )
