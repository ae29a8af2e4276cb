"""Folding what people decide about the tasks of a run: a task may then leave a state that nothing else leaves.

What others look at (open tasks, attempts under way, how upstreams ended) moves with it.
"""

from __future__ import annotations

from collections.abc import Mapping

from immutables import MapMutation
from msgspec.structs import replace

from tidewheel.core import events as e
from tidewheel.core.fold.task import fan_after, fold_task_ended_unrun, ready_place
from tidewheel.core.graph import Tally
from tidewheel.core.mapping import index_of, written_task
from tidewheel.core.state import UNTOUCHED, Dag, RunState, TaskState
from tidewheel.core.transitions import ACTIVE, TASK_ENDED, next_task_phase


def fold_task_marked(state: Dag, event: e.TaskMarked) -> Dag:
    """It has ended as the person says, or will have once nothing of it is live."""
    run = state.runs[event.run_id]
    task = run.task(event.task)
    phase = next_task_phase(task.phase, event)
    if event.ending:
        marked = replace(task, cancel_requested=task.live, then=event.state, output=event.output)
    else:
        marked = replace(_at_rest(task), phase=phase, output=event.output)
    return _with_tasks(state, run, {event.task: marked})


def fold_task_cancelled(state: Dag, event: e.TaskCancelled) -> Dag:
    """It is cancelled; or nothing of it is live any more, and it is what a person had decided."""
    if not event.then:
        return fold_task_ended_unrun(state, event)
    run = state.runs[event.run_id]
    task = run.task(event.task)
    decided = replace(_at_rest(task), phase=next_task_phase(task.phase, event))
    return _with_tasks(state, run, {event.task: decided})


def _at_rest(task: TaskState) -> TaskState:
    return replace(task, ready_order=None, retry_at=None, expires_at=0, cancel_requested=False, wait=None, then="")


def _with_tasks(state: Dag, run: RunState, after: Mapping[str, TaskState]) -> Dag:
    """Put the tasks' new states in place, and count again what they move."""
    open_tasks, active, ready = run.open_tasks, state.active_tasks, state.ready
    with run.tasks.mutate() as tasks:
        for name, task in after.items():
            before = tasks.get(name, UNTOUCHED)
            tasks[name] = task
            open_tasks += (before.phase in TASK_ENDED) - (task.phase in TASK_ENDED)
            active += (task.phase in ACTIVE) - (before.phase in ACTIVE)
            if before.ready_order is not None and task.ready_order is None:
                ready = ready.remove(ready_place(run, name, before.ready_order))
            index = index_of(name)
            if index is not None:
                mapped = tasks[written_task(name)]
                assert mapped.fan is not None, f"{name} is an instance, but its task was never expanded"
                tasks[written_task(name)] = replace(mapped, fan=fan_after(mapped.fan, index, before, task))
        _count_upstreams(state, run, after, tasks)
        changed = tasks.finish()
    return replace(
        state,
        seq=state.seq + 1,
        runs=state.runs.set(run.run_id, replace(run, tasks=changed, open_tasks=open_tasks)),
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
