"""The one thread that watches the clock: started reports, beats, timeouts, fences, and the pools' terms.

A new attempt waits in line for ``HOLD_S`` first. One that has ended by then was never worth a beat or a place in the
heap, so a short task costs nothing here but a place in that line.
"""

from __future__ import annotations

import heapq
import itertools
import math
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

import structlog

from tidewheel.core.attempt import attempt_fields
from tidewheel.core.commands import ReportHeartbeat, ReportStarted
from tidewheel.worker.attempt import Attempt, StopReason
from tidewheel.worker.membership import Membership
from tidewheel.worker.outbox import Outbox

#: How long a started report waits for the attempt's end, which makes it needless.
HOLD_S = 0.003
#: How soon to look again at an attempt that waits for a thread.
WAITING_S = 0.05
#: Beats made only to show progress or to send a checkpoint come no faster than this.
PROGRESS_S = 1.0

_log = structlog.get_logger(__name__)


class Ender(Protocol):
    """Who ends attempts."""

    def __call__(self, attempt: Attempt, reason: StopReason) -> None:
        """End the attempt."""


class Watch:
    """See the module."""

    def __init__(self, worker: str, outbox: Outbox, end: Ender, unkillable_grace_s: float) -> None:
        self._worker = worker
        self._actor = f"worker:{worker}"
        self._outbox = outbox
        self._end = end
        self._unkillable_grace_s = unkillable_grace_s
        self._fresh: deque[tuple[float, Attempt]] = deque()
        self._heap: list[tuple[float, int, Attempt]] = []
        self._order = itertools.count()
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._asleep_until = 0.0
        self._closing = False
        self._memberships: tuple[Membership, ...] = ()
        self._memberships_lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="tidewheel-watch", daemon=True)

    def start(self, memberships: Iterable[Membership]) -> None:
        """Begin to watch, and to join the pools."""
        self._memberships = tuple(memberships)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether its thread runs."""
        return self._thread.is_alive()

    def add(self, attempt: Attempt) -> None:
        """Watch a new attempt."""
        self._line_up(attempt.received + HOLD_S, attempt)

    def nudge(self, attempt: Attempt) -> None:
        """The attempt has progress to show, or a checkpoint to send."""
        self._line_up(time.monotonic(), attempt)

    def change(self, change: Callable[[Membership, float], None], pool: str) -> None:
        """Tell the membership of ``pool`` something, and look at it at once."""
        with self._memberships_lock:
            for membership in self._memberships:
                if membership.pool == pool:
                    change(membership, time.monotonic())
        self._wake.put(None)

    @property
    def welcome(self) -> bool:
        """Whether every pool has this worker on its list."""
        memberships = self._memberships
        return bool(memberships) and all(membership.welcome for membership in memberships)

    def leave(self) -> None:
        """Neither join nor renew any more."""
        with self._memberships_lock:
            self._memberships = ()

    def close(self) -> None:
        """Stop watching."""
        self._closing = True
        self._wake.put(None)
        if self._thread.ident is not None:
            self._thread.join(5)

    def _line_up(self, due: float, attempt: Attempt) -> None:
        self._fresh.append((due, attempt))
        # One wake-up for all that come while the thread sleeps past their time (see _run for why none is missed).
        if self._asleep_until > due:
            self._asleep_until = 0.0
            self._wake.put(None)

    def _run(self) -> None:
        while not self._closing:
            try:
                until = self._turn(time.monotonic())
            except Exception:
                _log.exception("watching the clock failed; going on")
                until = time.monotonic() + WAITING_S
            # Announce first, look again second: whoever lines up in between sees the announcement, or is seen.
            self._asleep_until = until
            if self._fresh and self._fresh[0][0] < until:
                continue
            try:
                if until == math.inf:
                    self._wake.get()
                else:
                    self._wake.get(timeout=max(0.0005, until - time.monotonic()))
            except queue.Empty:
                pass
            self._asleep_until = 0.0

    def _turn(self, now: float) -> float:
        """Do all that is due; gives the next instant at which something is."""
        fresh, heap = self._fresh, self._heap
        while fresh and fresh[0][0] <= now:
            attempt = fresh.popleft()[1]
            if not attempt.settled:
                self._look(attempt, now)
        while heap and heap[0][0] <= now:
            due, _, attempt = heapq.heappop(heap)
            if not attempt.settled and attempt.check_at == due:
                self._look(attempt, now)
        until = min(fresh[0][0] if fresh else math.inf, heap[0][0] if heap else math.inf)
        with self._memberships_lock:
            for membership in self._memberships:
                if membership.due <= now:
                    self._outbox.put_word(membership.command(now))
                until = min(until, membership.due)
        return until

    def _look(self, attempt: Attempt, now: float) -> None:
        lease = attempt.lease
        if now >= lease.fence_at:
            if attempt.stopped is not StopReason.FENCE:
                self._end(attempt, StopReason.FENCE)
            return
        timeout_at = attempt.timeout_at
        if timeout_at is not None and now >= timeout_at and attempt.stopped is None:
            self._end(attempt, StopReason.TIMEOUT)
        next_check = lease.fence_at
        if not attempt.begun:
            next_check = min(next_check, now + WAITING_S)
        elif not self._abandoned(attempt, now):
            next_check = min(next_check, self._beat(attempt, now))
        if timeout_at is not None and attempt.stopped is None:
            next_check = min(next_check, timeout_at)
        attempt.check_at = max(next_check, now + 0.0005)
        heapq.heappush(self._heap, (attempt.check_at, next(self._order), attempt))

    def _abandoned(self, attempt: Attempt, now: float) -> bool:
        """Whether it cannot be killed and ignored its cancellation: its lease then runs out, which ends it."""
        asked = attempt.stopped is not None and not attempt.executor.killable
        return asked and now > attempt.stopped_at + self._unkillable_grace_s

    def _beat(self, attempt: Attempt, now: float) -> float:
        """Send the beat that is due, if one is; gives when the next one is."""
        lease = attempt.lease
        if not attempt.start_reported:
            attempt.start_reported = True
            self._report_started(attempt, now)
        elif now >= min(lease.beat_due, self._show_at(attempt)):
            attempt.hand_over(lambda checkpoint: self._outbox.put_checkpoint(attempt, checkpoint))
            self._report_heartbeat(attempt, now)
        return min(lease.beat_due, self._show_at(attempt))

    def _show_at(self, attempt: Attempt) -> float:
        """When progress may be shown, or a checkpoint sent."""
        waits = attempt.progress is not None or attempt.has_checkpoint
        return attempt.lease.last_beat + PROGRESS_S if waits else math.inf

    def _report_started(self, attempt: Attempt, now: float) -> None:
        started = ReportStarted(
            **attempt_fields(attempt.assignment),
            actor=self._actor,
            worker=self._worker,
            started_at=attempt.started_at,
            beat=attempt.make_beat(now),
        )
        self._outbox.put_beat(attempt, started)

    def _report_heartbeat(self, attempt: Attempt, now: float) -> None:
        progress, attempt.progress = attempt.progress, None
        beat = ReportHeartbeat(
            **attempt_fields(attempt.assignment),
            actor=self._actor,
            worker=self._worker,
            beat=attempt.make_beat(now),
            progress=progress,
        )
        self._outbox.put_beat(attempt, beat)
