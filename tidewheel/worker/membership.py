"""A worker's membership of one pool: join until welcomed, renew each third of the term, join again when unknown. Pure.

A renewal that went well is not answered; ``WorkerUnknown`` answers one that did not.
"""

from __future__ import annotations

import math

from tidewheel.core.commands import JoinPool, LeavePool, RenewWorker

#: Without a welcome by then, join again; doubled each time up to the maximum.
JOIN_AGAIN_S = 5.0
JOIN_AGAIN_S_MAX = 30.0
RENEWALS_PER_TERM = 3


class Membership:
    """What to send to the pool and when; ``due`` is the next instant at which ``command`` has something to say."""

    def __init__(self, pool: str, slots: int, worker: str, mail_partition: int, host: str, now: float) -> None:
        self.pool = pool
        self.slots = slots
        self.due = now
        self.welcome = False
        self._worker = worker
        self._mail_partition = mail_partition
        self._host = host
        self._join_again_s = JOIN_AGAIN_S
        self._term_s = 0.0
        #: Slots of the last join; None: none was sent yet.
        self._offered: int | None = None

    def command(self, now: float) -> JoinPool | RenewWorker | LeavePool:
        """What is due now."""
        if self.slots < 1:
            self._offered = 0
            self.due = math.inf
            return LeavePool(
                actor=f"worker:{self._worker}",
                pool=self.pool,
                worker=self._worker,
                reason="all its slots are held by functions that ignore their end",
            )
        if self.welcome:
            self.due = now + self._term_s / RENEWALS_PER_TERM
            return RenewWorker(
                actor=f"worker:{self._worker}",
                pool=self.pool,
                worker=self._worker,
                mail_partition=self._mail_partition,
            )
        self._offered = self.slots
        self.due = now + self._join_again_s
        self._join_again_s = min(2 * self._join_again_s, JOIN_AGAIN_S_MAX)
        return JoinPool(
            actor=f"worker:{self._worker}",
            pool=self.pool,
            worker=self._worker,
            slots=self.slots,
            mail_partition=self._mail_partition,
            host=self._host,
        )

    def welcomed(self, term_ms: int, now: float) -> None:
        """The pool has this worker on its list for ``term_ms``."""
        if self._offered != self.slots or self.slots < 1:
            # The welcome answers an offer that is out of date: the new one is still to be sent.
            return
        self.welcome = True
        self._join_again_s = JOIN_AGAIN_S
        self._term_s = term_ms / 1000
        self.due = now + self._term_s / RENEWALS_PER_TERM

    def forgotten(self, now: float) -> None:
        """The pool does not know this worker: join at once. A welcome on its way answers an offer before this."""
        self.welcome = False
        self._offered = None
        self._join_again_s = JOIN_AGAIN_S
        self.due = now

    def resize(self, slots: int, now: float) -> None:
        """Offer ``slots`` from now on."""
        self.slots = slots
        self.forgotten(now)
