"""A parsed workflow as plain frozen data: what ``definition`` produces and the rules consume.

The canonical form of a workflow is this module's structs as JSON with sorted keys and defaults left out, so that a new
optional key in a later release does not change the hash (the *version*) of a definition that does not use it.
Durations are integer milliseconds. Text that holds ``${{ … }}`` is kept as written; an ``Evaluator``
(``core.expressions``) renders it.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

TriggerRule = Literal[
    "all_success",
    "all_failed",
    "all_done",
    "one_success",
    "one_failed",
    "none_failed",
    "none_failed_min_one_success",
    "none_skipped",
    "always",
]
Catchup = Literal["none", "latest", "all"]
Overlap = Literal["queue", "skip", "allow", "cancel_running"]
DstGap = Literal["run_after", "skip"]
DstRepeat = Literal["once", "twice"]
Backoff = Literal["fixed", "linear", "exponential"]
#: Kinds of failure that draw on ``retries``: see ``core.commands.FailureKind``.
RetryKind = Literal[
    "exit_code",
    "signal",
    "exception",
    "http_status",
    "http_error",
    "timeout",
    "output",
    "setup",
    "launch_refused",
    "run_failed",
]
DeadlineFrom = Literal["scheduled", "queued", "started"]
DeadlineAction = Literal["alert", "fail"]
NotifyEvent = Literal[
    "run_failed", "run_succeeded", "task_failed", "task_retrying", "deadline_missed", "first_success_after_failure"
]
Pull = Literal["missing", "always", "never"]
OnTimeout = Literal["fail", "skip"]
RunEnd = Literal["success", "failed", "cancelled"]
InputType = Literal["string", "integer", "number", "boolean", "date", "datetime", "array", "object"]

DAY_MS = 86_400_000
KEEP_RUNS_MAX = 1_000
DEFAULT_POOL = "default"


class _Plain(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Frozen, keyword-only, defaults left out of the canonical form."""


class Schedule(_Plain, frozen=True):
    """When a DAG runs by itself: exactly one of ``cron`` and ``every_ms`` is set."""

    cron: tuple[str, ...] = ()
    every_ms: int | None = None
    timezone: str = "UTC"
    #: The first and the last instant at which a slot may lie; None sets no bound.
    start_ms: int | None = None
    end_ms: int | None = None
    catchup: Catchup = "none"
    #: Slots older than this are never recovered; None sets no bound.
    catchup_window_ms: int | None = None
    #: What becomes of a slot that comes due while a scheduled run of the DAG is not finished.
    overlap: Overlap = "queue"
    #: Largest delay of a start, derived from the DAG's id; the logical date is unchanged.
    jitter_ms: int = 0
    #: Of crons whose minute and hour are fixed: a wall time that the clock jumps over, and one it shows twice.
    dst_gap: DstGap = "run_after"
    dst_repeat: DstRepeat = "once"
    #: Under ``catchup: none``, a slot missed while no scheduler ran is still owed if at most this late.
    misfire_grace_ms: int = 3_600_000


class Input(_Plain, frozen=True):
    """A typed run parameter. ``required`` is false when a default (which may be null or an expression) was written."""

    type: InputType
    default: Any = None
    required: bool = True
    description: str = ""
    enum: tuple[Any, ...] = ()


class Retry(_Plain, frozen=True):
    """How often and how soon a failed attempt is tried again."""

    max: int = 0
    delay_ms: int = 10_000
    backoff: Backoff = "exponential"
    max_delay_ms: int = DAY_MS
    jitter: bool = True
    #: Retry only on these exit codes of a command, these statuses of an HTTP answer and these kinds of failure; where
    #: all are empty, on any failure.
    only_on_exit_codes: tuple[int, ...] = ()
    only_on_http_status: tuple[int, ...] = ()
    only_on_kinds: tuple[RetryKind, ...] = ()


class Run(_Plain, frozen=True, tag_field="type", tag="run"):
    """A shell command, run by ``/bin/sh -c`` in its own process group. Never templated; values come by environment."""

    command: str


class Python(_Plain, frozen=True, tag_field="type", tag="python"):
    """An importable callable ``module:name``, called with ``with_`` as keyword arguments; its return value is the
    output."""

    callable: str
    with_: dict[str, Any] = msgspec.field(default_factory=dict, name="with")


