"""Ending a task before its time: what waits ends at once, and the worker is told of what is live."""

from __future__ import annotations

from tidewheel.core import events as e
from tidewheel.core.child import Child, to_recall
from tidewheel.core.commands import RecallRun
from tidewheel.core.decide.decision import Decision, last_attempt
from tidewheel.core.decide.queue import release
from tidewheel.core.mail import StopAttempt
from tidewheel.core.mapping import instance_name, written_task
from tidewheel.core.state import Dag
from tidewheel.core.transitions import TASK_ENDED


def cancel_task(d: Decision[Dag], run_id: str, name: str, *, actor: str, reason: str) -> None:
    """Cancel a task that has not ended, a mapped one with all its instances."""
    fan = d.state.runs[run_id].task(name).fan
    if fan is None:
        _cancel_one(d, run_id, name, actor=actor, reason=reason)
    elif not fan.all_ended:
        cancel_instances(d, run_id, name, actor=actor, reason=reason)
        end_cancelled(d, run_id, name, actor=actor, reason=reason)


def cancel_instances(d: Decision[Dag], run_id: str, name: str, *, actor: str, reason: str) -> None:
    """Cancel every instance of a mapped task that has not ended."""
    fan = d.state.runs[run_id].task(name).fan
    assert fan is not None, f"{name} has no instances"
    for index in range(fan.items):
        _cancel_one(d, run_id, instance_name(name, index), actor=actor, reason=reason)


def end_cancelled(d: Decision[Dag], run_id: str, name: str, *, actor: str, reason: str) -> None:
    """End a mapped task of a cancelled run once nothing of it is live."""
    task = d.state.runs[run_id].task(name)
    if task.fan is not None and task.fan.all_ended:
        attempt = last_attempt(d, run_id, name)
        d.record(e.TaskCancelled(**attempt, at=d.now, actor=actor, reason=reason or "the run was cancelled"))


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


def _cancel_one(d: Decision[Dag], run_id: str, name: str, *, actor: str, reason: str) -> None:
    run = d.state.runs[run_id]
    task = run.task(name)
    if task.phase in TASK_ENDED or task.cancel_requested:
        return
    attempt = last_attempt(d, run_id, name)
    child = to_recall(task.wait)
    if child is not None:
        d.record(e.TaskCancelRequested(**attempt, at=d.now, actor=actor, worker="", reason=reason))
        recall(d, child, f"the task that waits for it was cancelled{f': {reason}' if reason else ''}")
        return
    if not task.live:
        reason = reason or "the run was cancelled"
        d.record(e.TaskCancelled(**attempt, at=d.now, actor=actor, worker=task.worker, reason=reason))
        if task.phase == "queued":
            pool = d.state.definitions[run.version].task(name).pool
            release(d, pool, run_id, name, task.attempt, "cancelled")
        return
    d.record(e.TaskCancelRequested(**attempt, at=d.now, actor=actor, worker=task.worker, reason=reason))
    d.post(StopAttempt(receiver=task.worker, partition=task.mail_partition, **attempt, cancel=True, reason=reason))
