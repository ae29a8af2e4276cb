"""Deploying, removing, pausing a DAG, and its schedule: which slots are owed, and what happens to those that passed."""

from __future__ import annotations

import msgspec

from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.calendar import (
    begins_at,
    count_slots,
    due,
    fires_at,
    latest_slot,
    next_slot,
    previous_slot,
    same_slots,
)
from tidewheel.core.coverage import has_run
from tidewheel.core.decide.backfill import advance_backfills, end_backfills
from tidewheel.core.decide.decision import Decision
from tidewheel.core.decide.flow import start_run, start_runs, unfinished_scheduled
from tidewheel.core.decide.run import cancel_run, create_run
from tidewheel.core.decide.watch import tell_hopeless
from tidewheel.core.graph import Definition, define, unrunnable
from tidewheel.core.scope import rfc3339, slot_run_id
from tidewheel.core.state import Dag
from tidewheel.core.workflow import Schedule


def decide_deploy_dag(d: Decision[Dag], command: c.DeployDag) -> None:
    """Make the definition current. The same version again changes nothing, unless the DAG had been removed."""
    before = d.state
    if before.version == command.version and not before.removed:
        d.accept(f"version {command.version} is current already", created=False)
        return
    try:
        definition = define(command.version, command.definition)
    except (msgspec.DecodeError, RecursionError) as error:
        d.refuse("invalid", f"the definition is not a workflow: {error}")
        return
    if definition.workflow.id != command.dag:
        d.refuse("invalid", f"the definition's id is '{definition.workflow.id}', not '{command.dag}'")
        return
    if mistake := unrunnable(definition):
        d.refuse("invalid", f"the definition of '{command.dag}' can not run: {mistake}")
        return
    schedule_before = before.definition.workflow.schedule if before.version else None
    # What passed before a schedule's first deployment passed like what passes while a DAG is removed.
    resumed = before.removed or schedule_before is None
    if schedule_before is not None and not before.removed and not before.paused:
        _create_owed(d, resumed=False)  # what the old schedule owes by now is owed still
        if not same_slots(definition.workflow.schedule, schedule_before):
            _skip_rest(d, schedule_before)
    if not same_slots(definition.workflow.schedule, schedule_before):
        end_backfills(d, actor=command.actor, reason="the schedule was replaced")
    d.record(
        e.DagDeployed(
            dag=command.dag,
            at=d.now,
            actor=command.actor,
            version=command.version,
            definition=command.definition,
            source=command.source,
            paused=before.paused if before.version else command.paused,
            cursor=_cursor(d, definition.workflow.schedule, schedule_before),
        )
    )
    if resumed and not d.state.paused:
        _create_owed(d, resumed=True)
    d.accept()
    start_runs(d)
    tell_hopeless(d)


def _cursor(d: Decision[Dag], schedule: Schedule | None, before: Schedule | None) -> int | None:
    """A schedule that stays keeps its place; a changed one owes slots from now on, and so does a new one, but for
    those since its ``start`` that it is to catch up with.

    Never from before what is answered already, should the clock have stepped back: no slot gets a second run.
    """
    if schedule is None:
        return None
    if d.state.cursor is not None and same_slots(schedule, before):
        return d.state.cursor
    begin = d.now if before is not None else begins_at(schedule, d.now)
    return begin if d.state.answered is None else max(begin, d.state.answered)


def _skip_rest(d: Decision[Dag], schedule: Schedule) -> None:
    """Record what a schedule that goes away still owes beyond the backlog: a slot is never dropped in silence."""
    if d.state.cursor is None:
        return
    due_by = d.now - fires_at(schedule, d.state.dag, 0)  # the jitter, which is the same for every slot
    first, last = next_slot(schedule, d.state.cursor), latest_slot(schedule, d.state.cursor, due_by)
    if first is not None and last is not None:
        count = count_slots(schedule, d.state.cursor, last)
        reason = "the schedule was replaced while these slots waited"
        d.record(e.SlotsSkipped(dag=d.state.dag, at=d.now, first=first, last=last, count=count, reason=reason))


