"""State: what events add up to. Two aggregates, ``Dag`` and ``Pool``; all of it immutable.

A fold gives a new object that shares what did not change, so a batch that aborts costs nothing: the old object is still
there. Maps are ``immutables.Map`` (under a microsecond a change to 100,000 entries), sorted queues
``core.ordered.Ordered``.

Only what events say is kept. The indexes beside it (queue order, slots in use) hold nothing new: ``core.snapshot``
leaves them out and builds them again.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec
from immutables import Map

from tidewheel.core.attempt import AttemptKey
from tidewheel.core.backfill import Backfill
from tidewheel.core.commands import RunKind
from tidewheel.core.coverage import Coverage
from tidewheel.core.graph import Definition, Tally
from tidewheel.core.mapping import Fan, written_task
from tidewheel.core.ordered import Ordered
from tidewheel.core.parent import Parent
from tidewheel.core.shares import capacity_of
from tidewheel.core.transitions import LIVE, RunPhase, TaskPhase
from tidewheel.core.waits import Wait, Watcher
from tidewheel.core.workflow import RunEnd

#: How many finished run ids a DAG remembers, oldest dropped first, so that a repeated request finds its run.
#: Runs of slots need none: their coverage knows them.
REMEMBERED_RUNS = 10_000

#: Of how many runs that answer no slot a DAG remembers how they ended, for those who ask only then.
REMEMBERED_ENDS = 100


#: How large the ended runs of a DAG that are kept with their tasks may be together, in bytes of what ``EndedRun`` says
#: of its own. The newest stay, as many as the DAG's ``keep_runs`` says.
KEPT_BYTES = 1 << 20


class Stop(msgspec.Struct, frozen=True):
    """By whom and why a run, or the instances of a mapped task, are to end. Nothing of it begins any more."""

    actor: str
    reason: str


class TaskState(msgspec.Struct, frozen=True):
    """One task of one run."""

    phase: TaskPhase = "scheduled"
    attempt: int = 0
    #: Attempts that failed by their own code, and attempts that were lost.
    failures: int = 0
    losses: int = 0
    worker: str = ""
    mail_partition: int = -1
    #: The live lease's end.
    expires_at: int = 0
    started_at: int | None = None
    #: When the attempt became ready, when it was leased, and when the first one was.
    ready_at: int = 0
    leased_at: int = 0
    first_leased_at: int | None = None
    #: When the back-off is over.
    retry_at: int | None = None
    output: str | None = None
    #: What an attempt left for the next one, as JSON; None once the task has ended.
    checkpoint: str | None = None
    #: An instance's item, as JSON.
    item: str | None = None
    #: Of a mapped task that is deferred or has ended: its instances.
    fan: Fan | None = None
    #: Of an attempt that is deferred: what it waits for.
    wait: Wait | None = None
    cancel_requested: bool = False
    #: What a person decided about it while it was live, for when it is not any more.
    then: str = ""
    #: Of a mapped task: its instances are to end, and so many of those that have not were told so.
    stop: Stop | None = None
    told: int = 0
    #: Place among the DAG's tasks that wait for ``max_tasks``; None: not waiting there.
    ready_order: int | None = None
    upstreams: Tally = Tally()

    @property
    def awaits_turn(self) -> bool:
        """Whether its turn has not come: it waits for its upstreams, or an instance for those before it."""
        return self.phase == "scheduled" and self.ready_order is None

    @property
    def live(self) -> bool:
        """Whether the current attempt holds a lease."""
        return self.phase in LIVE

    @property
    def untold(self) -> int:
        """Of a mapped task: how many of its instances have neither ended nor been told to."""
        return 0 if self.fan is None else self.fan.items - sum(self.fan.ended) - self.told

    def waiting(self, attempt: int) -> Wait | None:
        """What this attempt waits for; None if it is over, or never was deferred."""
        return self.wait if self.phase == "deferred" and self.attempt == attempt else None


class RunState(msgspec.Struct, frozen=True):
    """One run that has not ended. Tasks without an entry are ``scheduled`` and untouched."""

    run_id: str
    version: str
    kind: RunKind
    order: int
    phase: RunPhase = "queued"
    logical_date: int | None = None
    interval_start: int | None = None
    interval_end: int | None = None
    inputs: str = "{}"
    created_at: int = 0
    #: It was cancelled, or fails by a deadline.
    stop: Stop | None = None
    started_at: int | None = None
    #: Indexes of the definition's deadlines that have fired.
    missed: tuple[int, ...] = ()
    #: Why it ends as failed, by a deadline; its tasks are then cancelled as those of a cancelled run.
    failure: str = ""
    #: The backfill that made it; empty: none did.
    backfill_id: str = ""
    #: The attempt of another run that asked for this one.
    parent: Parent | None = None
    #: Of a run that was restarted: the attempt from which its tasks go on counting.
    attempts_from: int = 0
    #: Tasks that have not ended.
    open_tasks: int = 0
    tasks: Map[str, TaskState] = Map()
    #: Of tasks that are gone, the last attempt: should they come back, they go on counting.
    attempts: Map[str, int] = Map()

    @property
    def cancel_requested(self) -> bool:
        """Whether nothing of it starts any more: it ends once its live attempts have."""
        return self.stop is not None

    def task(self, task: str) -> TaskState:
        """The state of a task that the run's definition has."""
        return self.tasks.get(task, UNTOUCHED)

    def stops(self, task: str) -> bool:
        """Whether nothing of the task begins any more, since its run is to end, or the instances that it is one of."""
        return self.stop is not None or self.task(written_task(task)).stop is not None


