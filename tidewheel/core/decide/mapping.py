"""Mapped tasks: naming their instances, beginning them in steps, and ending the task with the last of them.

A large fan-out is begun in steps (``core.steps``), so that ten thousand instances hold nobody else up.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.decide.begin import begin_task
from tidewheel.core.decide.cancel import cancel_instances, cancelled_as_decided, end_cancelled
from tidewheel.core.decide.decision import Decision, failed_here, last_attempt
from tidewheel.core.expressions import ExpressionError
from tidewheel.core.mapping import instance_name, written_task
from tidewheel.core.rules import ITEM_BYTES_MAX, ITEMS_BYTES_MAX
from tidewheel.core.scope import scope_of
from tidewheel.core.state import Dag
from tidewheel.core.workflow import Task

#: An event names items up to this size, in bytes of JSON text; a larger item stands alone.
_VALUES_BYTES = 32_768


def expand(d: Decision[Dag], run_id: str, name: str) -> bool:
    """Name the instances of a mapped task and begin the first of them; true if the task ended by that."""
    run = d.state.runs[run_id]
    task = d.state.definitions[run.version].tasks[name]
    try:
        items = _items(d, run_id, task)
    except ExpressionError as error:
        _fail(d, run_id, name, "expression", f"for_each: {error}")
        return True
    place = last_attempt(d, run_id, name)
    first = 0
    for values in _in_parts(items):
        text = f"[{','.join(values)}]"
        d.record(e.TaskExpanded(**place, at=d.now, items=len(items), first=first, values=text))
        first += len(values)
    if not items:
        _succeed(d, run_id, name)
        return True
    begin_instances(d, run_id, name)
    return False


def begin_instances(d: Decision[Dag], run_id: str, name: str) -> None:
    """Begin the next instances, as many as may run beside each other and as one decision begins; none before the run
    has started, which one that goes on anew waits for."""
    room = _room(d, run_id, name)
    count = min(room, d.left)
    _begin(d, run_id, name, count)
    d.left -= count
    if count < room:
        d.leave(run_id)


def _begin_next(d: Decision[Dag], run_id: str, name: str) -> None:
    """One has ended: another one may begin."""
    if _room(d, run_id, name):
        _begin(d, run_id, name, 1)


def _room(d: Decision[Dag], run_id: str, name: str) -> int:
    """How many more instances may begin."""
    run = d.state.runs[run_id]
    fan = run.task(name).fan
    if fan is None or run.phase == "queued" or run.stops(name):
        return 0
    return fan.room(d.state.definitions[run.version].tasks[name].max_parallel)


def _begin(d: Decision[Dag], run_id: str, name: str, count: int) -> None:
    fan = d.state.runs[run_id].task(name).fan
    for index in fan.next(count) if fan is not None else ():
        begin_task(d, run_id, instance_name(name, index))


def end_of_instances(d: Decision[Dag], run_id: str, instance: str) -> str:
    """An instance has just ended: end its mapped task with the last one and give its name, else let the next begin.

    One that a person marked as skipped does not make its task fail.
    """
    name = written_task(instance)
    run = d.state.runs[run_id]
    task = d.state.definitions[run.version].tasks[name]
    phase, fan = run.task(instance).phase, run.task(name).fan
    assert fan is not None, f"{instance} is an instance, but {name} was never expanded"
    if phase == "failed" and task.fail_fast and fan.ended.failed == 1 and not fan.all_ended and not run.stops(name):
        why = f"fail_fast: {instance} has failed"
        d.record(e.TaskCancelRequested(**last_attempt(d, run_id, name), at=d.now, worker="", reason=why))
        cancel_instances(d, run_id, name)
        fan = d.state.runs[run_id].task(name).fan
        assert fan is not None
    if not fan.all_ended:
        if task.max_parallel is not None or phase == "scheduled":
            _begin_next(d, run_id, name)
        return ""
    end_mapped(d, run_id, name)
    return name


def end_mapped(d: Decision[Dag], run_id: str, name: str) -> None:
    """End a mapped task of which every instance has ended: like its run, as a person decided, or by its instances."""
    run = d.state.runs[run_id]
    fan = run.task(name).fan
    assert fan is not None and fan.all_ended, f"instances of {name} have not ended"
    if run.cancel_requested:
        end_cancelled(d, run_id, name, actor="scheduler", reason="every instance has ended after the cancel")
    elif run.task(name).then:
        reason = "every instance has ended, as it was told"
        cancelled_as_decided(d, run_id, name, actor="scheduler", worker="", reason=reason)
    elif fan.ended.success + fan.ended.skipped == fan.items:
        _succeed(d, run_id, name)
    else:
        _fail(d, run_id, name, "instances", _failures(d, run_id, name))


def _items(d: Decision[Dag], run_id: str, task: Task) -> list[str]:
    """The items, each as JSON. Raises ``ExpressionError``."""
    run = d.state.runs[run_id]
    found: Any = d.rules.evaluator.render(task.for_each, scope_of(d.state, run, task.id))
    if not isinstance(found, list | tuple):
        raise ExpressionError(f"{str(task.for_each)[:200]} gives no list")
    if len(found) > task.max_items:
        raise ExpressionError(f"there are {len(found):,} items, and max_items is {task.max_items:,}")
    items = [msgspec.json.encode(item).decode() for item in found]
    for index, item in enumerate(items):
        if len(item) > ITEM_BYTES_MAX:
            raise ExpressionError(f"item {index} has {len(item):,} bytes; the limit is {ITEM_BYTES_MAX:,}")
    if sum(map(len, items)) > ITEMS_BYTES_MAX:
        raise ExpressionError(f"the items have more than {ITEMS_BYTES_MAX:,} bytes; store them and map over their keys")
    return items


def _in_parts(items: list[str]) -> Iterator[list[str]]:
    """The items in lists of a size that an event carries; no items are one empty list."""
    part: list[str] = []
    size = 0
    for item in items:
        if part and size + len(item) > _VALUES_BYTES:
            yield part
            part, size = [], 0
        part.append(item)
        size += len(item)
    yield part


def _failures(d: Decision[Dag], run_id: str, name: str) -> str:
    """Which instances failed. If none did, those were cancelled for one that a person has marked since."""
    run = d.state.runs[run_id]
    fan = run.task(name).fan
    assert fan is not None
    names = [instance_name(name, index) for index in range(fan.items)]
    failed = [instance for instance in names if run.task(instance).phase == "failed"]
    found = failed or [instance for instance in names if run.task(instance).phase == "cancelled"]
    verb = "failed" if failed else "were cancelled"
    more = f" and {len(found) - 3:,} more" if len(found) > 3 else ""
    return f"{len(found):,} of {fan.items:,} instances {verb}: {', '.join(found[:3])}{more}"


def _succeed(d: Decision[Dag], run_id: str, name: str) -> None:
    began = d.state.runs[run_id].task(name).started_at
    started_at = d.now if began is None else began
    d.record(
        e.TaskSucceeded(**last_attempt(d, run_id, name), at=d.now, worker="", started_at=started_at, ended_at=d.now)
    )


def _fail(d: Decision[Dag], run_id: str, name: str, kind: c.FailureKind, message: str) -> None:
    began = d.state.runs[run_id].task(name).started_at
    d.record(failed_here(d, run_id, name, kind, message, started_at=began))
