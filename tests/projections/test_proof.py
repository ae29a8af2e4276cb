"""What the projector does not believe: it stops that partition, says where and why, and goes on with the others."""

from __future__ import annotations

import psycopg
import pytest

from tests.projections.following import following, project_all, scalar, wait_until
from tests.projections.journals import START, JournalWriter, deployed
from tidewheel.core import events as e
from tidewheel.log.interface import DEAD_LETTERS, EVENTS, LOGS, Append
from tidewheel.log.memory import MemoryLog
from tidewheel.log.partition import partition_of
from tidewheel.runtime.repair import repair
from tidewheel.runtime.repair_plan import examine
from tidewheel.wire.messages import LogChunk
from tidewheel_projections.reads import list_positions
from tidewheel_projections.rebuild import rebuild, verify

pytestmark = pytest.mark.postgres


def paused(dag: str) -> e.DagPaused:
    return e.DagPaused(dag=dag, reason="r", at=START)


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog(partitions=4)


def send(log: MemoryLog, record: tuple[str, bytes, int, bytes]) -> None:
    topic, key, partition, value = record
    log.producer().send(Append(topic, key, value, partition=partition))


def reports(dsn: str) -> dict[tuple[str, int], str]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        return {(row.topic, row.partition): row.stopped for row in list_positions(connection) if row.stopped}


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("garbage", "is no event of ours (foreign"),
        ("tombstone", "is no event of ours (foreign"),
        ("truncated", "is no event of ours"),
        ("hole", "carries shard_seq 3, and 2 was next: events are missing before it"),
        ("double", "carries shard_seq 1, and 2 was next: it repeats an event"),
        ("altered", "is not chained to the event before it"),
        ("unknown dag", "cannot be projected: the DagPaused does not fit"),
    ],
)
def test_a_partition_stops_at_what_cannot_be_believed(fault: str, says: str, log: MemoryLog, dsn: str) -> None:
    writer = JournalWriter(log)
    first = writer.encoded(deployed("a"))
    topic, key, partition, _ = first
    send(log, first)
    match fault:
        case "garbage":
            log.producer().send(Append(topic, key, b"hello", partition=partition))
        case "tombstone":
            log.producer().send(Append(topic, key, None, partition=partition))
        case "truncated":
            send(log, (*first[:3], writer.encoded(paused("a"))[3][:-20]))
        case "hole":
            writer.encoded(paused("a"))
            writer.write(paused("a"))
        case "double":
            send(log, first)
        case "altered":
            value = bytearray(writer.encoded(paused("a"))[3])
            value[-30] ^= 1
            send(log, (*first[:3], bytes(value)))
        case _:
            other = next(f"x{n}" for n in range(100) if partition_of(f"x{n}".encode(), 4) == partition)
            writer.write(paused(other))
    elsewhere = next(f"y{n}" for n in range(100) if partition_of(f"y{n}".encode(), 4) != partition)
    writer.write(deployed(elsewhere))
    # And more on the stopped one, which must not be looked at.
    writer.write(paused("a"))
    project_all(log, dsn, batch=3)
    found = reports(dsn)
    assert list(found) == [(EVENTS, partition)]
    assert f"{EVENTS}/{partition} offset 1" in found[EVENTS, partition]
    assert says in found[EVENTS, partition] or fault == "altered"
    assert scalar(dsn, f"SELECT count(*) FROM dags WHERE dag = '{elsewhere}'") == 1
    assert scalar(dsn, "SELECT paused FROM dags WHERE dag = 'a'") is False


def test_a_stopped_partition_is_tried_again_at_the_next_start(log: MemoryLog, dsn: str) -> None:
    writer = JournalWriter(log)
    writer.write(deployed("a"))
    writer.raw(EVENTS, "a", b"garbage")
    with following(log, dsn):
        wait_until(
            lambda: bool(scalar(dsn, "SELECT to_regclass('projection_positions') IS NOT NULL")), "tables are there"
        )
        wait_until(lambda: bool(reports(dsn)), "it stops")
    partition = partition_of(b"a", 4)
    log.trim(EVENTS, partition, 2)
    writer.write(paused("a"))
    project_all(log, dsn)
    assert reports(dsn) == {}
    assert scalar(dsn, "SELECT paused FROM dags") is True


def test_another_log_is_noticed_even_if_it_has_as_many_records(log: MemoryLog, dsn: str) -> None:
    writer = JournalWriter(log)
    writer.write(deployed("a"), paused("a"))
    project_all(log, dsn)
    other = MemoryLog(partitions=4)
    JournalWriter(other).write(deployed("a", ["x"]), paused("a"), paused("a"))
    project_all(other, dsn)
    assert "is not the record that was projected from there: this is another log" in str(reports(dsn))
    assert scalar(dsn, "SELECT tasks FROM dags") == 3


