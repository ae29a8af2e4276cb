"""Commands that somebody waits for: sent on the log, answered by mail to this process.

One thread reads this process's one mail partition, from its end as it was when the process started; each ask leaves a
future under its request id. The reader stands before the first command goes out, so no answer can be missed; after a
fault it goes on where it was. Mail is at least once: an answer nobody waits for any more, or a second one, is
dropped.
"""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import msgspec
import structlog

from tidewheel.core.commands import ConfigurePool, Request
from tidewheel.core.mail import Reply
from tidewheel.log.interface import COMMANDS, MAIL, Append, Log, LogError, Producer, Reader
from tidewheel.log.partition import partition_of
from tidewheel.wire import codec

#: How long one read of the mail waits; also how late a stop is noticed.
READ_S = 0.5
#: A log that is away is tried again this often, growing to the second number.
BACKOFF_S = (0.2, 3.0)
MAIL_BATCH = 500
#: Sends have threads of their own: while the log is away they wait, and reads must not.
SENDERS = 16

_log = structlog.get_logger("tidewheel.api")


class LogAway(Exception):
    """The log could not be reached. ``sent``: the command may have been written all the same."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class NoAnswer(Exception):
    """The command is on the log, and nobody answered in time; it may still be carried out."""


class Stopping(Exception):
    """This process is being stopped."""


class Requests:
    """Asks aggregates and waits for their answers; safe to use from many tasks and threads at once."""

    def __init__(self, log: Log, instance: str = "api") -> None:
        self.receiver = f"{instance}-{uuid.uuid4().hex[:12]}"
        self._log = log
        self._waiting: dict[str, Future[Reply]] = {}
        self._lock = threading.Lock()
        self._producer: Producer | None = None
        self._reading = threading.Event()
        self._stop = threading.Event()
        self._fault = "the log has not been reached yet"
        self._senders = ThreadPoolExecutor(SENDERS, thread_name_prefix="send")
        self._thread = threading.Thread(target=self._run, name="mail", daemon=True)

    def start(self) -> None:
        """Begin to read mail; a log that is away is waited for."""
        self._thread.start()

    def abandon(self) -> None:
        """Stop reading; whoever still waits is told ``Stopping``."""
        self._stop.set()
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if future.set_running_or_notify_cancel():
                future.set_exception(Stopping())

    def close(self) -> None:
        """Stop, and let everything go."""
        self.abandon()
        if self._thread.is_alive():
            self._thread.join(READ_S + 5.0)
        with self._lock:
            producer, self._producer = self._producer, None
        self._senders.shutdown(wait=False)
        if producer is not None:
            producer.close()

    @property
    def partition(self) -> int:
        """Of the mail, the one that this process reads. Raises ``LogUnavailable``: how many there are is not known."""
        return partition_of(self.receiver.encode(), self._log.partitions)

    @property
    def fault(self) -> str | None:
        """Why the log cannot be reached now; None while mail is being read."""
        return None if self._reading.is_set() else self._fault

    async def ask(self, command: Request, timeout_s: float) -> Reply:
        """Send ``command`` and wait for its answer. Raises ``LogAway``, ``NoAnswer`` or ``Stopping``."""
        deadline = time.monotonic() + timeout_s
        request_id = uuid.uuid4().hex
        sent = msgspec.structs.replace(command, receiver=self.receiver, request_id=request_id)
        future: Future[Reply] = Future()
        with self._lock:
            if self._stop.is_set():
                raise Stopping
            self._waiting[request_id] = future
        try:
            await asyncio.get_running_loop().run_in_executor(self._senders, self._send, sent, deadline)
            return await asyncio.wait_for(asyncio.wrap_future(future), max(0.001, deadline - time.monotonic()))
        except TimeoutError:
            raise NoAnswer from None
        finally:
            with self._lock:
                self._waiting.pop(request_id, None)

    def _send(self, command: Request, deadline: float) -> None:
        # A short outage of the log is waited out here, a longer one is told at once.
        if not self._reading.wait(max(0.0, min(2.0, deadline - time.monotonic()))):
            raise LogAway(self._fault, sent=False)
        try:
            with self._lock:
                if self._producer is None:
                    self._producer = self._log.producer()
                producer = self._producer
            key = command.pool if isinstance(command, ConfigurePool) else _dag_of(command)
            asked = msgspec.structs.replace(command, reply_partition=self.partition)
            producer.send(Append(topic=COMMANDS, key=key.encode(), value=codec.encode(asked)))
        except LogError as error:
            raise LogAway(str(error), sent=False) from error
        try:
            producer.flush(max(0.1, deadline - time.monotonic()))
        except LogError as error:
            raise LogAway(str(error), sent=True) from error

    def _run(self) -> None:
        position: int | None = None
        backoff = BACKOFF_S[0]
        while not self._stop.is_set():
            reader: Reader | None = None
            try:
                place = (MAIL, self.partition)
                if position is None:
                    position = self._log.end_offset(*place)
                reader = self._log.reader({place: position})
                # At once: a reader counts as one when it has read.
                wait_s = 0.0
                while not self._stop.is_set():
                    for record in reader.read(MAIL_BATCH, wait_s):
                        self._receive(record.key, record.value)
                    position = reader.positions()[place]
                    self._reading.set()
                    wait_s, backoff = READ_S, BACKOFF_S[0]
            except Exception as error:  # whatever it is: without this thread no write would be answered any more
                foreseen = isinstance(error, LogError)
                why = str(error) if foreseen else f"the mail could not be read: {error!r}"
                if self._reading.is_set() or why != self._fault:
                    _log.warning("log unavailable; trying again", error=why, exc_info=not foreseen)
                self._fault = why
                self._reading.clear()
                self._stop.wait(backoff)
                backoff = min(backoff * 2, BACKOFF_S[1])
            finally:
                if reader is not None:
                    _quietly(reader.close)

    def _receive(self, key: bytes | None, value: bytes | None) -> None:
        if key != self.receiver.encode() or value is None:
            return
        try:
            mail = codec.decode(value)
        except Exception as error:  # whatever it is, the letters behind it are to be read
            foreseen = isinstance(error, codec.DecodeError)
            _log.warning("undecodable mail dropped", reason=str(error), exc_info=not foreseen)
            return
        if isinstance(mail, Reply):
            with self._lock:
                future = self._waiting.pop(mail.request_id, None)
            if future is not None and future.set_running_or_notify_cancel():
                future.set_result(mail)


def _dag_of(command: Request) -> str:
    dag = getattr(command, "dag", None)
    assert isinstance(dag, str), f"{type(command).__name__} has no DAG"
    return dag


def _quietly(close: Callable[[], None]) -> None:
    try:
        close()
    except Exception as error:
        _log.warning("could not close the mail reader", error=str(error), exc_info=not isinstance(error, LogError))
