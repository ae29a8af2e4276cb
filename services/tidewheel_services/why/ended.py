"""Why a run, or a task of it, ended as it did: which tasks failed by themselves, which did not run for those."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidewheel_projections.views import RunRow, TaskDetail
from tidewheel_projections.waiting import LostTasks
from tidewheel_services.why.reason import Reason, number, of_tasks
from tidewheel_services.why.written import Written

#: Between what an exception says and its traceback.
_TRACE = "\n\n"


def why_failed(run: RunRow, lost: Sequence[LostTasks]) -> Iterator[Reason]:
    """What ended the run, each kind of failure, and how many tasks did not run because of them."""
    yield Reason(code="ended", message=f"it has ended as {run.state}{_because(run.reason)}")
    yield from _causes(lost)
    held = [tasks for tasks in lost if tasks.state == "upstream_failed"]
    if held:
        names = [name for tasks in held for name in tasks.tasks]
        count = sum(tasks.count for tasks in held)
        yield of_tasks("ended", "did not run, since something upstream failed (upstream_failed)", names, count)


def why_ended(task: TaskDetail, lost: Sequence[LostTasks], written: Written) -> Iterator[Reason]:
    """How the task ended; of one that did not run for its upstreams also which of those failed, of one with failed
    instances how those did."""
    if task.state == "failed":
        yield of_tasks("failed", _failed(task.attempt, task.reason), [task.task], 1)
    else:
        yield of_tasks("ended", f"it has ended as {task.state}{_because(task.reason)}", [task.task], 1)
    if task.instance is not None:
        return
    above = _upstream(written, task.ordinal) if task.state == "upstream_failed" else frozenset[int]()
    own = [tasks for tasks in lost if tasks.ordinal == task.ordinal and tasks.instances]
    yield from _causes([*(tasks for tasks in lost if tasks.ordinal in above), *own])


def _causes(lost: Sequence[LostTasks]) -> Iterator[Reason]:
    for tasks in lost:
        if tasks.state == "failed":
            yield of_tasks("failed", _failed(tasks.attempt, tasks.reason), tasks.tasks, tasks.count)


def _failed(attempts: int, reason: str) -> str:
    """A task that never was at work, as one whose instances failed, has no attempts to count."""
    after = f" after {number(attempts, 'attempt')}" if attempts else ""
    return f"failed{after}{_because(reason.partition(_TRACE)[0])}"


def _because(reason: str) -> str:
    return f": {reason}" if reason else ""


def _upstream(written: Written, ordinal: int) -> frozenset[int]:
    """The places of all tasks that this one needs, directly or by others."""
    places = {task.id: place for place, task in enumerate(written.tasks)}
    found: set[int] = set()
    ahead = [ordinal]
    while ahead:
        needs = {places[need] for need in written.task(ahead.pop()).needs} - found
        found |= needs
        ahead += needs
    return frozenset(found)
