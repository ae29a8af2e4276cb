"""Runs: what their events leave in ``runs``, with the counts of their tasks by state."""

from __future__ import annotations

from typing import Any, TypeAlias, get_args

import msgspec

from tidewheel.core import events as e
from tidewheel.core.scope import rfc3339
from tidewheel.core.transitions import TaskPhase
from tidewheel.core.workflow import RunEnd

#: In the order of a task's life, which is the order of the counts.
TASK_STATES: tuple[TaskPhase, ...] = get_args(TaskPhase)
RUN_ENDED = frozenset(get_args(RunEnd))


RunChange: TypeAlias = (
    e.RunStarted
    | e.RunReopened
    | e.RunCancelRequested
    | e.DeadlineMissed
    | e.RunSucceeded
    | e.RunFailed
    | e.RunCancelled
)


class Run(msgspec.Struct):
    """A row of ``runs``. ``counts`` is a dict here and JSON in the table (``row_of``); ``deadlines_missed`` is JSON."""

    dag: str
    run_id: str
    version: str
    kind: str
    state: str
    logical_date: int | None
    interval_start: int | None
    interval_end: int | None
    inputs: str
    created_at: int
    started_at: int | None
    ended_at: int | None
    cancel_requested_at: int | None
    reason: str
    deadlines_missed: str
    trigger: str
    origin: str
    actor: str
    #: The run that this one repeats; empty: none.
    rerun_of: str
    backfill_id: str
    #: How often it went on after it had ended.
    reopened: int
    #: The attempt of another run that asked for this one; empty and 0: none did.
    parent_dag: str
    parent_run_id: str
    parent_task: str
    parent_attempt: int
    tasks: int
    counts: dict[str, int]
    shard_seq: int


def fold_run_created(event: e.RunCreated, tasks: int, shard_seq: int) -> Run:
    """A new run, queued, its tasks scheduled."""
    return Run(
        dag=event.dag,
        run_id=event.run_id,
        version=event.version,
        kind=event.kind,
        state="queued",
        logical_date=event.logical_date,
        interval_start=event.interval_start,
        interval_end=event.interval_end,
        inputs=event.inputs,
        created_at=event.at,
        started_at=None,
        ended_at=None,
        cancel_requested_at=None,
        reason=event.reason,
        deadlines_missed="[]",
        trigger=event.trigger,
        origin=event.origin,
        actor=event.actor,
        rerun_of=event.rerun_of,
        backfill_id=event.backfill_id,
        reopened=0,
        parent_dag=event.parent_dag,
        parent_run_id=event.parent_run_id,
        parent_task=event.parent_task,
        parent_attempt=event.parent_attempt or 0,
        tasks=tasks,
        counts={"scheduled": tasks},
        shard_seq=shard_seq,
    )


def fold_run_restarted(row: Run, event: e.RunRestarted, shard_seq: int) -> None:
    """It had ended, and begins anew for a backfill."""
    row.version = event.version
    row.kind = "backfill"
    row.state = "queued"
    row.inputs = event.inputs
    row.started_at = row.ended_at = row.cancel_requested_at = None
    row.reason = ""
    row.deadlines_missed = "[]"
    row.backfill_id = event.backfill_id
    row.shard_seq = shard_seq


def fold_run_changed(
    row: Run,
    event: RunChange,
    shard_seq: int,
) -> None:
    """Started, reopened, asked to cancel, late, or ended."""
    row.shard_seq = shard_seq
    match event:
        case e.RunStarted():
            row.state = "running"
            row.started_at = event.at
        case e.RunReopened():
            row.state = "queued"
            row.version = event.version
            row.inputs = event.inputs
            row.started_at = row.ended_at = row.cancel_requested_at = None
            row.reason = f"reopened by {event.actor}" + (f": {event.reason}" if event.reason else "")
            row.reopened += 1
        case e.RunCancelRequested():
            row.cancel_requested_at = event.at
            row.reason = event.reason
        case e.DeadlineMissed():
            row.deadlines_missed = _with_missed(row.deadlines_missed, event)
        case e.RunSucceeded():
            row.state = "success"
            row.ended_at = event.at
            row.reason = ""
        case e.RunFailed():
            row.state = "failed"
            row.ended_at = event.at
            row.reason = event.reason
        case e.RunCancelled():
            row.state = "cancelled"
            row.ended_at = event.at
            row.reason = event.reason or row.reason


def _with_missed(known: str, event: e.DeadlineMissed) -> str:
    missed = {
        "deadline": event.deadline,
        "from": event.counted_from,
        "within_ms": event.within_ms,
        "before_ms": event.before_ms,
        "action": event.action,
        "due_at": rfc3339(event.due_at),
        "at": rfc3339(event.at),
        "reason": event.reason,
    }
    return msgspec.json.encode([*msgspec.json.decode(known, type=list[object]), missed]).decode()


def row_of(run: Run) -> tuple[object, ...]:
    """The row as it is written."""
    counts = run.counts
    shown = {state: counts[state] for state in TASK_STATES if counts.get(state)}
    return (*msgspec.structs.astuple(run)[:-2], msgspec.json.encode(shown).decode(), run.shard_seq)


def run_from(values: tuple[Any, ...]) -> Run:
    """The row as it was read."""
    counts = msgspec.json.decode(str(values[-2]), type=dict[str, int])
    return Run(*(*values[:-2], counts, values[-1]))
