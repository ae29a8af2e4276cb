"""Folding what people decide about the tasks of a run: a task may then leave a state that nothing else leaves.

What others look at (open tasks, attempts under way, how upstreams ended) moves with it.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from immutables import MapMutation
from msgspec.structs import replace

from tidewheel.core import events as e
from tidewheel.core.fold.task import fold_task_ended_unrun, ready_place, with_moved
from tidewheel.core.graph import Tally
from tidewheel.core.mapping import index_of, instance_name, written_task
from tidewheel.core.state import UNTOUCHED, Dag, RunState, Stop, TaskState
from tidewheel.core.transitions import ACTIVE, MARKED_LATER, TASK_ENDED, IllegalTransition, next_task_phase


def fold_task_marked(state: Dag, event: e.TaskMarked) -> Dag:
    """It has ended as the person says, or will have once nothing of it is live."""
    run = state.runs[event.run_id]
    task = run.task(event.task)
    phase = next_task_phase(task.phase, event)
    if event.ending:
        marked = replace(_ending(task, event), then=event.state, output=event.output)
    else:
        marked = replace(_at_rest(task), phase=phase, output=event.output)
    return _with_tasks(state, run, {event.task: marked})


def fold_task_cancelled(state: Dag, event: e.TaskCancelled) -> Dag:
    """It is cancelled; or nothing of it is live any more, and it is what a person had decided."""
    if not event.then:
        return fold_task_ended_unrun(state, event)
    run = state.runs[event.run_id]
    task = run.task(event.task)
    phase = next_task_phase(task.phase, event)
    decided = _anew(task) if phase == "scheduled" else replace(_at_rest(task), phase=phase)
    return _with_tasks(state, run, {event.task: decided})


def fold_tasks_cleared(state: Dag, event: e.TasksCleared) -> Dag:
    """They wait as they did before they began, or will once nothing of them is live."""
    run = state.runs[event.run_id]
    after: dict[str, TaskState] = {}
    for name in msgspec.json.decode(event.tasks, type=list[str]):
        task, mapped = run.task(name), written_task(name)
        if task.live or (task.fan is not None and task.phase == "deferred"):
            raise IllegalTransition(f"TasksCleared of {event.dag}/{event.run_id}/{name}: something of it is live")
        if mapped != name and mapped not in after and (whole := run.task(mapped)).phase in TASK_ENDED:
            waits = replace(_at_rest(whole), phase="deferred", output=None, started_at=event.at)
            after[mapped] = waits
        after[name] = _anew(task)
    for name in msgspec.json.decode(event.ending, type=list[str]):
        task = run.task(name)
        if task.phase not in MARKED_LATER:
            raise IllegalTransition(f"TasksCleared of {event.dag}/{event.run_id}/{name}: nothing of it is live")
        after[name] = replace(_ending(task, event), then="scheduled")
    return _with_tasks(state, run, after)


def _anew(task: TaskState) -> TaskState:
    """As if it had never begun, but for the number of its last attempt."""
    return TaskState(attempt=task.attempt, item=task.item, upstreams=task.upstreams)


def _ending(task: TaskState, event: e.TaskMarked | e.TasksCleared) -> TaskState:
    """What is live of it is to end: its attempt, or of a mapped task every instance."""
    if task.fan is None:
        return replace(task, cancel_requested=True)
    return replace(task, stop=Stop(event.actor, event.reason))


def _at_rest(task: TaskState) -> TaskState:
    return replace(
        task,
        ready_order=None,
        retry_at=None,
        expires_at=0,
        cancel_requested=False,
        wait=None,
        then="",
        stop=None,
        checkpoint=None,
    )


def _with_tasks(state: Dag, run: RunState, after: Mapping[str, TaskState]) -> Dag:
    """Put the tasks' new states in place, and count again what they move."""
    open_tasks, active, ready, attempts = run.open_tasks, state.active_tasks, state.ready, run.attempts
    moves: dict[str, list[tuple[int, TaskState, TaskState]]] = {}
    with run.tasks.mutate() as tasks:
        for name, task in after.items():
            before = tasks.get(name, UNTOUCHED)
            tasks[name] = task
            open_tasks += (before.phase in TASK_ENDED) - (task.phase in TASK_ENDED)
            active += (task.phase in ACTIVE) - (before.phase in ACTIVE)
            if before.ready_order is not None and task.ready_order is None:
                ready = ready.remove(ready_place(run, name, before.ready_order))
            if before.fan is not None and task.fan is None:
                for instance in (instance_name(name, number) for number in range(before.fan.items)):
                    gone = tasks.pop(instance)
                    attempts = attempts.set(instance, gone.attempt) if gone.attempt else attempts
            index = index_of(name)
            if index is not None:
                moves.setdefault(written_task(name), []).append((index, before, task))
        for mapped, moved in moves.items():
            tasks[mapped] = with_moved(tasks[mapped], moved)
        _count_upstreams(state, run, after, tasks)
        changed = tasks.finish()
    return replace(
        state,
        seq=state.seq + 1,
        runs=state.runs.set(run.run_id, replace(run, tasks=changed, open_tasks=open_tasks, attempts=attempts)),
        active_tasks=active,
        ready=ready,
    )


def _count_upstreams(
    state: Dag, run: RunState, moved: Mapping[str, TaskState], tasks: MapMutation[str, TaskState]
) -> None:
    """How the upstreams of what is downstream of ``moved`` have ended."""
    definition = state.definitions[run.version]
    for name in dict.fromkeys(child for task in moved for child in definition.children.get(task, ())):
        tally = Tally()
        for need in definition.tasks[name].needs:
            phase = tasks.get(need, UNTOUCHED).phase
            if phase in TASK_ENDED:
                tally = tally.plus(phase)
        tasks[name] = replace(tasks.get(name, UNTOUCHED), upstreams=tally)
