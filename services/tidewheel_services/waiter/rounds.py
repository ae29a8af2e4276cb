"""Rounds over the open waits: what is due is asked, what came is reported.

Nothing of this knows where the open waits are read from, what the time is, or which threads make the requests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Final

import msgspec
import structlog

from tidewheel.core.attempt import AttemptKey
from tidewheel.core.commands import ReportWait
from tidewheel.log.interface import COMMANDS, Append, LogError, Producer
from tidewheel.wire.codec import encode
from tidewheel_services.waiter.polling import Came, Hopeless, Look, NotYet, Polled
from tidewheel_services.waiter.records import Awaited, Records

#: Until a wait that was reported and is still open is asked for again: the report may have been lost with its log.
AGAIN_S: Final = 30.0
#: Until a feed that is away is tried again.
FEED_AWAY_S: Final = 10.0
FLUSH_S: Final = 10.0

_log = structlog.get_logger("tidewheel.waiter")


class OpenWaits(msgspec.Struct, frozen=True):
    """Every open wait that somebody must look after, by what it waits for."""

    http: Mapping[AttemptKey, Polled]
    kafka: Mapping[AttemptKey, Awaited]


class _Open:
    """An open wait: what to ask, when next, and what was said last."""

    __slots__ = ("asking", "due", "polled", "said")

    def __init__(self, polled: Polled) -> None:
        self.polled = polled
        self.due = 0.0
        self.asking: Future[Look] | None = None
        self.said = ""


class Rounds:
    """One after the other, at instants in seconds that only grow. ``ask`` begins a request."""

    def __init__(self, records: Records, ask: Callable[[Polled], Future[Look]]) -> None:
        self._records = records
        self._ask = ask
        self._open: dict[AttemptKey, _Open] = {}
        #: Waits for records that were reported, and when.
        self._reported: dict[AttemptKey, float] = {}
        self._feed_due = 0.0
        #: Requests made, and waits that were ended by what came.
        self.asked = self.ended = 0
        #: Why no records can be looked for; empty: they can.
        self.feed_fault = ""

    def go(self, waits: OpenWaits, producer: Producer, now: float) -> bool:
        """One round; true if there is more to be read at once."""
        self._take(waits)
        reported = False
        for key, wait in self._open.items():
            if wait.asking is not None and wait.asking.done():
                look, wait.asking = _given(wait.asking, key), None
                reported |= self._answered(key, wait, look, producer, now)
            if wait.asking is None and wait.due <= now:
                wait.due = now + wait.polled.every_ms / 1000
                wait.asking = self._ask(wait.polled)
                self.asked += 1
        more = self._look_for_records(waits.kafka, producer, now)
        if reported or now in self._reported.values():
            producer.flush(FLUSH_S)
        return more

    def _take(self, waits: OpenWaits) -> None:
        for key in self._open.keys() - waits.http.keys():
            del self._open[key]
        for key in sorted(waits.http.keys() - self._open.keys()):
            self._open[key] = _Open(waits.http[key])
        self._reported = {key: at for key, at in self._reported.items() if key in waits.kafka}

    def _look_for_records(self, awaited: Mapping[AttemptKey, Awaited], producer: Producer, now: float) -> bool:
        if now < self._feed_due:
            return False

        def report(key: AttemptKey, output: str) -> None:
            _report(key, producer, output=output)
            self._reported[key] = now
            self.ended += 1

        wanted = {key: one for key, one in awaited.items() if now - self._reported.get(key, -AGAIN_S) >= AGAIN_S}
        try:
            more = self._records.turn(wanted, report)
        except LogError as error:
            self.feed_fault = str(error)
            self._feed_due = now + FEED_AWAY_S
            _log.warning("records are not looked for for now", why=self.feed_fault, again_in_s=FEED_AWAY_S)
            self._records.close()
            return False
        self.feed_fault = ""
        return more

    def _answered(self, key: AttemptKey, wait: _Open, look: Look, producer: Producer, now: float) -> bool:
        """Take in what one look gave; true if it was reported."""
        match look:
            case Came():
                _report(key, producer, output=look.output)
            case Hopeless():
                _report(key, producer, fault=look.reason)
            case NotYet():
                if look.reason != wait.said:
                    wait.said = look.reason
                    _log.info("not yet", dag=key[0], run_id=key[1], task=key[2], why=look.reason)
                return False
        self.ended += 1
        wait.due = now + max(AGAIN_S, wait.polled.every_ms / 1000)
        return True


def _given(asking: Future[Look], key: AttemptKey) -> Look:
    """What the request gave. One that failed by a fault of ours must not end the rounds of all the others."""
    fault = asking.exception()
    if fault is None:
        return asking.result()
    _log.error("a request failed by a fault of ours", dag=key[0], run_id=key[1], task=key[2], exc_info=fault)
    return NotYet(f"a fault of ours: {fault!r}")


def _report(key: AttemptKey, producer: Producer, *, output: str | None = None, fault: str = "") -> None:
    dag, run_id, task, attempt = key
    report = ReportWait(dag=dag, run_id=run_id, task=task, attempt=attempt, output=output, fault=fault, actor="waiter")
    producer.send(Append(COMMANDS, dag.encode(), encode(report)))
