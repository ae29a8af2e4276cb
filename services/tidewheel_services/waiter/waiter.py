"""The waiter: looks after every open ``http`` and ``kafka`` wait, and tells its DAG what came.

The read model says which waits are open, so a waiter has nothing to remember: started again it asks at once, and a
report of a wait that is over changes nothing. Of several waiters one works, the others stand by; a session lock of
Postgres decides, and should two ever work at once, some questions are asked twice.
"""

from __future__ import annotations

import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
import psycopg
import structlog

from tidewheel.core.attempt import AttemptKey
from tidewheel.log.interface import Log, LogError
from tidewheel_projections.locks import Lock
from tidewheel_projections.reads import list_waits
from tidewheel_services.waiter.polling import Polled, Poller
from tidewheel_services.waiter.records import Awaited, Records
from tidewheel_services.waiter.rounds import OpenWaits, Rounds

#: Between two looks at the read model.
LOOK_S: Final = 1.0
BACK_OFF_S: Final = (0.2, 10.0)
#: Requests at the same time.
THREADS: Final = 32
_PAGE: Final = 1_000

T = TypeVar("T", bound=msgspec.Struct)
Connection: TypeAlias = psycopg.Connection[Any]
_log = structlog.get_logger("tidewheel.waiter")


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
        # For whoever watches.
        self.instance = instance
        #: Requests made, waits that were ended by what came, and waits open now.
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
        rounds = Rounds(self._records, lambda polled: threads.submit(self._poller.look, polled))
        asked, ended = self.asked, self.ended
        try:
            while not stop.is_set():
                self.working = self.working or Lock.WAITER.take(connection)
                self.fault = ""
                more = False
                if self.working:
                    waits = open_waits(connection)
                    self.waiting = len(waits.http) + len(waits.kafka)
                    more = rounds.go(waits, producer, time.monotonic())
                    self.asked, self.ended = asked + rounds.asked, ended + rounds.ended
                    self.feed_fault = rounds.feed_fault
                stop.wait(0 if more else self._look_s)
        finally:
            self.working = False
            self._records.close()
            threads.shutdown(wait=False, cancel_futures=True)
            self._poller.cut()  # the process ends once they have
            producer.close()
            connection.close()


def open_waits(connection: Connection) -> OpenWaits:
    """What is open now, by the read model. Where expressions did not evaluate, the DAG ends the wait by itself."""
    return OpenWaits(_open_waits(connection, "http", Polled), _open_waits(connection, "kafka", Awaited))


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
