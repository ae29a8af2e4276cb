"""The waiter: looks after every open ``http`` and ``kafka`` wait, and tells its DAG what came.

The read model says which waits are open, so a waiter has nothing to remember: started again it asks at once, and a
report of a wait that is over changes nothing. Of several waiters one works, the others stand by; a session lock of
Postgres decides, and should two ever work at once, some questions are asked twice.
"""

from __future__ import annotations

import contextlib
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
import psycopg
import structlog

from tidewheel.core.attempt import AttemptKey
from tidewheel.core.commands import ReportWait
from tidewheel.log.interface import COMMANDS, Append, Log, LogError, Producer
from tidewheel.wire.codec import encode
from tidewheel_projections.locks import Lock
from tidewheel_projections.reads import list_waits
from tidewheel_services.waiter.polling import Came, Hopeless, Look, NotYet, Polled, Poller
from tidewheel_services.waiter.records import Awaited, Records

#: Between two looks at the read model.
LOOK_S: Final = 1.0
#: Until a wait that was reported and is still open is asked for again: the report may have been lost with its log.
AGAIN_S: Final = 30.0
BACK_OFF_S: Final = (0.2, 10.0)
FLUSH_S: Final = 10.0
#: Requests at the same time.
THREADS: Final = 32
_PAGE: Final = 1_000

T = TypeVar("T", bound=msgspec.Struct)
Connection: TypeAlias = psycopg.Connection[Any]
_log = structlog.get_logger("tidewheel.waiter")


class _Open:
    """An open wait: what to ask, when next (by the monotonic clock), and what was said last."""

    __slots__ = ("asking", "due", "polled", "said")

    def __init__(self, polled: Polled) -> None:
        self.polled = polled
        self.due = 0.0
        self.asking: Future[Look] | None = None
        self.said = ""


