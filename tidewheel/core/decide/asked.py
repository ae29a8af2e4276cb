"""Runs that tasks of other DAGs ask for: created like any other, with an answer to who asked.

A DAG as many of whose runs wait as may says "later". That its shard is full does not count: those who ask may be what
fills it, and all of them would wait for each other. A DAG that asks itself is not told "later" but refused, for the
same reason: its runs wait for the one that asks to end.
"""

from __future__ import annotations

from tidewheel.core import commands as c
from tidewheel.core.child import DEPTH_MAX
from tidewheel.core.decide.decision import Decision
from tidewheel.core.decide.flow import start_runs
from tidewheel.core.decide.run import cancel_run, create_run, parsed_inputs
from tidewheel.core.parent import Parent
from tidewheel.core.room import why_no_room
from tidewheel.core.state import Dag


def decide_launch_run(d: Decision[Dag], command: c.LaunchRun) -> None:
    """Create the run, unless it exists already, and say so; or say why not."""
    refused = later = ""
    if command.run_id in d.state.finished and command.kind == "workflow":
        # How it ended was said then. Whoever asks again, as after a repair of its journal, would wait for ever.
        refused = f"run {command.run_id} has ended before"
    elif command.run_id not in d.state.runs and command.run_id not in d.state.finished:
        refused = _never(d, command)
        if not refused:
            later = why_no_room(d.state, d.rules)
        if command.dag == command.parent_dag and not refused:
            full = f"the shard of DAG '{command.dag}' holds as many runs as it may" if d.rules.shard_full else ""
            refused, later = later or full, ""
        if not refused and not later:
            refused = _create(d, command)
    d.ask(
        c.ReportLaunch(
            dag=command.parent_dag,
            run_id=command.parent_run_id,
            task=command.parent_task,
            attempt=command.parent_attempt,
            child_dag=command.dag,
            child_run_id=command.run_id,
            kind=command.kind,
            refused=refused,
            later=later,
        )
    )
    start_runs(d)


def _never(d: Decision[Dag], command: c.LaunchRun) -> str:
    """Why there can be no such run, room or not; empty if there can."""
    if not d.state.version:
        return f"no DAG '{command.dag}' is deployed"
    if d.state.removed:
        return f"DAG '{command.dag}' was removed"
    if command.depth > DEPTH_MAX:
        return f"{command.depth} runs stand above it, each asked for by a task of the next; at most {DEPTH_MAX} may"
    return parsed_inputs(command.inputs)[1]


def _create(d: Decision[Dag], command: c.LaunchRun) -> str:
    """Create the run; gives the reason if its inputs do not fit."""
    given, _ = parsed_inputs(command.inputs)
    mistakes = create_run(
        d,
        run_id=command.run_id,
        kind=command.kind,
        actor=command.actor,
        logical_date=None,
        interval=(None, None),
        given=given,
        parent=Parent(
            command.parent_dag, command.parent_run_id, command.parent_task, command.parent_attempt, command.depth
        ),
    )
    return "; ".join(mistakes)[:2_000]


def decide_recall_run(d: Decision[Dag], command: c.RecallRun) -> None:
    """Cancel the run, if it is there and has not ended."""
    if command.run_id in d.state.runs:
        cancel_run(d, command.run_id, actor=command.actor, reason=command.reason)
        start_runs(d)
