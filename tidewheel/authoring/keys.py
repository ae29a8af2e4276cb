"""The keys of tasks and DAGs as Python names, for editors and type checkers.

What may stand there is said and checked by ``tidewheel.definition.language``, as for YAML. A name that is a word of
Python's has an underscore behind it: ``if_``, ``as_``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any, Literal, Required, TypedDict

from tidewheel.authoring.expression import Expression
from tidewheel.core.workflow import (
    Backoff,
    Catchup,
    DeadlineAction,
    DeadlineFrom,
    DstGap,
    DstRepeat,
    InputType,
    NotifyEvent,
    OnTimeout,
    Overlap,
    Pull,
    RetryKind,
    RunEnd,
    TriggerRule,
)

if TYPE_CHECKING:
    from tidewheel.authoring.tasks import Task

Duration = str | timedelta
Env = Mapping[str, Any]


class OnlyOn(TypedDict, total=False):
    """Of a ``Retry``: any of what is named here."""

    exit_codes: Sequence[int]
    http_status: int | Sequence[int]
    kinds: RetryKind | Sequence[RetryKind]


class Retry(TypedDict, total=False):
    """Of a task, or of the defaults."""

    max: int
    delay: Duration
    backoff: Backoff
    max_delay: Duration
    jitter: bool
    only_on: OnlyOn


class Shared(TypedDict, total=False):
    """What a task and a DAG's defaults have in common."""

    retries: int
    retry: Retry
    infra_retries: int
    timeout: Duration
    total_timeout: Duration
    queue_timeout: Duration
    heartbeat_timeout: Duration
    pool: str
    pool_slots: int


class StepKeys(TypedDict, total=False):
    """What every task may be given, also one that the engine does by itself."""

    description: str
    needs: Task | str | Sequence[Task | str]
    trigger_rule: TriggerRule
    if_: Expression | str


class MappedKeys(StepKeys, total=False):
    """What a task that may run once per item may be given."""

    for_each: Expression | Task | str | Sequence[Any]
    as_: str
    max_parallel: int
    max_items: int
    fail_fast: bool


class TaskKeys(MappedKeys, Shared, total=False):
    """What a task for workers may be given."""

    env: Env


class ChildKeys(MappedKeys, total=False):
    """What a task that asks for a run may be given."""

    timeout: Duration
    retries: int
    retry: Retry


class Changes(TaskKeys, total=False):
    """What one task of a function may have otherwise."""

    id: str


class Schedule(TypedDict, total=False):
    """Of a DAG."""

    cron: str | Sequence[str]
    every: Duration
    timezone: str
    start: str | date
    end: str | date
    catchup: Catchup
    catchup_window: Duration
    overlap: Overlap
    dst_gap: DstGap
    dst_repeat: DstRepeat
    jitter: Duration
    misfire_grace: Duration


class _InputType(TypedDict):
    type: InputType


class Input(_InputType, total=False):
    """A typed parameter of a DAG's runs."""

    default: Any
    description: str
    enum: Sequence[Any]


class _Topic(TypedDict):
    topic: str


class Records(_Topic, total=False):
    """Of a trigger: the records of a Kafka topic."""

    filter: Expression | str
    dedupe_key: Expression | str
    inputs: Mapping[str, Any]


class Trigger(TypedDict):
    """Of a DAG: what starts runs beside its schedule."""

    id: str
    kafka: Records


class Approval(TypedDict, total=False):
    """What a task waits for: a person's yes."""

    roles: str | Sequence[str]
    timeout: Duration
    on_timeout: OnTimeout


class _OtherDag(TypedDict):
    dag: str


class OtherRun(_OtherDag, total=False):
    """What a task waits for: the end of a run. Named by one of ``run_id`` and ``logical_date``."""

    run_id: str | Expression
    logical_date: str | date | Expression
    states: RunEnd | Sequence[RunEnd]


class _Polled(TypedDict):
    url: str | Expression


class PolledHttp(_Polled, total=False):
    """What a task waits for: an answer that makes ``until`` true."""

    method: Literal["GET", "HEAD", "POST"]
    headers: Mapping[str, Any]
    every: Duration
    until: Expression | str


class AwaitedRecord(_Topic, total=False):
    """What a task waits for: a record that makes ``match`` true."""

    match: Expression | str
    window: Duration


class Concurrency(TypedDict, total=False):
    """Of a DAG, over all its runs."""

    max_runs: int
    max_tasks: int
    max_pool_share: str


#: Of a DAG's runs. A negative ``within`` warns so long before the deadline of the same ``from``.
Deadline = TypedDict(
    "Deadline",
    {"within": Required[Duration], "from": DeadlineFrom, "action": DeadlineAction, "notify": str},
    total=False,
)


class Notify(TypedDict):
    """Of a DAG: which targets are told of which events."""

    events: NotifyEvent | Sequence[NotifyEvent]
    to: str | Sequence[str]


class DagKeys(TypedDict, total=False):
    """What a DAG may be given beside its id."""

    description: str
    owner: str
    tags: Sequence[str]
    schedule: str | Schedule
    triggers: Sequence[Trigger]
    inputs: Mapping[str, Input]
    defaults: Shared
    env: Env
    priority: int
    concurrency: Concurrency
    keep_runs: int
    deadlines: Sequence[Deadline]
    notify: Sequence[Notify]


class ContainerOptions(TypedDict, total=False):
    """Of a ``container`` task, beside its image and command."""

    entrypoint: Sequence[str]
    workdir: str
    user: str
    volumes: Sequence[str]
    network: str
    memory: str
    cpus: float
    pull: Pull


class KubernetesOptions(TypedDict, total=False):
    """Of a ``kubernetes`` task, beside its image and command."""

    entrypoint: Sequence[str]
    namespace: str
    service_account: str
    memory: str
    cpus: float
    job: Mapping[str, Any]


Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
