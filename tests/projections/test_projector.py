"""The projector on a real Postgres: nothing lost, nothing doubled, whatever comes in between."""

from __future__ import annotations

import random
import threading
import time

import msgspec
import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tests.postgres import fresh_database
from tests.projections.following import (
    execute,
    following,
    project_all,
    scalar,
    session,
    tables,
    wait_until,
)
from tests.projections.journals import START, JournalWriter, deployed, life, mixed_day, pool_ready
from tidewheel.core import events as e
from tidewheel.log.interface import Append
from tidewheel.log.memory import MemoryLog
from tidewheel.wire.messages import LogChunk
from tidewheel_projections import projector as module
from tidewheel_projections.projector import connect
from tidewheel_projections.reads import get_projector, get_run, get_task, list_attempts, list_positions, list_runs

TASKS = ("extract", "load", "report")

pytestmark = pytest.mark.postgres


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog(partitions=4)


def test_a_run_of_every_kind_ends_in_its_rows(log: MemoryLog, dsn: str) -> None:
    mixed_day(JournalWriter(log))
    project_all(log, dsn)
    with psycopg.connect(dsn, autocommit=True) as connection:
        states = {(run.dag, run.run_id): (run.state, run.counts) for run in list_runs(connection, limit=100).items}
        bad = list_attempts(connection, "dag_0", "bad")
        load = get_task(connection, "dag_0", "r0", "load")
        run = get_run(connection, "dag_0", "r0")
    assert states["dag_0", "r0"] == ("success", {"success": 3})
    assert states["dag_0", "bad"] == ("failed", {"failed": 1, "upstream_failed": 2})
    assert states["dag_3", "stopped"] == ("cancelled", {"cancelled": 3})
    assert states["dag_1", "scheduled__1"] == ("queued", {"scheduled": 4})
    assert [(a.attempt, a.state, a.kind, a.exit_code) for a in bad.items] == [
        (1, "failed", "lease_expired", None),
        (2, "failed", "exit_code", 3),
    ]
    assert load is not None and load.output == {"rows": 17} and load.worker == "w1"
    assert run is not None and run.inputs == {"day": "2026-01-01"} and run.started_at is not None


def test_tasks_are_there_as_soon_as_their_run(log: MemoryLog, dsn: str) -> None:
    writer = JournalWriter(log)
    writer.write(deployed("etl", TASKS))
    project_all(log, dsn)
    # The definition comes from the table this time.
    writer.write(e.RunCreated(dag="etl", run_id="r", version="v1", kind="manual", at=START))
    project_all(log, dsn)
    assert scalar(dsn, "SELECT string_agg(task || ' ' || state, ', ' ORDER BY ordinal) FROM tasks") == (
        "extract scheduled, load scheduled, report scheduled"
    )


def test_a_run_shows_the_deadlines_it_missed(log: MemoryLog, dsn: str) -> None:
    writer = JournalWriter(log)
    writer.write(deployed("etl", TASKS), e.RunCreated(dag="etl", run_id="r", version="v1", kind="manual", at=START))
    late = e.DeadlineMissed(
        dag="etl",
        run_id="r",
        at=START + 60_001,
        deadline=0,
        counted_from="queued",
        within_ms=60_000,
        due_at=START + 60_000,
        action="alert",
        reason="late",
    )
    writer.write(late, msgspec.structs.replace(late, deadline=1, action="fail"))
    project_all(log, dsn)
    missed = scalar(dsn, "SELECT deadlines_missed FROM runs")
    assert [(one["deadline"], one["action"]) for one in missed] == [(0, "alert"), (1, "fail")]
    assert missed[0]["due_at"] == "2026-09-21T14:14:20Z" and missed[0]["reason"] == "late"


def test_a_run_shows_the_trigger_and_the_record_it_came_from(log: MemoryLog, dsn: str) -> None:
    origin = {"trigger": "late", "origin": "landing.files/3/1207"}
    JournalWriter(log).write(
        deployed("etl", TASKS),
        e.RunCreated(dag="etl", run_id="asked", version="v1", kind="manual", at=START),
        e.RunCreated(dag="etl", run_id="triggered", version="v1", kind="kafka", at=START, **origin),
    )
    project_all(log, dsn)
    with psycopg.connect(dsn) as connection:
        asked, triggered = (get_run(connection, "etl", run_id) for run_id in ("asked", "triggered"))
    assert asked is not None and (asked.trigger, asked.origin) == ("", "")
    assert triggered is not None and (triggered.trigger, triggered.origin) == ("late", "landing.files/3/1207")