def decide_remove_dag(d: Decision[Dag], command: c.RemoveDag) -> None:
    """No new runs; live ones finish."""
    if not d.state.version:
        d.refuse("not_found", f"no DAG '{command.dag}' is deployed")
        return
    d.accept(created=not d.state.removed)
    if not d.state.removed:
        end_backfills(d, actor=command.actor, reason="the DAG was removed")
        d.record(e.DagRemoved(dag=command.dag, at=d.now, actor=command.actor, reason=command.reason))
        tell_hopeless(d)


def decide_pause_dag(d: Decision[Dag], command: c.PauseDag) -> None:
    """Nothing starts by itself until unpaused."""
    if not d.state.version:
        d.refuse("not_found", f"no DAG '{command.dag}' is deployed")
        return
    d.accept(created=not d.state.paused)
    if not d.state.paused:
        _create_owed(d, resumed=False)  # slots due before the pause are owed
        d.record(e.DagPaused(dag=command.dag, at=d.now, actor=command.actor, reason=command.reason))
        tell_hopeless(d)


def decide_unpause_dag(d: Decision[Dag], command: c.UnpauseDag) -> None:
    """Go on, after the catch-up policy has judged the slots that passed."""
    if not d.state.version:
        d.refuse("not_found", f"no DAG '{command.dag}' is deployed")
        return
    d.accept(created=d.state.paused)
    if d.state.paused:
        d.record(e.DagUnpaused(dag=command.dag, at=d.now, actor=command.actor, reason=command.reason))
        _create_owed(d, resumed=True)
        start_runs(d)
        tell_hopeless(d)


def decide_fire_schedule(d: Decision[Dag], command: c.FireSchedule) -> None:
    """Slots of the schedule have come due, or a backfill goes on."""
    _create_owed(d, resumed=False)
    advance_backfills(d)
    start_runs(d)
    tell_hopeless(d)


def _create_owed(d: Decision[Dag], *, resumed: bool) -> None:
    """Create the runs of every slot owed by now, and record those that the policy drops."""
    if not d.state.version or d.state.paused or d.state.removed:
        return
    definition = d.state.definition
    schedule = definition.workflow.schedule
    if schedule is None or d.state.cursor is None:
        return
    owed = due(schedule, d.state.dag, d.state.cursor, d.now, resumed=resumed)
    if owed.skipped is not None:
        first, last, count = owed.skipped
        d.record(e.SlotsSkipped(dag=d.state.dag, at=d.now, first=first, last=last, count=count, reason=owed.reason))
    for slot in owed.run:
        if d.state.queued_scheduled >= d.rules.backlog_runs:
            return
        _answer_slot(d, definition, schedule, slot)


def _answer_slot(d: Decision[Dag], definition: Definition, schedule: Schedule, slot: int) -> None:
    """Create the slot's run, as ``overlap`` says if earlier ones are not finished; a backfill may have been first."""
    if has_run(d.state.coverage, schedule, slot):
        reason = "a backfill has made the slot's run"
        d.record(e.SlotsSkipped(dag=d.state.dag, at=d.now, first=slot, last=slot, count=1, reason=reason))
        return
    if schedule.overlap in ("skip", "cancel_running"):
        unfinished = unfinished_scheduled(d.state)
        if unfinished and schedule.overlap == "skip":
            reason = f"overlap is skip, and run {unfinished[0].run_id} is not finished"
            d.record(e.SlotsSkipped(dag=d.state.dag, at=d.now, first=slot, last=slot, count=1, reason=reason))
            return
        for run in unfinished:
            reason = f"overlap is cancel_running, and slot {rfc3339(slot)} has come due"
            cancel_run(d, run.run_id, actor="scheduler", reason=reason)
    run_id = _create_scheduled(d, definition, schedule, slot)
    if run_id is not None and schedule.overlap == "allow":
        start_run(d, run_id)


def _create_scheduled(d: Decision[Dag], definition: Definition, schedule: Schedule, slot: int) -> str | None:
    run_id = slot_run_id(slot)
    mistakes = create_run(
        d,
        run_id=run_id,
        kind="scheduled",
        actor="scheduler",
        logical_date=slot,
        interval=(previous_slot(schedule, slot), slot),
        given={},
    )
    if mistakes:
        reason = "its inputs are not complete: " + "; ".join(mistakes)
        d.record(e.SlotsSkipped(dag=d.state.dag, at=d.now, first=slot, last=slot, count=1, reason=reason))
        return None
    return run_id
