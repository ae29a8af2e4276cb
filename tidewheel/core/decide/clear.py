"""Clearing tasks of a run: they begin anew, and what they had come to is history.

What is live is told to end first, as for a mark, so that two attempts of a task are never at work beside each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.child import to_recall
from tidewheel.core.clearing import cleared_tasks
from tidewheel.core.decide.cancel import recall
from tidewheel.core.decide.decision import Decision, last_attempt
from tidewheel.core.decide.flow import consider, end_instances, start_runs
from tidewheel.core.decide.mapping import begin_instances
from tidewheel.core.decide.queue import queue_held, release
from tidewheel.core.decide.reopen import changeable, reopen, unknown_task
from tidewheel.core.mail import StopAttempt
from tidewheel.core.mapping import index_of, written_task
from tidewheel.core.state import Dag, RunState

#: What a person decided about a task, in words.
_DECIDED = {
    "scheduled": "cleared",
    "success": "marked success",
    "failed": "marked failed",
    "skipped": "marked skipped",
}
#: An event names tasks up to this size, in bytes of JSON text.
_NAMES_BYTES = 65_536
#: An answer names tasks up to this size; beyond it, only their number.
_ANSWER_BYTES = 262_144


def decide_clear_tasks(d: Decision[Dag], command: c.ClearTasks) -> None:
    """They begin anew; a run that had ended is live again by that. A preview only says what it would come to."""
    try:
        named = msgspec.json.decode(command.tasks, type=list[str])
    except msgspec.DecodeError as error:
        d.refuse("invalid", f"the tasks to clear are no JSON list of names: {error}")
        return
    target = changeable(d, command, latest=command.latest)
    if target is None or any(unknown_task(d, target, name) for name in named):
        return
    run = target.run
    for name in named:
        if index_of(name) is not None and run.task(written_task(name)).stop is not None:
            d.refuse("conflict", f"{written_task(name)} is being ended; clear it once it has, or clear the whole of it")
            return
    names = cleared_tasks(
        target.definition,
        run,
        named,
        downstream=command.downstream,
        upstream=command.upstream,
        only_failed=command.only_failed,
    )
    ending = [name for name in names if needs_end(run, name)]
    details = _details(d, run, names, ending)
    if command.preview or not names:
        message = "nothing of it has begun or failed: there is nothing to clear" if not names else ""
        d.accept(message, run_id=run.run_id, created=False, details=details)
        return
    reopen(d, target, command)
    clear(d, run.run_id, names, actor=command.actor, reason=command.reason)
    start_runs(d)
    d.accept(run_id=run.run_id, details=details)


def clear(d: Decision[Dag], run_id: str, names: Sequence[str], *, actor: str, reason: str) -> None:
    """Clear these tasks of a live run, and let those begin whose turn it is."""
    run = d.state.runs[run_id]
    definition = d.state.definitions[run.version]  # which may be forgotten with the run's end
    ending = [name for name in names if needs_end(run, name)]
    for part in _in_parts([name for name in names if name not in set(ending)]):
        _record(d, run_id, part, (), actor, reason)
    for part in _in_parts(ending):
        _record(d, run_id, (), part, actor, reason)
    for name in ending:
        end_live(d, run_id, name, actor=actor, reason=reason)
    # Whoever begins may end in the same turn, and with the last of them the run.
    if run_id in d.state.runs:
        consider(d, run_id, [name for name in names if index_of(name) is None])
    if run_id in d.state.runs and d.state.runs[run_id].phase == "running":
        for mapped in dict.fromkeys(written_task(name) for name in names if index_of(name) is not None):
            begin_instances(d, run_id, mapped)
    queue_held(d)
    for name in names:
        if run.task(name).phase == "queued":
            release(d, definition.task(name).pool, run_id, name, run.task(name).attempt, "cleared")


def needs_end(run: RunState, name: str) -> bool:
    """Whether attempts of the task, of its instances, or the run that it waits for, must end before a person's word can
    take effect."""
    task = run.task(name)
    return task.live or (task.phase == "deferred" and (task.fan is not None or to_recall(task.wait) is not None))


def end_live(d: Decision[Dag], run_id: str, name: str, *, actor: str, reason: str) -> None:
    """Tell the worker of a live attempt to end it, call back the run that one waits for; of a mapped task, end every
    instance."""
    if run_id not in d.state.runs:
        return
    task = d.state.runs[run_id].task(name)
    if (child := to_recall(task.wait)) is not None:
        recall(d, child, f"the task that waits for it was {_DECIDED[task.then]}{f': {reason}' if reason else ''}")
        return
    if task.live:
        attempt = last_attempt(d, run_id, name)
        d.post(StopAttempt(receiver=task.worker, partition=task.mail_partition, **attempt, cancel=True, reason=reason))
        return
    end_instances(d, run_id, name)


def _record(
    d: Decision[Dag], run_id: str, tasks: Sequence[str], ending: Sequence[str], actor: str, reason: str
) -> None:
    d.record(
        e.TasksCleared(
            dag=d.state.dag,
            run_id=run_id,
            at=d.now,
            actor=actor,
            tasks=msgspec.json.encode(tasks).decode(),
            ending=msgspec.json.encode(ending).decode(),
            reason=reason,
        )
    )


def _in_parts(names: Iterable[str]) -> Iterator[list[str]]:
    """The names in lists that an event carries; each mapped task's instances in lists of their own."""
    part: list[str] = []
    size = 0
    for name in names:
        apart = part and (index_of(name) is not None or index_of(part[-1]) is not None)
        if size > _NAMES_BYTES or (apart and written_task(name) != written_task(part[-1])):
            yield part
            part, size = [], 0
        part.append(name)
        size += len(name) + 3
    if part:
        yield part


def _details(d: Decision[Dag], run: RunState, names: Sequence[str], ending: Sequence[str]) -> str:
    """What it comes to: the tasks, those whose live attempts are ended for it, the version, whether it is reopened."""
    size = sum(len(name) + 3 for name in names)
    return msgspec.json.encode(
        {
            "count": len(names),
            "tasks": names if size <= _ANSWER_BYTES else None,
            "ending": ending if size <= _ANSWER_BYTES else None,
            "version": run.version,
            "reopens": run.run_id not in d.state.runs,
        }
    ).decode()
