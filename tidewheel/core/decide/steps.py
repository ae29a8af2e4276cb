"""A run goes on with what was too much for one decision (``core.steps``)."""

from __future__ import annotations

from tidewheel.core import commands as c
from tidewheel.core.decide.decision import Decision
from tidewheel.core.decide.flow import consider, end_instances, start_runs
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
    else:
        _go_on(d, command.run_id)
    start_runs(d)


def _go_on(d: Decision[Dag], run_id: str) -> None:
    """Let tasks begin whose turn it is, then instances, and end those of a mapped task that is to end."""
    tasks = d.state.definitions[d.state.runs[run_id].version].tasks
    consider(d, run_id, tasks)
    for name in tasks:
        # With the last instance its task may end, and the run by that.
        if run_id not in d.state.runs or not d.may_go_on(run_id):
            break
        task = d.state.runs[run_id].task(name)
        if task.fan is None or task.phase != "deferred":
            continue
        if task.stop is not None:
            end_instances(d, run_id, name)
        else:
            begin_instances(d, run_id, name)
    queue_held(d)
