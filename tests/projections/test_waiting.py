"""What the read model knows of why something waits, on a real database."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.projections.following import project_all
from tests.projections.journals import START, JournalWriter, deployed
from tidewheel.core import events as e
from tidewheel.log.memory import MemoryLog
from tidewheel_projections import reads, waiting
from tidewheel_projections.locks import Lock

pytestmark = pytest.mark.postgres
DAY = 86_400_000


@pytest.fixture
def writer() -> JournalWriter:
    return JournalWriter(MemoryLog(partitions=4))


def created(run_id: str, at: int, **more: Any) -> e.RunCreated:
    return e.RunCreated(**{"dag": "d", "run_id": run_id, "version": "v1", "kind": "manual", "at": at, **more})


def started(run_id: str) -> e.RunStarted:
    return e.RunStarted(dag="d", run_id=run_id, at=START)


def task(kind: type[Any], name: str, run_id: str = "asked", attempt: int = 1, **more: Any) -> Any:
    return kind(dag="d", run_id=run_id, task=name, attempt=attempt, **{"at": START, **more})


def test_the_queue_of_runs_is_that_of_the_time_they_stand_for_without_those_of_backfills(
    writer: JournalWriter, dsn: str
) -> None:
    first, second = ({"kind": "scheduled", "logical_date": START + day * DAY} for day in (0, 1))
    of_backfill = {"kind": "backfill", "backfill_id": "b", "logical_date": START - 9 * DAY}
    writer.write(
        deployed("d"),
        created("first", START, **first),
        started("first"),
        task(e.TaskQueued, "extract", "first", pool="p", pool_slots=1),
        created("asked", START + 5),
        created("second", START + 6, **second),
        e.BackfillStarted(dag="d", backfill_id="b", first=START - 9 * DAY, last=START, slots=9, at=START),
        created("old", START + 7, **of_backfill),
        started("old"),
        task(e.TaskQueued, "extract", "old", pool="p", pool_slots=1),
    )
    project_all(writer.to, dsn)
    with psycopg.connect(dsn, autocommit=True) as connection:
        asked = waiting.get_queue_of_runs(connection, "d", "asked")
        assert (asked.running, asked.before, asked.queued, asked.queued_scheduled) == (1, 0, 2, 1)
        assert (asked.tasks_under_way, asked.scheduled) == (2, ["first"])
        assert waiting.get_queue_of_runs(connection, "d", "second").before == 1, "it stands for a later time"
        nothing = waiting.get_queue_of_runs(connection, "other", "")
        assert (nothing.running, nothing.before, nothing.scheduled) == (0, 0, None)


def test_backfills_that_live_are_found_among_those_that_have_ended(writer: JournalWriter, dsn: str) -> None:
    several = {name: {"dag": "d", "backfill_id": name} for name in ("old", "over", "new")}
    begun = [e.BackfillStarted(**where, first=START, last=START, slots=1, at=START) for where in several.values()]
    writer.write(deployed("d"), *begun, e.BackfillFinished(**several["over"], at=START))
    writer.write(e.BackfillPaused(**several["old"], reason="look", at=START))
    project_all(writer.to, dsn)
    with psycopg.connect(dsn, autocommit=True) as connection:
        live = reads.list_backfills(connection, "d", live=True).items
        assert [(row.backfill_id, row.state) for row in live] == [("old", "paused"), ("new", "running")]
        assert [row.backfill_id for row in reads.list_backfills(connection, "d", live=False).items] == ["over"]
        assert len(reads.list_backfills(connection, "d").items) == 3


def test_open_tasks_that_are_alike_are_counted_together(writer: JournalWriter, dsn: str) -> None:
    instances = [f"extract[{index}]" for index in range(12)]
    writer.write(
        deployed("d"),
        created("asked", START),
        started("asked"),
        task(e.TaskExpanded, "extract", attempt=0, items=12, first=0, values=str(list(range(12)))),
        *(task(e.TaskQueued, name, pool="p", pool_slots=1, at=START + 9) for name in instances[:9]),
        *(task(e.TaskLeased, name, worker="w", mail_partition=0, expires_at=START) for name in instances[:2]),
        task(e.TaskSkipped, "report", attempt=0, reason="x"),
    )
    project_all(writer.to, dsn)
    with psycopg.connect(dsn, autocommit=True) as connection:
        found = waiting.list_open_tasks(connection, "d", "asked")
    assert [(one.state, one.instances, one.count, one.tasks[0]) for one in found] == [
        ("deferred", False, 1, "extract"),
        ("leased", True, 2, "extract[0]"),
        ("queued", True, 7, "extract[2]"),
        ("scheduled", True, 3, "extract[9]"),
        ("scheduled", False, 1, "load"),
    ]
    assert found[2].tasks == instances[2:7] and found[2].queued_at == "2026-09-21T14:13:20.009Z"
    assert (found[1].worker, found[1].attempt) == ("w", 1)


def test_what_failed_alike_is_counted_together_without_tracebacks(writer: JournalWriter, dsn: str) -> None:
    def failed(index: int, message: str) -> e.TaskFailed:
        where = {"dag": "d", "run_id": "asked", "task": f"extract[{index}]", "attempt": 1, "worker": "w"}
        times = {"at": START, "started_at": START, "ended_at": START}
        return e.TaskFailed(**where, **times, kind="exception", message=message)

    writer.write(
        deployed("d"),
        created("asked", START),
        started("asked"),
        task(e.TaskExpanded, "extract", attempt=0, items=8, first=0, values=str(list(range(8)))),
        *(task(e.TaskQueued, f"extract[{index}]", pool="p", pool_slots=1) for index in range(8)),
        *(failed(index, f"KeyError: 'x'\n\nTraceback {index}") for index in range(7)),
        failed(7, "exit status 1"),
        task(e.TaskUpstreamFailed, "load", attempt=0, reason="x"),
    )
    project_all(writer.to, dsn)
    with psycopg.connect(dsn, autocommit=True) as connection:
        found = waiting.list_lost_tasks(connection, "d", "asked")
    assert [(one.state, one.instances, one.count, one.attempt, one.reason, one.tasks[0]) for one in found] == [
        ("failed", True, 7, 1, "KeyError: 'x'", "extract[0]"),
        ("failed", True, 1, 1, "exit status 1", "extract[7]"),
        ("upstream_failed", False, 1, 0, "", "load"),
    ]
    assert len(found[0].tasks) == 5


def test_a_lock_that_somebody_holds_is_seen_by_others(writer: JournalWriter, dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection, psycopg.connect(dsn, autocommit=True) as holder:
        assert not waiting.is_held(connection, Lock.WAITER)
        holder.execute("SELECT pg_advisory_lock(%s)", (Lock.WAITER,))
        assert waiting.is_held(connection, Lock.WAITER) and not waiting.is_held(connection, Lock.NOTIFIER)
        holder.execute("SELECT pg_advisory_unlock(%s)", (Lock.WAITER,))
        assert not waiting.is_held(connection, Lock.WAITER)


def test_a_pool_shows_whose_turn_it_is(writer: JournalWriter, dsn: str) -> None:
    def enqueued(dag: str, name: str, at: int, **more: Any) -> e.TaskEnqueued:
        slot = {"pool": "p", "dag": dag, "run_id": "r", "task": name, "attempt": 1, "at": START + at}
        return e.TaskEnqueued(**{**slot, "pool_slots": 1, "priority": 0, "logical_date": START + at, **more})

    def granted(dag: str, name: str) -> e.SlotGranted:
        return e.SlotGranted(pool="p", dag=dag, run_id="r", task=name, attempt=1, worker="w", at=START)

    writer.write(
        e.WorkerJoined(pool="p", worker="w", slots=9, mail_partition=0, expires_at=START + 1, host="h", at=START),
        enqueued("busy", "held", 0, pool_slots=4),
        granted("busy", "held"),
        enqueued("some", "held", 0, pool_slots=2),
        granted("some", "held"),
        enqueued("busy", "b1", 1),
        enqueued("idle", "i2", 3, max_pool_share=30),
        enqueued("idle", "i1", 2),
        enqueued("idle", "late", 9, logical_date=START - 1),
        enqueued("urgent", "u", 8, priority=5),
    )
    project_all(writer.to, dsn)
    with psycopg.connect(dsn, autocommit=True) as connection:
        heads = waiting.list_pool_heads(connection, "p")
        assert [(head.dag, head.task, head.held_slots) for head in heads] == [
            ("urgent", "u", 0),
            ("idle", "late", 0),
            ("busy", "b1", 4),
        ]
        assert [(one.dag, one.slots) for one in waiting.list_pool_holders(connection, "p")] == [
            ("busy", 4),
            ("some", 2),
        ]
        last = waiting.get_place_in_pool(connection, "p", "idle", "r", "i2", 1)
        assert last is not None and (last.before, last.pool_slots) == (2, 1)
        assert waiting.get_place_in_pool(connection, "p", "busy", "r", "held", 1) is None, "it holds its slots"
