"""Folding a run's events: created, started, ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from msgspec.structs import replace

from tidewheel.core import events as e
from tidewheel.core.coverage import Outcome, with_outcome, with_run
from tidewheel.core.digests import with_digest
from tidewheel.core.ended import ended_run, keep, restored, unpacked
from tidewheel.core.fold.backfill import with_run_of_backfill
from tidewheel.core.fold.dag import without_unused_version
from tidewheel.core.graph import define
from tidewheel.core.parent import parent_of
from tidewheel.core.state import REMEMBERED_ENDS, REMEMBERED_RUNS, Dag, RunPlace, RunState, Stop
from tidewheel.core.transitions import next_run_phase
from tidewheel.core.waits import Watcher
from tidewheel.core.workflow import RunEnd


def place_of(run: RunState) -> RunPlace:
    """Where a queued run stands: by the time it stands for, then by creation."""
    when = run.created_at if run.logical_date is None else run.logical_date
    return (when, run.order, run.run_id)


def fold_run_created(state: Dag, event: e.RunCreated) -> Dag:
    """The run waits for its turn; a scheduled one moves the schedule's cursor to its slot, one of a backfill its
    backfill's."""
    assert event.run_id not in state.runs, f"run {event.run_id} is created a second time"
    definition = state.definitions[event.version]
    run = RunState(
        run_id=event.run_id,
        version=event.version,
        kind=event.kind,
        order=state.created,
        logical_date=event.logical_date,
        interval_start=event.interval_start,
        interval_end=event.interval_end,
        inputs=event.inputs,
        created_at=event.at,
        backfill_id=event.backfill_id,
        parent=parent_of(event),
        open_tasks=len(definition.tasks),
    )
    created = replace(
        state,
        seq=state.seq + 1,
        created=state.created + 1,
        cursor=event.logical_date if event.kind == "scheduled" else state.cursor,
        answered=event.logical_date if event.kind == "scheduled" else state.answered,
        runs=state.runs.set(run.run_id, run),
        runs_of=state.runs_of.set(run.version, state.runs_of.get(run.version, 0) + 1),
        queued_scheduled=state.queued_scheduled + (run.kind == "scheduled"),
        input_bytes=state.input_bytes + len(run.inputs),
    )
    schedule = definition.workflow.schedule
    if run.logical_date is not None and schedule is not None:
        coverage = with_run(state.coverage, schedule, run.interval_start, run.logical_date)
        created = replace(created, coverage=coverage)
    if run.backfill_id and run.logical_date is not None:
        created = with_run_of_backfill(counted(created, run, 1), run.backfill_id, run.logical_date)
    return queued(created, run)


def queued(state: Dag, run: RunState) -> Dag:
    """With the run in the queue of its kind."""
    if run.backfill_id:
        return replace(state, queued_backfill=state.queued_backfill.add(place_of(run)))
    return replace(state, queued_runs=state.queued_runs.add(place_of(run)))


def _unqueued(state: Dag, run: RunState) -> Dag:
    """Without it there."""
    if run.backfill_id:
        return replace(state, queued_backfill=state.queued_backfill.remove(place_of(run)))
    return replace(state, queued_runs=state.queued_runs.remove(place_of(run)))


def counted(state: Dag, run: RunState, change: int) -> Dag:
    """With ``change`` more live runs of its backfill."""
    live = state.live_of.get(run.backfill_id, 0) + change
    counts = state.live_of.set(run.backfill_id, live) if live else state.live_of.delete(run.backfill_id)
    return replace(state, live_of=counts)


def fold_run_started(state: Dag, event: e.RunStarted) -> Dag:
    """It leaves the queue of runs."""
    run = state.runs[event.run_id]
    return replace(
        _unqueued(state, run),
        seq=state.seq + 1,
        runs=state.runs.set(run.run_id, replace(run, phase=next_run_phase(run.phase, event), started_at=event.at)),
        queued_scheduled=state.queued_scheduled - (run.kind == "scheduled"),
    )


def fold_run_cancel_requested(state: Dag, event: e.RunCancelRequested) -> Dag:
    """Nothing of it starts any more."""
    run = state.runs[event.run_id]
    cancelling = replace(run, phase=next_run_phase(run.phase, event), stop=Stop(event.actor, event.reason))
    return replace(state, seq=state.seq + 1, runs=state.runs.set(run.run_id, cancelling))


def fold_deadline_missed(state: Dag, event: e.DeadlineMissed) -> Dag:
    """It does not fire again. One that fails the run stops it as a cancel does, unless that came first."""
    run = state.runs[event.run_id]
    assert event.deadline not in run.missed, f"deadline {event.deadline} of run {run.run_id} is missed a second time"
    missed = replace(run, phase=next_run_phase(run.phase, event), missed=(*run.missed, event.deadline))
    if event.action == "fail" and not run.cancel_requested:
        missed = replace(missed, stop=Stop(event.actor, event.reason), failure=event.reason)
    return replace(state, seq=state.seq + 1, runs=state.runs.set(run.run_id, missed))


