"""Switches: each branch says when and what, and names tasks that wait for the switch."""

from __future__ import annotations

from typing import Final

from tidewheel.core.nearest import did_you_mean
from tidewheel.definition.lint_graph import Graph
from tidewheel.definition.mistakes import Findings
from tidewheel.definition.nodes import descend
from tidewheel.definition.shapes import Draft

#: Keys about what a worker does, and about doing it several times.
_WORKERS_KEYS: Final = (
    "env",
    "retries",
    "retry",
    "infra_retries",
    "timeout",
    "total_timeout",
    "queue_timeout",
    "heartbeat_timeout",
    "pool",
    "pool_slots",
    "for_each",
)


def lint_switches(graph: Graph, findings: Findings) -> None:
    """Note every mistake in the switches of a workflow."""
    for name, task in graph.tasks.items():
        if "switch" not in task.node.entries:
            continue
        for key in _WORKERS_KEYS:
            if key in task.node.entries:
                findings.add(
                    task.node.keys[key],
                    "conflict",
                    f"{key!r} says nothing here: a switch is decided at once, by the engine",
                )
        branches = task.get("switch", ())
        for number, branch in enumerate(branches):
            if branch is not None:
                _lint_branch(branch, number == len(branches) - 1, findings)
                _lint_named(name, branch, graph, findings)
        if branches and not any(branch is None or "if" in branch.node.entries for branch in branches):
            findings.add(task.node.entries["switch"], "missing_key", "a switch needs at least one branch with an 'if'")


def _lint_branch(branch: Draft, last: bool, findings: Findings) -> None:
    keys = branch.node.keys
    if "else" in keys:
        for key in ("if", "then"):
            if key in keys:
                findings.add(keys[key], "conflict", f"a branch has 'if' and 'then', or 'else' alone: remove {key!r}")
        if not last:
            findings.add(keys["else"], "conflict", "'else' is the last branch: those after it could not be taken")
        return
    for key in ("if", "then"):
        if key not in keys:
            findings.add(
                branch.node, "missing_key", f"a branch needs 'if' and 'then', or 'else' alone: {key!r} is missing"
            )


def _lint_named(switch: str, branch: Draft, graph: Graph, findings: Findings) -> None:
    for key in ("then", "else"):
        seen: set[str] = set()
        for index, name in enumerate(branch.get(key) or ()):
            place = descend(branch.node, key, index)
            if name is None:
                continue
            if name not in graph.written:
                findings.add(place, "unknown_task", f"there is no task {name!r}{did_you_mean(name, graph.tasks)}")
            elif name in graph.tasks and switch not in graph.needs[name]:
                message = f"{name!r} must wait for the switch that names it: add {switch!r} to its 'needs'"
                findings.add(place, "not_downstream", message)
            elif name in seen:
                findings.add(place, "duplicate_need", f"{name!r} is named twice")
            seen.add(name)
