"""The witness of runs that tasks ask for: each side says the same, and nobody waits for what has ended.

One DAG's journal alone shows only its own side. What both must agree on is kept here and compared when nothing is on
its way between shards any more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from tidewheel.core import events as e
from tidewheel.core.child import DEPTH_MAX, child_run_id
from tidewheel.core.workflow import SubWorkflow, TriggerDag
from tidewheel.runtime.witness.findings import Place

#: DAG and run id.
RunName = tuple[str, str]


#: What a run may be of which a task says so.
_FITTING = {
    "exists": ("", "success", "failed", "cancelled"),
    "success": ("success",),
    "failed": ("failed", "cancelled"),
    #: … and asks for another run: whoever cancels one does not want that.
    "again": ("failed",),
}


class Asked:
    """What one DAG says of runs that were asked for, by it or of it."""

    __slots__ = ("made", "told", "waiting")

    def __init__(self) -> None:
        #: Runs of this DAG that tasks of others asked for, and how they ended; empty: they have not.
        self.made: dict[str, str] = {}
        #: Runs that attempts of this DAG wait for, by attempt.
        self.waiting: dict[tuple[str, str, int], tuple[RunName, Place]] = {}
        #: How attempts of this DAG say that the runs they asked for ended; ``exists`` where that was all they wanted.
        self.told: list[tuple[RunName, str, Place]] = []

    def begins(self, event: e.TaskDeferred, at: Place) -> None:
        """An attempt waits for the end of a run."""
        child = _named(event)
        if event.waits_for == "workflow" and child is not None:
            self.waiting[event.run_id, event.task, event.attempt] = (child, at)

    def postponed(self, wait: e.TaskDeferred, event: e.LaunchPostponed, at: Place) -> None:
        """The attempt has no run yet, and will ask again; or has one now."""
        if event.ask_at is None:
            self.begins(wait, at)
        else:
            self.waiting.pop((wait.run_id, wait.task, wait.attempt), None)

    def ends_wait(self, wait: e.TaskDeferred, event: e.RunEvent, at: Place) -> None:
        """The attempt waits no longer: keep what it says of its run."""
        self.waiting.pop((wait.run_id, wait.task, wait.attempt), None)
        child = _named(wait)
        if child is None:
            return
        if isinstance(event, e.TaskSucceeded):
            self.told.append((child, "success" if wait.waits_for == "workflow" else "exists", at))
        elif isinstance(event, e.TaskFailed) and event.kind == "run_failed":
            self.told.append((child, "failed" if event.retry_at is None else "again", at))


def names_child(wait: e.TaskDeferred) -> bool:
    """Whether the attempt waits for the end of a run that it asked for."""
    return wait.waits_for == "workflow" and _named(wait) is not None


def wrong_wait(event: e.TaskDeferred, action: TriggerDag | SubWorkflow) -> str:
    """What is wrong with how an attempt asks for a run."""
    wanted = "workflow" if isinstance(action, SubWorkflow) else "trigger"
    if event.waits_for != wanted:
        return f"waits for {event.waits_for}, but its action is {wanted}"
    kind: Any = "workflow" if isinstance(action, SubWorkflow) else "triggered"
    child = _named(event)
    right = (action.dag, child_run_id(kind, event.dag, event.run_id, event.task, event.attempt))
    return "" if child in (None, right) else f"asks for {child}, not for {right}"


def wrong_postponement(event: e.LaunchPostponed, wait: e.TaskDeferred | None) -> str:
    """What is wrong with an attempt's asking for its run later."""
    if wait is None or wait.waits_for not in ("trigger", "workflow") or _named(wait) is None:
        return "it asks for no run"
    if event.ask_at is None:
        return "" if wait.waits_for == "workflow" else "it ends once there is its run"
    if event.ask_at <= event.at:
        return "that is not later"
    return "" if event.reason else "no reason is given"


def wrong_output(event: e.TaskSucceeded, wait: e.TaskDeferred) -> str:
    """What is wrong with the output of an attempt that asked for a run."""
    output = msgspec.json.decode(event.output or "null")
    said = (output.get("dag"), output.get("run_id")) if isinstance(output, dict) else None
    return "" if said == _named(wait) else f"says that {said} was its run, not {_named(wait)}"


def wrong_parent(event: e.RunCreated) -> str:
    """What is wrong with what a run says of who asked for it."""
    if event.kind not in ("triggered", "workflow"):
        return "names a parent" if event.parent_dag else ""
    parent = (event.parent_dag, event.parent_run_id, event.parent_task, event.parent_attempt or 0)
    if not all(parent) or event.run_id != child_run_id(event.kind, *parent):
        return f"is not the one that {parent} asks for"
    return "" if 1 <= (event.depth or 0) <= DEPTH_MAX else f"stands below {event.depth} others"


def disagreements(asked: Mapping[str, Asked]) -> Iterator[tuple[str, Place]]:
    """Where two DAGs say different things, once nothing is on its way between them."""
    for name, mine in asked.items():
        for child, end, place in mine.told:
            others = asked.get(child[0])
            found = None if others is None else others.made.get(child[1])
            if found is None:
                yield f"a task of '{name}' says that {'/'.join(child)} was its run, which was never created", place
            elif found not in _FITTING[end]:
                yield f"a task of '{name}' ended by {'/'.join(child)} ({end}), which is {found or 'live'}", place
        for child, place in mine.waiting.values():
            others = asked.get(child[0])
            if others is None or others.made.get(child[1], "never created"):
                end = "never created" if others is None else others.made.get(child[1], "never created")
                yield f"a task of '{name}' waits for {'/'.join(child)}, which is {end}", place


def _named(wait: e.TaskDeferred) -> RunName | None:
    """The run an attempt asked for; None: its inputs did not evaluate, and it asked for none."""
    detail = msgspec.json.decode(wait.detail, type=dict[str, Any])
    return (detail["dag"], detail["run_id"]) if "run_id" in detail else None
