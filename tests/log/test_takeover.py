"""Owners as real processes that are killed and stopped: who takes over, how fast, with nothing lost or doubled."""

from __future__ import annotations

import itertools
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tidewheel.log.interface import EVENTS, Log, LogUnavailable
from tidewheel.log.kafka import KafkaLog
from tidewheel.log.sqlite import SqliteLog
from tidewheel.testing.log_contract.driver import command, owns_all, poll_until, read_all, send, texts

_SHARDS = 4
_PATIENCE_S = 30.0
#: The product's promise; a session of 6 s and an aborted transaction fit in.
TAKEOVER_S_MAX = 10.0
_number = itertools.count()


class OwnerProcess:
    """``owner_process.py``, and what it has said."""

    def __init__(self, url: str, instance: str, *options: str) -> None:
        script = Path(__file__).with_name("owner_process.py")
        self._process = subprocess.Popen(
            [sys.executable, str(script), url, instance, *options],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def wait_for(self, wanted: Callable[[str], bool]) -> str:
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            line = self._lines.get(timeout=max(0.01, deadline - time.monotonic()))
            if wanted(line):
                return line

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.strip())


Start = Callable[..., OwnerProcess]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[OwnerProcess] = []

    def begin(url: str, instance: str, *options: str) -> OwnerProcess:
        process = OwnerProcess(url, instance, *options)
        started.append(process)
        return process

    yield begin
    for process in started:
        process.signal(signal.SIGCONT)
        process.kill()


def _owns_all(line: str) -> bool:
    return line == "owns 0 1 2 3"


def _owns_half(line: str) -> bool:
    return line in ("owns 0 1", "owns 2 3")


def _committed(line: str) -> bool:
    return line.startswith("committed")


def _send_commands(log: Log, texts_: list[str]) -> None:
    send(log, *(command(text, n % _SHARDS) for n, text in enumerate(texts_)))


