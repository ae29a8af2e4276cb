"""Fenced transactions in a real Postgres, under interleavings with transactions that wait, roll back and break off."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import errors

from tests.effects.actors import Actor
from tests.postgres import fresh_database
from tidewheel.effects import CannotFence, StaleAttempt, Token
from tidewheel.effects.postgres import fenced, install, once

ENDINGS = st.sampled_from(["commit", "commit", "rollback", "break off"])
PROGRAMS = st.lists(st.lists(ENDINGS, min_size=1, max_size=3), min_size=2, max_size=4)


def token(attempt: int, task: str = "load") -> Token:
    return Token("shop", "r1", task, attempt)


def ledger(connection: psycopg.Connection[tuple[object, ...]]) -> list[tuple[object, ...]]:
    return connection.execute("SELECT attempt, note FROM ledger ORDER BY id").fetchall()


@pytest.fixture
def connection(dsn: str) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """An autocommit connection to a database without any claim or effect yet."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("TRUNCATE ledger, tidewheel_effects.claims, tidewheel_effects.done")
        yield connection


class Writer:
    """One attempt with its connection: each of its transactions is a claim, a write and an ending, a step each."""

    def __init__(self, dsn: str, attempt: int, program: list[str]) -> None:
        self.actor = Actor()
        self.attempt = attempt
        self.refused = 0
        self.committed: list[str] = []
        self._dsn = dsn
        self._connection = psycopg.connect(dsn)
        self._pid = self._connection.info.backend_pid
        self._left = [
            (number, step, ending) for number, ending in enumerate(program) for step in ("claim", "write", "end")
        ]
        self._block: AbstractContextManager[None] | None = None

    def step(self, monitor: psycopg.Connection[tuple[object, ...]]) -> bool:
        """Begin the next step and give it time until it is done or waits for another. False: there is none."""
        if not self.actor.idle:
            self.actor.settle(lambda: self._waits(monitor))
            return True
        if not self._left:
            return False
        number, step, ending = self._left.pop(0)
        self.actor.begin(lambda: self._do(number, step, ending))
        self.actor.settle(lambda: self._waits(monitor))
        return True

    def close(self) -> None:
        self.actor.close()
        self._connection.close()

    def _waits(self, monitor: psycopg.Connection[tuple[object, ...]]) -> bool:
        row = monitor.execute("SELECT cardinality(pg_blocking_pids(%s)) > 0", [self._pid]).fetchone()
        return row == (True,)

    def _do(self, number: int, step: str, ending: str) -> None:
        note = f"{self.attempt}.{number}"
        if step == "claim":
            block = fenced(self._connection, token(self.attempt))
            try:
                block.__enter__()
            except StaleAttempt as stale:
                assert stale.newest > self.attempt
                self.refused += 1
            else:
                self._block = block
        elif self._block is not None and step == "write":
            self._connection.execute("INSERT INTO ledger (attempt, note) VALUES (%s, %s)", [self.attempt, note])
        elif self._block is not None:
            self._end(self._block, ending, note)
            self._block = None

    def _end(self, block: AbstractContextManager[None], ending: str, note: str) -> None:
        if ending == "commit":
            block.__exit__(None, None, None)
            self.committed.append(note)
        elif ending == "rollback":
            fault = ValueError("the task's own")
            with pytest.raises(ValueError, match="the task's own"):
                block.__exit__(ValueError, fault, None)
                raise fault
        else:
            self._connection.close()
            self._connection = psycopg.connect(self._dsn)
            self._pid = self._connection.info.backend_pid


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(programs=PROGRAMS, schedule=st.lists(st.integers(0, 3), max_size=40))
def test_whatever_the_interleaving_no_older_attempt_writes_after_a_newer_one(
    dsn: str,
    connection: psycopg.Connection[tuple[object, ...]],
    programs: list[list[str]],
    schedule: list[int],
) -> None:
    connection.execute("TRUNCATE ledger, tidewheel_effects.claims")
    writers = [Writer(dsn, attempt, program) for attempt, program in enumerate(programs, start=1)]
    try:
        for choice in schedule:
            writers[choice % len(writers)].step(connection)
        # Not any(): every writer moves each time, or one would wait for another that never does.
        while sum(writer.step(connection) for writer in writers):
            pass
    finally:
        for writer in writers:
            writer.close()
    rows = ledger(connection)
    attempts = [attempt for attempt, _ in rows]
    assert attempts == sorted(attempts, key=int)  # type: ignore[call-overload]
    assert sorted(note for _, note in rows) == sorted(note for writer in writers for note in writer.committed)  # type: ignore[type-var]
    assert writers[-1].refused == 0, "nobody is newer than the newest"
    claimed = connection.execute("SELECT attempt FROM tidewheel_effects.claims").fetchall()
    assert claimed == [(max(attempts),)] if attempts else not claimed  # type: ignore[type-var]


