"""The whole notifier, on a log, a real Postgres and real receivers: what is to be told arrives, whatever happens."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec
import psycopg
import pytest

from tests.notifier.receiver import Receiver
from tests.projections.following import project_all
from tests.projections.journals import START, JournalWriter, definition, workflow
from tidewheel.core import events as e
from tidewheel.core.workflow import Notify, NotifyEvent
from tidewheel.log.interface import DEAD_LETTERS, LogUnavailable
from tidewheel.log.memory import MemoryLog
from tidewheel.wire.codec import decode
from tidewheel.wire.messages import DeadLetter
from tidewheel_services.notifier import notifier as module
from tidewheel_services.notifier.figures import NotifierFigures
from tidewheel_services.notifier.notifier import Notifier, begin
from tidewheel_services.notifier.targets import Target

pytestmark = pytest.mark.postgres

Eventually = Callable[[Callable[[], Any], str], None]
QUICK = (0.05,) * 4


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog(partitions=2)


@contextmanager
def notifying(
    log: MemoryLog, dsn: str, targets: Mapping[str, Target], pauses_s: tuple[float, ...] = QUICK, **more: Any
) -> Iterator[Notifier]:
    """One at work."""
    notifier = Notifier(log, dsn, targets, pauses_s=pauses_s, **more)
    stop = threading.Event()
    thread = threading.Thread(target=notifier.run, args=(stop,), daemon=True)
    thread.start()
    try:
        yield notifier
    finally:
        stop.set()
        thread.join(30)
        assert not thread.is_alive(), "the notifier does not stop"


def deployed(dag: str, *events: NotifyEvent, to: tuple[str, ...] = ("ops",), version: str = "v1") -> e.DagDeployed:
    flow = msgspec.structs.replace(workflow(dag, ["load"]), notify=(Notify(events=events, to=to),))
    return e.DagDeployed(dag=dag, version=version, definition=definition(flow), at=START)


def created(dag: str, run_id: str, version: str = "v1") -> e.RunCreated:
    return e.RunCreated(dag=dag, run_id=run_id, version=version, kind="manual", at=START)


def failed(dag: str, run_id: str) -> list[e.AnyEvent]:
    broken = e.TaskFailed(
        dag=dag,
        run_id=run_id,
        task="load",
        attempt=2,
        at=START,
        worker="w1",
        started_at=START,
        ended_at=START,
        kind="exit_code",
        message="no space left\x00",
        exit_code=28,
    )
    return [broken, e.RunFailed(dag=dag, run_id=run_id, at=START, reason="load is failed")]


def letters(log: MemoryLog) -> list[DeadLetter]:
    found = []
    for partition in range(log.partitions):
        for record in log.reader({(DEAD_LETTERS, partition): 0}).read(1_000, 0):
            assert record.value is not None
            found.append(decode(record.value))
    return [letter for letter in found if isinstance(letter, DeadLetter)]


def runs(receiver: Receiver) -> list[str]:
    """The runs told of, in the order of arrival."""
    return [taken["message"].split()[1] for taken in receiver.taken]


def ready(notifier: Notifier) -> bool:
    return notifier.working


def test_a_failure_is_told_with_all_that_helps(
    log: MemoryLog, dsn: str, receiver: Receiver, eventually: Eventually
) -> None:
    with notifying(log, dsn, {"ops": receiver.target("ops")}, public_url="https://flows.example/") as notifier:
        eventually(lambda: ready(notifier), "it follows")
        JournalWriter(log).write(deployed("etl", "run_failed"), created("etl", "r/1"), *failed("etl", "r/1"))
        eventually(lambda: receiver.taken, "it is told")
        eventually(lambda: notifier.couriers["ops"].counts.sent, "it is counted")
        figures = {figure.name: figure.values for figure in NotifierFigures(notifier).figures()}
    (taken,) = receiver.taken
    assert (taken["title"], taken["type"]) == ("etl failed", "failure")
    assert "load, attempt 2 on worker w1: exit_code 28\n    no space left" in taken["message"]
    assert taken["message"].endswith("\n\nhttps://flows.example/api/v1/dags/etl/runs/r%2F1\nNotification etl/r/1/4")
    assert figures["notifications_sent"] == [({"target": "ops"}, 1.0), ({"target": "unknown"}, 0.0)]


def test_it_tells_nothing_of_the_past_but_knows_it(
    log: MemoryLog, dsn: str, receiver: Receiver, eventually: Eventually
) -> None:
    """At its first start it begins at the end. What went before it finds in the read model."""
    writer = JournalWriter(log)
    wanted: tuple[NotifyEvent, ...] = ("run_failed", "first_success_after_failure")
    writer.write(deployed("etl", *wanted), created("etl", "r1"), failed("etl", "r1")[1], created("etl", "r2"))
    project_all(log, dsn)
    with notifying(log, dsn, {"ops": receiver.target("ops")}) as notifier:
        eventually(lambda: ready(notifier), "it follows")
        writer.write(e.RunSucceeded(dag="etl", run_id="r2", at=START + 1))
        eventually(lambda: receiver.taken, "it is told")
    assert [taken["title"] for taken in receiver.taken] == ["etl succeeded again"]


def test_what_happened_since_the_engine_began_is_told_however_late_the_first_notifier_starts(
    log: MemoryLog, dsn: str, receiver: Receiver, eventually: Eventually
) -> None:
    """`tidewheel dev` starts its notifier last, and the newcomer's first run may have failed by then."""
    writer = JournalWriter(log)
    writer.write(deployed("etl", "run_failed"), created("etl", "r1"), *failed("etl", "r1"))
    begin(log, dsn)
    project_all(log, dsn)
    writer.write(created("etl", "r2"), *failed("etl", "r2"))
    begin(log, dsn)
    with notifying(log, dsn, {"ops": receiver.target("ops")}):
        eventually(lambda: receiver.taken, "it is told")
    assert runs(receiver) == ["r2"]


