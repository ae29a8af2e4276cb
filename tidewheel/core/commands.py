"""Commands: what is asked of an aggregate. A command may be refused; it is not a fact.

Commands for a ``Dag`` carry ``dag``, commands for a ``Pool`` carry ``pool``; that name is the record's key on the
``commands`` topic. Times are milliseconds since the epoch, durations milliseconds,
``inputs``/``output``/``definition`` JSON text. The classes under "Timers" never travel: the shard loop makes them
when an instant named by ``core.deadlines`` has come. Each travelling command has its schema in ``schemas/commands/``.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from tidewheel.core.workflow import RunEnd

RunKind = Literal["scheduled", "manual", "api", "kafka", "backfill", "triggered", "workflow"]
RequestKind = Literal["manual", "api", "kafka"]
#: What a person may say of how a task ended.
Mark = Literal["success", "failed", "skipped"]
#: Of a backfill: how many runs at a time, and what becomes of slots that have a run.
BackfillMode = Literal["parallel", "chunked"]
BackfillOrder = Literal["forward", "backward"]
Reprocess = Literal["none", "failed", "all"]
#: Asked for by a task of another run, which goes on (``triggered``) or waits for the end (``workflow``).
ChildKind = Literal["triggered", "workflow"]


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all commands. ``actor`` says who asks: ``user:ann``, ``worker:w1``, ``scheduler``, ``kafka:topic``."""

    actor: str = "scheduler"


class Request(Command, frozen=True, kw_only=True):
    """A command somebody may wait for: the reply goes to partition ``reply_partition`` of ``mail``, marked
    ``request_id``.

    An empty ``request_id`` asks for no reply. ``receiver`` names the waiting process on that partition.
    """

    receiver: str = ""
    reply_partition: int = 0
    request_id: str = ""


class AttemptCommand(Command, frozen=True, kw_only=True):
    """A command about one attempt."""

    dag: str
    run_id: str
    task: str
    attempt: int


class Report(AttemptCommand, frozen=True, kw_only=True):
    """What the worker that holds the attempt says of it."""

    worker: str


class ClosingReport(Report, frozen=True, kw_only=True):
    """The attempt's end. The times are the worker's clock."""

    started_at: int
    ended_at: int


# --- for a Dag ---------------------------------------------------------------------------------------------------


class DeployDag(Request, frozen=True, kw_only=True):
    """Make ``definition`` (canonical JSON of ``core.workflow.Workflow``) the current version of the DAG."""

    dag: str
    version: str
    definition: str
    source: str = ""
    paused: bool = False


class RemoveDag(Request, frozen=True, kw_only=True):
    """Stop creating runs; live runs finish on their version; history stays."""

    dag: str
    reason: str = ""


class PauseDag(Request, frozen=True, kw_only=True):
    """No new scheduled runs, and requested runs wait, until the DAG is unpaused."""

    dag: str
    reason: str = ""


class UnpauseDag(Request, frozen=True, kw_only=True):
    """Resume; the catch-up policy says what happens to the slots that passed."""

    dag: str
    reason: str = ""


class StartRun(Request, frozen=True, kw_only=True):
    """Create a run. A ``run_id`` that exists already names that run and starts nothing.

    One that repeats another names it in ``rerun_of`` and takes over its interval. ``version``: the current one when
    empty.
    """

    dag: str
    run_id: str = ""
    kind: RequestKind = "manual"
    logical_date: int | None = None
    inputs: str = "{}"
    #: The DAG's trigger that asks, and the record it answers as ``topic/partition/offset``; empty: none of them does.
    trigger: str = ""
    origin: str = ""
    reason: str = ""
    version: str = ""
    rerun_of: str = ""
    interval_start: int | None = None
    interval_end: int | None = None


class CancelRun(Request, frozen=True, kw_only=True):
    """Cancel what has not ended: waiting tasks at once, live attempts when their worker confirms or the lease ends."""

    dag: str
    run_id: str
    reason: str = ""


