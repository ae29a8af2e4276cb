"""Built anew, the read model is the same to the last row; a row that is not what the journal says is found."""

from __future__ import annotations

import threading

import psycopg
import pytest

from tests.projections.following import execute, following, project_all, scalar, tables, wait_until
from tests.projections.journals import START, JournalWriter, deployed, mixed_day
from tidewheel.core import events as e
from tidewheel.log.interface import EVENTS
from tidewheel.log.memory import MemoryLog
from tidewheel.runtime.reshard import reshard
from tidewheel_projections import projector as module
from tidewheel_projections import rebuild as rebuilding
from tidewheel_projections.locks import Lock
from tidewheel_projections.reads import list_runs
from tidewheel_projections.rebuild import ReplayFailed, rebuild, verify

pytestmark = pytest.mark.postgres


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog(partitions=4)


def test_rebuilt_tables_are_those_in_use(log: MemoryLog, dsn: str) -> None:
    mixed_day(JournalWriter(log))
    project_all(log, dsn, batch=50)
    before = tables(dsn)
    assert all(before[name] for name in before if name != "pool_tasks"), "the journal fills every table"
    rebuild(dsn, log)
    assert tables(dsn) == before
    assert verify(dsn, log) == []
    execute(dsn, "DROP SCHEMA tidewheel CASCADE")
    rebuild(dsn, log)
    assert tables(dsn) == before


def test_a_log_that_was_moved_gives_the_same_dags_runs_and_tasks(log: MemoryLog, dsn: str) -> None:
    mixed_day(JournalWriter(log))
    project_all(log, dsn, batch=50)
    places = "dag, run_id, task, attempt"
    asked = {
        "runs": "SELECT dag, run_id, state FROM runs ORDER BY 1, 2",
        "attempts": f"SELECT {places}, state FROM attempts ORDER BY 1, 2, 3, 4",
        "logs": f"SELECT {places}, chunk, text FROM task_logs ORDER BY 1, 2, 3, 4, 5",
        "letters": "SELECT count(*) FROM dead_letters",
    }

    def rows() -> dict[str, list[tuple[object, ...]]]:
        with psycopg.connect(dsn, options="-c search_path=tidewheel") as connection:
            return {name: connection.execute(query.encode()).fetchall() for name, query in asked.items()}

    before = rows()
    assert all(before.values())
    moved = MemoryLog(partitions=3)
    reshard(log, moved)
    project_all(moved, dsn)
    assert scalar(dsn, "SELECT count(*) > 0 FROM projection_positions WHERE stopped <> ''") is True
    rebuild(dsn, moved)
    assert rows() == before
    assert verify(dsn, moved) == []


def test_a_running_projector_goes_on_with_the_rebuilt_tables(log: MemoryLog, dsn: str) -> None:
    writer = JournalWriter(log)
    mixed_day(writer)
    with following(log, dsn) as projector, psycopg.connect(dsn, autocommit=True) as reader:
        wait_until(lambda: projector.applied > 200, "it follows")
        rebuild(dsn, log)
        applied = projector.applied
        writer.write(e.DagPaused(dag="dag_2", reason="later", at=START + 200_000))
        wait_until(lambda: projector.applied > applied, "it goes on")
        assert list_runs(reader, dag="dag_2", limit=10).items
        wait_until(lambda: bool(scalar(dsn, "SELECT paused FROM dags WHERE dag = 'dag_2'")), "the new event is there")
        assert verify(dsn, log) == []


def test_of_two_at_once_the_second_is_refused_but_not_right_after_the_first(
    log: MemoryLog, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server hears a moment later that a session has ended."""
    project_all(log, dsn)
    first = psycopg.connect(dsn, autocommit=True)
    assert Lock.REPLAY.take(first)
    ending = threading.Timer(0.3, first.close)
    ending.start()
    assert verify(dsn, log) == []
    ending.join()
    monkeypatch.setattr(rebuilding, "_ENDING_S_MAX", 0.2)
    with psycopg.connect(dsn, autocommit=True) as other:
        assert Lock.REPLAY.take(other)
        with pytest.raises(ReplayFailed, match="another rebuild or verification of this database is under way"):
            rebuild(dsn, log)


#: What somebody might do, and what is to be found.
CHANGES = {
    "UPDATE runs SET state = 'success' WHERE dag = 'dag_1' AND run_id = 'bad'": ("runs", "different", "dag_1/bad"),
    "UPDATE attempts SET exit_code = 0 WHERE exit_code = 3 AND dag = 'dag_0'": (
        "attempts",
        "different",
        "dag_0/bad/extract/2",
    ),
    "DELETE FROM dag_versions WHERE version = 'v2'": ("dag_versions", "missing", "dag_1/v2"),
    "INSERT INTO pools VALUES ('ghost', 1, '', 0, 0, 0, now(), 1)": ("pools", "extra", "ghost"),
    "UPDATE tasks SET output = '{\"rows\": 18}' WHERE dag = 'dag_4' AND run_id = 'r1' AND task = 'load'": (
        "tasks",
        "different",
        "dag_4/r1/load",
    ),
    "UPDATE task_logs SET text = 'all fine' WHERE chunk = 1 AND dag = 'dag_0'": (
        "task_logs",
        "different",
        "dag_0/r0/load/1/1",
    ),
}


def test_verify_finds_each_row_that_somebody_changed(log: MemoryLog, dsn: str) -> None:
    mixed_day(JournalWriter(log))
    project_all(log, dsn)
    for change in CHANGES:
        execute(dsn, change)
    found = {(difference.table, difference.kind, difference.key) for difference in verify(dsn, log)}
    assert found == set(CHANGES.values())


def test_verify_compares_at_the_projectors_position_not_at_the_logs_end(log: MemoryLog, dsn: str) -> None:
    writer = JournalWriter(log)
    mixed_day(writer)
    project_all(log, dsn)
    writer.write(e.DagPaused(dag="dag_3", reason="not projected yet", at=START))
    assert verify(dsn, log) == []


def test_a_journal_that_cannot_be_replayed_leaves_the_tables_alone(log: MemoryLog, dsn: str) -> None:
    writer = JournalWriter(log)
    writer.write(deployed("a"))
    project_all(log, dsn)
    before = tables(dsn)
    writer.raw(EVENTS, "a", b"garbage")
    with pytest.raises(ReplayFailed, match="is no event of ours"):
        rebuild(dsn, log)
    assert tables(dsn) == before


def test_two_replays_at_once_are_refused(log: MemoryLog, dsn: str) -> None:
    with module.connect(dsn) as connection:
        connection.execute("SELECT pg_advisory_lock(%s)", (0x7469_6465_0003,))
        with pytest.raises(ReplayFailed, match="another rebuild or verification"):
            rebuild(dsn, log)