def test_a_restart_goes_on_where_it_was_and_tells_nothing_twice(
    log: MemoryLog, dsn: str, receiver: Receiver, eventually: Eventually
) -> None:
    writer = JournalWriter(log)
    targets = {"ops": receiver.target("ops")}
    with notifying(log, dsn, targets) as notifier:
        eventually(lambda: ready(notifier), "it follows")
        writer.write(deployed("etl", "run_failed"), created("etl", "r1"), *failed("etl", "r1"), created("etl", "r2"))
        eventually(lambda: len(receiver.taken) == 1, "the first is told")
        eventually(lambda: notifier.couriers["ops"].counts.sent, "and known as told")
    writer.write(*failed("etl", "r2"))
    for run_id in ("r3", "r4"):
        with notifying(log, dsn, targets):
            writer.write(created("etl", run_id), *failed("etl", run_id))
            eventually(lambda run_id=run_id: run_id in runs(receiver), f"{run_id} is told")  # type: ignore[misc]
    assert sorted(runs(receiver)) == ["r1", "r2", "r3", "r4"]


@pytest.mark.parametrize("breaks", ["refuses", "hangs", "raises", "exits"])
def test_a_broken_target_holds_nobody_up_and_is_told_when_it_is_back(
    breaks: str,
    log: MemoryLog,
    dsn: str,
    receiver: Receiver,
    other: Receiver,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """C104: the service refuses or hangs, or the library's own code for it fails."""

    def fails(*_: Any, **__: Any) -> bool:
        receiver.tries += 1
        raise KeyError("a fault of the plug-in") if breaks == "raises" else SystemExit(1)

    if breaks == "refuses":
        receiver.status = 503
    elif breaks == "hangs":
        receiver.hanging.set()
    targets = {"broken": receiver.target("broken", "?rto=0.2"), "ops": other.target("ops")}
    writer = JournalWriter(log)
    with notifying(log, dsn, targets, pauses_s=(0.2,) * 1_000) as notifier:
        eventually(lambda: ready(notifier), "it follows")
        if breaks in ("raises", "exits"):
            monkeypatch.setattr(notifier.couriers["broken"]._sender._service, "notify", fails)  # type: ignore[union-attr]
        writer.write(deployed("etl", "run_failed", to=("broken", "ops")))
        for number in range(5):
            writer.write(created("etl", f"r{number}"), *failed("etl", f"r{number}"))
        eventually(lambda: len(other.taken) == 5, "the other target has all of them")
        eventually(lambda: receiver.tries >= 3, "the broken one is tried again and again")
        assert not receiver.taken
        monkeypatch.undo()
        receiver.status = 200
        receiver.hanging.clear()
        receiver.let_go.set()
        eventually(lambda: len(receiver.taken) == 5, "it has them when it is back")
        eventually(lambda: notifier.couriers["broken"].counts.sent == 5, "and they are known as told")
    assert sorted(runs(receiver)) == [f"r{number}" for number in range(5)]
    assert not letters(log)


def test_after_the_last_try_it_is_a_dead_letter(
    log: MemoryLog, dsn: str, receiver: Receiver, eventually: Eventually
) -> None:
    receiver.status = 500
    with notifying(log, dsn, {"ops": receiver.target("ops")}) as notifier:
        eventually(lambda: ready(notifier), "it follows")
        JournalWriter(log).write(deployed("etl", "run_failed"), created("etl", "r"), *failed("etl", "r"))
        eventually(lambda: notifier.couriers["ops"].counts.dead, "it is given up")
    assert receiver.tries == len(QUICK) + 1
    (letter,) = letters(log)
    assert (letter.topic, letter.code, letter.key) == ("events", "undelivered", b"etl")
    assert "target 'ops' failed 5 times, at last: " in letter.reason
    assert b"etl/r/4" in (letter.value or b"")
    assert b"s3cr3t" not in (letter.value or b"") + letter.reason.encode()
    with psycopg.connect(dsn) as connection:
        assert "s3cr3t" not in str(connection.execute("SELECT * FROM tidewheel_notifier.outbox").fetchall())


def test_a_target_nobody_configured_is_a_dead_letter_that_says_so(
    log: MemoryLog, dsn: str, receiver: Receiver, eventually: Eventually
) -> None:
    targets = {"ops": receiver.target("ops"), "useless": Target("useless", "nosuchservice://x")}
    with notifying(log, dsn, targets) as notifier:
        eventually(lambda: ready(notifier), "it follows")
        everybody = ("pager", "ops", "useless")
        JournalWriter(log).write(deployed("etl", "run_failed", to=everybody), created("etl", "r"), *failed("etl", "r"))
        eventually(lambda: len(letters(log)) == 2, "both are given up")
        eventually(lambda: receiver.taken, "the third is told")
    reasons = sorted(letter.reason for letter in letters(log))
    assert "no target 'pager' is configured at the notifier (known: ops, useless)" in reasons[0]
    assert "set TIDEWHEEL_NOTIFY_PAGER" in reasons[0]
    assert "the URL of target 'useless' is not understood" in reasons[1]


def test_of_two_one_works_and_the_other_takes_over(
    log: MemoryLog, dsn: str, receiver: Receiver, eventually: Eventually
) -> None:
    targets = {"ops": receiver.target("ops")}
    writer = JournalWriter(log)
    with notifying(log, dsn, targets) as second_in_waiting:
        eventually(lambda: ready(second_in_waiting), "one works")
        with notifying(log, dsn, targets) as standing_by:
            eventually(lambda: not standing_by.fault, "the other stands by")
            writer.write(deployed("etl", "run_failed"), created("etl", "r1"), *failed("etl", "r1"))
            eventually(lambda: receiver.taken, "it is told once")
            assert not standing_by.working
    with notifying(log, dsn, targets):
        writer.write(created("etl", "r2"), *failed("etl", "r2"))
        eventually(lambda: "r2" in runs(receiver), "it goes on")
    assert runs(receiver) == ["r1", "r2"]


def test_what_a_notifier_was_sending_that_is_gone_is_sent_by_the_next_at_once(
    log: MemoryLog, dsn: str, receiver: Receiver, eventually: Eventually
) -> None:
    receiver.hanging.set()
    targets = {"ops": receiver.target("ops", "?rto=120")}
    with notifying(log, dsn, targets) as notifier:
        eventually(lambda: ready(notifier), "it follows")
        JournalWriter(log).write(deployed("etl", "run_failed"), created("etl", "r"), *failed("etl", "r"))
        eventually(lambda: receiver.tries, "it is being sent")
    receiver.hanging.clear()
    with notifying(log, dsn, targets):
        eventually(lambda: runs(receiver) == ["r"], "it is sent")


def test_it_goes_on_when_its_connections_are_killed(
    log: MemoryLog, dsn: str, receiver: Receiver, eventually: Eventually
) -> None:
    writer = JournalWriter(log)
    with notifying(log, dsn, {"ops": receiver.target("ops")}) as notifier:
        eventually(lambda: ready(notifier), "it follows")
        writer.write(deployed("etl", "run_failed"))
        for number in range(10):
            writer.write(created("etl", f"r{number}"), *failed("etl", f"r{number}"))
            with psycopg.connect(dsn, autocommit=True) as connection:
                connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE application_name = 'tidewheel-notifier' AND datname = current_database()"
                )
        with psycopg.connect(dsn, autocommit=True) as connection:
            soon = "UPDATE tidewheel_notifier.outbox SET next_at = now() WHERE state = 'waiting'"
            every = {f"r{number}" for number in range(10)}
            eventually(lambda: connection.execute(soon) and set(runs(receiver)) == every, "all are told")
    told = [taken["message"].splitlines()[-1] for taken in receiver.taken]
    assert len(set(told)) == 10, "whatever comes twice has the same name"