def _wait_for_events(log: Log, wanted: list[str]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        found = [text for shard in range(_SHARDS) for text in texts(read_all(log, EVENTS, shard))]
        if len(found) >= len(wanted) or time.monotonic() > deadline:
            assert sorted(found) == sorted(wanted)
            return
        time.sleep(0.2)


@pytest.mark.kafka
class TestKafka:
    @pytest.fixture
    def url(self, kafka_address: str) -> str:
        return f"kafka://{kafka_address}?prefix=takeover{os.getpid()}-{next(_number)}.&partitions={_SHARDS}"

    @pytest.fixture
    def log(self, url: str, kafka_address: str) -> Iterator[Log]:
        log = KafkaLog(kafka_address, url.partition("prefix=")[2].partition("&")[0], _SHARDS)
        log.create_topics()
        yield log
        log.close()

    def test_a_killed_owner_s_shards_move(self, url: str, log: Log, start: Start) -> None:
        first = start(url, "a")
        first.wait_for(_owns_all)
        second = start(url, "b")
        second.wait_for(_owns_half)
        first.wait_for(_owns_half)
        _send_commands(log, [str(n) for n in range(20)])
        first.wait_for(_committed)
        second.wait_for(_committed)
        first.kill()
        killed = time.monotonic()
        _send_commands(log, [str(n) for n in range(20, 40)])
        second.wait_for(_owns_all)
        assert time.monotonic() - killed < TAKEOVER_S_MAX
        _wait_for_events(log, [str(n) for n in range(40)])

    def test_a_killed_owner_restarted_in_place_goes_on_at_once(self, url: str, log: Log, start: Start) -> None:
        begun = time.monotonic()
        first = start(url, "a")
        first.wait_for(_owns_all)
        start_s = time.monotonic() - begun
        first.kill()
        killed = time.monotonic()
        again = start(url, "a")
        again.wait_for(_owns_all)
        # No start and the session of 6 s that a member without a name would wait out.
        assert time.monotonic() - killed < start_s + 4.0
        _send_commands(log, ["x"])
        _wait_for_events(log, ["x"])

    def test_a_restarted_owner_is_not_taken_for_its_predecessor_after_a_fault(
        self, url: str, log: Log, start: Start
    ) -> None:
        """The group goes on showing the client id of the life before: Kafka replaces a static member's id, not that."""
        first = start(url, "a")
        first.wait_for(_owns_all)
        first.kill()
        again = log.owner("a")
        poll_until(again, owns_all)
        again.reset()
        poll_until(again, owns_all)
        again.close()

    def test_an_owner_killed_inside_a_transaction_restarts_at_once(self, url: str, log: Log, start: Start) -> None:
        begun = time.monotonic()
        first = start(url, "a", "--stop-before-commit")
        first.wait_for(_owns_all)
        start_s = time.monotonic() - begun
        _send_commands(log, ["x", "y", "z"])
        first.wait_for(lambda line: line == "stopping")
        first.kill()
        killed = time.monotonic()
        again = start(url, "a")
        again.wait_for(_owns_all)
        assert time.monotonic() - killed < start_s + 4.0
        _wait_for_events(log, ["x", "y", "z"])

    def test_an_owner_stopped_inside_a_transaction_is_fenced(self, url: str, log: Log, start: Start) -> None:
        """It is stopped past its session when all but the commit is done; another takes over; then it goes on."""
        old = start(url, "a", "--stop-before-commit")
        old.wait_for(_owns_all)
        heir = start(url, "b")
        heir.wait_for(_owns_half)
        old.wait_for(_owns_half)
        _send_commands(log, [str(n) for n in range(40)])
        old.wait_for(lambda line: line == "stopping")
        stopped = time.monotonic()
        heir.wait_for(_owns_all)
        took = time.monotonic() - stopped
        _wait_for_events(log, [str(n) for n in range(40)])
        old.signal(signal.SIGCONT)
        assert old.wait_for(lambda line: not _committed(line)) in (
            "Fenced",
            "GroupFenced",
            "CommitAborted",
            "CommitInDoubt",
        )
        old.wait_for(_owns_half)
        _send_commands(log, [str(n) for n in range(40, 60)])
        _wait_for_events(log, [str(n) for n in range(60)])
        assert took < TAKEOVER_S_MAX


class TestSqlite:
    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return f"sqlite://{tmp_path}/log.db?partitions={_SHARDS}"

    @pytest.fixture
    def log(self, tmp_path: Path) -> Iterator[SqliteLog]:
        log = SqliteLog(tmp_path / "log.db", _SHARDS)
        log.create_topics()
        yield log
        log.close()

    def test_another_process_s_records_reach_the_owner(self, url: str, log: SqliteLog, start: Start) -> None:
        owner = start(url, "a")
        owner.wait_for(_owns_all)
        _send_commands(log, ["x"])
        owner.wait_for(_committed)
        _wait_for_events(log, ["x"])

    def test_a_second_owning_process_is_refused_by_name(self, url: str, log: SqliteLog, start: Start) -> None:
        owner = start(url, "a")
        owner.wait_for(_owns_all)
        with pytest.raises(
            LogUnavailable, match=rf"another scheduler \(process {owner._process.pid}\) runs on this log"
        ):
            log.owner("b")

    def test_a_killed_owner_leaves_no_lock_behind(self, url: str, log: SqliteLog, start: Start) -> None:
        owner = start(url, "a")
        owner.wait_for(_owns_all)
        _send_commands(log, ["x", "y"])
        owner.wait_for(_committed)
        owner.kill()
        again = log.owner("a")
        assert len(again.poll(10, 1.0).shards) == _SHARDS
        _wait_for_events(log, ["x", "y"])

    def test_without_the_lock_the_term_fences_the_older_process(
        self, url: str, log: SqliteLog, start: Start, tmp_path: Path
    ) -> None:
        old = start(url, "a")
        old.wait_for(_owns_all)
        (tmp_path / "log.db.owner").unlink()
        heir = log.owner("b")
        heir.poll(10, 1.0)
        _send_commands(log, ["x"])
        assert old.wait_for(lambda line: not line.startswith("owns")) == "Fenced"
        assert read_all(log, EVENTS) == []
