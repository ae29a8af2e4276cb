"""Folding a run's events: created, started, ended."""

from __future__ import annotations

from msgspec.structs import replace

from tidewheel.core import events as e
from tidewheel.core.fold.dag import without_unused_version
from tidewheel.core.state import REMEMBERED_RUNS, Dag, RunPlace, RunState
from tidewheel.core.transitions import next_run_phase


def place_of(run: RunState) -> RunPlace:
    """Where a queued run stands: by the time it stands for, then by creation."""
    when = run.created_at if run.logical_date is None else run.logical_date
    return (when, run.order, run.run_id)


def fold_run_created(state: Dag, event: e.RunCreated) -> Dag:
    """The run waits for its turn; a scheduled one moves the schedule's cursor to its slot."""
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
        open_tasks=len(definition.tasks),
    )
    return replace(
        state,
        seq=state.seq + 1,
        created=state.created + 1,
        cursor=event.logical_date if event.kind == "scheduled" else state.cursor,
        answered=event.logical_date if event.kind == "scheduled" else state.answered,
        runs=state.runs.set(run.run_id, run),
        runs_of=state.runs_of.set(run.version, state.runs_of.get(run.version, 0) + 1),
        queued_runs=state.queued_runs.add(place_of(run)),
        queued_scheduled=state.queued_scheduled + (run.kind == "scheduled"),
        input_bytes=state.input_bytes + len(run.inputs),
    )


def fold_run_started(state: Dag, event: e.RunStarted) -> Dag:
    """It leaves the queue of runs."""
    run = state.runs[event.run_id]
    return replace(
        state,
        seq=state.seq + 1,
        runs=state.runs.set(run.run_id, replace(run, phase=next_run_phase(run.phase, event), started_at=event.at)),
        queued_runs=state.queued_runs.remove(place_of(run)),
        queued_scheduled=state.queued_scheduled - (run.kind == "scheduled"),
    )


def fold_run_cancel_requested(state: Dag, event: e.RunCancelRequested) -> Dag:
    """Nothing of it starts any more."""
    run = state.runs[event.run_id]
    cancelling = replace(run, phase=next_run_phase(run.phase, event), cancel_requested=True)
    return replace(state, seq=state.seq + 1, runs=state.runs.set(run.run_id, cancelling))


def fold_deadline_missed(state: Dag, event: e.DeadlineMissed) -> Dag:
    """It does not fire again. One that fails the run stops it as a cancel does, unless that came first."""
    run = state.runs[event.run_id]
    assert event.deadline not in run.missed, f"deadline {event.deadline} of run {run.run_id} is missed a second time"
    missed = replace(run, phase=next_run_phase(run.phase, event), missed=(*run.missed, event.deadline))
    if event.action == "fail" and not run.cancel_requested:
        missed = replace(missed, cancel_requested=True, failure=event.reason)
    return replace(state, seq=state.seq + 1, runs=state.runs.set(run.run_id, missed))


def fold_run_ended(state: Dag, event: e.RunSucceeded | e.RunFailed | e.RunCancelled) -> Dag:
    """It leaves memory, but for its id; the oldest remembered id makes room."""
    run = state.runs[event.run_id]
    next_run_phase(run.phase, event)
    queued = state.queued_runs.remove(place_of(run)) if run.phase == "queued" else state.queued_runs
    finished, order = state.finished, state.finished_order
    if run.kind != "scheduled":
        finished, order = finished.set(run.run_id, state.ended), order.set(state.ended, run.run_id)
        oldest = state.ended - REMEMBERED_RUNS
        if oldest in order:
            finished, order = finished.delete(order[oldest]), order.delete(oldest)
    ended = replace(
        state,
        seq=state.seq + 1,
        runs=state.runs.delete(run.run_id),
        runs_of=state.runs_of.set(run.version, state.runs_of[run.version] - 1),
        queued_runs=queued,
        queued_scheduled=state.queued_scheduled - (run.phase == "queued" and run.kind == "scheduled"),
        input_bytes=state.input_bytes - len(run.inputs),
        finished=finished,
        finished_order=order,
        ended=state.ended + (run.kind != "scheduled"),
    )
    return without_unused_version(_dropping_zero(ended, run.version), run.version)


def _dropping_zero(state: Dag, version: str) -> Dag:
    return state if state.runs_of[version] else replace(state, runs_of=state.runs_of.delete(version))
