"""A run goes on with what was too much for one decision (``core.steps``)."""

from __future__ import annotations

from tidewheel.core import commands as c
from tidewheel.core.decide.decision import Decision
from tidewheel.core.decide.flow import end_instances, start_runs
from tidewheel.core.decide.mapping import begin_instances
from tidewheel.core.decide.queue import queue_held
from tidewheel.core.decide.run import cancel_tasks
from tidewheel.core.state import Dag


def decide_continue_run(d: Decision[Dag], command: c.ContinueRun) -> None:
    """Another turn, another step."""
    run = d.state.runs.get(command.run_id)
    if run is None:
        return
    if run.stop is not None:
        cancel_tasks(d, command.run_id)
        start_runs(d)
        return
    for name in d.state.definitions[run.version].tasks:
        # With the last instance its task may end, and the run by that.
        if not d.left or command.run_id not in d.state.runs:
            break
        task = d.state.runs[command.run_id].task(name)
        if task.fan is None or task.phase != "deferred":
            continue
        if task.stop is not None:
            end_instances(d, command.run_id, name)
        else:
            begin_instances(d, command.run_id, name)
    queue_held(d)
