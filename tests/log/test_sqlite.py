"""The log in a SQLite file: the contract, other processes, and files that are not what they should be."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tidewheel.log.interface import (
    COMMANDS,
    EVENTS,
    SNAPSHOTS,
    Append,
    CommitAborted,
    Log,
    LogError,
    LogMisconfigured,
    LogUnavailable,
    Owner,
)
from tidewheel.log.sqlite import SqliteLog
from tidewheel.testing.log_contract import HOLD_OPEN, PARTITIONS, LogContract
from tidewheel.testing.log_contract.driver import command, event, poll_records, read_all, read_some, send, texts


class TestSqliteLog(LogContract, cannot={HOLD_OPEN}):
    def open(self, path: Path) -> Log:
        return SqliteLog(path / "log.db", PARTITIONS)

    def expel(self, log: Log, owner: Owner, instance: str) -> None:
        assert isinstance(log, SqliteLog)
        log.expel(instance)


def _made(path: Path) -> SqliteLog:
    log = SqliteLog(path, PARTITIONS)
    log.create_topics()
    return log


class TestFile:
    """Files that are not what they should be, and what the user is told."""

    def test_no_file_yet(self, tmp_path: Path) -> None:
        log = SqliteLog(tmp_path / "none.db")
        with pytest.raises(LogMisconfigured, match=r"no log at .*none\.db: run `tidewheel topics create`"):
            log.check_topics()
        with pytest.raises(LogMisconfigured, match="no log at"):
            log.end_offset(EVENTS, 0)
        assert not (tmp_path / "none.db").exists()

    def test_not_a_sqlite_file(self, tmp_path: Path) -> None:
        (tmp_path / "notes.txt").write_text("Dear diary, " * 500)
        with pytest.raises(LogMisconfigured, match=r"notes\.txt is not a SQLite file"):
            SqliteLog(tmp_path / "notes.txt")

    def test_another_program_s_file(self, tmp_path: Path) -> None:
        with sqlite3.connect(tmp_path / "other.db") as db:
            db.execute("CREATE TABLE photos (id INTEGER)")
        with pytest.raises(LogMisconfigured, match="SQLite file of another program"):
            SqliteLog(tmp_path / "other.db")

    def test_a_newer_format(self, tmp_path: Path) -> None:
        _made(tmp_path / "log.db").close()
        with sqlite3.connect(tmp_path / "log.db") as db:
            db.execute("PRAGMA user_version = 99")
        with pytest.raises(LogMisconfigured, match=r"newer Tidewheel \(format 99, this one knows 1\)"):
            SqliteLog(tmp_path / "log.db")

    def test_another_number_of_partitions(self, tmp_path: Path) -> None:
        _made(tmp_path / "log.db").close()
        with pytest.raises(LogMisconfigured, match=f"has {PARTITIONS} partitions, not 7"):
            SqliteLog(tmp_path / "log.db", 7)
        assert SqliteLog(tmp_path / "log.db").partitions == PARTITIONS

    def test_a_directory(self, tmp_path: Path) -> None:
        with pytest.raises(LogUnavailable, match="check the path and its permissions"):
            SqliteLog(tmp_path)

    def test_a_damaged_file(self, tmp_path: Path) -> None:
        log = _made(tmp_path / "log.db")
        send(log, *(event(str(n) * 500) for n in range(200)))
        log.close()
        damaged = bytearray((tmp_path / "log.db").read_bytes())
        damaged[8192:] = b"\xa5" * (len(damaged) - 8192)
        (tmp_path / "log.db").write_bytes(damaged)
        with pytest.raises(LogError, match="is damaged"):
            read_all(SqliteLog(tmp_path / "log.db"), EVENTS)

    def test_a_full_disk_aborts_the_commit_and_loses_nothing_sent(self, tmp_path: Path) -> None:
        log = _made(tmp_path / "log.db")
        owner = log.owner("a")
        batch = owner.poll(10, 1)
        owner.commit(batch, [event("before")])
        hub = owner._hub
        with hub._writer_lock:
            pages = hub._writer.execute("PRAGMA page_count").fetchone()[0]
            hub._writer.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(CommitAborted, match="no space left"):
            owner.commit(batch, [event("x" * 100_000)])
        producer = log.producer()
        producer.send(event("y" * 100_000))
        with pytest.raises(LogUnavailable, match="no space left"):
            producer.flush(0.5)
        with hub._writer_lock:
            hub._writer.execute("PRAGMA max_page_count = 1000000")
        producer.flush(5)
        owner.reset()
        owner.commit(owner.poll(10, 1), [event("after")])
        assert [text[:6] for text in texts(read_all(log, EVENTS))] == ["before", "yyyyyy", "after"]
        log.close()

    def test_a_fault_nobody_foresaw_delays_what_was_sent_and_loses_none(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The thread that writes ended of it, and with it all sending in this process, without a word."""
        log = _made(tmp_path / "log.db")
        producer = log.producer()
        producer.send(event("before"))
        producer.flush(5)
        with monkeypatch.context() as patch:
            patch.setattr(time, "time_ns", lambda: 1 // 0)
            producer.send(event("meanwhile"))
            with pytest.raises(LogUnavailable, match=r"cannot be used .*by zero"):
                producer.flush(0.5)
        producer.flush(10)
        assert texts(read_all(log, EVENTS)) == ["before", "meanwhile"]
        log.close()

    @pytest.mark.parametrize("record", [Append("nonsense", b"k", b"v"), Append(EVENTS, b"k", b"v", partition=99)])
    def test_a_record_for_no_place_is_refused_and_holds_up_no_other(self, tmp_path: Path, record: Append) -> None:
        log = _made(tmp_path / "log.db")
        producer = log.producer()
        with pytest.raises(LogError, match=f"has no {record.topic}/"):
            producer.send(record)
        producer.send(event("fine"))
        producer.flush(5)
        assert texts(read_all(log, EVENTS)) == ["fine"]
        log.close()


class TestSharing:
    """Several logs and processes on one file."""

    def test_two_logs_of_one_process_see_each_other(self, tmp_path: Path) -> None:
        one, two = _made(tmp_path / "log.db"), SqliteLog(tmp_path / "log.db")
        reader = two.reader({(EVENTS, 0): 0})
        send(one, event("x"))
        assert texts(read_some(reader, 1)) == ["x"]
        one.close()
        send(two, event("y"))
        assert texts(read_some(reader, 1)) == ["y"]
        two.close()

    def test_a_fork_gets_a_hub_of_its_own(self, tmp_path: Path) -> None:
        log = _made(tmp_path / "log.db")
        send(log, event("parent"))
        script = (
            "import os, sys\n"
            "from pathlib import Path\n"
            "from tidewheel.log.interface import Append, EVENTS\n"
            "from tidewheel.log.sqlite import SqliteLog\n"
            f"path = Path({str(tmp_path / 'log.db')!r})\n"
            "before = SqliteLog(path); before.end_offset(EVENTS, 0)\n"
            "child = os.fork()\n"
            "if child == 0:\n"
            "    producer = before.producer()\n"
            "    producer.send(Append(EVENTS, b'etl', b'child', partition=0))\n"
            "    producer.flush(5)\n"
            "    os._exit(0)\n"
            "sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
        )
        root = Path(__file__).parents[2]
        ended = subprocess.run([sys.executable, "-c", script], cwd=root, timeout=20, capture_output=True, check=False)
        assert ended.returncode == 0, ended.stderr
        assert texts(read_all(log, EVENTS)) == ["parent", "child"]
        log.close()

    def test_housekeeping_forgets_answered_inputs_and_old_snapshots_but_no_journal(self, tmp_path: Path) -> None:
        log = _made(tmp_path / "log.db")
        send(log, *(command(str(n)) for n in range(10)))
        send(log, *(Append(SNAPSHOTS, b"k%d" % (n % 3), b"%d" % n, partition=0) for n in range(9)))
        # Deleted, and the deletion with it.
        send(log, Append(SNAPSHOTS, b"gone", b"x", partition=0), Append(SNAPSHOTS, b"gone", None, partition=0))
        send(log, Append(SNAPSHOTS, b"k2", b"8", partition=0))
        owner = log.owner("a")
        _, batch = poll_records(owner, 10)
        owner.commit(batch, [event(str(n)) for n in range(5)])
        send(log, command("unread"))
        owner._hub._keep_house()
        assert log.start_offset(COMMANDS, 0) == 10
        assert texts(read_all(log, COMMANDS)) == ["unread"]
        assert texts(read_all(log, SNAPSHOTS)) == ["6", "7", "8"]
        assert texts(read_all(log, EVENTS)) == [str(n) for n in range(5)]
        assert log.end_offset(COMMANDS, 0) == 11
        assert texts(poll_records(owner, 1)[0]) == ["unread"]
        log.close()
