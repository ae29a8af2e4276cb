"""The witness of one DAG's backfills: that each comes to every slot of its range once, in its order, within its
width."""

from __future__ import annotations

from collections.abc import Collection

from tidewheel.core import events as e
from tidewheel.core.calendar import count_slots, latest_slot, next_slot, previous_slot
from tidewheel.core.workflow import Schedule
from tidewheel.runtime.witness.findings import Findings


class BackfillRecord:
    """Where one stands."""

    __slots__ = ("at", "live", "made", "paused", "started")

    def __init__(self, started: e.BackfillStarted) -> None:
        self.started = started
        #: The slot that it came to last; None: none yet.
        self.at: int | None = None
        self.paused = False
        self.made = self.live = 0

    @property
    def over(self) -> bool:
        """Whether it has come to its last slot."""
        return self.at == (self.started.last if self.started.order == "forward" else self.started.first)

    def next(self, schedule: Schedule) -> int | None:
        """The slot that it must come to now."""
        if self.over:
            return None
        if self.started.order == "forward":
            return self.started.first if self.at is None else next_slot(schedule, self.at)
        return self.started.last if self.at is None else previous_slot(schedule, self.at)

    def has_room(self) -> bool:
        """Whether one more run may be made now."""
        width = self.started.width
        return self.live < width if self.started.mode == "parallel" else self.live == 0 or self.made % width > 0


class BackfillWitness:
    """Follows them. ``live`` has those that are not over."""

    __slots__ = ("_findings", "_ids", "_name", "live")

    def __init__(self, name: str, findings: Findings) -> None:
        self._name = name
        self._findings = findings
        self._ids: set[str] = set()
        self.live: dict[str, BackfillRecord] = {}

    def started(self, event: e.BackfillStarted, schedule: Schedule | None) -> None:
        """One is taken on, over slots of the schedule that are not another one's."""
        if event.backfill_id in self._ids:
            self._findings.add(4, f"{event.backfill_id} is started a second time")
        self._ids.add(event.backfill_id)
        for other, record in self.live.items():
            if record.started.first <= event.last and event.first <= record.started.last:
                self._findings.add(4, f"{event.backfill_id} is started over slots of {other}, which is not over")
        self.live[event.backfill_id] = BackfillRecord(event)
        if schedule is None:
            self._findings.add(4, f"{event.backfill_id} is started, but '{self._name}' has no schedule")
        else:
            self._check_stretch(event.backfill_id, event.first, event.last, event.slots, schedule)
        if event.last > event.at:
            self._findings.add(4, f"{event.backfill_id} reaches {event.last - event.at} ms into the future")

    def made(self, event: e.RunCreated | e.RunRestarted, schedule: Schedule | None) -> None:
        """A run of one is created or restarted."""
        record = self._known(event.backfill_id, f"run {event.run_id} is created")
        if record is None:
            return
        name = event.backfill_id
        if record.paused:
            self._findings.add(4, f"run {event.run_id} is created by {name}, which is paused")
        if isinstance(event, e.RunRestarted) and record.started.reprocess == "none":
            self._findings.add(4, f"run {event.run_id} begins anew by {name}, which leaves runs as they are")
        if not record.has_room():
            self._findings.add(5, f"run {event.run_id} is created beyond the width {record.started.width} of {name}")
        if event.logical_date is None:
            self._findings.add(4, f"run {event.run_id} of {name} has no logical date")
            return
        self._comes_to(record, name, event.logical_date, schedule)
        if schedule is not None:
            expected = (previous_slot(schedule, event.logical_date), event.logical_date)
            end = event.interval_end if isinstance(event, e.RunCreated) else event.logical_date
            if (event.interval_start, end) != expected:
                self._findings.add(4, f"run {event.run_id} does not cover the interval {expected} of its slot")
        record.at = event.logical_date
        record.made += 1
        record.live += 1

    def run_ended(self, backfill_id: str) -> None:
        """A run of one has ended."""
        if backfill_id in self.live:
            self.live[backfill_id].live -= 1

    def skipped(self, event: e.BackfillSlotsSkipped, schedule: Schedule | None, dates: Collection[int]) -> None:
        """One passes slots; ``dates`` are those of all runs."""
        record = self._known(event.backfill_id, "BackfillSlotsSkipped")
        if record is None:
            return
        name, forward = event.backfill_id, record.started.order == "forward"
        self._comes_to(record, name, event.first if forward else event.last, schedule)
        if schedule is not None:
            self._check_stretch(name, event.first, event.last, event.count, schedule)
        if event.answered and sum(event.first <= date <= event.last for date in dates) < event.count:
            self._findings.add(
                4, f"{name} passes {event.count} slots from {event.first} on, not all of which have runs"
            )
        if not event.reason:
            self._findings.add(9, "BackfillSlotsSkipped gives no reason")
        record.at = event.last if forward else event.first

    def switched(self, event: e.BackfillPaused | e.BackfillResumed) -> None:
        """One holds, or goes on."""
        record = self._known(event.backfill_id, type(event).__name__)
        if record is not None:
            record.paused = isinstance(event, e.BackfillPaused)

    def ended(self, event: e.BackfillFinished | e.BackfillCancelled) -> None:
        """One is over."""
        record = self._known(event.backfill_id, type(event).__name__)
        if record is None:
            return
        if isinstance(event, e.BackfillCancelled):
            if not event.reason:
                self._findings.add(9, f"BackfillCancelled of {event.backfill_id} gives no reason")
        elif not record.over:
            self._findings.add(4, f"{event.backfill_id} is finished at slot {record.at}, before its end")
        elif record.live:
            self._findings.add(6, f"{event.backfill_id} is finished while {record.live} of its runs live")
        del self.live[event.backfill_id]

    def check_none(self, why: str) -> None:
        """No backfill may outlive its schedule."""
        for name in self.live:
            self._findings.add(4, f"{name} is not over, though {why}")

    def _known(self, name: str, what: str) -> BackfillRecord | None:
        if name not in self.live:
            self._findings.add(4, f"{what}: {name or 'its backfill'} {'is over' if name in self._ids else 'never was'}")
        return self.live.get(name)

    def _comes_to(self, record: BackfillRecord, name: str, slot: int, schedule: Schedule | None) -> None:
        expected = None if schedule is None else record.next(schedule)
        if slot != expected:
            self._findings.add(4, f"{name} comes to slot {slot}; {expected} is next after {record.at}")

    def _check_stretch(self, name: str, first: int, last: int, count: int, schedule: Schedule) -> None:
        if last < first or next_slot(schedule, first - 1) != first or latest_slot(schedule, first - 1, last) != last:
            self._findings.add(4, f"{name} goes from {first} to {last}, which are no slots")
        elif (found := count_slots(schedule, first - 1, last)) != count:
            self._findings.add(4, f"{name} counts {count} slots from {first} to {last}, where there are {found}")
