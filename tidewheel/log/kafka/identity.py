"""Whether the group's member of our name is us, or another process that was given the same name.

The member id would say it, but it is chosen by the broker: while we join, and if the answer to that got lost, we do not
know our own. The client id is ours to choose, but of a place that is taken over Kafka goes on showing the one of the
process that took it when it was empty: it may be that of our life before. And a broker that has just started shows no
members at all for a while, so that the life before may show up late.

So only a client id that is neither ours nor that of a life before proves another process. Anything else may be us; but
two processes that push each other out make a new member id each time, and of those only so many are believed.
"""

from __future__ import annotations

import time
from collections import deque
from typing import NamedTuple, Protocol

#: So many member ids within so long that may be ours or another's are another's.
DOUBTS_MAX = 8
_DOUBTS_S = 60.0


class Holder(NamedTuple):
    """The group's member of a name: the id that the broker gave it, and the client id that is shown for it."""

    member_id: str
    client_id: str


class Group(Protocol):
    """Who is in the group."""

    def holder(self, instance: str) -> Holder | None:
        """The group's member of this name, if there is one. Raises ``LogUnavailable`` if that cannot be told now."""


class Identity:
    """One process's claim to ``instance``; ``client_id`` must be its own alone. Asks who holds the name so far."""

    def __init__(self, group: Group, instance: str, client_id: str) -> None:
        self._group = group
        self._instance = instance
        self._client_id = client_id
        former = group.holder(instance)
        #: The client id that is shown for our place as long as it was never empty; unknown as long as nobody was seen.
        self._former = former.client_id if former is not None else None
        #: Member ids that may be ours or another's, and when each was first seen.
        self._doubts: deque[tuple[str, float]] = deque(maxlen=DOUBTS_MAX)

    def is_taken(self, member_id: str) -> bool:
        """Whether another process holds the name; ``member_id`` is what we know of our own, "" if nothing.

        Raises ``LogUnavailable`` if that cannot be told now.
        """
        holder = self._group.holder(self._instance)
        if holder is None or holder.client_id == self._client_id:
            return False
        if holder.member_id == member_id:
            self._former = holder.client_id
            return False
        if self._former is not None and holder.client_id != self._former:
            return True
        return self._doubts_too_often(holder.member_id)

    def _doubts_too_often(self, member_id: str) -> bool:
        now = time.monotonic()
        if all(member_id != seen for seen, _ in self._doubts):
            self._doubts.append((member_id, now))
        return len(self._doubts) == DOUBTS_MAX and now - self._doubts[0][1] < _DOUBTS_S
