"""The worker's side of the protocol: joining, mail, leases, reports that are never lost."""

from __future__ import annotations

import threading
import time

import pytest

from tests.worker.conftest import StartWorker
from tests.worker.engine import Engine, python
from tidewheel.core.commands import (
    JoinPool,
    LeavePool,
    RenewWorker,
    ReportCancelled,
    ReportFailure,
    ReportHeartbeat,
    ReportStarted,
    ReportSuccess,
)
from tidewheel.log.interface import COMMANDS, MAIL, Append, LogUnavailable, Record
from tidewheel.log.memory import MemoryProducer, MemoryReader
from tidewheel.worker import Context, Worker, WorkerBroken


def test_mail_sent_the_moment_it_joins_is_read(engine: Engine) -> None:
    worker = Worker(engine.log, {"default": 1}, {"noop": lambda: None}, name="w1")
    engine._answer_original = engine._answer  # type: ignore[attr-defined]

    def answer(command: object) -> None:
        if isinstance(command, JoinPool):
            engine.assign(python("noop"), task="first")

    engine._answer = answer  # type: ignore[method-assign]
    worker.start()
    try:
        assert engine.success("first") is None
    finally:
        worker.stop(0)


def test_it_joins_every_pool_and_leaves_them(engine: Engine) -> None:
    worker = Worker(engine.log, {"default": 2, "gpu": 1}, name="w1")
    worker.start()
    engine.wait(
        lambda: {(join.pool, join.slots) for join in engine.of(JoinPool)} == {("default", 2), ("gpu", 1)}, "joins"
    )
    worker.stop(0)
    engine.wait(lambda: {leave.pool for leave in engine.of(LeavePool)} == {"default", "gpu"}, "leaves")


def test_names_differ_by_themselves(engine: Engine) -> None:
    first, second = Worker(engine.log, {"default": 1}), Worker(engine.log, {"default": 1})
    assert first.name != second.name


def test_it_renews_its_membership_and_joins_again_when_forgotten(engine: Engine, start_worker: StartWorker) -> None:
    engine.term_ms = 300
    start_worker()
    engine.wait(lambda: len(engine.of(RenewWorker)) >= 3, "renewals", 3)
    assert len(engine.of(JoinPool)) == 1
    engine.forget()
    engine.wait(lambda: len(engine.of(JoinPool)) == 2, "joins again")


def test_an_attempt_that_comes_twice_runs_once(engine: Engine, start_worker: StartWorker) -> None:
    runs: list[int] = []

    def work(context: Context) -> None:
        runs.append(context.attempt)
        time.sleep(0.1)

    start_worker(functions={"work": work})
    for _ in range(3):
        engine.assign(python("work"), task="a", attempt=1)
    engine.success("a")
    engine.assign(python("work"), task="a", attempt=1)
    engine.assign(python("work"), task="a", attempt=2)
    engine.wait(lambda: len(engine.endings("a")) == 2, "the second attempt")
    time.sleep(0.1)
    assert runs == [1, 2]
    assert len(engine.endings("a")) == 2


def test_mail_of_others_and_broken_mail_is_passed_over(engine: Engine, start_worker: StartWorker) -> None:
    ran: list[str] = []
    start_worker(functions={"work": lambda name: ran.append(name)})
    producer = engine.log.producer()
    partition = engine.partition("w1")
    producer.send(Append(MAIL, b"w1", b"\xc3\x01 no message", partition=partition))
    producer.send(Append(MAIL, b"w1", None, partition=partition))
    other = next(name for name in map(str, range(99)) if engine.partition(name) == partition)
    engine.assign(python("work", name="theirs"), worker=other)
    assert engine.success(engine.assign(python("work", name="ours"))) is None
    assert ran == ["ours"]


def test_a_cancel_of_what_never_came_is_confirmed_and_fences_it(engine: Engine, start_worker: StartWorker) -> None:
    start_worker(functions={"noop": lambda: None})
    engine.stop("ghost", cancel=True)
    assert isinstance(engine.ending("ghost"), ReportCancelled)
    engine.assign(python("noop"), task="ghost")
    engine.success(engine.assign(python("noop")))
    assert len(engine.endings("ghost")) == 1