def test_events_that_come_again_change_nothing(log: MemoryLog, dsn: str) -> None:
    mixed_day(JournalWriter(log))
    project_all(log, dsn)
    before = tables(dsn)
    execute(
        dsn,
        "UPDATE projection_positions SET last_offset = -1, shard_seq = 0, chain = decode(repeat('00', 8), 'hex')",
    )
    assert project_all(log, dsn, batch=37) > 200
    assert tables(dsn) == before
    execute(dsn, "DELETE FROM projection_positions")
    project_all(log, dsn)
    assert tables(dsn) == before


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_rows_do_not_depend_on_how_the_journal_is_cut(
    seed: int, log: MemoryLog, dsn: str, postgres_server: str
) -> None:
    """Batches of any size, partitions in any order, memory lost in between: the same tables."""
    mixed_day(JournalWriter(log), seed)
    project_all(log, dsn)
    chance = random.Random(seed)
    with fresh_database(postgres_server) as other:
        with session(log, other) as current:
            queues = {}
            for place in current.journals.tracks:
                reader = log.reader({place: 0})
                queues[place] = reader.read(100_000, 0)
            while any(queues.values()):
                place = chance.choice([place for place, queue in queues.items() if queue])
                size = chance.choice([1, 2, 7, 50])
                batch, queues[place] = queues[place][:size], queues[place][size:]
                current.apply(batch)
                if chance.random() < 0.1:
                    current.reload()
        assert tables(other) == tables(dsn)