class Waiter:
    """Looks for what tasks wait for, as the read model ``dsn`` names it, and reports on ``log``."""

    def __init__(
        self, log: Log, dsn: str, poller: Poller, records: Records, instance: str, *, look_s: float = LOOK_S
    ) -> None:
        self._log = log
        self._dsn = dsn
        self._poller = poller
        self._records = records
        self._look_s = look_s
        self._open: dict[AttemptKey, _Open] = {}
        #: Waits for records: when each that was reported is looked for again.
        self._awaited: dict[AttemptKey, Awaited] = {}
        self._reported: dict[AttemptKey, float] = {}
        self._feed_due = 0.0
        # For whoever watches.
        self.instance = instance
        #: Requests made, waits that were ended by them, and waits open now.
        self.asked = self.ended = self.waiting = 0
        #: This one works; else it stands by or waits.
        self.working = False
        #: Why nothing can be looked after now, and why no records can; empty: they can.
        self.fault = "nothing has been reached yet"
        self.feed_fault = ""

    @property
    def records_read(self) -> int:
        """Records read of topics that tasks wait for."""
        return self._records.read

    def run(self, stop: threading.Event) -> None:
        """Look after the waits until ``stop``. What is away is waited for."""
        pause = BACK_OFF_S[0]
        while not stop.is_set():
            try:
                self._work(stop)
            except (psycopg.Error, LogError) as error:
                self.working, self.fault = False, str(error).strip() or type(error).__name__
                _log.warning("waits are not looked after for now", why=self.fault, again_in_s=pause)
                stop.wait(pause)
                pause = min(pause * 2, BACK_OFF_S[1])
            else:
                pause = BACK_OFF_S[0]

    def _work(self, stop: threading.Event) -> None:
        connection: Connection = psycopg.connect(
            self._dsn, autocommit=True, connect_timeout=5, application_name="tidewheel-waiter"
        )
        producer = self._log.producer()
        threads = ThreadPoolExecutor(THREADS, thread_name_prefix="look")
        try:
            while not stop.is_set():
                self.working = self.working or _takes_turn(connection)
                self.fault = ""
                more = self.working and self._turn(connection, producer, threads)
                stop.wait(0 if more else self._look_s)
        finally:
            self.working = False
            self._open.clear()
            self._reported.clear()
            self._records.close()
            threads.shutdown(wait=False, cancel_futures=True)
            producer.close()
            connection.close()

    def _turn(self, connection: Connection, producer: Producer, threads: ThreadPoolExecutor) -> bool:
        """Look once; true if there is more to be read at once."""
        self._take(connection)
        now = time.monotonic()
        reported = False
        for key, wait in self._open.items():
            if wait.asking is not None and wait.asking.done():
                look, wait.asking = wait.asking.result(), None
                reported |= self._answered(key, wait, look, producer, now)
            if wait.asking is None and wait.due <= now:
                wait.due = now + wait.polled.every_ms / 1000
                wait.asking = threads.submit(self._poller.look, wait.polled)
                self.asked += 1
        more = self._look_for_records(producer, now)
        if reported or now in self._reported.values():
            producer.flush(FLUSH_S)
        return more

    def _look_for_records(self, producer: Producer, now: float) -> bool:
        if now < self._feed_due:
            return False

        def report(key: AttemptKey, output: str) -> None:
            self._report(key, producer, output=output)
            self._reported[key] = now
            self.ended += 1

        wanted = {key: one for key, one in self._awaited.items() if now - self._reported.get(key, -AGAIN_S) >= AGAIN_S}
        try:
            more = self._records.turn(wanted, report)
        except LogError as error:
            self.feed_fault = str(error)
            self._feed_due = now + BACK_OFF_S[1]
            _log.warning("records are not looked for for now", why=self.feed_fault, again_in_s=BACK_OFF_S[1])
            self._records.close()
            return False
        self.feed_fault = ""
        return more

    def _take(self, connection: Connection) -> None:
        """What is open now, by the read model. Where expressions did not evaluate, the DAG ends the wait by itself."""
        found = _open_waits(connection, "http", Polled)
        for key in self._open.keys() - found.keys():
            del self._open[key]
        for key in found.keys() - self._open.keys():
            self._open[key] = _Open(found[key])
        self._awaited = _open_waits(connection, "kafka", Awaited)
        self._reported = {key: at for key, at in self._reported.items() if key in self._awaited}
        self.waiting = len(self._open) + len(self._awaited)

    def _answered(self, key: AttemptKey, wait: _Open, look: Look, producer: Producer, now: float) -> bool:
        """Take in what one look gave; true if it was reported."""
        match look:
            case Came():
                self._report(key, producer, output=look.output)
            case Hopeless():
                self._report(key, producer, fault=look.reason)
            case NotYet():
                if look.reason != wait.said:
                    wait.said = look.reason
                    _log.info("not yet", dag=key[0], run_id=key[1], task=key[2], why=look.reason)
                return False
        self.ended += 1
        wait.due = now + max(AGAIN_S, wait.polled.every_ms / 1000)
        return True

    def _report(self, key: AttemptKey, producer: Producer, *, output: str | None = None, fault: str = "") -> None:
        dag, run_id, task, attempt = key
        report = ReportWait(
            dag=dag, run_id=run_id, task=task, attempt=attempt, output=output, fault=fault, actor="waiter"
        )
        producer.send(Append(COMMANDS, dag.encode(), encode(report)))


def _open_waits(connection: Connection, waits_for: str, kind: type[T]) -> dict[AttemptKey, T]:
    """The open waits for this, with their details."""
    found: dict[AttemptKey, T] = {}
    after: str | None = None
    while True:
        page = list_waits(connection, waits_for=waits_for, after=after, limit=_PAGE)
        for row in page.items:
            with contextlib.suppress(msgspec.ValidationError):
                found[row.dag, row.run_id, row.task, row.attempt] = msgspec.convert(row.wait, kind)
        after = page.next
        if after is None:
            return found


def _takes_turn(connection: Connection) -> bool:
    """Whether this session is the one that works from now on, until it ends."""
    found = connection.execute("SELECT pg_try_advisory_lock(%s)", (Lock.WAITER,)).fetchone()
    return found is not None and bool(found[0])
