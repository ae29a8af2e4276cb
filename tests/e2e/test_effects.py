"""Two live attempts of one task: the first is stopped past its lease, the second writes, the first goes on and writes.

All of the first worker is stopped, its supervisor included, which would kill the task otherwise; and only the task's
own process goes on: what a hung kernel, a paused machine or a lost kill leaves behind.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.e2e.running import Process, eventually
from tests.postgres import fresh_database, open_postgres
from tidewheel.core.commands import DeployDag, StartRun
from tidewheel.core.events import LeaseExpired, RunSucceeded, TaskLeased, TaskSucceeded
from tidewheel.core.rules import Rules
from tidewheel.definition.canonical import canonical_json
from tidewheel.definition.expressions import CelEvaluator
from tidewheel.definition.load import load_text
from tidewheel.effects import FencedRecord, FsspecStore, Token
from tidewheel.effects.postgres import install
from tidewheel.log.interface import COMMANDS, EVENTS, Append, Log
from tidewheel.log.opening import open_log
from tidewheel.runtime.scheduler import Scheduler
from tidewheel.wire.codec import decode_event, encode

#: Long enough that no attempt loses it on a busy machine before it is stopped.
LEASE_MS = 10_000

CODE = '''
import json, os, time
from pathlib import Path

import psycopg

from tidewheel.effects import FencedRecord, FsspecStore, StaleAttempt
from tidewheel.effects.postgres import fenced
from tidewheel.task import current

INSERT = "INSERT INTO ledger (task, attempt) VALUES (%s, %s)"


def sign(signs, name, value):
    draft = Path(signs, "draft-" + name)
    draft.write_text(json.dumps(value))
    draft.rename(Path(signs, name))


def wait_to_go_on(signs):
    """Only the first attempt waits here, and is stopped meanwhile."""
    if current().attempt == 1:
        sign(signs, current().task, os.getpid())
        while not Path(signs, "go").exists():
            time.sleep(0.05)


def between(dsn, url, signs):
    """Stopped between two transactions."""
    me = current()
    record = FencedRecord(FsspecStore(url), "report")
    with psycopg.connect(dsn) as connection:
        with fenced(connection):
            pass
        record.claim()
        wait_to_go_on(signs)
        said = []
        try:
            with fenced(connection):
                connection.execute(INSERT, [me.task, me.attempt])
            said.append("written")
        except StaleAttempt as stale:
            said.append(str(stale))
        try:
            record.put({"by": me.attempt})
            said.append("written")
        except StaleAttempt as stale:
            said.append(str(stale))
    sign(signs, f"{me.task}-{me.attempt}", said)
    return me.attempt


def within(dsn, signs):
    """Stopped within a transaction, after its write."""
    me = current()
    said = "written"
    try:
        with psycopg.connect(dsn) as connection, fenced(connection, idle_s=5):
            connection.execute(INSERT, [me.task, me.attempt])
            wait_to_go_on(signs)
    except psycopg.Error as error:
        said = type(error).__name__
    sign(signs, f"{me.task}-{me.attempt}", said)
    return me.attempt
'''


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite://{tmp_path / 'log.db'}?partitions=2"


@pytest.fixture
def log(url: str) -> Iterator[Log]:
    """A log with a scheduler over it whose leases are short."""
    log = open_log(url)
    log.create_topics()
    stop = threading.Event()
    evaluator = CelEvaluator()
    rules = Rules(evaluator=evaluator, lease_ms=LEASE_MS)
    thread = threading.Thread(target=Scheduler(log, "s1", evaluator, rules=rules).run, args=(stop,))
    thread.start()
    yield log
    stop.set()
    thread.join(20)
    log.close()


@pytest.fixture
def dsn(tmp_path: Path) -> Iterator[str]:
    """A database of the user's, prepared for fenced writes."""
    with open_postgres(tmp_path) as server, fresh_database(server) as database:
        with psycopg.connect(database) as connection:
            install(connection)
            connection.execute("CREATE TABLE ledger (task text, attempt integer)")
        yield database