class MarkTask(Request, frozen=True, kw_only=True):
    """Say by hand how a task of a run ended. A live attempt is ended first, whatever it reports.

    ``output``: of a success, JSON text for the tasks downstream. ``downstream``: what is below it is cleared, to run
    again. A run that has ended is live again by a mark; ``recalled`` and ``definition`` as in ``ClearTasks``.
    """

    dag: str
    run_id: str
    task: str
    state: Mark
    reason: str = ""
    output: str | None = None
    downstream: bool = False
    recalled: bytes | None = None
    definition: str = ""


class ClearTasks(Request, frozen=True, kw_only=True):
    """Let tasks of a run begin anew: those of ``tasks`` (a JSON list of ids and instances; empty: all), with all that
    is below them, above them, of these only what failed. A run that has ended is live again by that.

    ``latest``: with the current definition, of a run that has ended. ``preview``: only answer what it would come to.
    ``recalled``: of a run that ended too long ago to be kept, what it came to (``core.ended.packed``), and by which
    ``definition``; both are checked.
    """

    dag: str
    run_id: str
    tasks: str = "[]"
    downstream: bool = True
    upstream: bool = False
    only_failed: bool = False
    latest: bool = False
    preview: bool = False
    reason: str = ""
    recalled: bytes | None = None
    definition: str = ""


class DecideApproval(Request, frozen=True, kw_only=True):
    """A person's yes or no to a task that waits for an approval, in the ``role`` named (empty: in any).

    ``attempt``: only to this wait; 0: to the one that is open.
    """

    dag: str
    run_id: str
    task: str
    approve: bool
    attempt: int = 0
    role: str = ""
    reason: str = ""


class ReportWait(AttemptCommand, frozen=True, kw_only=True):
    """What a deferred attempt waits for has come, with ``output`` as JSON; or, with a ``fault``, can not come any
    more."""

    output: str | None = None
    fault: str = ""


class StartBackfill(Request, frozen=True, kw_only=True):
    """Make runs for the slots of the DAG's schedule from ``since`` to ``until``, both included, that have come due.

    ``width``: so many runs at a time (``parallel``), or so many begun together once those before have ended
    (``chunked``). The same request again, while its backfill lives, names that one.
    """

    dag: str
    since: int
    until: int
    order: BackfillOrder = "forward"
    mode: BackfillMode = "parallel"
    width: int = 1
    reprocess: Reprocess = "none"


class PauseBackfill(Request, frozen=True, kw_only=True):
    """It makes no more runs until it is resumed; those it made go on."""

    dag: str
    backfill_id: str
    reason: str = ""


class ResumeBackfill(Request, frozen=True, kw_only=True):
    """It goes on where it was."""

    dag: str
    backfill_id: str
    reason: str = ""


class CancelBackfill(Request, frozen=True, kw_only=True):
    """It makes no more runs, and those of its runs that wait are cancelled; with ``running`` the others too."""

    dag: str
    backfill_id: str
    reason: str = ""
    running: bool = False


class WatchRun(Command, frozen=True, kw_only=True):
    """An attempt, perhaps of another DAG, waits for the end of run ``run_id``, which may be yet to come: tell it."""

    dag: str
    run_id: str
    watcher_dag: str
    watcher_run_id: str
    watcher_task: str
    watcher_attempt: int


class LaunchRun(Command, frozen=True, kw_only=True):
    """A task of another run asks for a run. Its id follows from the attempt that asks: asking again is the same run."""

    dag: str
    run_id: str
    kind: ChildKind
    parent_dag: str
    parent_run_id: str
    parent_task: str
    parent_attempt: int
    #: How many runs stand above this one.
    depth: int
    inputs: str = "{}"


