"""All that leaves the worker, in the order it was put, through one producer in one thread.

A slow log delays reports and loses none.
Beats of an attempt whose end has been reported meanwhile are dropped on the way out, so a short task costs one record.
"""

from __future__ import annotations

import queue
import threading
import time

import structlog

from tidewheel.core.attempt import attempt_fields
from tidewheel.core.commands import (
    ClosingReport,
    JoinPool,
    LeavePool,
    RenewWorker,
    ReportCheckpoint,
    ReportHeartbeat,
    ReportStarted,
)
from tidewheel.core.mail import NameClaim
from tidewheel.log.interface import COMMANDS, LOGS, MAIL, Append, LogError, LogUnavailable, Producer
from tidewheel.wire import codec
from tidewheel.wire.messages import LogChunk
from tidewheel.worker.attempt import Attempt

Beat = ReportStarted | ReportHeartbeat
PoolWord = JoinPool | RenewWorker | LeavePool

#: Log text that may wait for a slow log; beyond it log chunks are lost (and counted), reports never.
WAITING_CHARS_MAX = 16 * 1024 * 1024
RETRY_S = 0.05
RETRY_S_MAX = 1.0

_log = structlog.get_logger(__name__)

_Item = tuple[str, str, Beat | ReportCheckpoint | ClosingReport | PoolWord | LogChunk | NameClaim, Attempt | None]


class Outbox:
    """The worker's only way out."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._queue: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self._waiting_chars = 0
        self._waiting_lock = threading.Lock()
        self._give_up_at: float | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tidewheel-outbox", daemon=True)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether its thread runs."""
        return self._thread.is_alive()

    def put(self, report: ClosingReport) -> None:
        """Send an attempt's end."""
        self._queue.put((COMMANDS, report.dag, report, None))

    def put_beat(self, attempt: Attempt, beat: Beat) -> None:
        """Send that the attempt lives, unless it has ended by then."""
        self._queue.put((COMMANDS, beat.dag, beat, attempt))

    def put_checkpoint(self, attempt: Attempt, checkpoint: str) -> None:
        """Send what the attempt leaves for the next one, also if it ends meanwhile."""
        worker = attempt.assignment.receiver
        report = ReportCheckpoint(
            **attempt_fields(attempt.assignment), actor=f"worker:{worker}", worker=worker, checkpoint=checkpoint
        )
        self._queue.put((COMMANDS, report.dag, report, None))

    def put_word(self, word: PoolWord) -> None:
        """Send to a pool."""
        self._queue.put((COMMANDS, word.pool, word, None))

    def put_claim(self, claim: NameClaim) -> None:
        """Send to the workers of the receiver's name."""
        self._queue.put((MAIL, claim.receiver, claim, None))

    def put_chunk(self, chunk: LogChunk) -> bool:
        """Send a log chunk; False: too many wait."""
        if self._waiting_chars > WAITING_CHARS_MAX:
            return False
        self._count_waiting(len(chunk.text))
        self._queue.put((LOGS, f"{chunk.dag}/{chunk.run_id}/{chunk.task}/{chunk.attempt}", chunk, None))
        return True

    def close(self, timeout_s: float) -> bool:
        """Send what waits, at most for ``timeout_s``; False: something was left."""
        deadline = time.monotonic() + timeout_s
        self._give_up_at = deadline
        self._closing.set()
        self._queue.put(None)
        if self._thread.ident is not None:
            self._thread.join(timeout_s + RETRY_S_MAX)
        left = self._queue.qsize()
        try:
            self._producer.flush(max(0.1, deadline - time.monotonic()))
        except LogError as error:
            _log.error("the log did not take the last reports in time", error=str(error))
            return False
        finally:
            self._producer.close()
        return left == 0

    def _count_waiting(self, chars: int) -> None:
        # Of many threads: a count lost between two of them would stay in the sum for the worker's life.
        with self._waiting_lock:
            self._waiting_chars += chars

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            topic, key, message, attempt = item
            if attempt is not None and attempt.settled:
                continue
            if isinstance(message, LogChunk):
                self._count_waiting(-len(message.text))
            try:
                record = Append(topic, key.encode(), codec.encode(message))
            except Exception as error:
                # One bad message must not stop all others; its lease runs out and the attempt is repeated.
                _log.error("a message could not be encoded", message=type(message).__name__, error=str(error))
                continue
            try:
                sent = self._send(record)
            except LogError as error:
                _log.error("the log refused a message", message=type(message).__name__, error=str(error))
                continue
            if not sent:
                _log.error("the log is away; a message was given up at shutdown", message=type(message).__name__)

    def _send(self, record: Append) -> bool:
        pause_s = RETRY_S
        while True:
            try:
                self._producer.send(record)
                return True
            except LogUnavailable as error:
                if self._give_up_at is not None and time.monotonic() > self._give_up_at:
                    return False
                _log.warning("the log takes no reports; trying again", error=str(error), retry_s=pause_s)
                # Closing ends the patience of a long pause, not the trying.
                if self._closing.wait(pause_s):
                    time.sleep(RETRY_S)
                pause_s = min(2 * pause_s, RETRY_S_MAX)
