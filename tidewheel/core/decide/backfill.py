"""Deciding for backfills: starting, holding and ending them, and making their runs as earlier ones end.

A backfill goes on in steps, a turn of the scheduler apart (the timer ``FireSchedule``), each of ``STEP`` runs at most.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict, get_args

from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.backfill import BACKFILLS_MAX, SLOTS_MAX, WIDTH_MAX, Backfill, due_slots
from tidewheel.core.calendar import count_slots, previous_slot
from tidewheel.core.coverage import Outcome, answered_stretch, is_forgotten, span_of
from tidewheel.core.decide.decision import Decision
from tidewheel.core.decide.flow import start_runs
from tidewheel.core.decide.run import cancel_run, checked_inputs, create_run
from tidewheel.core.scope import rfc3339, slot_run_id
from tidewheel.core.state import Dag, RunState
from tidewheel.core.workflow import Schedule

#: Runs that are left as they are, by what is to be processed again.
_PASSED: Mapping[c.Reprocess, tuple[Outcome, ...]] = {
    "none": get_args(Outcome),
    "failed": ("live", "success"),
    "all": ("live",),
}
#: Runs that one decision makes, over all backfills of the DAG.
STEP = 100


def decide_start_backfill(d: Decision[Dag], command: c.StartBackfill) -> None:
    """Take the backfill on, unless it would come into another one's way; its first runs follow at once."""
    if not d.state.version:
        d.refuse("not_found", f"no DAG '{command.dag}' is deployed")
        return
    schedule = d.state.definition.workflow.schedule
    if mistake := _mistake(command, schedule):
        d.refuse("invalid", mistake)
        return
    if d.state.removed:
        d.refuse("conflict", f"DAG '{command.dag}' was removed; deploy it again to run it")
        return
    assert schedule is not None, "a DAG without a schedule is a mistake"
    found = due_slots(schedule, command.dag, command.since, command.until, d.now)
    if found is None:
        span = f"from {rfc3339(command.since)} to {rfc3339(command.until)}"
        d.refuse("invalid", f"the schedule of '{command.dag}' has no slot {span} that has come due")
        return
    if found.slots > SLOTS_MAX:
        d.refuse("invalid", f"the range has {found.slots:,} slots; a backfill takes {SLOTS_MAX:,} at most")
        return
    _start(d, command, found.first, found.last, found.slots)


def _mistake(command: c.StartBackfill, schedule: Schedule | None) -> str:
    """Why such a backfill can not be."""
    if schedule is None:
        return f"DAG '{command.dag}' has no schedule, and so no slots to run; start runs with inputs instead"
    if command.since > command.until:
        return f"the range ends ({rfc3339(command.until)}) before it begins ({rfc3339(command.since)})"
    if not 1 <= command.width <= WIDTH_MAX:
        return f"a backfill runs 1 to {WIDTH_MAX:,} slots at a time, not {command.width:,}"
    return ""


def _start(d: Decision[Dag], command: c.StartBackfill, first: int, last: int, slots: int) -> None:
    for other in d.state.backfills:
        if other.first <= last and first <= other.last:
            found = (other.first, other.last, other.order, other.mode, other.width, other.reprocess)
            wanted = (first, last, command.order, command.mode, command.width, command.reprocess)
            if found == wanted:
                d.accept("it goes on already; nothing was started", backfill_id=other.backfill_id, created=False)
            else:
                span = f"{rfc3339(other.first)} to {rfc3339(other.last)}"
                d.refuse("conflict", f"{other.backfill_id} ({span}) is not over; cancel it, or choose another range")
            return
    if len(d.state.backfills) >= BACKFILLS_MAX:
        d.refuse("conflict", f"{BACKFILLS_MAX} backfills of '{command.dag}' are not over; at most so many may be")
        return
    backfill_id = f"backfill-{d.state.backfills_started + 1}"
    d.record(
        e.BackfillStarted(
            dag=command.dag,
            at=d.now,
            actor=command.actor,
            backfill_id=backfill_id,
            first=first,
            last=last,
            slots=slots,
            order=command.order,
            mode=command.mode,
            width=command.width,
            reprocess=command.reprocess,
        )
    )
    d.accept(f"{slots:,} slots from {rfc3339(first)} to {rfc3339(last)}", backfill_id=backfill_id)


def decide_pause_backfill(d: Decision[Dag], command: c.PauseBackfill) -> None:
    """It makes no more runs."""
    backfill = _known(d, command.backfill_id)
    if backfill is None:
        return
    d.accept(backfill_id=backfill.backfill_id, created=not backfill.paused)
    if not backfill.paused:
        d.record(e.BackfillPaused(**_of(d, backfill), actor=command.actor, reason=command.reason))


def decide_resume_backfill(d: Decision[Dag], command: c.ResumeBackfill) -> None:
    """It goes on where it was."""
    backfill = _known(d, command.backfill_id)
    if backfill is None:
        return
    d.accept(backfill_id=backfill.backfill_id, created=backfill.paused)
    if backfill.paused:
        d.record(e.BackfillResumed(**_of(d, backfill), actor=command.actor, reason=command.reason))


def decide_cancel_backfill(d: Decision[Dag], command: c.CancelBackfill) -> None:
    """It makes no more runs, and what of it waits is cancelled."""
    backfill = _known(d, command.backfill_id)
    if backfill is None:
        return
    d.accept(backfill_id=backfill.backfill_id)
    reason = command.reason or "the backfill was cancelled"
    _end(d, backfill, actor=command.actor, reason=reason, running=command.running)
    start_runs(d)


def end_backfills(d: Decision[Dag], *, actor: str, reason: str) -> None:
    """End every backfill of the DAG before its end: it has no slots any more."""
    for backfill in d.state.backfills:
        _end(d, backfill, actor=actor, reason=reason, running=False)


