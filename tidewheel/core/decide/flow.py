"""How a run moves on: which tasks become ready when it starts or when one of them ends, and when it has ended itself.

Every decision that ends a task comes through ``advance``; the loop there is a worklist, because a chain of skips may
be ten thousand long.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Final

from tidewheel.core import events as e
from tidewheel.core.decide.begin import begin_task
from tidewheel.core.decide.cancel import cancel_instances
from tidewheel.core.decide.decision import Decision, failed_here, last_attempt
from tidewheel.core.decide.mapping import begin_instances, end_mapped, end_of_instances, expand
from tidewheel.core.decide.parent import tell_parent
from tidewheel.core.decide.switch import decide_switch
from tidewheel.core.decide.watch import tell_end
from tidewheel.core.expressions import ExpressionError
from tidewheel.core.overdue import missed
from tidewheel.core.readiness import WAIT, Turn, turn_of
from tidewheel.core.scope import scope_of
from tidewheel.core.state import Dag, RunState
from tidewheel.core.transitions import TASK_ENDED
from tidewheel.core.workflow import RunEnd, Switch, Task


def start_runs(d: Decision[Dag]) -> None:
    """Start queued runs, in order, while the DAG has room for them and is not paused; then those of backfills, which
    have been given their room before they were made."""
    while not d.state.paused and (run := _next_run(d.state)) is not None:
        start_run(d, run.run_id)
    while not d.state.paused and (run := _next_of_backfills(d.state)) is not None:
        start_run(d, run.run_id)


def start_run(d: Decision[Dag], run_id: str) -> None:
    """Start a queued run."""
    d.record(e.RunStarted(dag=d.state.dag, run_id=run_id, at=d.now))
    run = d.state.runs[run_id]
    definition = d.state.definitions[run.version]
    # Of a run that was touched before it started, tasks may have ended, and others be ready by that.
    consider(d, run_id, definition.tasks if run.tasks else definition.starters)
    for name in definition.tasks if run.tasks else ():
        if run.task(name).phase == "deferred":
            begin_instances(d, run_id, name)


def unfinished_scheduled(state: Dag) -> list[RunState]:
    """The scheduled runs that have not ended, in the order of their creation."""
    return sorted((run for run in state.runs.values() if run.kind == "scheduled"), key=attrgetter("order"))


def _next_run(state: Dag) -> RunState | None:
    """The queued run that starts next; None: there is no room for one. What is to end does not start.

    A scheduled run that waits for others to end holds up the scheduled ones behind it, or they might be at work for
    ever before it is. Runs that somebody asked for have nothing to do with that, and go past.
    """
    place = state.queued_runs.first() if state.queued_runs else None
    held = False
    while place is not None:
        run = state.runs[place[2]]
        held = held or (run.stop is None and _waits_to_be_alone(state, run))
        if run.stop is None and not (held and run.kind == "scheduled"):
            limit = state.definitions[run.version].workflow.concurrency.max_runs
            return run if state.running_runs < limit else None
        place = state.queued_runs.after(place)
    return None


def _next_of_backfills(state: Dag) -> RunState | None:
    """The queued run of a backfill that starts next."""
    queued = (state.runs[run_id] for _, _, run_id in state.queued_backfill)
    return next((run for run in queued if run.stop is None), None)


def _waits_to_be_alone(state: Dag, run: RunState) -> bool:
    """Whether it must not be at work beside another scheduled run, and one is: what it replaces may still be ending."""
    schedule = state.definitions[run.version].workflow.schedule
    if run.kind != "scheduled" or schedule is None or schedule.overlap != "cancel_running":
        return False
    return any(other.kind == "scheduled" and other.phase != "queued" for other in state.runs.values())


def advance(d: Decision[Dag], run_id: str, ended: str) -> None:
    """Task ``ended`` of the run has just ended: go on with the tasks downstream, or end the run. One that was cleared
    meanwhile is to begin anew."""
    children = d.state.definitions[d.state.runs[run_id].version].children
    if ended in children or (ended := end_of_instances(d, run_id, ended)):
        anew = d.state.runs[run_id].task(ended).phase == "scheduled"
        consider(d, run_id, (ended,) if anew else children[ended])
        start_runs(d)


def end_instances(d: Decision[Dag], run_id: str, name: str) -> None:
    """End the instances of a mapped task that is to end, as many as one decision ends, and with the last the task."""
    cancel_instances(d, run_id, name)
    fan = d.state.runs[run_id].task(name).fan
    if fan is not None and fan.all_ended:
        end_mapped(d, run_id, name)
        advance(d, run_id, name)


def consider(d: Decision[Dag], run_id: str, tasks: Iterable[str]) -> None:
    """Judge ``tasks`` of a run that has started, and whatever that in turn decides."""
    run = d.state.runs[run_id]
    if run.phase == "queued":
        return
    definition = d.state.definitions[run.version]
    todo = list(tasks)[::-1]
    while todo and not run.cancel_requested:
        task = definition.tasks[todo.pop()]
        turn = turn_of(definition, d.state.runs[run_id], task)
        if turn is WAIT:
            continue
        if not d.may_go_on(run_id):
            break
        if _take_turn(d, d.state.runs[run_id], task, turn):
            todo.extend(reversed(definition.children[task.id]))
    end_if_done(d, run_id)


def _take_turn(d: Decision[Dag], run: RunState, task: Task, turn: Turn) -> bool:
    """It is the task's turn: it begins, or ends; true if it ended by that."""
    end: e.TaskSucceeded | e.TaskSkipped | e.TaskUpstreamFailed | e.TaskFailed | None = None
    if turn.verdict != "run":
        kind = e.TaskSkipped if turn.verdict == "skip" else e.TaskUpstreamFailed
        reason = turn.left_out or f"{task.trigger_rule} does not hold: {_ends(run, task)}"
        end = kind(**last_attempt(d, run.run_id, task.id), at=d.now, reason=reason)
    elif task.if_ is not None:
        end = _end_by_condition(d, run, task, task.if_)
    if end is None and isinstance(task.action, Switch):
        end = decide_switch(d, run, task, task.action)
    if end is None and task.for_each is not None:
        return expand(d, run.run_id, task.id)
    d.left -= 1
    if end is None:
        begin_task(d, run.run_id, task.id)
        return False
    d.record(end)
    return True


