"""Folding the restart of a slot's run, of which nothing was kept but how it ended and by which attempt at most."""

from __future__ import annotations

from immutables import Map
from msgspec.structs import replace

from tidewheel.core import events as e
from tidewheel.core.coverage import with_outcome
from tidewheel.core.fold.backfill import with_run_of_backfill
from tidewheel.core.fold.run import counted, queued, without_kept
from tidewheel.core.state import Dag, RunState, TaskState


def fold_run_restarted(state: Dag, event: e.RunRestarted) -> Dag:
    """It is live again and of the backfill, with nothing done."""
    assert event.run_id not in state.runs, f"run {event.run_id} is restarted while it is live"
    definition = state.definitions[event.version]
    run = RunState(
        run_id=event.run_id,
        version=event.version,
        kind="backfill",
        order=state.created,
        logical_date=event.logical_date,
        interval_start=event.interval_start,
        interval_end=event.logical_date,
        inputs=event.inputs,
        created_at=event.at,
        backfill_id=event.backfill_id,
        open_tasks=len(definition.tasks),
        attempts_from=event.attempts,
        tasks=Map({name: TaskState(attempt=event.attempts) for name in definition.tasks}),
    )
    restarted = replace(
        state,
        seq=state.seq + 1,
        created=state.created + 1,
        runs=state.runs.set(run.run_id, run),
        runs_of=state.runs_of.set(run.version, state.runs_of.get(run.version, 0) + 1),
        input_bytes=state.input_bytes + len(run.inputs),
        coverage=with_outcome(
            state.coverage,
            definition.workflow.schedule,
            event.interval_start,
            event.logical_date,
            "live",
            event.attempts,
        ),
    )
    moved = with_run_of_backfill(restarted, event.backfill_id, event.logical_date)
    return without_kept(queued(counted(moved, run, 1), run), run.run_id)
