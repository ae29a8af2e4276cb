"""Why the tasks of a run that has begun are not at work."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import cast

import msgspec

from tidewheel.core.explain import waits_for_room
from tidewheel_projections.tasks import WAITS_FOR_MAX_TASKS
from tidewheel_projections.views import RunRow
from tidewheel_projections.waiting import OpenTasks, PlaceInPool
from tidewheel_services.why.pools import PoolFacts, why_in_pool
from tidewheel_services.why.reason import Code, Reason, number, of_tasks
from tidewheel_services.why.written import Written, WrittenTask

#: What `tidewheel waiter` looks for.
WATCHED_BY_WAITER = ("http", "kafka")
#: Needs that one reason names.
_NEEDS_MAX = 5
#: Reasons of instances of one task that differ only in their words and are told one by one.
_OWN_MAX = 3


class RunFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A run that has begun, with what its open tasks touch."""

    run: RunRow
    written: Written
    tasks: Sequence[OpenTasks]
    #: Tasks of the DAG that are queued or at work, in all its runs.
    tasks_under_way: int = 0
    pools: Mapping[str, PoolFacts] = {}
    #: Of the first attempt of each kind that is queued: where it stands, by its task.
    places: Mapping[str, PlaceInPool | None] = {}
    #: Whether one is at work.
    waiter: bool = True
    #: What became of the run that a task waits for, by the task.
    awaited: Mapping[str, str] = {}


def why_tasks(facts: RunFacts) -> Iterator[Reason]:
    """A reason for each kind of open task that is not at work, in the order of the definition."""
    at_rest = (
        tasks for tasks in facts.tasks if tasks.state != "running" or tasks.reason or facts.run.cancel_requested_at
    )
    return why_these(facts, at_rest)


def why_these(facts: RunFacts, several: Iterable[OpenTasks]) -> Iterator[Reason]:
    """A reason for each kind of these. Where many instances of one task wait for the same, but each for its own, as for
    approvals, they are one reason, that of the first."""
    alike: dict[tuple[object, ...], list[Reason]] = {}
    for tasks in several:
        reason = why_task(facts, tasks)
        own = () if tasks.instances else tasks.tasks
        alike.setdefault((tasks.ordinal, reason.code, *own), []).append(reason)
    for reasons in alike.values():
        if len(reasons) > _OWN_MAX:
            yield _folded(reasons)
        else:
            yield from reasons


def _folded(reasons: Sequence[Reason]) -> Reason:
    names = [name for reason in reasons for name in reason.tasks]
    message = f"each for its own; {names[0]}: {reasons[0].message}"
    untils = [reason.until for reason in reasons if reason.until is not None]
    latest = max(untils) if len(untils) == len(reasons) else None
    return of_tasks(reasons[0].code, message, names, sum(reason.count for reason in reasons), latest)


def why_task(facts: RunFacts, tasks: OpenTasks) -> Reason:
    """Why these do not go on, or that they do."""
    code, message, until = _WHY[tasks.state](facts, tasks)
    return of_tasks(code, message, tasks.tasks, tasks.count, until)


_Answer = tuple[Code, str, str | None]


def _scheduled(facts: RunFacts, tasks: OpenTasks) -> _Answer:
    written = facts.written.task(tasks.ordinal)
    if tasks.reason == WAITS_FOR_MAX_TASKS:
        under_way = number(facts.tasks_under_way, "task")
        limit = facts.written.concurrency.max_tasks
        message = f"{under_way} of the DAG {_are(facts.tasks_under_way)} under way, and its max_tasks allows {limit}"
        if facts.run.backfill_id:
            message += "; tasks of a backfill go after all others"
        return "max_tasks", message, None
    if tasks.instances:
        return _turn(written)
    open_needs = _open_needs(facts, written)
    if not open_needs:
        return "starting", "nothing holds it back: it is about to begin", None
    more = f" and {len(open_needs) - _NEEDS_MAX:,} more" if len(open_needs) > _NEEDS_MAX else ""
    rule = "" if written.trigger_rule == "all_success" else f" (trigger_rule: {written.trigger_rule})"
    return "needs", f"waits for {', '.join(open_needs[:_NEEDS_MAX])}{more}{rule}", None