def _end_by_condition(
    d: Decision[Dag], run: RunState, task: Task, condition: str
) -> e.TaskSkipped | e.TaskFailed | None:
    """How a task ends whose ``if`` does not let it run."""
    try:
        if d.rules.evaluator.condition(condition, scope_of(d.state, run, task.id)):
            return None
    except ExpressionError as error:
        return failed_here(d, run.run_id, task.id, "expression", f"if: {error}")
    return e.TaskSkipped(**last_attempt(d, run.run_id, task.id), at=d.now, reason=f"if is false: {condition}")


def _ends(run: RunState, task: Task) -> str:
    """How the upstreams ended, the ones that matter first, at most three of them."""
    ends = [(name, run.task(name).phase) for name in task.needs]
    ends.sort(key=lambda end: (end[1] == "success", end[1] not in TASK_ENDED))
    text = ", ".join(f"{name} is {phase}" for name, phase in ends[:3])
    return text if len(ends) <= 3 else f"{text} … ({len(ends)} upstreams)"


def miss_deadlines(d: Decision[Dag], run_id: str) -> None:
    """Record the deadlines of a live run that have passed."""
    for event in missed(d.state, d.state.runs[run_id], d.now):
        d.record(event)


def end_if_done(d: Decision[Dag], run_id: str) -> None:
    """End the run if all its tasks have ended. What it has missed by now is said first."""
    if d.state.runs[run_id].open_tasks:
        return
    miss_deadlines(d, run_id)
    watchers = d.state.watchers.get(run_id, ())
    end = _end(d.state, d.state.runs[run_id], d.now)
    tell_parent(d, d.state.runs[run_id], end, _ENDS[type(end)])
    d.record(end)
    tell_end(d, run_id, _ENDS[type(end)], watchers)


_ENDS: Final[Mapping[type[e.RunEvent], RunEnd]] = {
    e.RunSucceeded: "success",
    e.RunFailed: "failed",
    e.RunCancelled: "cancelled",
}


def _end(state: Dag, run: RunState, now: int) -> e.RunSucceeded | e.RunFailed | e.RunCancelled:
    """How the run ends, of which every task has."""
    dag, run_id = state.dag, run.run_id
    if run.failure:
        return e.RunFailed(dag=dag, run_id=run_id, at=now, reason=run.failure)
    if run.cancel_requested:
        return e.RunCancelled(dag=dag, run_id=run_id, at=now, reason="every task has ended after the cancel")
    failed = [
        f"{leaf} is {run.task(leaf).phase}"
        for leaf in state.definitions[run.version].leaves
        if run.task(leaf).phase in ("failed", "upstream_failed")
    ]
    if failed:
        more = f" and {len(failed) - 3} more" if len(failed) > 3 else ""
        return e.RunFailed(dag=dag, run_id=run_id, at=now, reason=", ".join(failed[:3]) + more)
    return e.RunSucceeded(dag=dag, run_id=run_id, at=now)