class Http(_Plain, frozen=True, tag_field="type", tag="http"):
    """One HTTP request; the output is ``{"status", "headers", "json" | "text"}``. A status outside ``expect`` fails."""

    url: str
    method: str = "GET"
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    json: Any = None
    body: str | None = None
    #: Accepted status codes; empty accepts 200 to 299.
    expect: tuple[int, ...] = ()


class Branch(_Plain, frozen=True):
    """The tasks ``then`` go on if ``if_`` (CEL source) holds; without one, if no branch before was taken."""

    if_: str | None = msgspec.field(default=None, name="if")
    then: tuple[str, ...] = ()


class Switch(_Plain, frozen=True, tag_field="type", tag="switch"):
    """The first branch that fits is taken; tasks that only other branches name are skipped."""

    branches: tuple[Branch, ...]


class Container(_Plain, frozen=True, tag_field="type", tag="container"):
    """A container of ``image`` on the worker's machine, run to its end by Docker or Podman."""

    image: str
    command: tuple[str, ...] = ()
    #: Replaces the image's own; empty keeps it.
    entrypoint: tuple[str, ...] = ()
    workdir: str = ""
    user: str = ""
    volumes: tuple[str, ...] = ()
    network: str = ""
    memory: str = ""
    cpus: float | None = None
    pull: Pull = "missing"


class TimeWait(_Plain, frozen=True, tag_field="type", tag="time"):
    """Until an instant; exactly one is set: ``after_ms`` since the task became ready, or ``at``, an RFC 3339 text, a
    date (its midnight in the schedule's zone) or an expression that gives one."""

    after_ms: int | None = None
    at: str | None = None


class ApprovalWait(_Plain, frozen=True, tag_field="type", tag="approval"):
    """Until a person has said yes or no: one in any of the ``roles``, or anybody if there are none."""

    roles: tuple[str, ...] = ()


class RunWait(_Plain, frozen=True, tag_field="type", tag="run"):
    """Until a run of a DAG has ended in one of ``states``. Exactly one of ``run_id`` and ``logical_date`` is set; both
    may hold expressions."""

    dag: str
    run_id: str | None = None
    logical_date: str | None = None
    states: tuple[RunEnd, ...] = ("success",)


class HttpWait(_Plain, frozen=True, tag_field="type", tag="http"):
    """Until the answer to a request is as wanted; a waiter asks every so often."""

    url: str
    method: str = "GET"
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    every_ms: int = 60_000
    #: CEL source over ``response``; None: any status from 200 to 299.
    until: str | None = None


class KafkaWait(_Plain, frozen=True, tag_field="type", tag="kafka"):
    """Until a record of a Kafka topic comes, or has come at most ``window_ms`` before the task became ready."""

    topic: str
    #: CEL source over ``event``; None: any record.
    match: str | None = None
    window_ms: int = 3_600_000


Awaited = TimeWait | ApprovalWait | RunWait | HttpWait | KafkaWait


class WaitFor(_Plain, frozen=True, tag_field="type", tag="wait_for"):
    """The task is deferred until something comes; no worker runs it."""

    what: Awaited
    #: Since the task became ready; None: for ever.
    timeout_ms: int | None = None
    on_timeout: OnTimeout = "fail"


class Celery(_Plain, frozen=True, tag_field="type", tag="celery"):
    """A task of an existing Celery application, handed over and waited for; its result is the output."""

    #: ``module:name``.
    app: str
    task: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = msgspec.field(default_factory=dict)
    queue: str = ""


class Kubernetes(_Plain, frozen=True, tag_field="type", tag="kubernetes"):
    """A Job in a Kubernetes cluster, run to its end; its pod's termination message is the output."""

    image: str
    command: tuple[str, ...] = ()
    entrypoint: tuple[str, ...] = ()
    namespace: str = "default"
    service_account: str = ""
    memory: str = ""
    cpus: float | None = None
    #: Merged over the Job's manifest.
    job: dict[str, Any] = msgspec.field(default_factory=dict)


class TriggerDag(_Plain, frozen=True, tag_field="type", tag="trigger"):
    """A run of another DAG is started; nobody waits for its end."""

    dag: str
    inputs: dict[str, Any] = msgspec.field(default_factory=dict)


class SubWorkflow(_Plain, frozen=True, tag_field="type", tag="workflow"):
    """A run of another DAG is started, and the task ends like it."""

    dag: str
    inputs: dict[str, Any] = msgspec.field(default_factory=dict)


