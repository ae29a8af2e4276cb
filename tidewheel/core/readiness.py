"""Whether it is a task's turn, and what becomes of it then: by its trigger rule, and by the switches that name it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from tidewheel.core.graph import Definition, Verdict, judge
from tidewheel.core.state import RunState
from tidewheel.core.switch import Taken, leaves_out
from tidewheel.core.transitions import TASK_ENDED
from tidewheel.core.workflow import Task


class Turn(NamedTuple):
    """``wait``: it is not. ``left_out`` says which switch skips it."""

    verdict: Verdict
    left_out: str = ""


WAIT = Turn("wait")


def turn_of(definition: Definition, run: RunState, task: Task) -> Turn:
    """Whether it is the task's turn, in a run that has started and goes on."""
    state = run.task(task.id)
    if state.phase != "scheduled" or state.ready_order is not None:
        return WAIT
    switches = definition.switches.get(task.id, ())
    if any(run.task(switch).phase not in TASK_ENDED for switch in switches):
        return WAIT
    if why := left_out(definition, run, task, switches):
        return Turn("skip", why)
    verdict = judge(task.trigger_rule, state.upstreams, len(task.needs))
    return WAIT if verdict == "wait" else Turn(verdict)


def left_out(definition: Definition, run: RunState, task: Task, switches: Iterable[str]) -> str:
    """Why ``task`` is skipped by one of the ``switches`` that name it, all of which have ended; empty if none does."""
    for name in switches:
        switch = run.task(name)
        if switch.phase == "success" and leaves_out(definition.tasks, switch.output, task.id):
            return f"switch {name} took {_named(switch.output)}"
    return ""


def _named(output: str | None) -> str:
    """The branch that was taken, for people."""
    taken = msgspec.json.decode(output or "", type=Taken)
    if taken.branch is None:
        return "no branch"
    return f"branch {taken.branch} ({', '.join(taken.then) or 'no tasks'})"[:200]
