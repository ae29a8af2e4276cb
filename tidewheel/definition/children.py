"""The actions ``trigger`` and ``workflow``, which ask another DAG for a run: what is checked about them, and what the
workflow keeps."""

from __future__ import annotations

from typing import Any, Final

from tidewheel.core.workflow import SubWorkflow, TriggerDag
from tidewheel.definition.mistakes import Findings
from tidewheel.definition.shapes import Draft

CHILD_ACTIONS: Final = ("trigger", "workflow")
#: Keys of a task that are about a worker's work, and what to say of them.
_NOT_OF_CHILDREN: Final = {
    "env": "no worker runs it: hand values over by 'inputs'",
    "infra_retries": "no worker runs it",
    "total_timeout": "'timeout' bounds each of its runs",
    "queue_timeout": "it does not queue for a worker",
    "heartbeat_timeout": "no worker runs it",
    "pool": "it takes no slot of a pool",
    "pool_slots": "it takes no slot of a pool",
}


def asks(task: Draft) -> str:
    """The action by which a task asks for a run; empty of any other."""
    return next((key for key in CHILD_ACTIONS if key in task.node.entries), "")


def lint_child(task: Draft, workflow: Any, findings: Findings) -> None:
    """What a task that asks for a run may not say. ``workflow`` is the id of its own."""
    action = asks(task)
    entries, keys = task.node.entries, task.node.keys
    if not action:
        if "inputs" in entries:
            findings.add(
                keys["inputs"], "conflict", "'inputs' are for the run that a 'trigger' or 'workflow' task asks for"
            )
        return
    for key, why in _NOT_OF_CHILDREN.items():
        if key in entries:
            findings.add(keys[key], "conflict", f"{key!r} does not go with {action!r}: {why}")
    if action == "workflow" and workflow is not None and task.get("workflow") == workflow:
        message = f"the workflow {workflow!r} would wait for itself, and so would the run it waits for"
        findings.add(entries["workflow"], "self_workflow", message)


def assemble_child(written: Draft) -> dict[str, Any]:
    """What the task has because it asks for a run."""
    action = asks(written)
    inputs = dict(written.get("inputs", {}))
    kind = TriggerDag if action == "trigger" else SubWorkflow
    return {"action": kind(dag=written[action], inputs=inputs), "timeout_ms": written.get("timeout")}
