"""The notices that are to be delivered, for who delivers them: claimed one by one, then ended or put off."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tidewheel_services.notifier.database import Connection, clean
from tidewheel_services.notifier.wording import Kind

#: A notice that is being sent is nobody else's for so long, unless its sender is known to be gone (``release``).
CLAIM_S = 120

_CLAIM = f"""
UPDATE tidewheel_notifier.outbox
SET tries = tries + 1, claimed_by = %s, next_at = now() + make_interval(secs => {CLAIM_S})
WHERE number = (
    SELECT number FROM tidewheel_notifier.outbox
    WHERE state = 'waiting' AND next_at <= now() AND {{condition}}
    ORDER BY next_at, number LIMIT 1 FOR UPDATE SKIP LOCKED
)
RETURNING number, notification, target, kind, dag, run_id, title, body, partition, log_offset, tries
"""


class Waiting(msgspec.Struct, frozen=True):
    """A notice that is to be sent now; ``tries`` counts this one."""

    number: int
    notification: str
    target: str
    kind: Kind
    dag: str
    run_id: str
    title: str
    body: str
    partition: int
    log_offset: int
    tries: int


class Outbox:
    """The notices, for who delivers them. ``life`` names the notifier: another for each start of the process."""

    def __init__(self, connection: Connection, life: str) -> None:
        self._connection = connection
        self._life = life

    def release(self) -> int:
        """What others were sending is due now: for who works alone, and knows by that that they are gone.

        Nobody knows whether it had been sent. Gives how many there were.
        """
        return self._connection.execute(
            "UPDATE tidewheel_notifier.outbox SET claimed_by = '', next_at = now()"
            " WHERE state = 'waiting' AND claimed_by NOT IN ('', %s)",
            (self._life,),
        ).rowcount

    def claim(self, target: str) -> Waiting | None:
        """The next one that is due for the target; it is not given to anybody else for ``CLAIM_S`` seconds."""
        return self._claim("target = %s", target)

    def claim_stray(self, known: Sequence[str]) -> Waiting | None:
        """The next one for a target that is not among the known ones."""
        return self._claim("target <> ALL (%s::text[])", list(known))

    def _claim(self, condition: str, value: object) -> Waiting | None:
        row = self._connection.execute(_CLAIM.format(condition=condition).encode(), (self._life, value)).fetchone()
        return None if row is None else Waiting(*row)

    def sent(self, notice: Waiting) -> None:
        """It was delivered."""
        self._end(notice, "sent", "")

    def dead(self, notice: Waiting, reason: str) -> None:
        """It is given up; it lies among the dead letters."""
        self._end(notice, "dead", reason)

    def _end(self, notice: Waiting, state: str, reason: str) -> None:
        self._connection.execute(
            "UPDATE tidewheel_notifier.outbox SET state = %s, reason = %s, ended_at = now() WHERE number = %s",
            (state, clean(reason), notice.number),
        )

    def again(self, notice: Waiting, reason: str, in_s: float) -> None:
        """It is tried again later."""
        self._connection.execute(
            "UPDATE tidewheel_notifier.outbox SET claimed_by = '', reason = %s,"
            " next_at = now() + make_interval(secs => %s) WHERE number = %s",
            (clean(reason), in_s, notice.number),
        )
