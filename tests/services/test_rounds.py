"""The waiter's rounds, without threads, clock or read model: when it asks, what it reports, and when it asks again."""

from __future__ import annotations

from concurrent.futures import Future
from typing import cast

import msgspec

from tidewheel.core.assignment import HttpSpec
from tidewheel.core.attempt import AttemptKey
from tidewheel.core.commands import ReportWait
from tidewheel.definition.expressions import CelEvaluator
from tidewheel.log.feed import Feed
from tidewheel.log.interface import COMMANDS, LogUnavailable
from tidewheel.log.memory import MemoryLog
from tidewheel.log.memory_feed import MemoryFeed
from tidewheel.wire.codec import decode
from tidewheel_services.waiter.polling import Came, Hopeless, Look, NotYet, Polled
from tidewheel_services.waiter.records import Awaited, Records
from tidewheel_services.waiter.rounds import AGAIN_S, FEED_AWAY_S, OpenWaits, Rounds

KEY: AttemptKey = ("d", "r", "t", 1)
POLLED = Polled(request=HttpSpec(method="GET", url="http://x"), every_ms=5_000)


class Site:
    """Rounds whose requests are answered by ``looks``, in order; an answer that is None is to come."""

    def __init__(self, *looks: Look | None) -> None:
        self.log = MemoryLog(1)
        self.producer = self.log.producer()
        self.feed = MemoryFeed(clock=lambda: 100)
        self.away = False
        self.looks = list(looks)
        self.pending: list[Future[Look]] = []
        self.now = 0.0
        records = Records(self.open_feed, CelEvaluator(), "w", lambda: self.now)
        self.rounds = Rounds(records, self.ask)

    def open_feed(self) -> Feed:
        if self.away:
            raise LogUnavailable("no broker")
        return cast(Feed, self.feed)

    def ask(self, polled: Polled) -> Future[Look]:
        asked: Future[Look] = Future()
        look = self.looks.pop(0)
        if look is None:
            self.pending.append(asked)
        else:
            asked.set_result(look)
        return asked

    def go(self, at: float, *, http: bool = False, kafka: Awaited | None = None) -> list[ReportWait]:
        """One round at this instant; what it reported."""
        self.now = at
        before = self.log.end_offset(COMMANDS, 0)
        waits = OpenWaits({KEY: POLLED} if http else {}, {KEY: kafka} if kafka is not None else {})
        self.rounds.go(waits, self.producer, at)
        found = [decode(record.value or b"") for record in self.log.records_of(COMMANDS, 0)[before:] if record]
        assert all(isinstance(one, ReportWait) for one in found)
        return cast("list[ReportWait]", found)


def test_a_service_is_asked_until_it_is_ready_and_then_reported_once() -> None:
    site = Site(NotYet("busy"), NotYet("busy"), Came('{"status":200}'))
    reported = [one for at in range(12) for one in site.go(at, http=True)]
    assert [(one.task, one.attempt, one.output, one.fault) for one in reported] == [("t", 1, '{"status":200}', "")]
    assert (site.rounds.asked, site.rounds.ended) == (3, 1)


def test_what_never_comes_is_reported_as_a_fault() -> None:
    site = Site(Hopeless("no such host"))
    site.go(0, http=True)
    (report,) = site.go(1, http=True)
    assert (report.output, report.fault) == (None, "no such host")


def test_a_request_that_fails_by_a_fault_of_ours_is_made_again_and_holds_up_nothing() -> None:
    """It ended the waiter, and the next one, which asked the same at once."""
    site = Site(None, Came("1"))
    site.go(0, http=True)
    site.pending[0].set_exception(RuntimeError("a fault nobody foresaw"))
    assert site.go(1, http=True) == []
    site.go(5, http=True)
    assert [one.output for one in site.go(6, http=True)] == ["1"]


def test_nobody_is_asked_again_while_an_answer_is_still_to_come() -> None:
    site = Site(None, NotYet("busy"))
    for at in range(0, 60, 5):
        site.go(at, http=True)
    assert site.rounds.asked == 1
    site.pending[0].set_result(NotYet("busy"))
    site.go(60, http=True)
    assert site.rounds.asked == 2


def test_a_wait_that_is_still_open_long_after_its_report_is_asked_again() -> None:
    site = Site(Came("1"), Came("1"))
    site.go(0, http=True)
    assert len(site.go(1, http=True)) == 1
    assert site.go(AGAIN_S, http=True) == []
    site.go(1 + AGAIN_S, http=True)
    assert len(site.go(2 + AGAIN_S, http=True)) == 1


def test_a_record_is_reported_and_again_if_the_wait_is_still_open_after_a_while() -> None:
    site = Site()
    awaited = Awaited(topic="a", since_ms=50, match="event.value.n > 1")
    for n in (1, 2, 3):
        site.feed.publish("a", b"k", msgspec.json.encode({"n": n}))
    (report,) = site.go(0, kafka=awaited)
    assert msgspec.json.decode(report.output or "")["offset"] == 1
    assert site.go(AGAIN_S - 1, kafka=awaited) == []
    (again,) = site.go(AGAIN_S, kafka=awaited)
    assert again == report
    assert site.go(AGAIN_S + 1) == []


def test_a_feed_that_is_away_is_tried_again_after_a_while_and_holds_up_nothing_else() -> None:
    site = Site(Came("1"))
    site.away = True
    awaited = Awaited(topic="a", since_ms=0)
    site.feed.publish("a", None, b"v")
    site.go(0, kafka=awaited)
    assert "no broker" in site.rounds.feed_fault
    site.away = False
    assert site.go(FEED_AWAY_S - 1, kafka=awaited) == []
    assert len(site.go(FEED_AWAY_S, kafka=awaited)) == 1
    assert site.rounds.feed_fault == ""