UNTOUCHED = TaskState()


class EndedRun(msgspec.Struct, frozen=True):
    """A run that has ended, as ``core.ended`` keeps it."""

    run_id: str
    version: str
    kind: RunKind
    phase: RunPhase
    logical_date: int | None
    interval_start: int | None
    interval_end: int | None
    inputs: str
    created_at: int
    #: How its tasks ended, packed.
    tasks: bytes
    #: The attempt from which tasks count of which nothing else is known.
    attempts_from: int = 0

    @property
    def size(self) -> int:
        """Bytes, of the ``KEPT_BYTES`` that a DAG's ended runs may have."""
        return len(self.tasks) + len(self.inputs)


#: Logical date (or creation), order of creation, run id: which run starts next.
RunPlace: TypeAlias = tuple[int, int, str]
#: Whether of a backfill, logical date, order of becoming ready, run id, task: which task is queued next.
ReadyPlace: TypeAlias = tuple[bool, int, int, str, str]


class Dag(msgspec.Struct, frozen=True):
    """One DAG: its definition, the schedule's cursor and its live runs."""

    dag: str
    seq: int = 0
    version: str = ""
    definitions: Map[str, Definition] = Map()
    #: Runs of each version, live or kept.
    runs_of: Map[str, int] = Map()
    paused: bool = False
    removed: bool = False
    #: From which instant on each trigger of the current definition takes records.
    trigger_since: Map[str, int] = Map()
    #: The last schedule slot that was answered, by a run or a recorded skip.
    cursor: int | None = None
    #: The newest slot that ever was, also when its schedule is gone: no later schedule begins before it.
    answered: int | None = None
    runs: Map[str, RunState] = Map()
    #: Ended runs that are kept, the oldest end first.
    kept: tuple[EndedRun, ...] = ()
    #: What the last of those that are not came to: see ``core.digests``.
    digests: tuple[bytes, ...] = ()
    #: Runs created and reopened so far; gives the next one its order.
    created: int = 0
    queued_runs: Ordered[RunPlace] = Ordered()
    #: How many of them the schedule made.
    queued_scheduled: int = 0
    #: Those that wait of backfills, which start after the others and have bounds of their own.
    queued_backfill: Ordered[RunPlace] = Ordered()
    #: Live runs of each backfill, also of one that is over.
    live_of: Map[str, int] = Map()
    #: Backfills that live, oldest first, and how many there ever were.
    backfills: tuple[Backfill, ...] = ()
    backfills_started: int = 0
    #: Which slots have a run.
    coverage: Coverage = ()
    #: Length of the inputs of all live runs together.
    input_bytes: int = 0
    #: Tasks that became ready so far while ``max_tasks`` was reached.
    held: int = 0
    ready: Ordered[ReadyPlace] = Ordered()
    #: Attempts queued, leased or running.
    active_tasks: int = 0
    #: Ended run ids with the order in which they ended, and the reverse.
    finished: Map[str, int] = Map()
    finished_order: Map[int, str] = Map()
    ended: int = 0
    #: How the last runs ended that answer no slot, the newest last.
    last_ends: tuple[tuple[str, RunEnd], ...] = ()
    #: Who is told when a run ends, by its id.
    watchers: Map[str, tuple[Watcher, ...]] = Map()

    @property
    def definition(self) -> Definition:
        """The current definition; KeyError if none was ever deployed."""
        return self.definitions[self.version]

    @property
    def running_runs(self) -> int:
        """Runs that count toward ``max_runs``: those of backfills do not."""
        return len(self.runs) - len(self.queued_runs) - sum(self.live_of.values())

    def backfill(self, backfill_id: str) -> Backfill:
        """A backfill that lives; KeyError if there is none."""
        for backfill in self.backfills:
            if backfill.backfill_id == backfill_id:
                return backfill
        raise KeyError(backfill_id)