def test_it_goes_on_after_its_connection_is_killed(
    log: MemoryLog, dsn: str, postgres_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between and within batches, again and again: in the end every row is as if nothing had happened."""
    monkeypatch.setattr(module, "BATCH_MAX", 25)
    monkeypatch.setattr(module, "BACK_OFF_S", (0.01, 0.05))
    mixed_day(JournalWriter(log))
    with fresh_database(postgres_server) as other:
        project_all(log, other)
        expected = tables(other)
    total = sum(log.end_offset(topic, p) for topic in ("events", "pool-events") for p in range(4))
    chance, kills, seen = random.Random(7), 0, 0
    with following(log, dsn) as projector, psycopg.connect(dsn, autocommit=True) as connection:
        while seen < total:
            wait_until(lambda before=seen: projector.applied > before, "it applies something more")
            time.sleep(chance.uniform(0, 0.01))
            seen = projector.applied
            killed = connection.execute(
                "SELECT count(*) FROM (SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name = 'tidewheel-projector' AND datname = current_database()) AS k"
            ).fetchone()
            assert killed is not None
            kills += killed[0]
    assert kills > 3
    project_all(log, dsn)
    assert tables(dsn) == expected


def test_postgres_away_at_start_is_waited_for(
    log: MemoryLog, postgres_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BACK_OFF_S", (0.02, 0.1))
    name = "comes_later"
    JournalWriter(log).write(deployed("etl"))
    dsn = make_conninfo(postgres_server, dbname=name)
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        with following(log, dsn) as projector:
            connection.execute(f"CREATE DATABASE {name}")
            wait_until(lambda: projector.applied == 1, "the event is projected")
        connection.execute(f"DROP DATABASE {name}")


def test_heartbeats_change_one_row_and_add_none(log: MemoryLog, dsn: str) -> None:
    writer = JournalWriter(log)
    writer.write(
        *pool_ready(),
        deployed("etl", ["only"]),
        e.RunCreated(dag="etl", run_id="r", version="v1", kind="api", at=START),
    )
    queued = list(life("etl", "r", "only", START))
    writer.write(e.RunStarted(dag="etl", run_id="r", at=START), *queued[:5])
    project_all(log, dsn)
    before = {name: len(rows) for name, rows in tables(dsn).items()}
    for beat in range(500):
        writer.write(
            e.TaskHeartbeat(
                dag="etl",
                run_id="r",
                task="only",
                attempt=1,
                worker="w1",
                at=START + beat,
                expires_at=START + 60_000 + beat,
                progress=str(beat),
            ),
            e.WorkerRenewed(pool="default", worker="w1", at=START + beat, expires_at=START + 90_000),
        )
        if beat % 100 == 0:
            project_all(log, dsn)
    project_all(log, dsn)
    assert {name: len(rows) for name, rows in tables(dsn).items()} == before
    assert scalar(dsn, "SELECT progress::text FROM attempts") == "499"


def test_one_projector_writes_and_the_other_takes_over(
    log: MemoryLog, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STANDBY_S", 0.05)
    writer = JournalWriter(log)
    writer.write(deployed("a"))
    with following(log, dsn, "second") as second:
        with following(log, dsn, "first") as first:
            wait_until(lambda: first.applied + second.applied == 1, "one of them writes")
            leader, other = (first, second) if first.applied else (second, first)
            writer.write(deployed("b"))
            wait_until(lambda: leader.applied == 2, "the same one goes on")
            assert other.applied == 0
        # `first` has ended.
        writer.write(deployed("c"))
        wait_until(lambda: second.applied >= 1, "the second one writes")
    assert scalar(dsn, "SELECT count(*) FROM dags") == 3


def test_a_slot_has_one_run_and_a_second_stops_the_partition(log: MemoryLog, dsn: str) -> None:
    """The unique key is the last line of defence: a scheduler that breaks the rule is found, not followed."""
    writer = JournalWriter(log)
    writer.write(deployed("etl"))
    for run_id in ("one", "two"):
        writer.write(
            e.RunCreated(dag="etl", run_id=run_id, version="v1", kind="scheduled", logical_date=START, at=START)
        )
    project_all(log, dsn)
    assert scalar(dsn, "SELECT count(*) FROM runs") == 1
    assert "runs_one_per_slot" in str(scalar(dsn, "SELECT max(stopped) FROM projection_positions"))


def test_texts_that_postgres_refuses_are_kept_all_the_same(log: MemoryLog, dsn: str) -> None:
    """NUL in a text, ``\\u0000`` in JSON, output that is no JSON, deep nesting: none of it stops anything."""
    writer = JournalWriter(log)
    writer.write(*pool_ready(), deployed("etl", ["a", "b", "c", "d"]))
    writer.write(
        e.RunCreated(dag="etl", run_id="r", version="v1", kind="api", at=START),
        e.RunStarted(dag="etl", run_id="r", at=START),
    )
    for task, output in (("a", '{"x": "\\u0000"}'), ("b", "no json\0"), ("c", "[" * 30_000), ("d", '{"n": 1e999}')):
        life_of = list(life("etl", "r", task, START))
        life_of[5] = life_of[5].__replace__(output=output)
        writer.write(*life_of)
    writer.write(e.RunFailed(dag="etl", run_id="r", reason="nul \0 here", at=START))
    writer.log(LogChunk(dag="etl", run_id="r", task="a", attempt=1, chunk=0, at=START, stream="stdout", text="a\0b"))
    project_all(log, dsn)
    assert scalar(dsn, "SELECT reason FROM runs") == "nul \ufffd here"
    assert scalar(dsn, "SELECT text FROM task_logs") == "a\ufffdb"
    assert scalar(dsn, "SELECT output::text FROM tasks WHERE task = 'b'") == '"no json\\u0000"'
    assert scalar(dsn, "SELECT count(*) FROM tasks WHERE state = 'success' AND output IS NOT NULL") == 4
    assert scalar(dsn, "SELECT coalesce(max(stopped), '') FROM projection_positions") == ""


def test_health_tells_that_the_projector_lives_and_how_far_it_is(log: MemoryLog, dsn: str) -> None:
    """C119: with the last entry of the log a marker, the lag still comes down to 0."""
    writer = JournalWriter(log)
    with following(log, dsn, "p1") as projector, psycopg.connect(dsn, autocommit=True) as connection:
        owner = log.owner("scheduler")
        batch = owner.poll(1, 0)
        for name in ("a", "b", "c"):
            topic, key, partition, value = writer.encoded(deployed(name))
            owner.commit(batch, [Append(topic, key, value, partition=partition)])
            batch = owner.poll(1, 0)
        wait_until(lambda: projector.applied == 3, "all is projected")
        wait_until(lambda: sum(row.end_offset for row in list_positions(connection)) > 3, "the ends are known")
        assert all(row.behind == 0 for row in list_positions(connection))
        alive = get_projector(connection)
    assert alive is not None and alive.instance == "p1" and alive.silent_s < 5


def test_a_large_bulk_against_other_writers_of_the_same_rows_never_deadlocks(log: MemoryLog, dsn: str) -> None:
    """C122: the projector writes 500 runs at once while another transaction touches them in the same, key, order."""
    writer = JournalWriter(log)
    names = [f"dag_{number:03d}" for number in range(50)]
    for name in names:
        writer.write(deployed(name, TASKS))
        for number in range(10):
            writer.write(e.RunCreated(dag=name, run_id=f"r{number}", version="v1", kind="manual", at=START))
    project_all(log, dsn)
    for name in reversed(names):
        for number in range(10):
            writer.write(e.RunCancelRequested(dag=name, run_id=f"r{number}", reason="all", at=START + 1))
    stop, faults = threading.Event(), []

    def touch() -> None:
        with connect(dsn) as connection:
            while not stop.is_set():
                try:
                    with connection.transaction():
                        connection.execute("SELECT 1 FROM runs ORDER BY dag, run_id FOR UPDATE")
                except psycopg.errors.DeadlockDetected as error:
                    faults.append(error)

    threads = [threading.Thread(target=touch) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        project_all(log, dsn, batch=100)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert faults == []
    assert scalar(dsn, "SELECT count(*) FROM runs WHERE cancel_requested_at IS NOT NULL") == 500
