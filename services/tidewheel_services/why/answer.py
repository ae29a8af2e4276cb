"""Looking up what is needed for an answer, and putting the answer together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any, Protocol, TypeVar

import msgspec

from tidewheel.core.scope import rfc3339
from tidewheel.core.workflow import Schedule
from tidewheel.log.interface import JOURNALS
from tidewheel.log.partition import partition_of
from tidewheel_projections import reads, waiting
from tidewheel_projections.locks import Lock
from tidewheel_projections.rows import Connection
from tidewheel_projections.views import DagRow, ProjectorRow, RunDetail, RunRow, TaskDetail
from tidewheel_services.why.dags import DagFacts, why_no_run
from tidewheel_services.why.ended import why_ended, why_failed
from tidewheel_services.why.pools import PoolFacts
from tidewheel_services.why.reason import Reason, Why
from tidewheel_services.why.runs import paused, why_queued
from tidewheel_services.why.shards import why_silent
from tidewheel_services.why.tasks import WATCHED_BY_WAITER, RunFacts, why_tasks, why_these
from tidewheel_services.why.watch import ShardWatch
from tidewheel_services.why.written import Written, written

#: Reasons of one answer, and pools, places in pools and awaited runs that are looked up for it.
REASONS_MAX = 50
_LOOKED_UP_MAX = 20


T = TypeVar("T")


class Read(Protocol):
    """Runs a function on a connection of the read model."""

    def __call__(self, query: Callable[[Connection], T], /) -> T:
        """What the function gives."""


class Draft:
    """Reasons, and the DAGs and pools whose shards decide on them."""

    def __init__(self, *reasons: Reason, decided_in: Iterable[str] = ()) -> None:
        self.reasons = reasons
        self.decided_in = tuple(decided_in)


class _Known(Schedule, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """A schedule of which a later release may have written more."""


def why_run(connection: Connection, run: RunDetail, task: TaskDetail | None = None) -> Draft:
    """Why the run does not go on, or the task of it."""
    if task is not None and task.state not in waiting.OPEN_STATES:
        lost = waiting.list_lost_tasks(connection, run.dag, run.run_id)
        return Draft(*why_ended(task, lost, _written(connection, run)))
    if run.state == "failed":
        return Draft(*why_failed(run, waiting.list_lost_tasks(connection, run.dag, run.run_id)))
    if run.state not in ("queued", "running"):
        return Draft()
    if run.state == "queued":
        return Draft(*_queued(connection, run, _dag(connection, run.dag)), decided_in=[run.dag])
    facts = _facts(connection, run, task)
    asked = () if task is None else _asked(facts, task)
    reasons = list(why_these(facts, asked)) or why_tasks(facts)
    return Draft(*reasons, decided_in=[run.dag, *facts.pools])


def why_no_further_run(connection: Connection, dag: DagRow, now_ms: int, *, postponed: bool) -> Draft:
    """Why the DAG has no further run, or when it has one. ``postponed``: what asks for one waits on the log."""
    queue = waiting.get_queue_of_runs(connection, dag.dag, "")
    version = reads.get_version(connection, dag.dag, dag.version)
    skipped = reads.list_events(connection, dag.dag, types=["SlotsSkipped"], newest_first=True, limit=1)
    backfills = reads.list_backfills(connection, dag.dag, live=True, limit=_LOOKED_UP_MAX).items
    facts = DagFacts(
        dag=dag,
        schedule=msgspec.convert(dag.schedule, _Known) if dag.schedule else None,
        slot_cursor=None if dag.slot_cursor is None else _ms(dag.slot_cursor),
        triggers=0 if version is None else len(version.definition.get("triggers", ())),
        queued=queue.queued,
        queued_scheduled=queue.queued_scheduled,
        skipped=_skipped(skipped[0].body) if skipped else "",
        backfills=backfills,
        postponed=postponed,
    )
    return Draft(*why_no_run(facts, now_ms), decided_in=[dag.dag])


def finished(draft: Draft, read: Read, shards: ShardWatch, *, dag: str, run_id: str, state: str) -> Why:
    """The answer: what was found, below whatever keeps everything from being decided. Nothing is asked of the log while
    a connection is held."""
    shown = draft.reasons[:REASONS_MAX]
    silence = tuple(_silence(read, shards, draft.decided_in)) if draft.decided_in else ()
    more = len(draft.reasons) - len(shown)
    return Why(dag=dag, run_id=run_id, state=state, reasons=(*silence, *shown), more=more)


def _silence(read: Read, shards: ShardWatch, names: Iterable[str]) -> Iterator[Reason]:
    logged = shards.look({partition_of(name.encode(), shards.partitions) for name in names})
    stopped, unread, projector = read(_proved)
    told = [
        msgspec.structs.replace(shard, stopped=stopped.get(shard.number, ""), unread=unread.get(shard.number, ""))
        for shard in logged
    ]
    return why_silent(told, None if projector is None else projector.silent_s)


def _proved(connection: Connection) -> tuple[dict[int, str], dict[int, str], ProjectorRow | None]:
    """Which shards are stopped, which the read model does not follow, and its projector."""
    stopped = {row.shard: row.reason for row in reads.list_stopped_shards(connection)}
    unread = {row.partition: row.stopped for row in reads.list_positions(connection) if row.topic in JOURNALS}
    return stopped, unread, reads.get_projector(connection)


def _skipped(body: Any) -> str:
    first, last = rfc3339(body["first"]), rfc3339(body["last"])
    slots = first if first == last else f"{body['count']:,} from {first} to {last}"
    return f"{slots}: {body['reason']}"


def _ms(instant: str) -> int:
    return round(datetime.fromisoformat(instant).timestamp() * 1000)


def _dag(connection: Connection, dag: str) -> DagRow:
    found = reads.get_dag(connection, dag)
    assert found is not None, f"a run of '{dag}' is there, and so is the DAG"
    return found


def _written(connection: Connection, run: RunRow) -> Written:
    version = reads.get_version(connection, run.dag, run.version)
    return Written() if version is None else written(version.definition)


def _queued(connection: Connection, run: RunRow, dag: DagRow) -> Iterator[Reason]:
    queue = waiting.get_queue_of_runs(connection, run.dag, run.run_id)
    return why_queued(run, dag, _written(connection, run), queue)


def _asked(facts: RunFacts, task: TaskDetail) -> list[waiting.OpenTasks]:
    """The kinds of open tasks that a task is, and its instances are."""
    return [tasks for tasks in facts.tasks if tasks.ordinal == task.ordinal]


def _facts(connection: Connection, run: RunDetail, task: TaskDetail | None) -> RunFacts:
    tasks = waiting.list_open_tasks(connection, run.dag, run.run_id)
    if task is not None and task.instance is not None:
        # Of an instance its own row counts, not those that are like it.
        tasks = [one for one in tasks if one.ordinal != task.ordinal] + [_alone(task)]
    looked_up = [one for one in tasks if task is None or one.ordinal == task.ordinal][:_LOOKED_UP_MAX]
    queued = [one for one in looked_up if one.state == "queued"]
    awaited = [one for one in looked_up if one.waits_for in ("run", "workflow", "trigger")]
    return RunFacts(
        run=run,
        written=_written(connection, run),
        tasks=tasks,
        tasks_under_way=waiting.get_queue_of_runs(connection, run.dag, run.run_id).tasks_under_way,
        pools={name: _pool(connection, name) for name in dict.fromkeys(one.pool for one in queued)},
        places={
            one.tasks[0]: waiting.get_place_in_pool(
                connection, one.pool, run.dag, run.run_id, one.tasks[0], one.attempt
            )
            for one in queued
        },
        waiter=not any(one.waits_for in WATCHED_BY_WAITER for one in looked_up)
        or waiting.is_held(connection, Lock.WAITER),
        awaited={one.tasks[0]: _awaited(connection, one) for one in awaited},
    )


def _alone(task: TaskDetail) -> waiting.OpenTasks:
    names = set(waiting.OpenTasks.__struct_fields__) - {"instances", "count", "tasks"}
    shared = {name: getattr(task, name) for name in names}
    return waiting.OpenTasks(**shared, instances=True, count=1, tasks=[task.task])


def _pool(connection: Connection, name: str) -> PoolFacts:
    return PoolFacts(
        name=name,
        pool=reads.get_pool(connection, name),
        workers=tuple(reads.list_workers(connection, pool=name, limit=1000).items),
        heads=tuple(waiting.list_pool_heads(connection, name)),
        holders=tuple(waiting.list_pool_holders(connection, name)),
    )


def _awaited(connection: Connection, tasks: waiting.OpenTasks) -> str:
    """What is known of the run that the task waits for."""
    asked = tasks.wait if isinstance(tasks.wait, dict) else {}
    name, run_id = asked.get("dag"), asked.get("run_id")
    if not isinstance(name, str) or not isinstance(run_id, str):
        return ""
    dag = reads.get_dag(connection, name)
    if dag is None:
        return f"no DAG '{name}' is deployed"
    run = reads.get_run(connection, name, run_id)
    if run is None:
        if dag.paused:
            return f"there is no such run yet, and {paused(dag)}"
        return f"DAG {name} was removed" if dag.removed else "there is no such run yet"
    if run.state != "queued":
        return f"that run is {run.state}"
    return f"that run is queued: {'; '.join(reason.message for reason in _queued(connection, run, dag))}"
