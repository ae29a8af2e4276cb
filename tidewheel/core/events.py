"""Events: facts on the journal, and nothing else.

Every event of a ``Dag`` carries ``dag`` and lies on the ``events`` topic; every event of a ``Pool`` carries ``pool``
and lies on ``pool-events``; ``JournalRepaired`` lies on either. ``at`` is the decider's clock in milliseconds since the
epoch, ``actor`` who caused it. Where it stands in the journal (``seq, shard_seq, writer, cause, chain``) is added by
``runtime.shard`` when it is written and comes back as ``Recorded``. Each event has its schema in ``schemas/events/``; a
shipped event's meaning never changes.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from tidewheel.core.commands import BackfillMode, BackfillOrder, FailureKind, Mark, Reprocess, RunKind
from tidewheel.core.workflow import DeadlineAction, DeadlineFrom


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all events."""

    at: int
    actor: str = "scheduler"


class DagEvent(Event, frozen=True, kw_only=True):
    """An event of one DAG."""

    dag: str


class RunEvent(DagEvent, frozen=True, kw_only=True):
    """An event of one run."""

    run_id: str


class BackfillEvent(DagEvent, frozen=True, kw_only=True):
    """An event of one backfill."""

    backfill_id: str


class TaskEvent(RunEvent, frozen=True, kw_only=True):
    """An event of one task of one run; ``attempt`` is 0 when no attempt was ever made."""

    task: str
    attempt: int


class PoolEvent(Event, frozen=True, kw_only=True):
    """An event of one pool."""

    pool: str


class SlotEvent(PoolEvent, frozen=True, kw_only=True):
    """An event of one attempt in one pool."""

    dag: str
    run_id: str
    task: str
    attempt: int


# --- DAG ---------------------------------------------------------------------------------------------------------


class DagDeployed(DagEvent, frozen=True, kw_only=True):
    """A definition became current. ``cursor``: schedule slots after this instant are owed (None: no schedule)."""

    version: str
    definition: str
    source: str = ""
    paused: bool = False
    cursor: int | None = None


class DagRemoved(DagEvent, frozen=True, kw_only=True):
    """The DAG creates no more runs."""

    reason: str = ""


class DagPaused(DagEvent, frozen=True, kw_only=True):
    """Scheduled runs stop, requested runs wait."""

    reason: str = ""


class DagUnpaused(DagEvent, frozen=True, kw_only=True):
    """The DAG goes on; of the slots that passed, ``SlotsSkipped`` follows for those that the catch-up policy drops."""

    reason: str = ""


class SlotsSkipped(DagEvent, frozen=True, kw_only=True):
    """The schedule's cursor moved to ``last`` without runs: ``count`` slots from ``first`` on, for ``reason``."""

    first: int
    last: int
    count: int
    reason: str


# --- Backfill ---------------------------------------------------------------------------------------------------------


class BackfillStarted(BackfillEvent, frozen=True, kw_only=True):
    """Runs are to be made for the ``slots`` slots of the schedule from ``first`` to ``last``, both included."""

    first: int
    last: int
    slots: int
    order: BackfillOrder = "forward"
    mode: BackfillMode = "parallel"
    width: int = 1
    reprocess: Reprocess = "none"


class BackfillSlotsSkipped(BackfillEvent, frozen=True, kw_only=True):
    """The backfill passed ``count`` slots, ``first`` the earliest and ``last`` the latest, without making runs.

    ``answered``: because each of them has a run already.
    """

    first: int
    last: int
    count: int
    reason: str
    answered: bool = True


class BackfillPaused(BackfillEvent, frozen=True, kw_only=True):
    """It makes no more runs until it is resumed."""

    reason: str = ""


class BackfillResumed(BackfillEvent, frozen=True, kw_only=True):
    """It goes on where it was."""

    reason: str = ""


class BackfillCancelled(BackfillEvent, frozen=True, kw_only=True):
    """It is over before its end: slots that it has not come to keep what they had."""

    reason: str


class BackfillFinished(BackfillEvent, frozen=True, kw_only=True):
    """It has come to every slot, and every run that it made has ended."""


# --- Run ---------------------------------------------------------------------------------------------------------


