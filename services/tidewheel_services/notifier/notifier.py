"""The notifier: follows the journal, keeps what is to be told, and has couriers deliver it.

It gates nothing: the log does not wait for it. Of several notifiers on one database one works, the others stand by; a
session lock of Postgres decides. At its very first start it begins at the journal's end: nobody is told of the past.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence

import psycopg
import structlog

from tidewheel.log.interface import EVENTS, Log, LogError, Record
from tidewheel.wire import catalog
from tidewheel.wire.codec import DecodeError, decode_event
from tidewheel.wire.compiled import HEADER_SIZE, MARKER
from tidewheel_projections.locks import Lock
from tidewheel_services.notifier.couriers import AWAY_S, PAUSES_S, Courier, link_to, unknown, unusable
from tidewheel_services.notifier.database import Connection, connect, prepare
from tidewheel_services.notifier.dead_letters import DeadLetters
from tidewheel_services.notifier.delivery import TRY_S, Delivery, Unusable
from tidewheel_services.notifier.outbox import Outbox, Waiting
from tidewheel_services.notifier.store import Store
from tidewheel_services.notifier.targets import Target
from tidewheel_services.notifier.telling import FOLLOWED, Notice, take

#: Most records in one transaction.
BATCH_MAX = 2_000
READ_S = 0.5
STANDBY_S = 1.0
BEAT_S = 2.0
CLEAN_S = 3_600.0
BACK_OFF_S = (0.2, 10.0)
#: What a stop waits for a courier that is sending.
STOP_S = 5.0

_log = structlog.get_logger("tidewheel.notifier")


class Notifier:
    """Tells of what the journal on ``log`` says; remembers in the database ``dsn``."""

    def __init__(
        self,
        log: Log,
        dsn: str,
        targets: Mapping[str, Target],
        public_url: str = "",
        *,
        try_s: float = TRY_S,
        pauses_s: tuple[float, ...] = PAUSES_S,
    ) -> None:
        self._log = log
        self._dsn = dsn
        self._letters = DeadLetters(log)
        self._life = uuid.uuid4().hex
        self._targets = targets
        self._link = link_to(public_url)
        self._try_s = try_s
        self._pauses_s = pauses_s
        #: Faults of records that were said.
        self._said: set[str] = set()
        #: By target; of those that nobody configured under the empty name.
        self.couriers: dict[str, Courier] = {}
        # For whoever watches.
        #: Records read, notices written, records that are not understood.
        self.read = self.told = self.skipped = 0
        #: Records up to the ends last seen.
        self.behind = 0
        #: Notices that wait, by target.
        self.waiting: dict[str, int] = {}
        #: This one works; else it stands by or waits.
        self.working = False
        #: Why nothing can be followed now; empty: it can.
        self.fault = "nothing has been reached yet"

    def run(self, stop: threading.Event) -> None:
        """Follow and deliver until ``stop``. What is away is waited for, and said once per back-off."""
        self._hire()
        back_off_s = BACK_OFF_S[0]
        try:
            while not stop.is_set():
                before = self.read
                try:
                    self._work(stop)
                except psycopg.Error as error:
                    self.fault = f"Postgres: {str(error).strip()}"
                    _log.error("postgres_unavailable", reason=str(error).strip(), retry_s=back_off_s)
                finally:
                    self.working = False
                if self.read > before:
                    back_off_s = BACK_OFF_S[0]
                stop.wait(back_off_s)
                back_off_s = min(back_off_s * 2, BACK_OFF_S[1])
        finally:
            self._letters.close()

    def _hire(self) -> None:
        """A courier for each target, and one for all that nobody configured."""
        faults: dict[str, str] = {}
        for name, target in self._targets.items():
            sender = None
            try:
                sender = Delivery(target, self._try_s)
            except Unusable as error:
                faults[name] = str(error)
                _log.error("a target cannot be used", target=name, why=str(error))
            self.couriers[name] = Courier(
                self._dsn,
                _claims_of(name),
                sender,
                self._letters,
                life=self._life,
                fault=unusable(faults),
                link=self._link,
                pauses_s=self._pauses_s,
            )
        known = tuple(self._targets)
        strays = Courier(
            self._dsn,
            lambda outbox: outbox.claim_stray(known),
            None,
            self._letters,
            life=self._life,
            fault=unknown(known),
            link=self._link,
        )
        self.couriers[""] = strays

    def _work(self, stop: threading.Event) -> None:
        with connect(self._dsn) as connection:
            prepare(connection)
            if not self._wait_for_turn(connection, stop):
                return
            if released := Outbox(connection, self._life).release():
                _log.info("notifications of a notifier that is gone are sent again", count=released)
            ended = threading.Event()
            threads = [
                threading.Thread(target=courier.run, args=(ended,), name=f"courier-{name}", daemon=True)
                for name, courier in self.couriers.items()
            ]
            for thread in threads:
                thread.start()
            try:
                while not stop.is_set():
                    self._follow_while_there(Store(connection), stop)
            finally:
                ended.set()
                for courier in self.couriers.values():
                    courier.wake()
                until = time.monotonic() + STOP_S
                for thread in threads:
                    thread.join(max(0.0, until - time.monotonic()))

    def _follow_while_there(self, store: Store, stop: threading.Event) -> None:
        """Follow until the log is away; what was found before is delivered meanwhile."""
        try:
            self._follow(store, stop)
        except LogError as error:
            self.working, self.fault = False, str(error)
            _log.error("log_unavailable", reason=str(error), retry_s=AWAY_S)
            stop.wait(AWAY_S)

    def _wait_for_turn(self, connection: Connection, stop: threading.Event) -> bool:
        said = False
        while not stop.is_set():
            if Lock.NOTIFIER.take(connection):
                return True
            if not said:
                _log.info("standing_by", reason="another notifier works on this database; taking over when it ends")
                said = True
            self.fault = ""
            stop.wait(STANDBY_S)
        return False

    def _follow(self, store: Store, stop: threading.Event) -> None:
        positions = _begin(self._log, store)
        reader = self._log.reader({(EVENTS, partition): offset for partition, offset in positions.items()})
        self.working, self.fault = True, ""
        next_beat = next_clean = 0.0
        try:
            while not stop.is_set():
                records = reader.read(BATCH_MAX, READ_S)
                if records:
                    self._apply(store, records)
                now = time.monotonic()
                if now >= next_beat:
                    self._look(store, {partition: offset for (_, partition), offset in reader.positions().items()})
                    next_beat = now + BEAT_S
                if now >= next_clean:
                    store.clean()
                    next_clean = now + CLEAN_S
        finally:
            reader.close()

    def _apply(self, store: Store, records: Sequence[Record]) -> None:
        found: list[tuple[Notice, int, int]] = []
        positions: dict[int, int] = {}
        with store.transaction():
            for record in records:
                positions[record.partition] = record.offset + 1
                found += [(notice, record.partition, record.offset) for notice in self._take(record, store)]
            store.write(found, positions)
        store.written()
        self.read += len(records)
        self.told += len(found)
        for target in {notice.target for notice, _, _ in found}:
            self.couriers.get(target, self.couriers[""]).wake()

    def _take(self, record: Record, store: Store) -> list[Notice]:
        """What the record leads to. One that cannot be understood leads to nothing, and nobody behind it waits."""
        if record.value is None or not _matters(record.value):
            return []
        try:
            return take(decode_event(record.value), store)
        except psycopg.Error:
            raise
        except Exception as error:
            self.skipped += 1
            code = error.code if isinstance(error, DecodeError) else type(error).__name__
            if code not in self._said:
                place = f"{record.topic}/{record.partition}/{record.offset}"
                _log.exception("events are not understood and not told of, this one first", place=place)
            self._said.add(code)
            return []

    def _look(self, store: Store, positions: Mapping[int, int]) -> None:
        ends = self._log.end_offsets([(EVENTS, partition) for partition in positions])
        self.behind = sum(max(0, ends[EVENTS, partition] - offset) for partition, offset in positions.items())
        self.waiting = store.waiting()


def begin(log: Log, dsn: str) -> None:
    """Write down where the very first notifier begins: at the journal's end as it is now. Raises ``psycopg.Error``.

    For who starts an engine, before anything can happen in it that is to be told; later calls change nothing.
    """
    with connect(dsn) as connection:
        prepare(connection)
        _begin(log, Store(connection))


def _begin(log: Log, store: Store) -> dict[int, int]:
    """Where to read on; a partition never followed begins at its end, which is written down at once."""
    known = store.positions()
    fresh = [(EVENTS, partition) for partition in range(log.partitions) if partition not in known]
    if fresh:
        ends = {partition: offset for (_, partition), offset in log.end_offsets(fresh).items()}
        with store.transaction():
            store.write((), ends)
        known |= ends
    return known


def _claims_of(target: str) -> Callable[[Outbox], Waiting | None]:
    return lambda outbox: outbox.claim(target)


def _matters(data: bytes) -> bool:
    """Whether the record's schema is that of an event we follow, or unknown. Most events need no decoding."""
    version = catalog.versions().get(data[len(MARKER) : HEADER_SIZE])
    return version is None or version.message in FOLLOWED