def test_what_is_no_event_is_passed_over(log: MemoryLog, dsn: str, receiver: Receiver, eventually: Eventually) -> None:
    writer = JournalWriter(log)
    with notifying(log, dsn, {"ops": receiver.target("ops")}) as notifier:
        eventually(lambda: ready(notifier), "it follows")
        for value in (b"junk", None, b"\xc3\x01" + bytes(8) + b"newer"):
            writer.raw("events", "etl", value)
        writer.write(deployed("etl", "run_failed"), created("etl", "r"), *failed("etl", "r"))
        eventually(lambda: receiver.taken, "it is told")
        assert notifier.skipped == 2


def test_an_event_that_cannot_be_told_of_holds_up_no_other(
    log: MemoryLog, dsn: str, receiver: Receiver, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = module.take

    def broken(recorded: e.Recorded, book: Any) -> Any:
        if isinstance(recorded.event, e.RunFailed) and recorded.event.run_id == "r1":
            raise ValueError("a bug")
        return take(recorded, book)

    monkeypatch.setattr(module, "take", broken)
    with notifying(log, dsn, {"ops": receiver.target("ops")}) as notifier:
        eventually(lambda: ready(notifier), "it follows")
        writer = JournalWriter(log)
        writer.write(deployed("etl", "run_failed"), created("etl", "r1"), *failed("etl", "r1"))
        writer.write(created("etl", "r2"), *failed("etl", "r2"))
        eventually(lambda: receiver.taken, "the other is told")
        assert notifier.skipped == 1
    assert runs(receiver) == ["r2"]


def test_while_the_log_is_away_what_was_found_is_delivered(
    log: MemoryLog, dsn: str, receiver: Receiver, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver.status = 503
    away = threading.Event()
    read = type(log.reader({})).read

    def reading(self: Any, *more: Any) -> Any:
        if away.is_set():
            raise LogUnavailable("nobody answers")
        return read(self, *more)

    monkeypatch.setattr(type(log.reader({})), "read", reading)
    with notifying(log, dsn, {"ops": receiver.target("ops")}, pauses_s=(0.1,) * 1_000) as notifier:
        eventually(lambda: ready(notifier), "it follows")
        writer = JournalWriter(log)
        writer.write(deployed("etl", "run_failed"), created("etl", "r1"), *failed("etl", "r1"))
        eventually(lambda: receiver.tries, "it is tried")
        away.set()
        eventually(lambda: notifier.fault == "nobody answers", "the log is away")
        writer.write(created("etl", "r2"), *failed("etl", "r2"))
        receiver.status = 200
        eventually(lambda: runs(receiver) == ["r1"], "it is delivered all the same")
        away.clear()
        eventually(lambda: runs(receiver) == ["r1", "r2"], "and it goes on when the log is back")