class RunCreated(RunEvent, frozen=True, kw_only=True):
    """A run exists, queued. Of kind ``scheduled``, it answers the slot ``logical_date`` and moves the cursor there; of
    kind ``backfill``, it moves the cursor of its backfill. Of kind ``triggered`` or ``workflow``, an attempt of another
    run asked for it; ``depth`` runs stand above it. ``rerun_of`` names the run that it repeats."""

    version: str
    kind: RunKind
    logical_date: int | None = None
    interval_start: int | None = None
    interval_end: int | None = None
    inputs: str = "{}"
    #: The DAG's trigger that asked, and the record it answered as ``topic/partition/offset``; empty: none of them did.
    trigger: str = ""
    origin: str = ""
    rerun_of: str = ""
    reason: str = ""
    #: The backfill that made it; empty: none did.
    backfill_id: str = ""
    parent_dag: str = ""
    parent_run_id: str = ""
    parent_task: str = ""
    parent_attempt: int | None = None
    depth: int | None = None


class RunRestarted(RunEvent, frozen=True, kw_only=True):
    """The run of a slot, which had ended, begins anew for a backfill: it is queued, and so is all that it had come to
    undone. Its tasks' attempts go on counting from ``attempts``, the highest that any of them had."""

    version: str
    logical_date: int
    interval_start: int | None = None
    interval_end: int | None = None
    inputs: str = "{}"
    attempts: int
    backfill_id: str


class RunStarted(RunEvent, frozen=True, kw_only=True):
    """Its tasks may run: it counts toward the DAG's ``max_runs``."""


class RunReopened(RunEvent, frozen=True, kw_only=True):
    """A person let a run that had ended go on: it waits for its turn again, with ``version``. Deadlines are past."""

    version: str
    inputs: str
    reason: str = ""
    #: What it had come to (``core.ended.packed``), if it was not kept; and the definition, if that was not either.
    recalled: bytes | None = None
    definition: str = ""


class TasksCleared(RunEvent, frozen=True, kw_only=True):
    """Tasks of a run begin anew, as if they never had: their ends and outputs are gone, their attempts go on counting.

    Both are JSON lists of ids and instances: ``tasks`` are ``scheduled`` by this, those of ``ending`` once their live
    attempts have ended. The instances of a mapped task in ``tasks`` are gone; one in ``tasks`` itself lets it wait
    again.
    """

    tasks: str
    ending: str = "[]"
    reason: str = ""


class RunCancelRequested(RunEvent, frozen=True, kw_only=True):
    """No task of the run starts any more; it ends once its live attempts have."""

    reason: str = ""


class DeadlineMissed(RunEvent, frozen=True, kw_only=True):
    """The run had not ended at ``due_at``, ``within_ms`` after the instant that ``counted_from`` names. ``deadline`` is
    the index among those of the run's version. Each is missed at most once, and before the run's end.

    ``action`` ``fail`` ends the run: nothing of it starts any more, and it fails with ``reason`` once its live attempts
    have ended. ``before_ms`` above 0: only a warning, so long before another deadline.
    """

    deadline: int
    counted_from: DeadlineFrom
    within_ms: int
    due_at: int
    action: DeadlineAction
    reason: str
    before_ms: int = 0


class RunSucceeded(RunEvent, frozen=True, kw_only=True):
    """Every task ended and no leaf failed."""


class RunFailed(RunEvent, frozen=True, kw_only=True):
    """Every task ended and a leaf is failed or upstream_failed; ``reason`` names it."""

    reason: str


class RunCancelled(RunEvent, frozen=True, kw_only=True):
    """The run was cancelled and nothing of it is live."""

    reason: str = ""


class RunWatched(RunEvent, frozen=True, kw_only=True):
    """An attempt, perhaps of another DAG, is told when the run has ended. The run may be yet to come."""

    watcher_dag: str
    watcher_run_id: str
    watcher_task: str
    watcher_attempt: int


class RunUnwatched(RunEvent, frozen=True, kw_only=True):
    """The run will never be, for ``reason``: whoever watched it has been told so."""

    reason: str


# --- Task --------------------------------------------------------------------------------------------------------


class TaskReady(TaskEvent, frozen=True, kw_only=True):
    """Its trigger rule holds, but the DAG's ``max_tasks`` is reached: it waits in the DAG, in order."""


