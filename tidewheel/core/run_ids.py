"""Which runs of the schedule have been, by their ids, which say the slot."""

from __future__ import annotations

from tidewheel.core.coverage import has_run
from tidewheel.core.scope import SCHEDULED, parse_rfc3339, slot_run_id
from tidewheel.core.state import Dag
from tidewheel.core.workflow import RunEnd


def is_past_slot(state: Dag, run_id: str) -> bool:
    """Whether the id is that of a slot the cursor has passed, or that has a run: these runs are not remembered one by
    one."""
    if not run_id.startswith(SCHEDULED):
        return False
    if state.cursor is not None and run_id <= slot_run_id(state.cursor):
        return True
    slot, schedule = _slot(run_id), state.definition.workflow.schedule
    return slot is not None and schedule is not None and has_run(state.coverage, schedule, slot)


def known_end(state: Dag, run_id: str) -> RunEnd | None:
    """How a run ended that is not live any more; None if there was none, or it is too long ago.

    Anybody may name an instant; one that was no slot, though runs lie on both sides of it, has no run.
    """
    slot = _slot(run_id)
    if slot is not None and state.definition.workflow.schedule is not None:
        spans = [span for era in state.coverage if (span := era.span_of(slot)) is not None]
        return None if not spans or spans[0].outcome == "live" else spans[0].outcome
    return next((end for ended, end in reversed(state.last_ends) if ended == run_id), None)


def _slot(run_id: str) -> int | None:
    return parse_rfc3339(run_id[len(SCHEDULED) :]) if run_id.startswith(SCHEDULED) else None
