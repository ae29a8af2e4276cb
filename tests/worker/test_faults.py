"""Faults of the worker's own, as a bug or a machine without threads: they cost an attempt at most, and no slot."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import cast

import pytest

from tests.worker.conftest import StartWorker
from tests.worker.engine import Engine, python, run
from tidewheel.core.assignment import ActionSpec
from tidewheel.task.outcome import Outcome
from tidewheel.worker import Context, worker
from tidewheel.worker.attempt import Attempt
from tidewheel.worker.outbox import Outbox
from tidewheel_services.worker import runners
from tidewheel_services.worker.supervision import Supervisor


def test_a_log_that_cannot_be_sent_on_costs_neither_the_result_nor_the_slot(
    engine: Engine, start_worker: StartWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread ended of it: its slot was gone, and the attempt was renewed for ever."""

    def say(context: Context) -> int:
        context.log("said")
        return 42

    def fail(*_: object) -> bool:
        raise RuntimeError("a fault nobody foresaw")

    monkeypatch.setattr(Outbox, "put_chunk", fail)
    start_worker(1, functions={"say": say})
    assert [engine.success(engine.assign(python("say"))) for _ in range(2)] == [42, 42]


def test_an_end_that_cannot_be_reported_costs_no_slot(
    engine: Engine, start_worker: StartWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = worker.closing_report
    faults = [RuntimeError("a fault nobody foresaw")]

    def fail(*told: object) -> object:
        if faults:
            raise faults.pop()
        return report(*told)  # type: ignore[arg-type]

    monkeypatch.setattr(worker, "closing_report", fail)
    started = start_worker(1, functions={"answer": lambda: 42})
    unreported = engine.assign(python("answer"))
    assert engine.success(engine.assign(python("answer"))) == 42
    assert engine.endings(unreported) == []
    engine.wait(lambda: started.running == 0, "its lease is not renewed, so that it runs again")


class _Exiting:
    """An executor that ends its thread without a word."""

    killable = True

    def run(self, attempt: Attempt, action: ActionSpec) -> Outcome:
        raise SystemExit(3)

    def close(self) -> None:
        pass


def test_an_executor_that_exits_fails_its_attempt(engine: Engine, start_worker: StartWorker) -> None:
    start_worker(1, executors={"run": _Exiting()})
    for _ in range(2):
        assert engine.failure(engine.assign(run("true"))).kind == "worker_lost"


def test_a_thread_that_cannot_be_started_is_started_with_the_next_attempt(
    engine: Engine, start_worker: StartWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counted as started: the slot took leases from then on and ran none of them."""
    start = threading.Thread.start
    refused = threading.Event()

    def fail(thread: threading.Thread) -> None:
        if thread.name.startswith("tidewheel-slot") and not refused.is_set():
            refused.set()
            raise RuntimeError("can't start new thread")
        start(thread)

    start_worker(1, functions={"answer": lambda: 42})
    monkeypatch.setattr(threading.Thread, "start", fail)
    first = engine.assign(python("answer"))
    assert refused.wait(5)
    assert engine.success(engine.assign(python("answer"))) == 42
    assert engine.success(first) == 42


class _Cold:
    """An idle runner."""

    def __init__(self, fault: Exception | None = None) -> None:
        self.idle_since = 0.0
        self.closed = threading.Event()
        self._fault = fault

    def close(self) -> None:
        self.closed.set()
        if self._fault is not None:
            raise self._fault


def test_a_runner_that_cannot_be_ended_keeps_no_other_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who ends idle runners ended of it, and all that were ever needed at once stayed."""
    monkeypatch.setattr(runners, "IDLE_S", 0.04)
    monkeypatch.setattr(runners, "WARM_MIN", 0)
    pool = runners.RunnerPool(cast(Supervisor, None), Path(), {})
    try:
        for cold in (_Cold(OSError("a fault nobody foresaw")), _Cold()):
            pool.give(cast(runners.Runner, cold))
            assert cold.closed.wait(5)
    finally:
        pool.close()