class ReportLaunch(AttemptCommand, frozen=True, kw_only=True):
    """To the attempt that asked for a run: it exists; or, with ``refused``, why there is none; or, with ``later``, why
    there is none yet: ask again."""

    child_dag: str
    child_run_id: str
    kind: ChildKind
    refused: str = ""
    later: str = ""


class ReportRunEnd(AttemptCommand, frozen=True, kw_only=True):
    """To the attempt that waits for a run: it has ended. ``outputs``: those of its leaves by task, as JSON."""

    child_dag: str
    child_run_id: str
    state: RunEnd
    reason: str = ""
    outputs: str | None = None


class RecallRun(Command, frozen=True, kw_only=True):
    """Nobody waits any more for a run that was asked for to be waited for: cancel it, if it has not ended."""

    dag: str
    run_id: str
    reason: str = ""


class GrantSlot(AttemptCommand, frozen=True, kw_only=True):
    """A pool's offer of a slot on ``worker``; the Dag leases the attempt if it is still wanted, else gives the slot
    back."""

    pool: str
    worker: str
    mail_partition: int


class RefuseSlot(AttemptCommand, frozen=True, kw_only=True):
    """A pool's word that the attempt can never be placed (wider than the pool); the task fails with ``reason``."""

    pool: str
    reason: str


class ReportStarted(Report, frozen=True, kw_only=True):
    """The worker began attempt ``attempt``; also renews the lease. ``beat`` is echoed in the acknowledging mail."""

    started_at: int
    beat: int = 0


class ReportHeartbeat(Report, frozen=True, kw_only=True):
    """The attempt is alive: renew its lease. ``progress`` is free JSON text for people to see."""

    beat: int
    progress: str | None = None


class ReportCheckpoint(Report, frozen=True, kw_only=True):
    """What the attempt wants the task's next attempt to know: JSON text, at most 64 KiB. It replaces the one before."""

    checkpoint: str


class ReportSuccess(ClosingReport, frozen=True, kw_only=True):
    """User code ended well. ``output`` is JSON text, at most 64 KiB."""

    output: str | None = None


FailureKind = Literal[
    "exit_code",  # a shell command's non-zero status
    "signal",  # user code died of a signal nobody of ours sent
    "exception",  # Python code raised
    "http_status",  # an unexpected HTTP status
    "http_error",  # no HTTP answer
    "timeout",  # longer than the task's timeout
    "output",  # the output is not JSON or too large
    "setup",  # the task could not begin: callable not importable, secret missing
    "expression",  # an expression of the definition failed to evaluate
    "instances",  # instances of a mapped task failed
    "queue_timeout",  # longer ready than the task's queue_timeout, and not leased
    "wait_timeout",  # what the task waited for did not come in time
    "wait_failed",  # and can not come any more
    "rejected",  # a person was asked, and said no
    "launch_refused",  # the DAG that it asked for a run gives none
    "run_failed",  # the run that it waited for failed, or was cancelled
    "unplaceable",  # no worker of the pool could ever take it
    "lease_expired",  # the worker fell silent
    "worker_lost",  # the worker gave the attempt up (shutdown, self-fencing, its runner crashed)
]


class ReportFailure(ClosingReport, frozen=True, kw_only=True):
    """User code failed, or (kind ``worker_lost``) the worker gave the attempt up, which is an infrastructure loss."""

    kind: FailureKind
    message: str = ""
    exit_code: int | None = None
    #: Of an HTTP answer that was not expected.
    http_status: int | None = None


class ReportCancelled(ClosingReport, frozen=True, kw_only=True):
    """The worker ended the attempt as it was told to, and nothing of it is left running."""


# --- for a Pool --------------------------------------------------------------------------------------------------


class ConfigurePool(Request, frozen=True, kw_only=True):
    """Set the pool's slot limit; None leaves its workers' slots as the only limit."""

    pool: str
    slots: int | None = None
    description: str = ""


