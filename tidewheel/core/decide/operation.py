"""What people decide about the tasks of a run: how one of them ended.

Nothing is taken from a worker by that: a live attempt is told to end, and only when it has (its worker says so, or its
lease is over) does the decision take effect. What the attempt reports in between counts for nothing.
"""

from __future__ import annotations

from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.child import child_of
from tidewheel.core.decide.cancel import cancel_instances, recall
from tidewheel.core.decide.decision import Decision, last_attempt
from tidewheel.core.decide.flow import advance
from tidewheel.core.decide.mapping import end_as_decided
from tidewheel.core.decide.queue import queue_held, release
from tidewheel.core.decide.run import absent
from tidewheel.core.decide.task import output_fault
from tidewheel.core.mail import StopAttempt
from tidewheel.core.mapping import written_task
from tidewheel.core.nearest import did_you_mean
from tidewheel.core.state import Dag, RunState, TaskState
from tidewheel.core.transitions import TASK_ENDED
from tidewheel.core.workflow import Switch, Task


def decide_mark_task(d: Decision[Dag], command: c.MarkTask) -> None:
    """The task has ended as the person says; what is downstream and still waits goes on by that."""
    run = d.state.runs.get(command.run_id)
    if run is None:
        absent(d, command)
        return
    if run.cancel_requested:
        d.refuse("conflict", f"run {run.run_id} is being cancelled; nothing of it can be marked")
        return
    if _unknown_task(d, run, command.task) or _unmarkable(d, run, command):
        return
    task = run.task(command.task)
    d.accept(run_id=run.run_id, created=True)
    if command.state == (task.then or task.phase) and (command.output is None or command.output == task.output):
        d.accept(f"{command.task} is marked so already", run_id=run.run_id, created=False)
        return
    ending = task.live or (task.phase == "deferred" and task.fan is not None)
    d.record(
        e.TaskMarked(
            **last_attempt(d, run.run_id, command.task),
            at=d.now,
            actor=command.actor,
            state=command.state,
            reason=command.reason,
            output=command.output,
            ending=ending,
        )
    )
    if ending:
        d.accept(f"{command.task} is {command.state} once what is live of it has ended", run_id=run.run_id)
        _end_live(d, run.run_id, command.task, task, actor=command.actor, reason=command.reason)
    if (child := child_of(task.wait)) is not None:
        recall(d, child, f"the task that waits for it was marked {command.state}")
    if d.state.runs[run.run_id].task(command.task).phase in TASK_ENDED:
        advance(d, run.run_id, command.task)
    queue_held(d)
    if task.phase == "queued":
        pool = d.state.definitions[run.version].task(command.task).pool
        release(d, pool, run.run_id, command.task, task.attempt, "marked")


def _unknown_task(d: Decision[Dag], run: RunState, name: str) -> bool:
    tasks = d.state.definitions[run.version].tasks
    if name in tasks or name in run.tasks:
        return False
    hint = did_you_mean(name, tasks)
    d.refuse("not_found", f"run {run.run_id} has no task '{name}'{hint}")
    return True


def _written(d: Decision[Dag], run: RunState, name: str) -> Task:
    return d.state.definitions[run.version].task(name)


def _unmarkable(d: Decision[Dag], run: RunState, command: c.MarkTask) -> bool:
    fault = output_fault(command.output)
    if command.output is not None and command.state != "success":
        d.refuse("invalid", "only a task that is marked success has an output")
    elif command.output is not None and isinstance(_written(d, run, command.task).action, Switch):
        d.refuse("invalid", "the output of a switch is its decision; one that is marked has decided nothing")
    elif fault is not None:
        d.refuse("invalid", fault)
    elif (mapped := written_task(command.task)) != command.task and run.task(mapped).phase != "deferred":
        d.refuse("conflict", f"{mapped} has ended as {run.task(mapped).phase}; mark {mapped} itself, not an instance")
    else:
        return False
    return True


def _end_live(d: Decision[Dag], run_id: str, name: str, task: TaskState, *, actor: str, reason: str) -> None:
    """Tell the worker of a live attempt to end it; of a mapped task, end every instance."""
    if task.live:
        attempt = last_attempt(d, run_id, name)
        d.post(StopAttempt(receiver=task.worker, partition=task.mail_partition, **attempt, cancel=True, reason=reason))
        return
    cancel_instances(d, run_id, name, actor=actor, reason=reason)
    end_as_decided(d, run_id, name)
