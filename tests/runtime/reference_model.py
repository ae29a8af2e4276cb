"""How a run ends, read plainly off its definition: the reference that the engine is held against.

It shares no rule with the engine. Tasks are taken in the file's order, in which each stands behind what it needs, and
each is judged once, by how all of its upstreams ended.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from tidewheel.core import events as e
from tidewheel.core.workflow import ApprovalWait, Run, Switch, Task, TimeWait, WaitFor, Workflow

#: How each attempt of a task, or of an instance, ends: ``ok``, ``fail``, or ``lose`` (the worker with it). Of one that
#: waits for a person the first counts, and ``lose`` is nobody's answer; of one that asks for runs these end so.
Fates = Callable[[str], list[str]]
#: Of each task and instance: ``success``, ``failed``, ``skipped`` or ``upstream_failed``.
Ends = dict[str, str]


class Mistake(Exception):
    """An expression that has no value."""


def expected(workflow: Workflow, n: int, fates: Fates, marks: Mapping[str, str] | None = None) -> tuple[str, Ends]:
    """How a run with input ``n`` ends, and how each of its tasks does. ``marks`` are what somebody said of some; a
    success that was said has an empty list as its output, that of a switch none."""
    ends: Ends = {}
    lengths: dict[str, int] = {}
    above: dict[str, set[str]] = {}
    left_out: set[str] = set()
    for task in workflow.tasks:
        above[task.id] = set(task.needs).union(*(above[name] for name in task.needs))
    for task in workflow.tasks:
        try:
            end = "skipped" if task.id in left_out else _judged(task, n, ends)
            if marks and task.id in marks:
                end = marks[task.id]
                if end == "success" and not isinstance(task.action, Switch):
                    lengths[task.id] = 0
            elif end == "run" and isinstance(task.action, Switch):
                then = next((b.then for b in task.action.branches if b.if_ is None or _holds(b.if_, n, ends)), ())
                named = {name for branch in task.action.branches for name in branch.then}
                left_out |= {name for name in named - set(then) if not above[name] & set(then)}
                end = "success"
            elif end == "run" and task.for_each is None:
                end = _end(task, fates(task.id))
                if end == "success" and isinstance(task.action, Run):
                    lengths[task.id] = output_length(task.id)
            elif end == "run":
                lengths[task.id] = _count(task.for_each, ends, lengths)
                names = [f"{task.id}[{index}]" for index in range(lengths[task.id])]
                instances = {name: _end(task, fates(name)) for name in names}
                ends |= instances
                end = "failed" if "failed" in instances.values() else "success"
        except Mistake:
            end = marks[task.id] if marks and task.id in marks else "failed"
        ends[task.id] = end
    needed = {name for task in workflow.tasks for name in task.needs}
    bad = any(ends[task.id] in ("failed", "upstream_failed") for task in workflow.tasks if task.id not in needed)
    return "failed" if bad else "success", ends


def output_length(task: str) -> int:
    """How many items the list has that a plain task gives."""
    return int(task[1:].partition("[")[0]) % 4


def _judged(task: Task, n: int, ends: Ends) -> str:
    """How the task ends by its rule and its ``if``; ``run`` if these let it run. Raises ``Mistake``."""
    ups = [ends[name] for name in task.needs]
    bad = any(end in ("failed", "upstream_failed") for end in ups)
    good, skipped = "success" in ups, "skipped" in ups
    by_rule = {
        "all_success": "upstream_failed" if bad else "skipped" if skipped else "run",
        "all_failed": "skipped" if good or skipped else "run",
        "all_done": "run",
        "always": "run",
        "one_success": "run" if good else "upstream_failed" if bad else "skipped",
        "one_failed": "run" if bad else "skipped",
        "none_failed": "upstream_failed" if bad else "run",
        "none_failed_min_one_success": "upstream_failed" if bad else "run" if good else "skipped",
        "none_skipped": "skipped" if skipped else "run",
    }
    verdict = by_rule[task.trigger_rule] if ups else "run"
    if verdict == "run" and task.if_ is not None and not _holds(task.if_, n, ends):
        return "skipped"
    return verdict


def _holds(condition: str, n: int, ends: Ends) -> bool:
    if condition == "1 / 0 > 1":
        raise Mistake
    if asked := re.fullmatch(r'tasks\.(\w+)\.state == "(\w+)"', condition):
        return ends[asked[1]] == asked[2]
    return {"true": True, "1 > 2": False, "inputs.n > 3": n > 3}[condition]


def _count(items: object, ends: Ends, lengths: dict[str, int]) -> int:
    """How many items there are: of a list, or of what a task gave, which is one only if that ended well."""
    if isinstance(items, list | tuple):
        return len(items)
    asked = re.fullmatch(r"\$\{\{ tasks\.(\w+)\.output \}\}", str(items))
    assert asked, items
    if asked[1] not in lengths:
        raise Mistake
    return lengths[asked[1]]


def _end(task: Task, fate: list[str]) -> str:
    action = task.action
    if isinstance(action, WaitFor):
        given_up = {"fail": "failed", "skip": "skipped"}[action.on_timeout]
        if isinstance(action.what, TimeWait) and action.what.after_ms is not None:
            in_time = action.timeout_ms is None or action.what.after_ms <= action.timeout_ms
            return "success" if in_time else given_up
        assert isinstance(action.what, ApprovalWait)
        return {"ok": "success", "fail": "failed", "lose": given_up}[fate[0]]
    failures = losses = 0
    for end in fate:
        failures += end == "fail"
        losses += end == "lose"
        if end == "ok" or failures > task.retry.max or losses > task.infra_retries:
            break
    return "success" if end == "ok" else "failed"


def overshot(events: Iterable[e.Event], shares: Mapping[str, int | None], capacity: int) -> list[str]:
    """Who was given more of a pool of ``capacity`` slots than its share, in percent, while it held some already."""
    widths: dict[tuple[str, ...], int] = {}
    held: Counter[str] = Counter()
    found = []
    for event in events:
        if not isinstance(event, e.TaskEnqueued | e.SlotGranted | e.SlotReleased):
            continue
        attempt = (event.dag, event.run_id, event.task, str(event.attempt))
        if isinstance(event, e.TaskEnqueued):
            widths[attempt] = event.pool_slots
        elif isinstance(event, e.SlotGranted):
            share, before = shares[event.dag], held[event.dag]
            held[event.dag] += widths[attempt]
            widths[(*attempt, "held")] = widths.pop(attempt)
            if share is not None and before and held[event.dag] * 100 > share * capacity:
                found.append(f"{event.dag} holds {held[event.dag]} of {capacity} slots; its share is {share}%")
        else:
            widths.pop(attempt, None)
            held[event.dag] -= widths.pop((*attempt, "held"), 0)
    return found


def left_running(events: Iterable[e.Event]) -> list[str]:
    """Runs that were asked for and not told to end, though the task that waited for them was."""
    asked: dict[tuple[str, ...], tuple[str, str]] = {}
    to_end: set[tuple[str, str]] = set()
    found = []
    for event in events:
        if isinstance(event, e.RunCreated):
            parent = (event.parent_dag, event.parent_run_id, event.parent_task, str(event.parent_attempt))
            asked[parent] = (event.dag, event.run_id)
        elif isinstance(event, e.TaskCancelRequested) and event.attempt and not event.worker:  # 0: a mapped task's
            to_end.add(asked[event.dag, event.run_id, event.task, str(event.attempt)])
        elif isinstance(event, e.RunCancelRequested):
            to_end.discard((event.dag, event.run_id))
        elif isinstance(event, e.RunSucceeded | e.RunFailed | e.RunCancelled) and (event.dag, event.run_id) in to_end:
            found.append(f"{event.dag}/{event.run_id}")
    return found