def test_beats_come_each_third_of_the_lease(engine: Engine, start_worker: StartWorker) -> None:
    engine.lease_ms = 3_000
    start_worker(functions={"nap": lambda: time.sleep(3.5)})
    task = engine.assign(python("nap"))
    engine.success(task)
    assert [beat.beat for beat in engine.of(ReportStarted, task)] == [0]
    numbers = [beat.beat for beat in engine.of(ReportHeartbeat, task)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert 2 <= len(numbers) <= 5


def test_without_answers_a_function_is_fenced_before_the_lease_ends(engine: Engine, start_worker: StartWorker) -> None:
    told = threading.Event()

    def work(context: Context) -> str:
        context.cancelled.wait(10)
        told.set()
        return "too late"

    start_worker(functions={"work": work})
    engine.silent = True
    before = time.monotonic()
    task = engine.assign(python("work"), lease_ms=3_000)
    failure = engine.failure(task)
    assert failure.kind == "worker_lost" and "lease" in failure.message
    assert time.monotonic() - before < 3.0
    assert told.wait(1)
    time.sleep(0.1)
    assert len(engine.endings(task)) == 1


def test_an_attempt_without_a_thread_gives_its_lease_up(engine: Engine, start_worker: StartWorker) -> None:
    release = threading.Event()
    start_worker(1, functions={"hang": lambda: release.wait(20), "noop": lambda: None})
    stuck = engine.assign(python("hang"))
    engine.wait(lambda: bool(engine.of(ReportStarted, stuck)), "started")
    waiting = engine.assign(python("noop"), lease_ms=600)
    failure = engine.failure(waiting)
    assert failure.kind == "worker_lost"
    assert not engine.of(ReportStarted, waiting)
    release.set()
    engine.success(stuck)
    assert len(engine.endings(waiting)) == 1


def test_a_drain_lets_work_finish(engine: Engine, start_worker: StartWorker) -> None:
    worker = start_worker(functions={"nap": lambda: time.sleep(0.5)})
    task = engine.assign(python("nap"))
    engine.wait(lambda: bool(engine.of(ReportStarted, task)), "started")
    worker.stop(drain_s=5)
    assert engine.success(task) is None
    assert engine.of(LeavePool)


def test_after_the_drain_the_rest_is_given_up(engine: Engine, start_worker: StartWorker) -> None:
    release = threading.Event()
    worker = start_worker(functions={"hang": lambda: release.wait(20)})
    task = engine.assign(python("hang"))
    engine.wait(lambda: bool(engine.of(ReportStarted, task)), "started")
    before = time.monotonic()
    worker.stop(drain_s=0.1)
    assert time.monotonic() - before < 3
    failure = engine.failure(task)
    assert failure.kind == "worker_lost" and "shutting down" in failure.message
    release.set()


def test_what_comes_while_it_leaves_is_given_back(engine: Engine, start_worker: StartWorker) -> None:
    release = threading.Event()
    worker = start_worker(functions={"hang": lambda: release.wait(20), "noop": lambda: None})
    task = engine.assign(python("hang"))
    engine.wait(lambda: bool(engine.of(ReportStarted, task)), "started")
    leaving = threading.Thread(target=worker.stop, args=(5,))
    leaving.start()
    engine.wait(lambda: bool(engine.of(LeavePool)), "leaves")
    assert engine.failure(engine.assign(python("noop"))).kind == "worker_lost"
    release.set()
    leaving.join()
    assert engine.success(task) is True


def test_reports_survive_a_log_that_is_away(
    engine: Engine, start_worker: StartWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = threading.Event()
    send = MemoryProducer.send

    def maybe(self: MemoryProducer, record: Append) -> None:
        if away.is_set() and record.topic == COMMANDS:
            raise LogUnavailable("the log is away")
        send(self, record)

    start_worker(8, functions={"noop": lambda: None})
    monkeypatch.setattr(MemoryProducer, "send", maybe)
    away.set()
    tasks = [engine.assign(python("noop")) for _ in range(50)]
    time.sleep(0.5)
    assert not any(engine.endings(task) for task in tasks)
    away.clear()
    for task in tasks:
        engine.success(task)
    assert all(len(engine.endings(task)) == 1 for task in tasks)


def test_one_bad_report_does_not_stop_the_others(engine: Engine, start_worker: StartWorker) -> None:
    def fail() -> None:
        raise ValueError("half a letter \ud83e and a nul \0")

    start_worker(functions={"fail": fail, "noop": lambda: None})
    assert "half a letter" in engine.failure(engine.assign(python("fail"))).message
    engine.success(engine.assign(python("noop")))


def test_every_report_names_worker_and_actor(engine: Engine, start_worker: StartWorker) -> None:
    start_worker(functions={"nap": lambda: time.sleep(0.1), "fail": lambda: 1 / 0})
    engine.success(engine.assign(python("nap")))
    engine.failure(engine.assign(python("fail")))
    reports = [c for _, c in engine.seen if isinstance(c, ReportStarted | ReportSuccess | ReportFailure)]
    assert {(report.worker, report.actor) for report in reports} == {("w1", "worker:w1")}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_worker_that_cannot_hear_its_mail_any_more_ends_and_leaves_its_pools(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half dead it would hold its slots and run nothing."""
    worker = Worker(engine.log, {"default": 1}, name="w1")
    broken = threading.Event()
    read = MemoryReader.read

    def fail(self: MemoryReader, max_records: int, timeout_s: float) -> list[Record]:
        if broken.is_set() and threading.current_thread().name == "tidewheel-mail":
            raise SystemExit("a fault nobody foresaw")  # what ends a thread without a word
        return read(self, max_records, timeout_s)

    monkeypatch.setattr(MemoryReader, "read", fail)
    threading.Thread(target=lambda: (engine.await_welcome("w1"), broken.set()), daemon=True).start()
    with pytest.raises(WorkerBroken, match="'w1' ends: its thread that reads its mail has ended by a fault"):
        worker.run(threading.Event(), drain_s=0)
    engine.wait(lambda: bool(engine.of(LeavePool)), "it leaves its pool")
