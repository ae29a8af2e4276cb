"""Why a DAG has no further run, or when it has one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from tidewheel.core.calendar import fires_at, next_slot
from tidewheel.core.rules import Rules
from tidewheel.core.scope import rfc3339
from tidewheel.core.workflow import Schedule
from tidewheel_projections.views import BackfillRow, DagRow
from tidewheel_services.why.reason import Reason, number
from tidewheel_services.why.runs import paused


class DagFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A DAG, and what of its runs and triggers says something about the next one."""

    dag: DagRow
    #: As of the current version; None: it has none. Slots after the cursor are owed.
    schedule: Schedule | None = None
    slot_cursor: int | None = None
    triggers: int = 0
    #: Runs that wait for their turn, of them those of the schedule, and what the last slots were skipped for.
    queued: int = 0
    queued_scheduled: int = 0
    skipped: str = ""
    #: Those that have not ended.
    backfills: Sequence[BackfillRow] = ()
    #: Whether records that ask for runs of it wait on the topic ``triggers``.
    postponed: bool = False


#: Scheduled runs of a DAG that wait before its slots do, as schedulers have it.
_BACKLOG = next(field.default for field in msgspec.structs.fields(Rules) if field.name == "backlog_runs")


def why_no_run(facts: DagFacts, now_ms: int) -> Iterator[Reason]:
    """What there is to say of the DAG's next run."""
    dag = facts.dag
    if dag.removed:
        because = f" ({dag.reason})" if dag.reason else ""
        message = f"DAG {dag.dag} was removed{because}; deploy it again to run it"
        yield Reason(code="removed", message=message)
        return
    if dag.paused:
        yield Reason(code="paused", message=paused(dag))
    if facts.postponed:
        message = (
            f"{number(facts.queued, 'run')} of it wait already: what asks for more on the topic triggers waits there"
        )
        yield Reason(code="triggers_held_back", message=message)
    if facts.skipped:
        yield Reason(code="slots_skipped", message=f"the last slots that got no run: {facts.skipped}")
    for backfill in facts.backfills:
        yield Reason(code="backfill", message=_of_backfill(backfill))
    if facts.schedule is None:
        by = f"by {number(facts.triggers, 'trigger')}, or " if facts.triggers else ""
        message = f"it has no schedule: it runs {by}when somebody asks for it"
        yield Reason(code="no_schedule", message=message)
    elif not dag.paused:
        yield _next_slot(facts, facts.schedule, now_ms)


def _next_slot(facts: DagFacts, schedule: Schedule, now_ms: int) -> Reason:
    slot = next_slot(schedule, now_ms if facts.slot_cursor is None else facts.slot_cursor)
    if slot is None:
        return Reason(code="schedule_ended", message="its schedule has no slot any more")
    at = fires_at(schedule, facts.dag.dag, slot)
    if at > now_ms:
        return Reason(
            code="schedule", message=f"its next slot {rfc3339(slot)} is due at {rfc3339(at)}", until=rfc3339(at)
        )
    if facts.queued_scheduled >= _BACKLOG:
        message = (
            f"{facts.queued_scheduled:,} runs of its schedule wait already: slot {rfc3339(slot)} and later ones wait"
        )
        return Reason(code="slots_held_back", message=message)
    return Reason(code="schedule", message=f"slot {rfc3339(slot)} has come due: its run is about to be created")


def _of_backfill(row: BackfillRow) -> str:
    name = f"backfill {row.backfill_id}"
    if row.state == "paused":
        because = f" ({row.reason})" if row.reason else ""
        return f"{name} is paused{because}; `tidewheel backfill-resume {row.dag} {row.backfill_id}` lets it go on"
    if not row.live:
        return f"{name} is about to make its next run"
    live = f"{number(row.live, 'run')} of {name} {'has' if row.live == 1 else 'have'} not ended"
    if row.skipped + row.runs == row.slots:
        return f"{live}; it has come to its last slot"
    together = f"all {row.width:,} of its chunk have" if row.mode == "chunked" else "one of them has"
    return f"{live}: it makes further ones when {together}"
