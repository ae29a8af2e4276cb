"""Work on a run in steps, so that no decision is as large as a run.

A decision begins or ends ``Rules.step`` tasks beside what it was asked for, and names the runs of which it leaves
something (``Decision.unfinished``). That follows in decisions of its own, a turn of the scheduler apart (the timer
``ContinueRun``), and others have their turns in between. Nothing records how far it is: the tasks' states say it, also
to an owner that has just folded them.
"""

from __future__ import annotations

from tidewheel.core.readiness import WAIT, turn_of
from tidewheel.core.state import Dag, RunState, TaskState
from tidewheel.core.transitions import TASK_ENDED


def has_more(state: Dag, run: RunState) -> bool:
    """Whether something of the run waits for nothing but another step."""
    definition = state.definitions[run.version]
    tasks = definition.tasks
    if run.stop is not None:
        return any(_is_untold(run.task(name)) for name in tasks)
    if run.phase == "running" and any(turn_of(definition, run, task) is not WAIT for task in tasks.values()):
        return True
    return any(
        (fan := (task := run.task(name)).fan) is not None
        and task.phase == "deferred"
        and (task.untold > 0 if task.stop is not None else run.phase == "running" and fan.room(wanted.max_parallel) > 0)
        for name, wanted in tasks.items()
        if wanted.for_each is not None
    )


def _is_untold(task: TaskState) -> bool:
    """Whether a task, or an instance of it, has neither ended nor been told to."""
    if task.fan is not None:
        return task.untold > 0
    return task.phase not in TASK_ENDED and not task.cancel_requested