class TaskExpanded(TaskEvent, frozen=True, kw_only=True):
    """A mapped task has ``items`` instances. This names those from ``first`` on: ``values``, a JSON list of their
    items. Many items are named by several events."""

    items: int
    first: int
    values: str


#: What a task that is deferred by itself waits for.
WaitsFor = Literal["time", "kafka", "http", "run", "approval", "trigger", "workflow"]


class TaskDeferred(TaskEvent, frozen=True, kw_only=True):
    """Attempt ``attempt`` began, and waits without a worker and without slots.

    ``detail`` is JSON: what it waits for, with expressions evaluated. It goes on at ``resume_at``, and gives up at
    ``timeout_at``; None: not by itself.
    """

    waits_for: WaitsFor
    resume_at: int | None = None
    timeout_at: int | None = None
    detail: str = "{}"


class LaunchPostponed(TaskEvent, frozen=True, kw_only=True):
    """The DAG that the attempt asks for a run has no room: it asks again at ``ask_at``. None: its run exists now."""

    ask_at: int | None = None
    reason: str = ""


class TaskQueued(TaskEvent, frozen=True, kw_only=True):
    """Attempt ``attempt`` waits in its pool."""

    pool: str
    pool_slots: int


class TaskLeased(TaskEvent, frozen=True, kw_only=True):
    """``worker`` may run the attempt until ``expires_at``, unless renewed. The attempt number is the fencing token."""

    worker: str
    mail_partition: int
    expires_at: int


class TaskStarted(TaskEvent, frozen=True, kw_only=True):
    """The worker began; the lease now ends at ``expires_at``."""

    worker: str
    started_at: int
    expires_at: int


class TaskHeartbeat(TaskEvent, frozen=True, kw_only=True):
    """The lease was renewed until ``expires_at``."""

    worker: str
    expires_at: int
    progress: str | None = None


class TaskCheckpointed(TaskEvent, frozen=True, kw_only=True):
    """The attempt left ``checkpoint`` (JSON text) for the task's next one, instead of what was there."""

    worker: str
    checkpoint: str


class TaskSucceeded(TaskEvent, frozen=True, kw_only=True):
    """The attempt ended well; its output is what downstream tasks see."""

    worker: str
    started_at: int
    ended_at: int
    output: str | None = None


class TaskFailed(TaskEvent, frozen=True, kw_only=True):
    """The attempt failed. ``retry_at`` names when the next one is queued; None: the task is failed for good.

    ``worker`` is empty and ``started_at`` None when nothing ran.
    """

    worker: str
    started_at: int | None
    ended_at: int
    kind: FailureKind
    message: str
    exit_code: int | None = None
    retry_at: int | None = None
    #: Of an HTTP answer that was not expected.
    http_status: int | None = None


class LeaseExpired(TaskEvent, frozen=True, kw_only=True):
    """The worker fell silent: the attempt is lost, by the budget ``infra_retries``.

    ``retry_at`` as in ``TaskFailed``.
    """

    worker: str
    message: str
    retry_at: int | None = None


class TaskSkipped(TaskEvent, frozen=True, kw_only=True):
    """The task does not run, and that is no failure."""

    reason: str


class TaskUpstreamFailed(TaskEvent, frozen=True, kw_only=True):
    """The task can not run because of its upstreams."""

    reason: str


class TaskCancelRequested(TaskEvent, frozen=True, kw_only=True):
    """The worker is told to end the live attempt; of a mapped task: one instance has failed, the others are to end."""

    worker: str
    reason: str = ""


class TaskCancelled(TaskEvent, frozen=True, kw_only=True):
    """The task will not run any more, and nothing of it is running.

    ``then`` names what a person had decided about it while it was live: the state it was marked with, or
    ``scheduled``, since it was cleared. Empty: it is cancelled.
    """

    worker: str = ""
    reason: str = ""
    then: str = ""


class TaskMarked(TaskEvent, frozen=True, kw_only=True):
    """A person said how the task ended. ``ending``: its live attempts have to end before it has."""

    state: Mark
    reason: str = ""
    output: str | None = None
    ending: bool = False


class ReportRefused(TaskEvent, frozen=True, kw_only=True):
    """A report of an attempt that is not the current, leased one; it changed nothing."""

    worker: str
    report: str
    reason: str


# --- Pool --------------------------------------------------------------------------------------------------------