def test_a_claim_is_enough_to_refuse_the_older(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    with fenced(connection, token(1)):
        connection.execute("INSERT INTO ledger (attempt, note) VALUES (1, 'first')")
    with fenced(connection, token(3)):
        pass
    message = r"attempt 2 of task 'load' .* replaced by attempt 3"
    with pytest.raises(StaleAttempt, match=message) as refused, fenced(connection, token(2)):
        connection.execute("INSERT INTO ledger (attempt, note) VALUES (2, 'late')")
    assert refused.value.newest == 3
    assert ledger(connection) == [(1, "first")]
    with fenced(connection, token(1, "another task")):
        connection.execute("INSERT INTO ledger (attempt, note) VALUES (1, 'another')")
    assert len(ledger(connection)) == 2


def test_within_a_transaction_of_the_users_the_claim_holds_to_its_end(
    dsn: str, connection: psycopg.Connection[tuple[object, ...]]
) -> None:
    newer = Actor()
    with psycopg.connect(dsn) as outer, psycopg.connect(dsn) as other:
        with outer.transaction():
            with fenced(outer, token(1)):
                pass
            newer.begin(lambda: claim(other, 2))
            pid = other.info.backend_pid
            waits = "SELECT cardinality(pg_blocking_pids(%s)) > 0"
            assert not newer.settle(lambda: connection.execute(waits, [pid]).fetchone() == (True,))
            outer.execute("INSERT INTO ledger (attempt, note) VALUES (1, 'in time')")
        assert newer.settle()
        with pytest.raises(StaleAttempt):
            claim(outer, 1)
    newer.close()
    assert ledger(connection) == [(1, "in time")]


def claim(connection: psycopg.Connection[tuple[object, ...]], attempt: int) -> None:
    with fenced(connection, token(attempt)):
        pass


def test_under_repeatable_read_a_lost_race_is_a_failed_transaction_never_a_write(
    dsn: str, connection: psycopg.Connection[tuple[object, ...]]
) -> None:
    claim(connection, 1)
    with psycopg.connect(dsn) as older:
        older.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        older.execute("SELECT count(*) FROM ledger")
        claim(connection, 2)
        with pytest.raises(errors.SerializationFailure):
            claim(older, 1)


STOPPED = """
import sys
import psycopg
from tidewheel.effects import Token
from tidewheel.effects.postgres import fenced

with psycopg.connect(sys.argv[1]) as connection, fenced(connection, Token("shop", "r1", "load", 1), idle_s=3):
    connection.execute("INSERT INTO ledger (attempt, note) VALUES (1, 'stopped')")
    print("inside", flush=True)
    sys.stdin.readline()
    connection.execute("INSERT INTO ledger (attempt, note) VALUES (1, 'late')")
"""


def test_an_attempt_that_is_stopped_within_its_transaction_keeps_nobody_waiting(
    dsn: str, connection: psycopg.Connection[tuple[object, ...]]
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", STOPPED, dsn],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "inside\n"
        process.send_signal(signal.SIGSTOP)
        with fenced(connection, token(2)):
            connection.execute("INSERT INTO ledger (attempt, note) VALUES (2, 'next')")
        process.send_signal(signal.SIGCONT)
        _, said = process.communicate("go on\n", timeout=60)
        assert process.returncode == 1
        assert "IdleInTransactionSessionTimeout" in said or "OperationalError" in said, said
    finally:
        process.kill()
        process.wait()
    assert ledger(connection) == [(2, "next")]


def test_a_shorter_limit_of_the_users_is_kept(dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        show = "SHOW idle_in_transaction_session_timeout"
        with fenced(connection, token(1, "limits")):
            assert connection.execute(show).fetchone() == ("1min",)
        assert connection.execute(show).fetchone() == ("0",)
        connection.execute("SET idle_in_transaction_session_timeout = '7s'")
        with fenced(connection, token(1, "limits"), idle_s=90):
            assert connection.execute(show).fetchone() == ("7s",)
        with fenced(connection, token(1, "limits"), idle_s=5):
            assert connection.execute(show).fetchone() == ("5s",)
        with pytest.raises(ValueError, match="more than 0"), fenced(connection, token(1, "limits"), idle_s=0):
            pass


def test_an_effect_is_done_once_and_every_attempt_has_its_result(
    connection: psycopg.Connection[tuple[object, ...]],
) -> None:
    def charge(attempt: int) -> object:
        def effect() -> dict[str, object]:
            connection.execute("INSERT INTO ledger (attempt, note) VALUES (%s, 'charge')", [attempt])
            return {"receipt": attempt, "lines": [1, None, "ü"]}

        return once(connection, "charge", effect, token(attempt))

    assert charge(1) == charge(2) == charge(4) == {"receipt": 1, "lines": [1, None, "ü"]}
    with pytest.raises(StaleAttempt, match=r"attempt 3 .* replaced by attempt 4"):
        charge(3)
    assert ledger(connection) == [(1, "charge")]
    assert once(connection, "mail", lambda: None, token(4)) is None
    assert once(connection, "mail", lambda: "again", token(5)) is None


def test_an_effect_that_failed_is_undone_and_free_for_the_next_attempt(
    connection: psycopg.Connection[tuple[object, ...]],
) -> None:
    def fail() -> object:
        connection.execute("INSERT INTO ledger (attempt, note) VALUES (1, 'half')")
        raise ValueError("no answer")

    with pytest.raises(ValueError, match="no answer"):
        once(connection, "charge", fail, token(1))
    assert ledger(connection) == []
    assert once(connection, "charge", lambda: "done", token(2)) == "done"


def test_of_two_live_attempts_one_does_the_effect(dsn: str, connection: psycopg.Connection[tuple[object, ...]]) -> None:
    calls: list[int] = []
    results: dict[int, object] = {}
    inside = threading.Event()
    go = threading.Event()

    def run(attempt: int) -> None:
        def effect() -> object:
            calls.append(attempt)
            inside.set()
            assert go.wait(60)
            return attempt

        with psycopg.connect(dsn) as own:
            results[attempt] = once(own, "charge", effect, token(attempt))

    threads = [threading.Thread(target=run, args=(attempt,)) for attempt in (1, 2)]
    threads[0].start()
    assert inside.wait(60)
    threads[1].start()
    go.set()
    for thread in threads:
        thread.join(60)
    assert (calls, results) == ([1], {1: 1, 2: 1})


def test_installing_again_changes_nothing_and_without_it_the_way_is_said(postgres_server: str) -> None:
    with fresh_database(postgres_server) as bare, psycopg.connect(bare) as connection:
        with pytest.raises(CannotFence, match=r"not prepared for fenced writes: run `tidewheel effects-sql \| psql"):
            claim(connection, 1)
        install(connection)
        claim(connection, 2)
        install(connection)
        with pytest.raises(StaleAttempt):
            claim(connection, 1)
        with connection.transaction(), pytest.raises(ValueError, match="while no transaction is open"):
            install(connection)