def test_a_shorter_log_is_noticed_at_once(log: MemoryLog, dsn: str) -> None:
    JournalWriter(log).write(deployed("a"), paused("a"))
    project_all(log, dsn)
    project_all(MemoryLog(partitions=4), dsn)
    assert "ends at offset 0, but has been projected up to 1" in str(reports(dsn))


def test_a_journal_without_its_beginning_is_not_followed(log: MemoryLog, dsn: str) -> None:
    writer = JournalWriter(log)
    writer.write(deployed("a"), paused("a"))
    log.trim(EVENTS, partition_of(b"a", 4), 1)
    project_all(log, dsn)
    assert "carries shard_seq 2, and 1 was next: the journal was trimmed" in str(reports(dsn))


def test_bad_log_chunks_and_dead_letters_are_passed_over(log: MemoryLog, dsn: str) -> None:
    writer = JournalWriter(log)
    chunk = LogChunk(dag="a", run_id="r", task="t", attempt=1, chunk=0, at=START, stream="stdout", text="x")
    key = "a/r/t/1"
    writer.raw(LOGS, key, b"garbage")
    writer.raw(DEAD_LETTERS, "k", None)
    # Twice: a worker that is not sure sends a chunk again.
    writer.log(chunk)
    writer.log(chunk)
    # Too large a number for the column.
    writer.log(LogChunk(dag="a", run_id="r", task="t", attempt=1, chunk=2, at=2**62, stream="stdout", text="x"))
    writer.log(LogChunk(dag="a", run_id="r", task="t", attempt=1, chunk=3, at=START, stream="stdout", text="y"))
    project_all(log, dsn)
    assert scalar(dsn, "SELECT string_agg(chunk::text, ',' ORDER BY chunk) FROM task_logs") == "0,3"
    assert reports(dsn) == {}


def mend(log: MemoryLog, give_up: int = 0, keep: int | None = None) -> None:
    plan = examine(log, EVENTS, partition_of(b"a", 4), keep=keep)
    repair(log, plan, actor="user:ann", reason="r", now=START, give_up=give_up, pause=lambda seconds: None)


def test_a_repaired_partition_is_followed_again_and_rebuilt_the_same(log: MemoryLog, dsn: str) -> None:
    writer = JournalWriter(log)
    writer.write(deployed("a"))
    writer.raw(EVENTS, "a", b"garbage")
    with following(log, dsn):
        wait_until(
            lambda: bool(scalar(dsn, "SELECT to_regclass('projection_positions') IS NOT NULL")), "tables are there", 60
        )
        wait_until(lambda: bool(reports(dsn)), "it stops", 60)
        writer.write(paused("a"))
        mend(log)
        wait_until(lambda: not reports(dsn), "it goes on", 60)
        wait_until(lambda: scalar(dsn, "SELECT paused FROM dags") is True, "what lies behind is projected", 60)
        wait_until(
            lambda: scalar(dsn, "SELECT count(*) FROM events WHERE type = 'JournalRepaired'") == 1, "on record", 60
        )
    assert verify(dsn, log) == []
    rebuild(dsn, log)
    assert scalar(dsn, "SELECT paused FROM dags") is True
    assert verify(dsn, log) == []


def test_a_repair_of_what_was_projected_asks_for_a_rebuild(log: MemoryLog, dsn: str) -> None:
    """History forks: the projector has followed the branch that is not kept."""
    writer = JournalWriter(log)
    writer.write(deployed("a"))
    other = JournalWriter(MemoryLog(partitions=4))
    other.write(deployed("a"))
    writer.write(paused("a"))
    for record in (other.encoded(e.DagRemoved(dag="a", at=START)), other.encoded(e.DagUnpaused(dag="a", at=START))):
        send(log, record)
    with following(log, dsn):
        wait_until(
            lambda: bool(scalar(dsn, "SELECT to_regclass('projection_positions') IS NOT NULL")), "tables are there", 60
        )
        wait_until(lambda: "it repeats an event" in str(reports(dsn)), "it stops", 60)
        mend(log, keep=3)
        wait_until(lambda: "run `tidewheel projection rebuild`" in str(reports(dsn)), "it says what to do", 60)
    rebuild(dsn, log)
    assert reports(dsn) == {}
    assert scalar(dsn, "SELECT paused FROM dags") is False