def _turn(written: WrittenTask) -> _Answer:
    if written.max_parallel is None:
        return "starting", "a large fan-out begins in steps: they are about to begin", None
    if written.max_parallel == 1:
        return "max_parallel", "each waits for the one before it to end (max_parallel: 1)", None
    return "max_parallel", f"wait for one of the {written.max_parallel:,} before them to end (max_parallel)", None


def _open_needs(facts: RunFacts, written: WrittenTask) -> list[str]:
    """The needs that have not ended, with their states."""
    names = {task.id: place for place, task in enumerate(facts.written.tasks)}
    states = {tasks.ordinal: tasks.state for tasks in facts.tasks if not tasks.instances}
    return [f"{need} ({states[names[need]]})" for need in written.needs if names[need] in states]


def _queued(facts: RunFacts, tasks: OpenTasks) -> _Answer:
    pool = facts.pools.get(tasks.pool) or PoolFacts(name=tasks.pool)
    code, message = why_in_pool(pool, facts.places.get(tasks.tasks[0]), tasks.pool_slots)
    timeout_ms = facts.written.task(tasks.ordinal).queue_timeout_ms
    if timeout_ms is None or tasks.queued_at is None:
        return code, message, None
    until = _later(tasks.queued_at, timeout_ms)
    return code, f"{message}; it fails if it still waits at {until} (queue_timeout)", until


def _leased(facts: RunFacts, tasks: OpenTasks) -> _Answer:
    if tasks.reason or facts.run.cancel_requested_at:
        return _ending(tasks)
    return (
        "leased",
        f"worker {tasks.worker} was given it at {tasks.leased_at}, and has not said yet that it began",
        None,
    )


def _running(facts: RunFacts, tasks: OpenTasks) -> _Answer:
    if tasks.reason or facts.run.cancel_requested_at:
        return _ending(tasks)
    return "running", f"it does not wait: worker {tasks.worker} is at work on it since {tasks.started_at}", None


def _ending(tasks: OpenTasks) -> _Answer:
    because = f" ({tasks.reason})" if tasks.reason else ""
    return "cancelling", f"is being ended{because}: worker {tasks.worker} has been told, or its lease runs out", None


def _retrying(facts: RunFacts, tasks: OpenTasks) -> _Answer:
    return "retry", f"is tried again at {tasks.retry_at}: {tasks.reason}", tasks.retry_at


def _deferred(facts: RunFacts, tasks: OpenTasks) -> _Answer:
    name = tasks.tasks[0]
    until = tasks.resume_at or tasks.timeout_at
    if tasks.waits_for is None:
        if facts.written.task(tasks.ordinal).for_each is not None and not tasks.instances:
            return "instances", _instances(facts, tasks), None
        return "cancelling", f"is being ended ({tasks.reason}), and so is the run that it waits for", None
    message = tasks.reason
    if tasks.waits_for == "approval":
        where = f"{facts.run.dag} {shlex.quote(facts.run.run_id)} {shlex.quote(name)}"
        message += f"; `tidewheel approve {where}` gives it"
    elif tasks.waits_for in WATCHED_BY_WAITER:
        if not facts.waiter:
            message += "; no waiter is at work, so nobody looks for it: start one with `tidewheel waiter`"
            return "no_waiter", message, until
        message += "; the waiter looks for it"
    elif said := facts.awaited.get(name):
        message += f"; {said}"
    if waits_for_room(tasks.reason):
        return "no_room", message, until
    return cast(Code, tasks.waits_for), message, until


def _instances(facts: RunFacts, tasks: OpenTasks) -> str:
    states: Counter[str] = Counter()
    for one in facts.tasks:
        if one.instances and one.ordinal == tasks.ordinal:
            states[one.state] += one.count
    counts = ", ".join(f"{count:,} {state}" for state, count in states.items())
    ending = f" ({tasks.reason})" if tasks.reason and not tasks.reason.startswith("waits for its") else ""
    return f"waits for its instances{': ' + counts if counts else ''}{ending}"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _later(instant: str, ms: int) -> str:
    moment = datetime.fromisoformat(instant) + timedelta(milliseconds=ms)
    return f"{moment:%Y-%m-%dT%H:%M:%S}Z"


_WHY: Mapping[str, Callable[[RunFacts, OpenTasks], _Answer]] = {
    "scheduled": _scheduled,
    "queued": _queued,
    "leased": _leased,
    "running": _running,
    "retrying": _retrying,
    "deferred": _deferred,
}