#: Minus priority, logical date, arrival, key: the order within one DAG's queue.
QueuePlace: TypeAlias = tuple[int, int, int, AttemptKey]
#: Minus priority, live slots of the DAG, logical date, arrival, dag: the order among DAGs.
HeadPlace: TypeAlias = tuple[int, int, int, int, str]
#: Capacity that the pool needs for the DAG's next attempt not to exceed its share, dag.
SharePlace: TypeAlias = tuple[int, str]


class Waiting(msgspec.Struct, frozen=True):
    """An attempt in the pool's queue."""

    key: AttemptKey
    pool_slots: int
    priority: int
    logical_date: int
    arrival: int
    max_pool_share: int | None = None

    @property
    def place(self) -> QueuePlace:
        """Where it stands in its DAG's queue."""
        return (-self.priority, self.logical_date, self.arrival, self.key)


class SlotLease(msgspec.Struct, frozen=True):
    """An attempt that holds slots."""

    key: AttemptKey
    pool_slots: int
    worker: str


class PoolWorker(msgspec.Struct, frozen=True):
    """A worker that serves the pool."""

    slots: int
    mail_partition: int
    expires_at: int
    suspended: bool = False
    host: str = ""


class Pool(msgspec.Struct, frozen=True):
    """One pool: its workers, who waits and who holds slots. Its occupancy *is* the set of leases."""

    pool: str
    seq: int = 0
    slots: int | None = None
    description: str = ""
    arrivals: int = 0
    workers: Map[str, PoolWorker] = Map()
    waiting: Map[AttemptKey, Waiting] = Map()
    leases: Map[AttemptKey, SlotLease] = Map()
    #: The attempt that was first of all when something was given back, and waits for more of it, being wide.
    turn: AttemptKey | None = None
    #: Slots that other DAGs have given back since then. They still count as theirs where it matters who goes next: else
    #: what is kept for the wide attempt would move those before it who gave it back.
    given_back: Map[str, int] = Map()
    # Indexes over the above.
    queues: Map[str, Ordered[QueuePlace]] = Map()
    #: DAGs whose next attempt may go as far as its share is concerned, and all whose share is a matter of capacity.
    heads: Ordered[HeadPlace] = Ordered()
    shares: Ordered[SharePlace] = Ordered()
    #: Slots of the workers that may be given something.
    offered: int = 0
    #: Slots in use: in all, of each DAG, on each worker.
    used: int = 0
    live: Map[str, int] = Map()
    held: Map[str, int] = Map()
    #: Workers that may be given something, emptiest first: minus free slots, worker.
    free: Ordered[tuple[int, str]] = Ordered()
    #: All workers, widest first: minus slots, worker.
    widths: Ordered[tuple[int, str]] = Ordered()

    @property
    def capacity(self) -> int:
        """Slots that shares are counted of."""
        return capacity_of(self.slots, self.offered)

    @property
    def widest(self) -> int:
        """Slots of the largest worker; what is wider can not start now, whatever is given back."""
        return -self.widths.first()[0] if self.widths else 0


Aggregate: TypeAlias = Dag | Pool
