"""Folding a task's events: waiting, each attempt's lease and end, and what an end tells the tasks downstream."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from immutables import Map
from msgspec.structs import replace

from tidewheel.core import events as e
from tidewheel.core.mapping import Fan, index_of, instance_name, written_task
from tidewheel.core.state import Dag, ReadyPlace, RunState, Stop, TaskState
from tidewheel.core.transitions import ACTIVE, TASK_ENDED, next_task_phase
from tidewheel.core.waits import Wait, wait_of


def ready_place(run: RunState, task: str, order: int) -> ReadyPlace:
    """Where a task that waits for ``max_tasks`` stands."""
    when = run.created_at if run.logical_date is None else run.logical_date
    return (bool(run.backfill_id), when, order, run.run_id, task)


def fold_task_ready(state: Dag, event: e.TaskReady) -> Dag:
    """It waits in the DAG."""
    run = state.runs[event.run_id]
    task = run.task(event.task)
    held = replace(
        task, phase=next_task_phase(task.phase, event), ready_order=state.held, retry_at=None, ready_at=event.at
    )
    waiting = replace(state, held=state.held + 1, ready=state.ready.add(ready_place(run, event.task, state.held)))
    return _with_task(waiting, run, event, task, held)


def fold_task_expanded(state: Dag, event: e.TaskExpanded) -> Dag:
    """Its instances are known; it waits for them."""
    run = state.runs[event.run_id]
    task = run.task(event.task)
    items = [msgspec.json.encode(item).decode() for item in msgspec.json.decode(event.values)]
    fan = task.fan or Fan(event.items)
    with run.tasks.mutate() as changes:
        for index, item in enumerate(items, event.first):
            name = instance_name(event.task, index)
            changes[name] = TaskState(item=item, attempt=run.attempts.get(name, run.attempts_from))
        tasks = changes.finish()
    grown = replace(run, tasks=tasks, open_tasks=run.open_tasks + len(items))
    deferred = replace(task, phase=next_task_phase(task.phase, event), fan=fan, started_at=task.started_at or event.at)
    return _with_task(state, grown, event, task, deferred)


def fold_task_deferred(state: Dag, event: e.TaskDeferred) -> Dag:
    """A new attempt waits, without a worker."""
    run = state.runs[event.run_id]
    task = run.task(event.task)
    deferred = _next_attempt(task, event, ready_at=event.at, started_at=event.at, wait=wait_of(event))
    return _with_task(state, run, event, task, deferred)


def _next_attempt(
    task: TaskState,
    event: e.TaskDeferred | e.TaskQueued,
    *,
    ready_at: int,
    started_at: int | None = None,
    wait: Wait | None = None,
    checkpoint: str | None = None,
) -> TaskState:
    """The task as its next attempt begins, with what stays of it."""
    assert event.attempt == task.attempt + 1, f"{event.task}: attempt {event.attempt} begins after {task.attempt}"
    return TaskState(
        phase=next_task_phase(task.phase, event),
        attempt=event.attempt,
        failures=task.failures,
        losses=task.losses,
        upstreams=task.upstreams,
        item=task.item,
        ready_at=ready_at,
        started_at=started_at,
        first_leased_at=task.first_leased_at,
        wait=wait,
        checkpoint=checkpoint,
    )


def fold_launch_postponed(state: Dag, event: e.LaunchPostponed) -> Dag:
    """It asks for its run again later, or needs to no more."""
    run = state.runs[event.run_id]
    task = run.task(event.task)
    assert task.wait is not None, f"{event.task} waits for nothing"
    wait = replace(task.wait, ask_at=event.ask_at, postponed=task.wait.postponed + 1)
    return _with_task(state, run, event, task, replace(task, phase=next_task_phase(task.phase, event), wait=wait))


def fold_task_queued(state: Dag, event: e.TaskQueued) -> Dag:
    """A new attempt begins its life."""
    run = state.runs[event.run_id]
    task = run.task(event.task)
    ready_at = event.at if task.ready_order is None else task.ready_at
    queued = _next_attempt(task, event, ready_at=ready_at, checkpoint=task.checkpoint)
    return _with_task(_left_ready(state, run, event.task, task), run, event, task, queued)


def fold_task_leased(state: Dag, event: e.TaskLeased) -> Dag:
    """A worker may run it."""
    run = state.runs[event.run_id]
    task = run.task(event.task)
    leased = replace(
        task,
        phase=next_task_phase(task.phase, event),
        worker=event.worker,
        mail_partition=event.mail_partition,
        expires_at=event.expires_at,
        leased_at=event.at,
        first_leased_at=event.at if task.first_leased_at is None else task.first_leased_at,
    )
    return _with_task(state, run, event, task, leased)


def fold_task_started(state: Dag, event: e.TaskStarted) -> Dag:
    """The worker has begun."""
    run = state.runs[event.run_id]
    task = run.task(event.task)
    running = replace(
        task, phase=next_task_phase(task.phase, event), started_at=event.started_at, expires_at=event.expires_at
    )
    return _with_task(state, run, event, task, running)


def fold_task_heartbeat(state: Dag, event: e.TaskHeartbeat) -> Dag:
    """The lease goes on."""
    run = state.runs[event.run_id]
    task = run.task(event.task)
    renewed = replace(task, phase=next_task_phase(task.phase, event), expires_at=event.expires_at)
    return _with_task(state, run, event, task, renewed)


def fold_task_checkpointed(state: Dag, event: e.TaskCheckpointed) -> Dag:
    """The next attempt will be given it."""
    run = state.runs[event.run_id]
    task = run.task(event.task)
    kept = replace(task, phase=next_task_phase(task.phase, event), checkpoint=event.checkpoint)
    return _with_task(state, run, event, task, kept)


def fold_task_cancel_requested(state: Dag, event: e.TaskCancelRequested) -> Dag:
    """The worker has been told; or the instances of a mapped task are to be."""
    run = state.runs[event.run_id]
    task = run.task(event.task)
    phase = next_task_phase(task.phase, event)
    if task.fan is None:
        told = replace(task, phase=phase, cancel_requested=True)
    else:
        told = replace(task, phase=phase, stop=Stop(event.actor, event.reason))
    return _with_task(state, run, event, task, told)


def fold_task_failed(state: Dag, event: e.TaskFailed) -> Dag:
    """One failure more, of its own or of the machinery."""
    from_worker_loss = event.kind == "worker_lost"
    return _attempt_failed(state, event, lost=from_worker_loss, retry_at=event.retry_at)


def fold_lease_expired(state: Dag, event: e.LeaseExpired) -> Dag:
    """One loss more."""
    return _attempt_failed(state, event, lost=True, retry_at=event.retry_at)


def _attempt_failed(state: Dag, event: e.TaskFailed | e.LeaseExpired, *, lost: bool, retry_at: int | None) -> Dag:
    run = state.runs[event.run_id]
    task = run.task(event.task)
    ended = replace(
        task,
        phase=next_task_phase(task.phase, event),
        failures=task.failures + (not lost),
        losses=task.losses + lost,
        retry_at=retry_at,
        ready_order=None,
        expires_at=0,
        wait=None,
    )
    return _with_task(_left_ready(state, run, event.task, task), run, event, task, ended)


def fold_task_succeeded(state: Dag, event: e.TaskSucceeded) -> Dag:
    """Its output is there for the tasks downstream."""
    run = state.runs[event.run_id]
    task = run.task(event.task)
    done = replace(task, phase=next_task_phase(task.phase, event), output=event.output, expires_at=0, wait=None)
    return _with_task(state, run, event, task, done)


def fold_task_ended_unrun(state: Dag, event: e.TaskSkipped | e.TaskUpstreamFailed | e.TaskCancelled) -> Dag:
    """It does not run (any more)."""
    run = state.runs[event.run_id]
    task = run.task(event.task)
    ended = replace(
        task, phase=next_task_phase(task.phase, event), ready_order=None, retry_at=None, expires_at=0, wait=None
    )
    return _with_task(_left_ready(state, run, event.task, task), run, event, task, ended)


def fold_report_refused(state: Dag, event: e.ReportRefused) -> Dag:
    """Nothing changes."""
    return replace(state, seq=state.seq + 1)


def _left_ready(state: Dag, run: RunState, name: str, task: TaskState) -> Dag:
    if task.ready_order is None:
        return state
    return replace(state, ready=state.ready.remove(ready_place(run, name, task.ready_order)))


def _with_task(state: Dag, run: RunState, event: e.TaskEvent, before: TaskState, after: TaskState) -> Dag:
    """Put the task's new state in place, and with its end the counts that others look at. No attempt follows an end,
    so nothing is kept for one."""
    if after.checkpoint is not None and after.phase in TASK_ENDED:
        after = replace(after, checkpoint=None)
    tasks = run.tasks.set(event.task, after)
    open_tasks = run.open_tasks
    if after.item is not None:
        tasks = _with_instance(run, tasks, event.task, before, after)
    if after.phase in TASK_ENDED:
        open_tasks -= 1
        children = state.definitions[run.version].children.get(event.task)
        if children:
            with tasks.mutate() as changes:
                for child in children:
                    downstream = run.task(child)
                    changes[child] = replace(downstream, upstreams=downstream.upstreams.plus(after.phase))
                tasks = changes.finish()
    return replace(
        state,
        seq=state.seq + 1,
        runs=state.runs.set(run.run_id, replace(run, tasks=tasks, open_tasks=open_tasks)),
        active_tasks=state.active_tasks + (after.phase in ACTIVE) - (before.phase in ACTIVE),
    )


def _with_instance(
    run: RunState, tasks: Map[str, TaskState], name: str, before: TaskState, after: TaskState
) -> Map[str, TaskState]:
    """Count an instance that begins or ends at its mapped task."""
    mapped = written_task(name)
    task = run.tasks[mapped]
    index = index_of(name)
    assert index is not None and task.fan is not None, f"{name} is an instance, but {mapped} was never expanded"
    whole = with_moved(task, ((index, before, after),))
    return tasks if whole is task else tasks.set(mapped, whole)


def with_moved(mapped: TaskState, moves: Iterable[tuple[int, TaskState, TaskState]]) -> TaskState:
    """A mapped task when instances of it, by their indexes, go from one state to another."""
    assert mapped.fan is not None, "only a mapped task has instances"
    fan, told = mapped.fan, mapped.told
    waiting = []
    for index, before, after in moves:
        told += _is_told(after) - _is_told(before)
        if before.awaits_turn and not after.awaits_turn:
            fan = fan.with_begun(index)
        elif after.awaits_turn and not before.awaits_turn:
            waiting.append(index)
        if before.phase in TASK_ENDED or after.phase in TASK_ENDED:
            ended = fan.ended.minus(before.phase) if before.phase in TASK_ENDED else fan.ended
            fan = replace(fan, ended=ended.plus(after.phase) if after.phase in TASK_ENDED else ended)
    if waiting:
        fan = fan.with_waiting(waiting)
    return mapped if fan is mapped.fan and told == mapped.told else replace(mapped, fan=fan, told=told)


def _is_told(task: TaskState) -> bool:
    """Whether the task was told to end, and has not."""
    return task.cancel_requested and task.phase not in TASK_ENDED
