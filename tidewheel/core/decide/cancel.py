"""Ending a task before its time: what waits ends at once, and the worker is told of what is live."""

from __future__ import annotations

from tidewheel.core import events as e
from tidewheel.core.child import Child, to_recall
from tidewheel.core.commands import RecallRun
from tidewheel.core.decide.decision import Decision, last_attempt
from tidewheel.core.decide.queue import release
from tidewheel.core.mail import StopAttempt
from tidewheel.core.mapping import instance_name, written_task
from tidewheel.core.state import Dag, Stop
from tidewheel.core.transitions import TASK_ENDED

#: What of the reason is repeated for each task, in characters: a run may have ten thousand of them.
_REASON_MAX = 200


def cancel_task(d: Decision[Dag], run_id: str, name: str) -> None:
    """Cancel a task of a run that is to end, a mapped one with its instances, as many as one decision ends."""
    run = d.state.runs[run_id]
    assert run.stop is not None, f"nobody cancelled run {run_id}"
    if run.task(name).fan is None:
        _cancel_one(d, run_id, name, run.stop, "the run was cancelled")
    elif run.task(name).phase not in TASK_ENDED:
        cancel_instances(d, run_id, name)
        end_cancelled(d, run_id, name, actor=run.stop.actor, reason=run.stop.reason)


def cancel_instances(d: Decision[Dag], run_id: str, name: str) -> None:
    """Cancel the instances of a mapped task that is to end, as many as one decision ends."""
    run = d.state.runs[run_id]
    task = run.task(name)
    stop = run.stop or task.stop
    assert task.fan is not None and stop is not None, f"{name} has no instances, or they are not to end"
    untold = task.untold
    why = f"{name} was told to end" if run.stop is None else "the run was cancelled"
    for index in range(task.fan.items):
        if not untold or not d.may_go_on(run_id):
            return
        untold -= _cancel_one(d, run_id, instance_name(name, index), stop, why)


def end_cancelled(d: Decision[Dag], run_id: str, name: str, *, actor: str, reason: str) -> None:
    """End a mapped task of a cancelled run once nothing of it is live."""
    task = d.state.runs[run_id].task(name)
    if task.fan is not None and task.fan.all_ended:
        attempt = last_attempt(d, run_id, name)
        why = reason[:_REASON_MAX] or "the run was cancelled"
        d.record(e.TaskCancelled(**attempt, at=d.now, actor=actor, reason=why))


def cancelled_as_decided(d: Decision[Dag], run_id: str, name: str, *, actor: str, worker: str, reason: str) -> None:
    """Nothing of a task that was told to end is live any more: it is cancelled, or what a person decided meanwhile.

    The cancel of the whole run counts for more, and of an instance the end of its mapped task.
    """
    run = d.state.runs[run_id]
    mapped = written_task(name)
    overruled = run.cancel_requested or (mapped != name and run.task(mapped).then)
    then = "" if overruled else run.task(name).then
    d.record(
        e.TaskCancelled(**last_attempt(d, run_id, name), at=d.now, actor=actor, worker=worker, reason=reason, then=then)
    )


def recall(d: Decision[Dag], child: Child, reason: str) -> None:
    """Nobody wants a run any more that was asked for."""
    d.ask(RecallRun(actor=f"dag:{d.state.dag}", dag=child.dag, run_id=child.run_id, reason=reason))


def _cancel_one(d: Decision[Dag], run_id: str, name: str, stop: Stop, why: str) -> bool:
    """Cancel the task, or tell its worker; false if it has ended, or was told before. ``why``: where ``stop`` says
    nothing."""
    run = d.state.runs[run_id]
    task = run.task(name)
    if task.phase in TASK_ENDED or task.cancel_requested:
        return False
    d.left -= 1
    actor, reason = stop.actor, stop.reason[:_REASON_MAX]
    attempt = last_attempt(d, run_id, name)
    child = to_recall(task.wait)
    if child is not None:
        d.record(e.TaskCancelRequested(**attempt, at=d.now, actor=actor, worker="", reason=reason))
        recall(d, child, f"the task that waits for it was cancelled{f': {reason}' if reason else ''}")
        return True
    if not task.live:
        d.record(e.TaskCancelled(**attempt, at=d.now, actor=actor, worker=task.worker, reason=reason or why))
        if task.phase == "queued":
            pool = d.state.definitions[run.version].task(name).pool
            release(d, pool, run_id, name, task.attempt, "cancelled")
        return True
    d.record(e.TaskCancelRequested(**attempt, at=d.now, actor=actor, worker=task.worker, reason=reason))
    d.post(StopAttempt(receiver=task.worker, partition=task.mail_partition, **attempt, cancel=True, reason=reason))
    return True