#: What workers run, and what the engine does by itself.
WorkerAction = Run | Python | Http | Container | Celery | Kubernetes
Action = WorkerAction | Switch | WaitFor | TriggerDag | SubWorkflow


class Task(_Plain, frozen=True):
    """One node of a workflow, with the workflow's ``defaults`` already merged in."""

    id: str
    action: Action
    description: str = ""
    needs: tuple[str, ...] = ()
    trigger_rule: TriggerRule = "all_success"
    #: CEL source without the ``${{ }}``; false skips the task.
    if_: str | None = msgspec.field(default=None, name="if")
    env: dict[str, str] = msgspec.field(default_factory=dict)
    retry: Retry = Retry()
    infra_retries: int = 3
    #: Longest one attempt may run; None sets no bound.
    timeout_ms: int | None = None
    #: From the first attempt's lease to the end of the last, the waits between them included.
    total_timeout_ms: int | None = None
    #: From being ready to being leased.
    queue_timeout_ms: int | None = None
    #: How long its worker may be silent; None: as long as a lease usually is.
    heartbeat_timeout_ms: int | None = None
    pool: str = DEFAULT_POOL
    pool_slots: int = 1
    #: An expression that gives a list, or the list itself: the task runs once per item. None: it runs once.
    for_each: Any = None
    #: The name by which expressions of the task know the item.
    as_: str = msgspec.field(default="item", name="as")
    #: Instances at a time, and items at most; None sets no bound of its own.
    max_parallel: int | None = None
    max_items: int = 1_000
    #: Whether one failed instance ends the others.
    fail_fast: bool = False


class Records(_Plain, frozen=True):
    """Records of a Kafka topic as a trigger takes them."""

    topic: str
    #: CEL source over ``event``, without the ``${{ }}``; None takes every record.
    filter: str | None = None
    #: Text whose expressions see ``event``: two records with one key are one run. None: each record is its own.
    dedupe_key: str | None = None
    #: Values of the run's inputs; their expressions see ``event``.
    inputs: dict[str, Any] = msgspec.field(default_factory=dict)


class Trigger(_Plain, frozen=True):
    """What starts a run from outside, beside the schedule."""

    id: str
    kafka: Records


class Concurrency(_Plain, frozen=True):
    """Limits of one DAG over all its runs; None sets no bound."""

    max_runs: int = 16
    max_tasks: int | None = None
    #: Percent of a pool's slots that its attempts may hold there.
    max_pool_share: int | None = None


class Deadline(_Plain, frozen=True):
    """A run that has not ended ``within_ms`` of an instant of its own has missed this: its slot (``scheduled``; of a
    run that no schedule made its creation), its creation (``queued``), or its start (``started``).
    """

    within_ms: int
    from_: DeadlineFrom = msgspec.field(default="scheduled", name="from")
    action: DeadlineAction = "alert"
    #: The target that is told of it, beside those of ``Workflow.notify``; empty: none.
    notify: str = ""
    #: More than 0: this warns so long before another deadline; ``within_ms`` is the warning's own.
    before_ms: int = 0


class Notify(_Plain, frozen=True):
    """Which targets are told of which events."""

    events: tuple[NotifyEvent, ...]
    to: tuple[str, ...]


class Workflow(_Plain, frozen=True):
    """One DAG's definition. Tasks keep the order of the file."""

    id: str
    tasks: tuple[Task, ...]
    description: str = ""
    owner: str = ""
    tags: tuple[str, ...] = ()
    schedule: Schedule | None = None
    triggers: tuple[Trigger, ...] = ()
    inputs: dict[str, Input] = msgspec.field(default_factory=dict)
    #: Workflow-wide environment, under each task's own.
    env: dict[str, str] = msgspec.field(default_factory=dict)
    concurrency: Concurrency = Concurrency()
    priority: int = 0
    #: How many ended runs are kept with their tasks, the newest, at most ``KEEP_RUNS_MAX``.
    keep_runs: int = 20
    deadlines: tuple[Deadline, ...] = ()
    notify: tuple[Notify, ...] = ()

    @property
    def trigger_by_id(self) -> dict[str, Trigger]:
        """The triggers by their ids."""
        return {trigger.id: trigger for trigger in self.triggers}
