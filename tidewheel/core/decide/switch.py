"""Deciding a switch: at once, by the engine itself, without a slot and without an attempt."""

from __future__ import annotations

import msgspec

from tidewheel.core import events as e
from tidewheel.core.decide.decision import Decision, failed_here, last_attempt
from tidewheel.core.expressions import ExpressionError
from tidewheel.core.scope import scope_of
from tidewheel.core.state import Dag, RunState
from tidewheel.core.switch import Taken
from tidewheel.core.workflow import Switch, Task


def decide_switch(d: Decision[Dag], run: RunState, task: Task, switch: Switch) -> e.TaskSucceeded | e.TaskFailed:
    """The end of a switch whose turn has come: the first branch that fits is its output. Conditions after that one are
    not looked at; one that does not evaluate fails it."""
    scope = scope_of(d.state, run, task.id)
    place = last_attempt(d, run.run_id, task.id)
    taken = Taken(None)
    for number, branch in enumerate(switch.branches):
        try:
            fits = branch.if_ is None or d.rules.evaluator.condition(branch.if_, scope)
        except ExpressionError as error:
            return failed_here(d, run.run_id, task.id, "expression", f"if of branch {number}: {error}")
        if fits:
            taken = Taken(number, branch.then)
            break
    output = msgspec.json.encode(taken).decode()
    return e.TaskSucceeded(**place, at=d.now, worker="", started_at=d.now, ended_at=d.now, output=output)
