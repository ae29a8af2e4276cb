"""How the next attempt of a task begins: in the queue of its pool, or deferred, if no worker is needed for it."""

from __future__ import annotations

from tidewheel.core.decide.condition import begin_wait
from tidewheel.core.decide.decision import Decision
from tidewheel.core.decide.launch import launch
from tidewheel.core.decide.queue import queue_task
from tidewheel.core.state import Dag
from tidewheel.core.workflow import SubWorkflow, TriggerDag, WaitFor


def begin_task(d: Decision[Dag], run_id: str, name: str) -> None:
    """Begin the task's next attempt. Whatever it meets, it ends the task in another turn, never in this one."""
    action = d.state.definitions[d.state.runs[run_id].version].task(name).action
    if isinstance(action, WaitFor):
        begin_wait(d, run_id, name, action)
    elif isinstance(action, TriggerDag | SubWorkflow):
        launch(d, run_id, name, action)
    else:
        queue_task(d, run_id, name)
