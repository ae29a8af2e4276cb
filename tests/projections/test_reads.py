"""The named queries on a real database: each prepares, fits its struct, and pages without holes or repeats."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import psycopg
import pytest

from tests.postgres import fresh_database
from tests.projections.following import project_all
from tests.projections.journals import START, JournalWriter, definition, deployed, mixed_day, workflow
from tidewheel.core import events as e
from tidewheel.log.memory import MemoryLog
from tidewheel_projections import reads
from tidewheel_projections.queries import named_queries
from tidewheel_projections.schema import migrate
from tidewheel_projections.views import Page

pytestmark = pytest.mark.postgres


@pytest.fixture
def writer() -> JournalWriter:
    return JournalWriter(MemoryLog(partitions=4))


@pytest.fixture(scope="module")
def day(postgres_server: str) -> Iterator[psycopg.Connection]:
    """The read model after a day of everything, to be read only."""
    log = MemoryLog(partitions=4)
    mixed_day(JournalWriter(log))
    with fresh_database(postgres_server) as dsn:
        project_all(log, dsn)
        with psycopg.connect(dsn, autocommit=True, options="-c default_transaction_read_only=on") as connection:
            yield connection


@pytest.mark.parametrize("name", sorted(named_queries()))
def test_every_named_query_fits_the_migrated_tables(name: str, migrated: psycopg.Connection) -> None:
    query = named_queries()[name].decode()
    numbered: dict[str, int] = {}
    plain = re.sub(r"%\((\w+)\)s", lambda m: f"${numbered.setdefault(m.group(1), len(numbered) + 1)}", query)
    migrated.execute(f"PREPARE {name} AS {plain}".encode())


@pytest.fixture(scope="module")
def migrated(postgres_server: str) -> Iterator[psycopg.Connection]:
    """Tables without rows."""
    with fresh_database(postgres_server) as dsn, psycopg.connect(dsn, autocommit=True) as connection:
        migrate(connection)
        yield connection


PAGED: dict[str, Callable[..., Page[Any]]] = {
    "dags": lambda c, **more: reads.list_dags(c, removed=None, **more),
    "versions": lambda c, **more: reads.list_versions(c, "dag_1", **more),
    "runs": reads.list_runs,
    "runs of a DAG": lambda c, **more: reads.list_runs(c, dag="dag_2", **more),
    "tasks": lambda c, **more: reads.list_tasks(c, "dag_0", "r0", **more),
    "attempts": lambda c, **more: reads.list_attempts(c, "dag_0", "r0", **more),
    "pools": reads.list_pools,
    "workers": lambda c, **more: reads.list_workers(c, states=None, **more),
}


@pytest.mark.parametrize("what", PAGED)
def test_pages_have_no_holes_and_no_repeats(what: str, day: psycopg.Connection) -> None:
    whole = PAGED[what](day, limit=10_000)
    assert len(whole.items) > 1 and whole.next is None
    items, after = [], None
    while True:
        page = PAGED[what](day, after=after, limit=1)
        items += page.items
        after = page.next
        if after is None:
            break
    assert items == whole.items


def test_filters_narrow_a_list(day: psycopg.Connection) -> None:
    failed = reads.list_runs(day, states=["failed"]).items
    assert {run.run_id for run in failed} == {"bad"} and len(failed) == 3
    assert [run.run_id for run in reads.list_runs(day, kind="scheduled").items] == ["scheduled__1"]
    assert [row.dag for row in reads.list_dags(day).items] == [f"dag_{n}" for n in range(5)]
    assert [row.dag for row in reads.list_dags(day, removed=None, search="DAG_5").items] == ["dag_5"]
    assert reads.list_dags(day, tag="nightly").items == []
    upstream = reads.list_tasks(day, "dag_0", "bad", states=["upstream_failed"]).items
    assert [task.task for task in upstream] == ["load", "report"]


def test_a_dag_shows_its_newest_run_and_its_slot_cursor(day: psycopg.Connection) -> None:
    row = reads.get_dag(day, "dag_1")
    assert row is not None
    assert (row.version, row.tasks, row.live_runs, row.last_run_id, row.last_run_state) == (
        "v2",
        4,
        1,
        "scheduled__1",
        "queued",
    )
    assert row.slot_cursor == "2026-09-21T14:14:54.000Z" and row.schedule == {"cron": ["0 6 * * *"]}
    versions = reads.list_versions(day, "dag_1").items
    assert [(version.version, version.current) for version in versions] == [("v2", True), ("v1", False)]
    detail = reads.get_version(day, "dag_1", "v1")
    assert detail is not None and [task["id"] for task in detail.definition["tasks"]] == ["extract", "load", "report"]


def test_runs_that_a_run_asked_for_are_its_children(day: psycopg.Connection) -> None:
    (child,) = reads.list_runs(day, parent=("dag_0", "r0")).items
    assert (child.dag, child.run_id, child.kind) == ("dag_3", "asked", "workflow")
    assert child.parent == {"dag": "dag_0", "run_id": "r0", "task": "load", "attempt": 1}
    assert reads.list_runs(day, parent=("dag_0", "r1")).items == []
    assert reads.list_runs(day, parent=("", "")).items == []
    assert all(run.parent is None for run in reads.list_runs(day, dag="dag_0").items)


def test_events_of_a_run_are_in_order_without_heartbeats(day: psycopg.Connection) -> None:
    events = reads.list_events(day, "dag_0", run_id="r0")
    assert [event.type for event in events][:4] == ["RunCreated", "RunStarted", "TaskQueued", "TaskLeased"]
    assert events[0].body == {"version": "v1", "kind": "manual", "inputs": {"day": "2026-01-01"}}
    assert events[2].body == {"pool": "default", "pool_slots": 1}
    assert "TaskHeartbeat" not in {event.type for event in events}
    assert [event.type for event in events][-1] == "ReportRefused"
    newest = reads.list_events(day, "dag_0", run_id="r0", newest_first=True, limit=3)
    assert newest == list(reversed(events))[:3]
    assert reads.list_events(day, "dag_0", run_id="r0", after_seq=events[4].shard_seq) == events[5:]
    pool = reads.list_events(day, "other", topic="pool-events")
    assert [event.type for event in pool] == ["WorkerJoined", "WorkerLeft"]


def test_logs_are_followed_by_chunk(day: psycopg.Connection) -> None:
    logs = reads.list_logs(day, "dag_0", "r0", "load", 1, after_chunk=0)
    assert [(row.chunk, row.text) for row in logs] == [(1, "line 1\n"), (2, "line 2\n")]


def test_pools_show_who_waits_and_who_holds(writer: JournalWriter, dsn: str) -> None:
    slot = {"pool": "p", "dag": "etl", "run_id": "r", "attempt": 1, "at": START}
    writer.write(
        e.WorkerJoined(pool="p", worker="w", slots=4, mail_partition=0, expires_at=START + 1, host="h", at=START),
        e.TaskEnqueued(**slot, task="a", pool_slots=3, priority=0, logical_date=START),
        e.TaskEnqueued(**slot, task="b", pool_slots=2, priority=9, logical_date=START, max_pool_share=80),
        e.SlotGranted(**slot, task="a", worker="w"),
    )
    project_all(writer.to, dsn)
    with psycopg.connect(dsn, autocommit=True) as connection:
        pool = reads.get_pool(connection, "p")
        assert pool is not None
        assert (pool.used, pool.held, pool.waiting, pool.workers, pool.worker_slots) == (3, 1, 1, 1, 4)
        assert [worker.used for worker in reads.list_workers(connection, pool="p").items] == [3]
        waiting = reads.list_pool_tasks(connection, "p", state="waiting").items
        assert [(row.task, row.priority) for row in waiting] == [("b", 9)]
        (mine,) = reads.list_pool_dags(connection, "p", dag="etl").items
        assert (mine.used, mine.held, mine.waiting, mine.max_pool_share, mine.share_slots) == (3, 1, 1, 80, 3)
        assert reads.list_pool_dags(connection, "p", dag="other").items == []
        writer.write(e.SlotReleased(**slot, task="a"), e.SlotRefused(**slot, task="b", reason="too wide"))
        project_all(writer.to, dsn)
        pool = reads.get_pool(connection, "p")
        assert pool is not None and (pool.used, pool.held, pool.waiting) == (0, 0, 0)
        assert reads.list_pool_tasks(connection, "p").items == []


def test_a_task_says_since_when_it_has_a_checkpoint_until_it_has_ended(writer: JournalWriter, dsn: str) -> None:
    attempt = {"dag": "etl", "run_id": "r", "task": "extract", "attempt": 1}
    writer.write(
        deployed("etl"),
        e.RunCreated(dag="etl", run_id="r", version="v1", kind="manual", at=START),
        e.RunStarted(dag="etl", run_id="r", at=START),
        e.TaskQueued(**attempt, at=START, pool="default", pool_slots=1),
        e.TaskLeased(**attempt, at=START, worker="w", mail_partition=0, expires_at=START + 30_000),
        e.TaskCheckpointed(**attempt, at=START + 5, worker="w", checkpoint='{"page":"ü"}'),
        e.LeaseExpired(**attempt, at=START + 40_000, worker="w", message="silent", retry_at=START + 40_000),
    )
    project_all(writer.to, dsn)
    with psycopg.connect(dsn, autocommit=True) as connection:
        task = reads.get_task(connection, "etl", "r", "extract")
        assert task is not None
        assert (task.state, task.checkpoint_at, task.checkpoint_bytes) == ("retrying", "2026-09-21T14:13:20.005Z", 13)
        again = {**attempt, "attempt": 2, "worker": "w"}
        writer.write(
            e.TaskQueued(**{**attempt, "attempt": 2}, at=START + 40_000, pool="default", pool_slots=1),
            e.TaskLeased(**again, at=START + 40_000, mail_partition=0, expires_at=START + 70_000),
            e.TaskSucceeded(**again, at=START + 41_000, started_at=START + 40_000, ended_at=START + 41_000),
        )
        project_all(writer.to, dsn)
        task = reads.get_task(connection, "etl", "r", "extract")
        assert task is not None and (task.checkpoint_at, task.checkpoint_bytes) == (None, None)
        assert "TaskCheckpointed" not in {event.type for event in reads.list_events(connection, "etl", run_id="r")}


def fan_out(items: int) -> list[e.AnyEvent]:
    """A run ``r`` of ``fan``, whose task ``load`` has so many instances."""
    written = workflow("fan", ("load", "join"))
    load = msgspec.structs.replace(written.tasks[0], for_each="${{ inputs.files }}")
    text = definition(msgspec.structs.replace(written, tasks=(load, *written.tasks[1:])))
    values = msgspec.json.encode(list(range(items))).decode()
    return [
        e.DagDeployed(dag="fan", version="v1", definition=text, source="", at=START),
        e.RunCreated(dag="fan", run_id="r", version="v1", kind="manual", at=START),
        e.RunStarted(dag="fan", run_id="r", at=START),
        e.TaskExpanded(dag="fan", run_id="r", task="load", attempt=0, at=START, items=items, first=0, values=values),
    ]


def gave(index: int, output: str | None, attempt: int = 1) -> list[e.AnyEvent]:
    """The instance runs and gives this."""
    where = {"dag": "fan", "run_id": "r", "task": f"load[{index}]", "attempt": attempt, "at": START}
    times = {"worker": "w", "started_at": START, "ended_at": START}
    return [e.TaskQueued(**where, pool="default", pool_slots=1), e.TaskSucceeded(**where, **times, output=output)]


MAPPED = {"dag": "fan", "run_id": "r", "task": "load", "attempt": 0, "at": START}
ENDS = {"worker": "", "started_at": START, "ended_at": START}


def test_the_output_of_a_mapped_task_is_the_list_of_its_instances_in_the_order_of_the_items(
    writer: JournalWriter, dsn: str
) -> None:
    def load(*events: e.AnyEvent) -> Any:
        writer.write(*events)
        project_all(writer.to, dsn)
        with psycopg.connect(dsn, autocommit=True) as connection:
            found = reads.get_task(connection, "fan", "r", "load")
            assert found is not None
            return (found.state, found.output, found.outputs, found.outputs_next)

    assert load(*fan_out(3)[:3]) == ("scheduled", None, None, None)
    assert load(*fan_out(3)[3:], *gave(2, '"c"')) == ("deferred", [None, None, "c"], 3, None)
    assert load(*gave(0, '{"n": 1}'), *gave(1, None), e.TaskSucceeded(**MAPPED, **ENDS)) == (
        "success",
        [{"n": 1}, None, "c"],
        3,
        None,
    )
    cleared = e.TasksCleared(dag="fan", run_id="r", at=START, tasks='["load[0]"]')
    assert load(cleared) == ("deferred", [None, None, "c"], 3, None)
    assert load(*gave(0, "7", attempt=2), e.TaskSucceeded(**MAPPED, **ENDS))[1] == [7, None, "c"]
    marked = e.TaskMarked(**MAPPED, state="success", actor="user:ann", output='"by hand"')
    assert load(marked) == ("success", "by hand", None, None)
    assert load(e.TasksCleared(dag="fan", run_id="r", at=START, tasks='["load"]')) == ("scheduled", None, None, None)
    nothing = e.TaskExpanded(**MAPPED, items=0, first=0, values="[]")
    assert load(nothing, e.TaskSucceeded(**MAPPED, **ENDS)) == ("success", [], 0, None)


def test_what_people_decided_is_found_without_reading_all_other_events(migrated: psycopg.Connection) -> None:
    parameters: dict[str, Any] = {"topic": "events", "key": "etl", "run_id": "r", "task": None, "after": 1, "limit": 9}
    parameters["types"] = ["TasksCleared", "RunReopened"]
    with migrated.transaction(force_rollback=True):
        migrated.execute("SET LOCAL enable_seqscan = off")
        migrated.execute("SET LOCAL enable_sort = off")
        plan = [row[0] for row in migrated.execute(b"EXPLAIN " + named_queries()["list_events_newest"], parameters)]
    assert any("events_decided" in line for line in plan), plan


def test_very_many_outputs_are_shown_in_pages_by_number_and_by_size(
    writer: JournalWriter, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reads, "OUTPUTS_SHOWN", 4)
    writer.write(*fan_out(10), *(event for index in range(10) for event in gave(index, f'"{index}{"x" * 97}"')))
    project_all(writer.to, dsn)
    with psycopg.connect(dsn, autocommit=True) as connection:
        task = reads.get_task(connection, "fan", "r", "load")
        assert task is not None and (len(task.output), task.outputs) == (4, 10)
        rest = reads.list_outputs(connection, "fan", "r", "load", after=task.outputs_next)
        assert [row.index for row in rest.items] == [4, 5, 6, 7, 8, 9] and rest.next is None
        for size, expected in ((250, [0, 1]), (1, [0])):
            monkeypatch.setattr(reads, "OUTPUTS_BYTES", size)
            page = reads.list_outputs(connection, "fan", "r", "load")
            assert [row.index for row in page.items] == expected and page.next is not None
        monkeypatch.undo()
        nine = reads.list_outputs(connection, "fan", "r", "load", limit=9)
        last = reads.list_outputs(connection, "fan", "r", "load", after=nine.next)
        assert [(row.task, row.state, row.output[0]) for row in last.items] == [("load[9]", "success", "9")]
        assert last.next is None
        assert reads.list_outputs(connection, "fan", "r", "join").items == []


def test_a_read_waits_for_its_write(writer: JournalWriter, dsn: str) -> None:
    writer.write(deployed("etl"))
    project_all(writer.to, dsn)
    with psycopg.connect(dsn, autocommit=True) as connection:
        assert reads.wait_for_position(connection, writer.position("etl"), 0.01)
        writer.write(e.DagPaused(dag="etl", reason="", at=START))
        assert not reads.wait_for_position(connection, writer.position("etl"), 0.02)


@pytest.mark.parametrize("after", ["x", "AAAA", "WyJhIl0", "", "W10", "WzFd"])
def test_a_cursor_of_something_else_is_refused(after: str, day: psycopg.Connection) -> None:
    with pytest.raises(reads.BadCursor, match="cursor"):
        reads.list_runs(day, after=after)


def test_dead_letters_show_what_was_sent(day: psycopg.Connection) -> None:
    letters = reads.list_dead_letters(day).items
    assert [(row.source_topic, row.source_offset, row.key, row.value_bytes, row.code) for row in letters] == [
        ("triggers", 7, "k", 2, "undecodable")
    ]
    assert reads.get_dead_letter_value(day, letters[0].partition, letters[0].offset) == b"\x00\xff"


@pytest.mark.parametrize(
    ("dag", "states", "index"),
    [(None, None, "runs_newest"), ("etl", None, "runs_newest_of_dag"), (None, ["failed"], "runs_failed")],
)
def test_a_page_of_runs_is_read_off_an_index(
    dag: str | None, states: list[str] | None, index: str, migrated: psycopg.Connection
) -> None:
    """A page must not cost a sort of all runs. Sorting is made dear here, as a large table makes it."""
    query = named_queries()["list_runs"]
    names = ("kind", "after_at", "after_dag", "after_run", "since", "until", "parent_dag", "parent_run_id")
    parameters = {**dict.fromkeys(names), "dag": dag, "states": states, "limit": 100}
    with migrated.transaction(force_rollback=True):
        migrated.execute("SET LOCAL enable_seqscan = off")
        migrated.execute("SET LOCAL enable_bitmapscan = off")
        migrated.execute("SET LOCAL enable_sort = off")
        plan = [row[0] for row in migrated.execute(b"EXPLAIN " + query, parameters)]
    assert any(f"Index Scan Backward using {index} " in line for line in plan), plan
    assert not any("Sort" in line for line in plan), plan
