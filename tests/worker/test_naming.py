"""Two workers of one name notice each other, and the later one goes."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from tests.worker.engine import Engine, python
from tidewheel.core.commands import JoinPool, LeavePool, ReportSuccess
from tidewheel.core.mail import NameClaim
from tidewheel.worker import NameTaken, Worker
from tidewheel.worker.naming import DECIDED_S, Naming, Verdict

StartWorker = Callable[..., Worker]


def deliver(claim: NameClaim, *namings: Naming, now: float = 0.0) -> list[Verdict | None]:
    """What each of them makes of a letter, which all of one name read."""
    return [naming.hear(claim, now) for naming in namings]


def two() -> tuple[Naming, Naming]:
    return Naming("w1", 0, "one"), Naming("w1", 0, "two")


def test_one_worker_hears_only_itself() -> None:
    alone, _ = two()
    assert deliver(alone.claim(0.0), alone) == [None]


def test_the_later_one_is_told_to_go() -> None:
    first, second = two()
    deliver(first.claim(0.0), first)
    claim = second.claim(100.0)
    assert deliver(claim, first, second, now=100.0) == [Verdict.ANSWER, None]
    assert "host two" in first.told
    assert deliver(first.answer(claim), first, second, now=101.0) == [None, Verdict.GO]
    assert "host one" in second.told
    assert "--name" in second.told
    # It answers that it goes, and the first one takes the name's affairs in hand again.
    assert deliver(second.answer(first.answer(claim)), first, second, now=102.0) == [Verdict.WENT, None]


def test_of_two_that_start_at_once_one_stays() -> None:
    first, second = two()
    claims = first.claim(0.0), second.claim(0.0)
    assert deliver(claims[0], first, second) == [None, None]
    assert deliver(claims[1], first, second) == [Verdict.ANSWER, None]
    assert deliver(first.answer(claims[1]), first, second) == [None, Verdict.GO]


def test_a_late_answer_makes_nobody_go() -> None:
    first, second = two()
    deliver(first.claim(0.0), first)
    claim = second.claim(100.0)
    deliver(claim, second, now=100.0)
    late = 100.0 + DECIDED_S
    assert deliver(claim, first, now=late) == [Verdict.ANSWER]
    assert deliver(first.answer(claim), second, now=late) == [Verdict.COMPLAIN]


def test_an_answer_to_a_third_one_is_none_of_our_business() -> None:
    first, second = two()
    third = Naming("w1", 0, "three")
    deliver(first.claim(0.0), first)
    assert deliver(first.answer(third.claim(0.0)), second) == [None]


def test_a_second_worker_refuses_and_the_first_goes_on(engine: Engine, start_worker: StartWorker) -> None:
    began, go_on = threading.Event(), threading.Event()

    def work() -> str:
        began.set()
        assert go_on.wait(20)
        return "done"

    start_worker(functions={"work": work})
    engine.assign(python("work"), "before")
    assert began.wait(20)
    second = Worker(engine.log, {"default": 9}, {"work": work}, name="w1")
    with pytest.raises(NameTaken, match="another worker named 'w1'"):
        second.run(threading.Event(), drain_s=0)
    # What it offered under the name is put right, and it has taken nobody off the list.
    # (It may have been told to go before it offered anything.)
    engine.wait(
        lambda: [join.slots for join in engine.of(JoinPool)] in ([4, 9, 4], [4, 4]), "the first one's offer again"
    )
    assert engine.of(LeavePool) == []
    go_on.set()
    assert engine.success("before") == "done"
    assert len(engine.of(ReportSuccess, "before")) == 1


def test_a_restarted_worker_has_its_name_at_once(engine: Engine, start_worker: StartWorker) -> None:
    first = start_worker(functions={"work": lambda: 1})
    first.stop(drain_s=0)
    again = Worker(engine.log, {"default": 4}, {"work": lambda: 2}, name="w1")
    again.start()
    try:
        engine.assign(python("work"), "after")
        assert engine.success("after") == 2
    finally:
        again.stop(drain_s=0)