class PoolConfigured(PoolEvent, frozen=True, kw_only=True):
    """The pool's slot limit was set (None: its workers' slots are the limit)."""

    slots: int | None = None
    description: str = ""


class WorkerJoined(PoolEvent, frozen=True, kw_only=True):
    """The worker serves the pool with ``slots`` until ``expires_at``, unless renewed."""

    worker: str
    slots: int
    mail_partition: int
    expires_at: int
    host: str = ""


class WorkerRenewed(PoolEvent, frozen=True, kw_only=True):
    """The worker is there until ``expires_at``."""

    worker: str
    expires_at: int


class WorkerSuspended(PoolEvent, frozen=True, kw_only=True):
    """A lease of this worker expired: it gets nothing more until it renews."""

    worker: str
    reason: str = ""


class WorkerLeft(PoolEvent, frozen=True, kw_only=True):
    """The worker is gone (it said so, or fell silent); leases it holds stay counted until their Dag releases them."""

    worker: str
    reason: str = ""


class TaskEnqueued(SlotEvent, frozen=True, kw_only=True):
    """An attempt waits in this pool. Its DAG may hold ``max_pool_share`` percent of the slots; None: no bound."""

    pool_slots: int
    priority: int
    logical_date: int
    max_pool_share: int | None = None


class SlotGranted(SlotEvent, frozen=True, kw_only=True):
    """The attempt has slots on ``worker``, held until released."""

    worker: str


class SlotReleased(SlotEvent, frozen=True, kw_only=True):
    """The attempt left the pool: out of the queue, or its slots are free again."""

    reason: str = ""


class SlotRefused(SlotEvent, frozen=True, kw_only=True):
    """The attempt can never be placed here; it left the queue."""

    reason: str


# --- the journal itself --------------------------------------------------------------------------------------------


class JournalRepaired(Event, frozen=True, kw_only=True):
    """A person declared the records from offset ``void_from`` up to ``void_to`` void; it follows the last event proved.

    ``lost``: so many events were given up: of a branch that was not kept, unproven, or missing; ``known_shard_seq`` is
    the highest number among them. 0: what is void was never part of the history.
    """

    void_from: int
    void_to: int
    records: int
    lost: int = 0
    known_shard_seq: int = 0
    reason: str = ""


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """An event with its place in the journal."""

    event: AnyEvent
    #: Number of this event in its aggregate, from 1, without gap; 0 where it has none.
    seq: int
    #: Number of this event in its journal partition, from 1, without gap.
    shard_seq: int
    #: The owner's term: grows by at least one with each change of owner.
    writer: int
    #: The input it answers: ``topic/partition/offset``, ``timer``, or ``allocation`` of slots to whom the batch left
    #: waiting; ``repair`` of the journal.
    cause: str
    #: 8 bytes over the previous event's chain and this event's bytes.
    chain: bytes


AnyDagEvent = (
    DagDeployed
    | DagRemoved
    | DagPaused
    | DagUnpaused
    | SlotsSkipped
    | BackfillStarted
    | BackfillSlotsSkipped
    | BackfillPaused
    | BackfillResumed
    | BackfillCancelled
    | BackfillFinished
    | RunCreated
    | RunRestarted
    | RunStarted
    | RunReopened
    | TasksCleared
    | RunCancelRequested
    | DeadlineMissed
    | RunSucceeded
    | RunFailed
    | RunCancelled
    | RunWatched
    | RunUnwatched
    | TaskReady
    | TaskExpanded
    | TaskDeferred
    | LaunchPostponed
    | TaskQueued
    | TaskLeased
    | TaskStarted
    | TaskHeartbeat
    | TaskCheckpointed
    | TaskSucceeded
    | TaskFailed
    | LeaseExpired
    | TaskSkipped
    | TaskUpstreamFailed
    | TaskCancelRequested
    | TaskCancelled
    | TaskMarked
    | ReportRefused
)
AnyPoolEvent = (
    PoolConfigured
    | WorkerJoined
    | WorkerRenewed
    | WorkerSuspended
    | WorkerLeft
    | TaskEnqueued
    | SlotGranted
    | SlotReleased
    | SlotRefused
)
AnyEvent = AnyDagEvent | AnyPoolEvent | JournalRepaired
