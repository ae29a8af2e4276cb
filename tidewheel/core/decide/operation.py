"""What people decide about one task of a run: how it ended.

Nothing is taken from a worker by that: a live attempt is told to end, and only when it has (its worker says so, or its
lease is over) does the decision take effect. What the attempt reports in between counts for nothing.
"""

from __future__ import annotations

from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.clearing import cleared_tasks
from tidewheel.core.decide.clear import clear, end_live, needs_end
from tidewheel.core.decide.decision import Decision, last_attempt
from tidewheel.core.decide.flow import advance, start_runs
from tidewheel.core.decide.queue import queue_held, release
from tidewheel.core.decide.reopen import Target, changeable, reopen, unknown_task
from tidewheel.core.decide.task import output_fault
from tidewheel.core.mapping import written_task
from tidewheel.core.state import Dag, RunState
from tidewheel.core.workflow import Switch


def decide_mark_task(d: Decision[Dag], command: c.MarkTask) -> None:
    """The task has ended as the person says; what is downstream and still waits goes on by that. A run that had ended
    is live again, and ends again by its rules."""
    target = changeable(d, command)
    if target is None or unknown_task(d, target, command.task) or _unmarkable(d, target, command):
        return
    run = target.run
    task = run.task(command.task)
    below = _below(target, command.task) if command.downstream else []
    same = _is_so(target, command)
    if same and not below:
        d.accept(f"{command.task} is marked so already", run_id=run.run_id, created=False)
        return
    # The run may end by this, and its version be forgotten with it.
    pool = target.definition.task(command.task).pool
    d.accept(run_id=run.run_id)
    reopen(d, target, command)
    if not same:
        _record_mark(d, run, command)
    if below:
        clear(d, run.run_id, below, actor=command.actor, reason=command.reason)
    if not same:
        _go_on(d, run, command)
    queue_held(d)
    if task.phase == "queued":
        release(d, pool, run.run_id, command.task, task.attempt, "marked")
    start_runs(d)


def _is_so(target: Target, command: c.MarkTask) -> bool:
    """Whether the task is so already. A switch is not as long as it stands by its decision."""
    task = target.run.task(command.task)
    output = command.output in (None, task.output)
    if isinstance(target.definition.task(command.task).action, Switch):
        output = task.output is None
    return command.state == (task.then or task.phase) and output


def _record_mark(d: Decision[Dag], run: RunState, command: c.MarkTask) -> None:
    ending = needs_end(run, command.task)
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


def _go_on(d: Decision[Dag], run: RunState, command: c.MarkTask) -> None:
    """End what is live of the marked task; else go on with what is downstream, if the run has not ended already."""
    if needs_end(run, command.task):
        end_live(d, run.run_id, command.task, actor=command.actor, reason=command.reason)
    elif run.run_id in d.state.runs:
        advance(d, run.run_id, command.task)


def _below(target: Target, name: str) -> list[str]:
    """What is downstream of the task and can be cleared, without itself."""
    found = cleared_tasks(target.definition, target.run, [name], downstream=True, upstream=False, only_failed=False)
    return [one for one in found if written_task(one) != written_task(name)]


def _unmarkable(d: Decision[Dag], target: Target, command: c.MarkTask) -> bool:
    run, fault = target.run, output_fault(command.output)
    if command.output is not None and command.state != "success":
        d.refuse("invalid", "only a task that is marked success has an output")
    elif command.output is not None and isinstance(target.definition.task(command.task).action, Switch):
        d.refuse("invalid", "the output of a switch is its decision; one that is marked has decided nothing")
    elif fault is not None:
        d.refuse("invalid", fault)
    elif (mapped := written_task(command.task)) != command.task and run.task(mapped).phase != "deferred":
        d.refuse("conflict", f"{mapped} has ended as {run.task(mapped).phase}; mark {mapped} itself, not an instance")
    else:
        return False
    return True