def _end(d: Decision[Dag], backfill: Backfill, *, actor: str, reason: str, running: bool) -> None:
    d.record(e.BackfillCancelled(**_of(d, backfill), actor=actor, reason=reason))
    made = [run for run in d.state.runs.values() if run.backfill_id == backfill.backfill_id]
    for run in sorted(made, key=lambda run: run.order):
        if running or run.phase == "queued":
            cancel_run(d, run.run_id, actor=actor, reason=reason)


def _known(d: Decision[Dag], backfill_id: str) -> Backfill | None:
    """The backfill, if it lives; else the refusal is made."""
    found = next((one for one in d.state.backfills if one.backfill_id == backfill_id), None)
    if found is None:
        number = backfill_id.removeprefix("backfill-")
        was = number.isdecimal() and number.isascii() and 0 < int(number[:20]) <= d.state.backfills_started
        if was:
            d.refuse("conflict", f"{backfill_id} of '{d.state.dag}' is over")
        else:
            d.refuse("not_found", f"DAG '{d.state.dag}' has no backfill '{backfill_id}'")
    return found


class _Place(TypedDict):
    """What every event of a backfill says."""

    dag: str
    at: int
    backfill_id: str


def _of(d: Decision[Dag], backfill: Backfill) -> _Place:
    return {"dag": d.state.dag, "at": d.now, "backfill_id": backfill.backfill_id}


# --- going on ------------------------------------------------------------------------------------------------------


def advance_backfills(d: Decision[Dag]) -> None:
    """Let each backfill make the runs that it may make now, pass the slots that have one, and finish."""
    if d.state.removed or not d.state.version:
        return
    schedule = d.state.definition.workflow.schedule
    steps = STEP
    for backfill_id in [backfill.backfill_id for backfill in d.state.backfills]:
        while steps and _step(d, backfill_id, schedule):
            steps -= 1


def _step(d: Decision[Dag], backfill_id: str, schedule: Schedule | None) -> bool:
    """One slot, or one stretch of slots that have runs; false if there is nothing to do now."""
    backfill = d.state.backfill(backfill_id)
    live = d.state.live_of.get(backfill_id, 0)
    if backfill.exhausted and not live:
        d.record(e.BackfillFinished(**_of(d, backfill)))
        return False
    if not backfill.may_create(live):
        return False
    assert schedule is not None, "a backfill ends with its schedule"
    slot = backfill.next(schedule)
    assert slot is not None, f"{backfill_id} has not come to its end, which is a slot"
    if _passes(d, backfill, schedule, slot):
        return True
    before = span_of(d.state.coverage, schedule, slot)
    if before is None:
        _make_run(d, backfill, schedule, slot)
    elif slot_run_id(slot) in d.state.runs:
        _skip(d, backfill, slot, slot, 1, "its run goes on", answered=True)
    else:
        _restart_run(d, backfill, schedule, slot, before.attempts)
    return True


def _passes(d: Decision[Dag], backfill: Backfill, schedule: Schedule, slot: int) -> bool:
    """Pass the slots from ``slot`` on that have runs already."""
    within = (backfill.first, backfill.last)
    passed = _PASSED[backfill.reprocess]
    far = answered_stretch(d.state.coverage, schedule, slot, within, passed, backward=backfill.backward)
    if far is None:
        return False
    first, last = min(slot, far), max(slot, far)
    forgotten = is_forgotten(d.state.coverage, first)
    count = count_slots(schedule, first - 1, last)
    reason = "whether they have runs is not known any more: too much has been skipped since" if forgotten else ""
    _skip(d, backfill, first, last, count, reason or "they have runs already", answered=not forgotten)
    return True


def _make_run(d: Decision[Dag], backfill: Backfill, schedule: Schedule, slot: int) -> None:
    mistakes = create_run(
        d,
        run_id=slot_run_id(slot),
        kind="backfill",
        actor="scheduler",
        logical_date=slot,
        interval=(previous_slot(schedule, slot), slot),
        given={},
        backfill_id=backfill.backfill_id,
    )
    if mistakes:
        _skip_incomplete(d, backfill, slot, mistakes)


def _restart_run(d: Decision[Dag], backfill: Backfill, schedule: Schedule, slot: int, attempts: int) -> None:
    """Let the slot's run, which has ended, begin anew with the current definition. Of a slot's run only its slot was
    ever given, so its inputs are made again from that."""
    definition = d.state.definition
    draft = RunState(
        run_id=slot_run_id(slot),
        version=definition.version,
        kind="backfill",
        order=0,
        logical_date=slot,
        interval_start=previous_slot(schedule, slot),
        interval_end=slot,
    )
    inputs, mistakes = checked_inputs(d, draft, definition, {})
    if mistakes:
        _skip_incomplete(d, backfill, slot, mistakes)
        return
    d.record(
        e.RunRestarted(
            dag=d.state.dag,
            run_id=draft.run_id,
            at=d.now,
            version=definition.version,
            logical_date=slot,
            interval_start=draft.interval_start,
            interval_end=slot,
            inputs=inputs,
            attempts=attempts,
            backfill_id=backfill.backfill_id,
        )
    )


def _skip_incomplete(d: Decision[Dag], backfill: Backfill, slot: int, mistakes: Sequence[str]) -> None:
    reason = "its inputs are not complete: " + "; ".join(mistakes)
    _skip(d, backfill, slot, slot, 1, reason, answered=False)


def _skip(
    d: Decision[Dag], backfill: Backfill, first: int, last: int, count: int, reason: str, *, answered: bool
) -> None:
    skipped = e.BackfillSlotsSkipped(
        **_of(d, backfill), first=first, last=last, count=count, reason=reason, answered=answered
    )
    d.record(skipped)
