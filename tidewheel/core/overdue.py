"""The deadlines of a run: at which instants it misses them, and in which words."""

from __future__ import annotations

from collections.abc import Iterator

from tidewheel.core import events as e
from tidewheel.core.state import Dag, RunState
from tidewheel.core.workflow import Deadline

_UNITS_MS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1))


def open_deadlines(state: Dag, run: RunState) -> Iterator[tuple[int, int]]:
    """The run's deadlines that have not fired and whose instant is known: that instant, and the deadline's index.

    The definition is that of the run's version.
    """
    for index, deadline in enumerate(state.definitions[run.version].workflow.deadlines):
        begin = _counted_from(run, deadline)
        if begin is not None and index not in run.missed:
            yield begin + deadline.within_ms, index


def next_deadline(state: Dag, run: RunState) -> int | None:
    """When the next of them passes; None if there is none."""
    return min((due for due, _ in open_deadlines(state, run)), default=None)


def missed(state: Dag, run: RunState, now: int) -> list[e.DeadlineMissed]:
    """What the run has missed by ``now`` and nobody has said yet, the earliest first."""
    deadlines = state.definitions[run.version].workflow.deadlines
    return [
        e.DeadlineMissed(
            dag=state.dag,
            run_id=run.run_id,
            at=now,
            deadline=index,
            counted_from=deadlines[index].from_,
            within_ms=deadlines[index].within_ms,
            due_at=due,
            action=deadlines[index].action,
            reason=_reason(run, deadlines[index]),
            before_ms=deadlines[index].before_ms,
        )
        for due, index in sorted(open_deadlines(state, run))
        if due <= now
    ]


def duration_text(length_ms: int) -> str:
    """As authors write it: ``1h30m``."""
    parts = []
    for unit, size_ms in _UNITS_MS:
        count, length_ms = divmod(length_ms, size_ms)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def _counted_from(run: RunState, deadline: Deadline) -> int | None:
    match deadline.from_:
        case "scheduled":
            return run.logical_date if run.kind == "scheduled" else run.created_at
        case "queued":
            return run.created_at
        case "started":
            return run.started_at


def _reason(run: RunState, deadline: Deadline) -> str:
    begins = {
        "scheduled": "its slot" if run.kind == "scheduled" else "its creation",
        "queued": "its creation",
        "started": "its start",
    }
    whole = f"{duration_text(deadline.within_ms + deadline.before_ms)} after {begins[deadline.from_]}"
    if deadline.before_ms:
        return f"{duration_text(deadline.before_ms)} before its deadline, {whole}, the run has not ended"
    return f"deadline missed: the run had not ended {whole}"
