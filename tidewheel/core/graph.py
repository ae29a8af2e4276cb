"""Readiness: what a trigger rule says of a task, given how its upstreams ended.

The verdict depends on the upstreams' states only, never on the order in which they came: a rule speaks early only
where no later state could change the answer.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from tidewheel.core.action import fixed_action
from tidewheel.core.switch import misnamed, switches_by_task
from tidewheel.core.transitions import TaskPhase
from tidewheel.core.workflow import DAY_MS, KEEP_RUNS_MAX, SubWorkflow, Task, TimeWait, TriggerRule, WaitFor, Workflow

Verdict: TypeAlias = Literal["wait", "run", "skip", "upstream_failed"]


class Tally(NamedTuple):
    """How many upstreams of a task ended, and how."""

    success: int = 0
    failed: int = 0
    skipped: int = 0
    upstream_failed: int = 0
    cancelled: int = 0

    def plus(self, phase: TaskPhase) -> Tally:
        """The tally with one more upstream ended in ``phase``."""
        match phase:
            case "success":
                return self._replace(success=self.success + 1)
            case "failed":
                return self._replace(failed=self.failed + 1)
            case "skipped":
                return self._replace(skipped=self.skipped + 1)
            case "upstream_failed":
                return self._replace(upstream_failed=self.upstream_failed + 1)
            case "cancelled":
                return self._replace(cancelled=self.cancelled + 1)
            case _:
                raise AssertionError(f"a task that is {phase} has not ended")

    def minus(self, phase: TaskPhase) -> Tally:
        """The tally without one upstream that had ended in ``phase``."""
        once = Tally().plus(phase)
        return Tally(*(count - less for count, less in zip(self, once, strict=True)))


def judge(rule: TriggerRule, tally: Tally, needs: int) -> Verdict:
    """What ``rule`` says of a task with ``needs`` upstreams, ``tally`` of which have ended.

    A cancelled upstream counts as one that failed. Without upstreams every rule holds.
    """
    if needs == 0 or rule == "always":
        return "run"
    bad = tally.failed + tally.upstream_failed + tally.cancelled
    all_ended = bad + tally.success + tally.skipped == needs
    match rule:
        case "all_success":
            if bad:
                return "upstream_failed"
            return _at_end(all_ended, "skip" if tally.skipped else "run")
        case "all_failed":
            if tally.success or tally.skipped:
                return "skip"
            return _at_end(all_ended, "run")
        case "all_done":
            return _at_end(all_ended, "run")
        case "one_success":
            if tally.success:
                return "run"
            return _at_end(all_ended, "upstream_failed" if bad else "skip")
        case "one_failed":
            if bad:
                return "run"
            return _at_end(all_ended, "skip")
        case "none_failed":
            if bad:
                return "upstream_failed"
            return _at_end(all_ended, "run")
        case "none_failed_min_one_success":
            if bad:
                return "upstream_failed"
            return _at_end(all_ended, "run" if tally.success else "skip")
        case "none_skipped":
            if tally.skipped:
                return "skip"
            return _at_end(all_ended, "run")


def _at_end(all_ended: bool, verdict: Verdict) -> Verdict:
    return verdict if all_ended else "wait"


class Definition(msgspec.Struct, frozen=True, eq=False):
    """One version of a workflow with what the rules look up in it all the time. Built once per version."""

    version: str
    #: The canonical JSON, as deployed.
    source: str
    workflow: Workflow
    tasks: dict[str, Task]
    #: Downstream tasks of each task, in the file's order.
    children: dict[str, tuple[str, ...]]
    #: Tasks that nothing needs: they decide the run's result.
    leaves: tuple[str, ...]
    #: Tasks whose rule may hold as soon as the run starts.
    starters: tuple[str, ...]
    #: Actions without any expression, ready to send; the others are rendered for each lease.
    fixed_actions: dict[str, str]
    #: The switches that name a task in a branch.
    switches: dict[str, tuple[str, ...]]
    #: 16 bytes over the source.
    digest: bytes

    def task(self, name: str) -> Task:
        """The task called ``name``, or whose instance it is. Raises ``KeyError``."""
        return self.tasks.get(name) or self.tasks[name.partition("[")[0]]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Definition) and (self.version, self.source) == (other.version, other.source)

    def __hash__(self) -> int:
        return hash(self.version)


def define(version: str, source: str) -> Definition:
    """Parse the canonical JSON of a workflow. Raises ``msgspec.DecodeError`` if it is none."""
    workflow = msgspec.json.decode(source, type=Workflow)
    children: dict[str, list[str]] = {task.id: [] for task in workflow.tasks}
    for task in workflow.tasks:
        for upstream in task.needs:
            if upstream not in children:
                raise msgspec.ValidationError(
                    f"task '{task.id}' needs '{upstream}', which is no task of '{workflow.id}'"
                )
            children[upstream].append(task.id)
    return Definition(
        version=version,
        source=source,
        workflow=workflow,
        tasks={task.id: task for task in workflow.tasks},
        children={task: tuple(downstream) for task, downstream in children.items()},
        leaves=tuple(task for task, downstream in children.items() if not downstream),
        starters=tuple(task.id for task in workflow.tasks if not task.needs or task.trigger_rule == "always"),
        fixed_actions={
            task.id: action for task in workflow.tasks if (action := fixed_action(task, workflow.env)) is not None
        },
        switches=switches_by_task(workflow),
        digest=blake2b(source.encode(), digest_size=16).digest(),
    )


def unrunnable(definition: Definition) -> str:
    """Why runs of the definition could never end, or nothing: the last guard, behind the loader's friendlier ones."""
    limits = definition.workflow.concurrency
    if limits.max_runs < 1 or (limits.max_tasks is not None and limits.max_tasks < 1):
        return f"max_runs ({limits.max_runs}) and max_tasks ({limits.max_tasks}) are 1 or more"
    if not 0 <= definition.workflow.keep_runs <= KEEP_RUNS_MAX:
        return f"keep_runs is 0 to {KEEP_RUNS_MAX:,}, not {definition.workflow.keep_runs}"
    if any(not 0 <= deadline.within_ms <= 3_650 * DAY_MS for deadline in definition.workflow.deadlines):
        return "a deadline is within 0 to ten years, in milliseconds"
    for task in definition.workflow.tasks:
        if task.max_parallel is not None and task.max_parallel < 1:
            return f"max_parallel of task '{task.id}' is {task.max_parallel}; it must be 1 or more"
        if task.pool_slots < 1:
            return f"task '{task.id}' takes {task.pool_slots} slots; it must take 1 or more"
        if len(set(task.needs)) < len(task.needs):
            return f"task '{task.id}' names a task twice in its needs"
        if mistake := misnamed(definition.tasks, task):
            return mistake
        if isinstance(task.action, WaitFor) and not _has_end(task.action):
            return f"task '{task.id}' waits for a time, and says none, or two"
        if isinstance(task.action, SubWorkflow) and task.action.dag == definition.workflow.id:
            return f"task '{task.id}' would wait for a run of its own DAG, and so would that run"
    if len(definition.tasks) < len(definition.workflow.tasks):
        return "two tasks have one id"
    missing = {task.id: len(task.needs) for task in definition.workflow.tasks}
    free = [name for name, needs in missing.items() if not needs]
    while free:
        for child in definition.children[free.pop()]:
            missing[child] -= 1
            if not missing[child]:
                free.append(child)
    circle = sorted(name for name, needs in missing.items() if needs)
    return f"these tasks wait for each other: {', '.join(circle[:5])}" if circle else ""


def _has_end(wait: WaitFor) -> bool:
    return not isinstance(wait.what, TimeWait) or (wait.what.after_ms is None) != (wait.what.at is None)
