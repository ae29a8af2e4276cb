"""Who waits for a run of the DAG: each is told once when it has ended, or that it never will be.

The run may be over when somebody asks, or yet to come. What is said is a ``ReportWait``; an answer to a wait that is
over changes nothing, so it may be said too often, and never too late.
"""

from __future__ import annotations

import msgspec

from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.decide.decision import Decision
from tidewheel.core.run_ids import is_past_slot, known_end
from tidewheel.core.scope import SCHEDULED
from tidewheel.core.state import REMEMBERED_ENDS, Dag
from tidewheel.core.waits import Watcher
from tidewheel.core.workflow import RunEnd

#: Attempts that wait for runs of one DAG, at most.
WATCHERS_MAX = 10_000


def decide_watch_run(d: Decision[Dag], command: c.WatchRun) -> None:
    """Somebody waits for a run."""
    watcher = Watcher(command.watcher_dag, command.watcher_run_id, command.watcher_task, command.watcher_attempt)
    before = d.state.watchers.get(command.run_id, ())
    if watcher in before:
        return
    end = known_end(d.state, command.run_id) if d.state.version and command.run_id not in d.state.runs else None
    if end is not None:
        tell_end(d, command.run_id, end, (watcher,))
    elif why := _why_not(d.state, command, watcher):
        _tell(d, watcher, fault=why)
    else:
        d.record(
            e.RunWatched(
                dag=command.dag,
                run_id=command.run_id,
                at=d.now,
                watcher_dag=watcher.dag,
                watcher_run_id=watcher.run_id,
                watcher_task=watcher.task,
                watcher_attempt=watcher.attempt,
            )
        )


def tell_end(d: Decision[Dag], run_id: str, end: RunEnd, watchers: tuple[Watcher, ...]) -> None:
    """The run has ended."""
    output = msgspec.json.encode({"dag": d.state.dag, "run_id": run_id, "state": end}).decode()
    for watcher in watchers:
        _tell(d, watcher, output=output)


def tell_hopeless(d: Decision[Dag]) -> None:
    """Tell those who wait for runs that will never be: the schedule has passed their slot, or the DAG is removed."""
    for run_id in sorted(d.state.watchers):
        if run_id not in d.state.runs and (why := _never_comes(d.state, run_id)):
            for watcher in d.state.watchers[run_id]:
                _tell(d, watcher, fault=why)
            d.record(e.RunUnwatched(dag=d.state.dag, run_id=run_id, at=d.now, reason=why))


def _why_not(state: Dag, command: c.WatchRun, watcher: Watcher) -> str:
    if not state.version:
        return f"no DAG '{command.dag}' is deployed"
    if (watcher.dag, watcher.run_id) == (command.dag, command.run_id):
        return f"run {command.run_id} waits for its own end"
    if sum(map(len, state.watchers.values())) >= WATCHERS_MAX:
        return f"{WATCHERS_MAX:,} tasks wait for runs of '{command.dag}' already"
    return "" if command.run_id in state.runs else _never_comes(state, command.run_id)


def _never_comes(state: Dag, run_id: str) -> str:
    """Why a run that is not live will not be; empty if it may."""
    if run_id in state.finished:
        return f"run {run_id} of '{state.dag}' has ended; how is known of the last {REMEMBERED_ENDS} such runs only"
    if is_past_slot(state, run_id):
        return f"the slot of run {run_id} of '{state.dag}' has passed without a run, or too long ago"
    if state.removed:
        return f"DAG '{state.dag}' was removed"
    if run_id.startswith(SCHEDULED) and state.cursor is None:
        return f"DAG '{state.dag}' has no schedule, so no run of it has a logical date"
    return ""


def _tell(d: Decision[Dag], watcher: Watcher, *, output: str | None = None, fault: str = "") -> None:
    d.ask(
        c.ReportWait(
            dag=watcher.dag,
            run_id=watcher.run_id,
            task=watcher.task,
            attempt=watcher.attempt,
            output=output,
            fault=fault,
        )
    )
