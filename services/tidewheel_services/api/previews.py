"""What a backfill would do, as far as the read model knows: which slots lie in its range, and which have runs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice

import msgspec

from tidewheel.core.backfill import SLOTS_MAX, SlotRange, due_slots
from tidewheel.core.calendar import next_slot, previous_slot
from tidewheel.core.commands import BackfillOrder, Reprocess
from tidewheel.core.scope import rfc3339, slot_run_id
from tidewheel.core.workflow import Schedule
from tidewheel.core.zones import zone_of
from tidewheel.definition.scalars import ScalarMistake, moment_ms
from tidewheel_projections import reads, views
from tidewheel_services.api.problems import Problem
from tidewheel_services.api.shapes import BackfillPreview, BackfillSlot

#: Slots that a preview names: each costs some 60 microseconds.
PREVIEW_MAX = 10_000
#: In which states runs are run again.
_RESTARTED: Mapping[Reprocess, tuple[str, ...]] = {
    "none": (),
    "failed": ("failed", "cancelled"),
    "all": ("success", "failed", "cancelled"),
}


class _Known(Schedule, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """A schedule of which a later release may have written more."""


def schedule_of(dag: views.DagRow) -> Schedule:
    """The DAG's schedule. Raises ``Problem`` if it has none."""
    if not dag.schedule:
        detail = f"DAG '{dag.dag}' has no schedule, and so no slots to run; start runs with inputs instead"
        raise Problem("invalid", detail)
    return msgspec.convert(dag.schedule, _Known)


def instants_of(schedule: Schedule, begin: str, end: str) -> tuple[int, int]:
    """The first and the last instant of a range as people write it; a date is that whole day in the schedule's zone.

    Raises ``Problem``.
    """
    zone = zone_of(schedule.timezone)
    errors = []
    instants = []
    for name, text in (("from", begin), ("to", end)):
        try:
            instants.append(moment_ms(text, zone, last=name == "to"))
        except (ScalarMistake, OverflowError, ValueError) as error:
            errors.append({"where": f"body.{name}", "code": "time", "message": str(error)})
    if errors:
        raise Problem("invalid", "; ".join(f"{error['where']}: {error['message']}" for error in errors), errors=errors)
    return instants[0], instants[1]


def preview(
    connection: reads.Connection,
    dag: views.DagRow,
    schedule: Schedule,
    since: int,
    until: int,
    order: BackfillOrder,
    reprocess: Reprocess,
    limit: int,
) -> BackfillPreview:
    """What it would do with the first ``limit`` slots, and with how many of all. Raises ``Problem``."""
    found = due_slots(schedule, dag.dag, since, until, time.time_ns() // 1_000_000)
    if found is None:
        span = f"from {rfc3339(since)} to {rfc3339(until)}"
        raise Problem("invalid", f"the schedule of '{dag.dag}' has no slot {span} that has come due")
    if found.slots > SLOTS_MAX:
        raise Problem("invalid", f"the range has {found.slots:,} slots; a backfill takes {SLOTS_MAX:,} at most")
    there = reads.list_slot_runs(connection, dag.dag, found.first, found.last)
    # Runs of other slots, which an earlier schedule named, are in nobody's way.
    runs = {run.slot: run for run in there if next_slot(schedule, run.slot - 1) == run.slot}
    counts = Counter(_action(run, reprocess) for run in runs.values())
    items = [_item(slot, runs.get(slot), reprocess) for slot in islice(_slots(schedule, found, order), limit)]
    return BackfillPreview(
        dag=dag.dag,
        first=rfc3339(found.first) or "",
        last=rfc3339(found.last) or "",
        slots=found.slots,
        creates=found.slots - len(runs),
        restarts=counts["restart"],
        passes=counts["pass"],
        items=items,
        more=found.slots > len(items),
    )


def _item(slot: int, run: views.SlotRun | None, reprocess: Reprocess) -> BackfillSlot:
    return BackfillSlot(
        slot=rfc3339(slot) or "",
        run_id=slot_run_id(slot),
        action="create" if run is None else _action(run, reprocess),
        state=None if run is None else run.state,
    )


def _action(run: views.SlotRun, reprocess: Reprocess) -> str:
    return "restart" if run.state in _RESTARTED[reprocess] else "pass"


def _slots(schedule: Schedule, found: SlotRange, order: BackfillOrder) -> Iterator[int]:
    slot: int | None = found.first if order == "forward" else found.last
    while slot is not None and found.first <= slot <= found.last:
        yield slot
        slot = next_slot(schedule, slot) if order == "forward" else previous_slot(schedule, slot)
