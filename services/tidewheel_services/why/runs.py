"""Why a run has not started."""

from __future__ import annotations

from collections.abc import Iterator

from tidewheel_projections.views import DagRow, RunRow
from tidewheel_projections.waiting import QueueOfRuns
from tidewheel_services.why.reason import Reason, number
from tidewheel_services.why.written import Written


def why_queued(run: RunRow, dag: DagRow, written: Written, queue: QueueOfRuns) -> Iterator[Reason]:
    """The reasons of a run in state ``queued``; ``written`` is its version's."""
    if dag.paused:
        yield Reason(code="paused", message=paused(dag))
        return
    if run.backfill_id and not run.reopened:
        yield _starting()  # its backfill made it when there was room
        return
    limit = written.concurrency.max_runs
    if run.kind == "scheduled" and queue.scheduled and _replaces(written):
        others = " and ".join(queue.scheduled) if len(queue.scheduled) < 3 else f"{queue.scheduled[0]} and others"
        message = f"waits until {others} has ended: a scheduled run is at work alone (overlap: cancel_running)"
        yield Reason(code="overlap", message=message)
    elif queue.running >= limit:
        behind = f"; {number(queue.before, 'run')} of the DAG {_goes(queue.before)} before it" if queue.before else ""
        runs = "1 run of the DAG is" if queue.running == 1 else f"{queue.running:,} runs of the DAG are"
        message = f"{runs} at work, and its max_runs allows {limit:,}{behind}"
        yield Reason(code="max_runs", message=message)
    elif queue.before:
        message = f"{number(queue.before, 'run')} of the DAG {_goes(queue.before)} before it"
        yield Reason(code="queue", message=message)
    else:
        yield _starting()


def paused(dag: DagRow) -> str:
    """That the DAG is, why, and how to go on."""
    because = f" ({dag.reason})" if dag.reason else ""
    return f"DAG {dag.dag} is paused{because}; `tidewheel unpause {dag.dag}` lets it go on"


def _goes(count: int) -> str:
    return "goes" if count == 1 else "go"


def _replaces(written: Written) -> bool:
    return written.schedule is not None and written.schedule.overlap == "cancel_running"


def _starting() -> Reason:
    return Reason(code="starting", message="nothing holds it back: it is about to start")