def test_a_stopped_attempt_that_goes_on_cannot_write_after_its_successor(
    tmp_path: Path, url: str, log: Log, dsn: str
) -> None:
    signs, store = tmp_path / "signs", tmp_path / "store"
    project = tmp_path / "project"
    signs.mkdir()
    project.mkdir()
    (project / "shop.py").write_text(CODE)
    start(log, dsn, store, signs)
    worker = ("worker", "--pool", "default=2", "--project", project, "--log", url)
    with Process(*worker, "--name", "w1", output=tmp_path / "w1.out") as first:
        eventually(lambda: {"between", "within"} <= names(signs), what="both tasks are in the middle")
        tasks = [json.loads((signs / task).read_text()) for task in ("between", "within")]
        with stopped(first.pid) as all_of_it, Process(*worker, "--name", "w2", output=tmp_path / "w2.out"):
            assert set(tasks) <= all_of_it
            eventually(lambda: of(log, RunSucceeded), 60, "the second attempts succeed")
            (signs / "go").touch()
            for pid in tasks:
                os.kill(pid, signal.SIGCONT)
            eventually(lambda: {"between-1", "within-1"} <= names(signs), what="the first attempts have tried")
    said = {name: json.loads((signs / name).read_text()) for name in names(signs) if "-" in name}
    refusal = "attempt 1 of task 'between' in run 'r1' of DAG 'shop' was replaced by attempt 2: its write is refused"
    assert said["between-1"] == [refusal, refusal]
    assert said["between-2"] == ["written", "written"]
    assert said["within-1"] in ("IdleInTransactionSessionTimeout", "OperationalError")
    assert said["within-2"] == "written"
    with psycopg.connect(dsn) as connection:
        rows = connection.execute("SELECT task, attempt FROM ledger ORDER BY task").fetchall()
    assert rows == [("between", 2), ("within", 2)]
    assert FencedRecord(FsspecStore(str(store)), "report", Token("shop", "r1", "between", 2)).get() == {"by": 2}
    assert sorted((event.task, event.attempt) for event in of(log, TaskSucceeded)) == [("between", 2), ("within", 2)]
    assert sorted((event.task, event.attempt) for event in of(log, LeaseExpired)) == [("between", 1), ("within", 1)]
    assert {event.worker for event in of(log, TaskLeased) if event.attempt == 1} == {"w1"}


def start(log: Log, dsn: str, store: Path, signs: Path) -> None:
    """Deploy the two tasks and start a run of them."""
    shared = {"dsn": dsn, "signs": str(signs)}
    loaded = load_text(
        json.dumps(
            {
                "id": "shop",
                "tasks": [
                    {"id": "between", "python": "shop:between", "with": {**shared, "url": str(store)}},
                    {"id": "within", "python": "shop:within", "with": shared},
                ],
            }
        ),
        "shop.yaml",
    )
    assert loaded.workflow is not None and loaded.version is not None, loaded.mistakes
    producer = log.producer()
    for command in (
        DeployDag(dag="shop", version=loaded.version, definition=canonical_json(loaded.workflow)),
        StartRun(dag="shop", run_id="r1"),
    ):
        producer.send(Append(COMMANDS, b"shop", encode(command)))
    producer.close()


def of(log: Log, kind: type) -> list[Any]:
    """The events of a kind in the journal."""
    reader = log.reader({(EVENTS, partition): 0 for partition in range(log.partitions)})
    try:
        events = [decode_event(record.value).event for record in reader.read(100_000, 0) if record.value is not None]
    finally:
        reader.close()
    return [event for event in events if isinstance(event, kind)]


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


@contextlib.contextmanager
def stopped(root: int) -> Iterator[set[int]]:
    """Stop a process and all that came of it, parents first; in the end all goes on that is left."""
    found: set[int] = set()
    try:
        while new := ({root} | descendants(root)) - found:
            for pid in sorted(new):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
            found |= new
        yield found
    finally:
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def descendants(root: int) -> set[int]:
    """The processes below one, as they are now."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {root}