class JoinPool(Command, frozen=True, kw_only=True):
    """A worker offers ``slots`` to the pool and reads its mail on ``mail_partition``. Repeating it renews."""

    pool: str
    worker: str
    slots: int
    mail_partition: int
    host: str = ""


class RenewWorker(Command, frozen=True, kw_only=True):
    """The worker is alive. Refused (the worker joins again) when the pool does not know it."""

    pool: str
    worker: str
    mail_partition: int


class LeavePool(Command, frozen=True, kw_only=True):
    """The worker takes nothing new; what it holds it finishes or gives up by its own reports."""

    pool: str
    worker: str
    reason: str = ""


class EnqueueTask(AttemptCommand, frozen=True, kw_only=True):
    """An attempt is ready and waits for ``pool_slots`` slots of one worker."""

    pool: str
    pool_slots: int = 1
    priority: int = 0
    logical_date: int = 0
    #: Percent of the pool's slots that the DAG may hold there; None: no bound.
    max_pool_share: int | None = None


class ReleaseSlot(AttemptCommand, frozen=True, kw_only=True):
    """The attempt ended or is no longer wanted: it leaves the pool, from its queue or from its slot."""

    pool: str
    reason: str = ""
    #: The worker fell silent: give it nothing more until it renews.
    worker_silent: bool = False


# --- Timers (never on the wire) ----------------------------------------------------------------------------------


class FireSchedule(Command, frozen=True, kw_only=True):
    """What the DAG does by itself is due: a slot of its schedule, or the next step of a backfill."""

    dag: str


class FireDeadline(Command, frozen=True, kw_only=True):
    """A deadline of the run has passed, perhaps more than one."""

    dag: str
    run_id: str


class ExpireLease(AttemptCommand, frozen=True, kw_only=True):
    """The lease of an attempt was not renewed in time."""


class ExpireQueued(AttemptCommand, frozen=True, kw_only=True):
    """An attempt was ready for longer than its task's ``queue_timeout`` and not leased."""


class RetryTask(Command, frozen=True, kw_only=True):
    """The back-off before the next attempt is over."""

    dag: str
    run_id: str
    task: str


class ResumeTask(AttemptCommand, frozen=True, kw_only=True):
    """The instant that a deferred attempt waits for has come, or the end of its time."""


class ContinueRun(Command, frozen=True, kw_only=True):
    """A run goes on with what was too much for one decision: the next of its tasks begin, or are ended."""

    dag: str
    run_id: str


class ExpireWorker(Command, frozen=True, kw_only=True):
    """A worker has not renewed its membership in time."""

    pool: str
    worker: str


class AllocateSlots(Command, frozen=True, kw_only=True):
    """Give free slots to waiting attempts; asked once a batch, after all that joined and left the queue."""

    pool: str


DagCommand = (
    DeployDag
    | RemoveDag
    | PauseDag
    | UnpauseDag
    | StartRun
    | CancelRun
    | MarkTask
    | ClearTasks
    | DecideApproval
    | ReportWait
    | StartBackfill
    | PauseBackfill
    | ResumeBackfill
    | CancelBackfill
    | WatchRun
    | LaunchRun
    | ReportLaunch
    | ReportRunEnd
    | RecallRun
    | GrantSlot
    | RefuseSlot
    | ReportStarted
    | ReportHeartbeat
    | ReportCheckpoint
    | ReportSuccess
    | ReportFailure
    | ReportCancelled
    | FireSchedule
    | FireDeadline
    | ExpireLease
    | RetryTask
    | ExpireQueued
    | ResumeTask
    | ContinueRun
)
PoolCommand = (
    ConfigurePool | JoinPool | RenewWorker | LeavePool | EnqueueTask | ReleaseSlot | ExpireWorker | AllocateSlots
)
TIMERS = (
    FireSchedule,
    FireDeadline,
    ExpireLease,
    RetryTask,
    ExpireQueued,
    ResumeTask,
    ContinueRun,
    ExpireWorker,
    AllocateSlots,
)