_OUTCOMES: Mapping[type[e.Event], Outcome] = {
    e.RunSucceeded: "success",
    e.RunFailed: "failed",
    e.RunCancelled: "cancelled",
}


def _with_outcome(state: Dag, run: RunState, outcome: Outcome) -> Dag:
    """With what became of the run of a slot."""
    if run.logical_date is None:
        return state
    attempts = max((*(task.attempt for task in run.tasks.values()), *run.attempts.values()), default=0)
    schedule = state.definitions[run.version].workflow.schedule
    coverage = with_outcome(state.coverage, schedule, run.interval_start, run.logical_date, outcome, attempts)
    return replace(state, coverage=coverage)


def fold_run_ended(state: Dag, event: e.RunSucceeded | e.RunFailed | e.RunCancelled) -> Dag:
    """It leaves the live ones: its id is remembered, its tasks are kept for a while. The oldest make room."""
    run = state.runs[event.run_id]
    phase = cast(RunEnd, next_run_phase(run.phase, event))
    came_to = ended_run(run, phase)
    kept, gone = keep(state.kept, came_to, state.definition.workflow.keep_runs)
    left = _with_outcome(state, run, _OUTCOMES[type(event)])
    if run.phase == "queued":
        left = _unqueued(left, run)
    if run.backfill_id:
        left = counted(left, run, -1)
    finished, order = state.finished, state.finished_order
    remembered = run.logical_date is None
    if remembered:
        finished, order = finished.set(run.run_id, state.ended), order.set(state.ended, run.run_id)
        oldest = state.ended - REMEMBERED_RUNS
        if oldest in order:
            finished, order = finished.delete(order[oldest]), order.delete(oldest)
    ended = replace(
        left,
        seq=state.seq + 1,
        runs=state.runs.delete(run.run_id),
        kept=kept,
        digests=with_digest(state.digests, came_to, state.definitions[run.version]),
        queued_scheduled=state.queued_scheduled - (run.phase == "queued" and run.kind == "scheduled"),
        input_bytes=state.input_bytes - len(run.inputs),
        finished=finished,
        finished_order=order,
        ended=state.ended + remembered,
        last_ends=(*state.last_ends[1 - REMEMBERED_ENDS :], (run.run_id, phase)) if remembered else state.last_ends,
        watchers=state.watchers.delete(run.run_id) if run.run_id in state.watchers else state.watchers,
    )
    for one in gone:
        ended = _without_run_of(ended, one.version)
    return ended


def fold_run_watched(state: Dag, event: e.RunWatched) -> Dag:
    """One more is told when it ends."""
    watcher = Watcher(event.watcher_dag, event.watcher_run_id, event.watcher_task, event.watcher_attempt)
    before = state.watchers.get(event.run_id, ())
    assert watcher not in before, f"{event.run_id} is watched by {watcher} already"
    return replace(state, seq=state.seq + 1, watchers=state.watchers.set(event.run_id, (*before, watcher)))


def fold_run_unwatched(state: Dag, event: e.RunUnwatched) -> Dag:
    """Nobody waits for it any more."""
    return replace(state, seq=state.seq + 1, watchers=state.watchers.delete(event.run_id))


def fold_run_reopened(state: Dag, event: e.RunReopened) -> Dag:
    """It is live again and waits for its turn, as the youngest of the DAG's runs, and of no backfill any more."""
    if event.recalled is not None:
        ended = unpacked(event.recalled)
    else:
        (ended,) = (run for run in state.kept if run.run_id == event.run_id)
    next_run_phase(ended.phase, event)
    definitions = state.definitions
    if event.definition:
        definitions = definitions.set(event.version, define(event.version, event.definition))
    run = restored(ended, definitions[event.version], order=state.created, inputs=event.inputs)
    finished, order = state.finished, state.finished_order
    if run.run_id in finished:
        finished, order = finished.delete(run.run_id), order.delete(finished[run.run_id])
    reopened = replace(
        state,
        seq=state.seq + 1,
        created=state.created + 1,
        definitions=definitions,
        runs=state.runs.set(run.run_id, run),
        runs_of=state.runs_of.set(run.version, state.runs_of.get(run.version, 0) + 1),
        queued_scheduled=state.queued_scheduled + (run.kind == "scheduled"),
        input_bytes=state.input_bytes + len(run.inputs),
        finished=finished,
        finished_order=order,
    )
    return without_kept(_with_outcome(queued(reopened, run), run, "live"), run.run_id)


def without_kept(state: Dag, run_id: str) -> Dag:
    """Without what is kept of an ended run that is live again."""
    ended = next((run for run in state.kept if run.run_id == run_id), None)
    if ended is None:
        return state
    rest = replace(state, kept=tuple(run for run in state.kept if run is not ended))
    return _without_run_of(rest, ended.version)


def _without_run_of(state: Dag, version: str) -> Dag:
    """One run of the version less."""
    left = state.runs_of[version] - 1
    runs_of = state.runs_of.set(version, left) if left else state.runs_of.delete(version)
    return without_unused_version(replace(state, runs_of=runs_of), version)
