"""Ended runs that are kept for a while, so that their tasks can be cleared: packed, the newest few of each DAG.

A task that has ended needs little: how, by which attempt, and its output for those downstream. Sorted and packed by
MessagePack it is the same bytes on every machine, which decide what is kept.
"""

from __future__ import annotations

from collections.abc import Collection
from operator import itemgetter

import msgspec
from immutables import Map

from tidewheel.core.graph import Definition, Tally
from tidewheel.core.mapping import Fan, written_task
from tidewheel.core.state import KEPT_BYTES, UNTOUCHED, EndedRun, RunState, TaskState
from tidewheel.core.transitions import RunPhase, TaskPhase
from tidewheel.core.workflow import Switch


class _Task(msgspec.Struct, frozen=True, array_like=True):
    name: str
    phase: TaskPhase
    attempt: int
    output: str | None
    item: str | None
    fan: Fan | None


class _Tasks(msgspec.Struct, frozen=True, array_like=True):
    ended: list[_Task]
    #: The last attempts of tasks that are gone.
    gone: list[tuple[str, int]]


_decoder = msgspec.msgpack.Decoder(_Tasks)
_run_decoder = msgspec.msgpack.Decoder(EndedRun)


def ended_run(run: RunState, phase: RunPhase) -> EndedRun:
    """What is kept of a run that has just ended in ``phase``."""
    return EndedRun(
        run_id=run.run_id,
        version=run.version,
        kind=run.kind,
        phase=phase,
        logical_date=run.logical_date,
        interval_start=run.interval_start,
        interval_end=run.interval_end,
        inputs=run.inputs,
        created_at=run.created_at,
        tasks=_packed(run),
        attempts_from=run.attempts_from,
    )


def keep(kept: tuple[EndedRun, ...], ended: EndedRun, number: int) -> tuple[tuple[EndedRun, ...], list[EndedRun]]:
    """``number`` runs at most, one that has just ended among them, and those that had to go for it, itself perhaps."""
    runs = [*kept, ended]
    size = sum(one.size for one in runs)
    gone = []
    while runs and (len(runs) > number or size > KEPT_BYTES):
        gone.append(runs.pop(0))
        size -= gone[-1].size
    return tuple(runs), gone


def packed(ended: EndedRun) -> bytes:
    """An ended run as one string of bytes, the same on every machine."""
    return msgspec.msgpack.encode(ended)


def unpacked(run: bytes) -> EndedRun:
    """The run back. Raises ``msgspec.DecodeError`` if it is none."""
    return _run_decoder.decode(run)


def _packed(run: RunState) -> bytes:
    ended = [
        _Task(name, task.phase, task.attempt, task.output, task.item, task.fan)
        for name, task in sorted(run.tasks.items(), key=itemgetter(0))
    ]
    return msgspec.msgpack.encode(_Tasks(ended, sorted(run.attempts.items())))


def restored(ended: EndedRun, definition: Definition, *, order: int, inputs: str) -> RunState:
    """The run as it goes on with ``definition``, which may be another than it had: tasks that it does not have are
    gone, those that are new to it wait.

    Its deadlines have passed or did not matter, and do not fire for what was reopened.
    """
    tasks = _decoder.decode(ended.tasks)
    fans = {task.name for task in tasks.ended if task.fan is not None and task.fan.items}
    there = {
        task.name: task
        for task in tasks.ended
        if definition.version == ended.version or stays(definition, written_task(task.name), fans)
    }
    attempts = dict(tasks.gone) | {task.name: task.attempt for task in tasks.ended if task.attempt}
    known = {name: attempts.get(name, ended.attempts_from) for name in definition.tasks}
    states = {name: TaskState(attempt=attempt) for name, attempt in known.items() if attempt}
    states |= {
        task.name: TaskState(phase=task.phase, attempt=task.attempt, output=task.output, item=task.item, fan=task.fan)
        for task in there.values()
    }
    for name, task in definition.tasks.items():
        tally = Tally()
        for need in task.needs:
            if need in there:
                tally = tally.plus(there[need].phase)
        if any(tally):
            states[name] = msgspec.structs.replace(states.get(name, UNTOUCHED), upstreams=tally)
    return RunState(
        run_id=ended.run_id,
        version=definition.version,
        kind=ended.kind,
        order=order,
        logical_date=ended.logical_date,
        interval_start=ended.interval_start,
        interval_end=ended.interval_end,
        inputs=inputs,
        created_at=ended.created_at,
        attempts_from=ended.attempts_from,
        missed=tuple(range(len(definition.workflow.deadlines))),
        open_tasks=sum(name not in there for name in definition.tasks),
        tasks=Map(states),
        attempts=Map({name: attempt for name, attempt in attempts.items() if name not in states}),
    )


def stays(definition: Definition, name: str, fans: Collection[str]) -> bool:
    """Whether a task that ended under another version is what it was: not if it is not there any more, is not mapped
    any more, or decides between branches, which it does anew."""
    task = definition.tasks.get(name)
    return task is not None and not isinstance(task.action, Switch) and (task.for_each is not None or name not in fans)
