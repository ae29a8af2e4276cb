"""Waking in time: a heap of instants, rebuilt from folded state, never stored.

Nothing is ever taken out of it early. A timer that comes up is asked by its subject's state when it is really due:
never any more, later, or now (``core.deadlines``). However often a timer is armed, it wakes once, at the earliest
instant named; so the heap holds no more than what waits.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from itertools import count

from tidewheel.core.commands import ContinueRun, ExpireLease, ExpireWorker
from tidewheel.core.deadlines import Timer, due_at, timers_of
from tidewheel.core.rules import Rules
from tidewheel.runtime.shard import Shard, shard_of, target_of


class Timers:
    """The timers of all shards a process owns. Times are milliseconds since the epoch."""

    def __init__(self, rules: Rules, partitions: int) -> None:
        self._rules = rules
        self._partitions = partitions
        self._heap: list[tuple[int, int, Timer]] = []
        #: When each timer wakes; other entries of it in the heap are stale.
        self._armed: dict[Timer, int] = {}
        self._order = count()

    def __len__(self) -> int:
        return len(self._heap)

    def arm(self, due: int, timer: Timer) -> None:
        """Wake for ``timer`` at ``due``, unless it wakes earlier anyway."""
        armed = self._armed.get(timer)
        if armed is None or due < armed:
            self._armed[timer] = due
            heapq.heappush(self._heap, (due, next(self._order), timer))

    def arm_all(self, shard: Shard) -> None:
        """Arm every timer of a shard that has just been brought up to date."""
        for state in shard.aggregates.values():
            for due, timer in timers_of(state, self._rules.backlog_runs):
                self.arm(due, timer)

    def next_due(self) -> int | None:
        """When to wake, at the latest."""
        return self._heap[0][0] if self._heap else None

    def pop_due(self, shards: Mapping[int, Shard], now: int, limit: int) -> list[Timer]:
        """Take out what is due by ``now``, at most ``limit``; what is due later goes back."""
        due: list[Timer] = []
        while self._heap and self._heap[0][0] <= now and len(due) < limit:
            at, _, timer = heapq.heappop(self._heap)
            if self._armed.get(timer) != at:
                continue
            del self._armed[timer]
            when = self._really_due(shards, timer)
            if when is None:
                continue
            if when <= now:
                due.append(timer)
            else:
                self.arm(when, timer)
        return due

    def keep(self, timers: Iterable[Timer], shards: Mapping[int, Shard], now: int) -> None:
        """Arm again those whose subject turned out, in the batch itself, to be due later (a lease renewed just in
        time), and those that are worked off in steps."""
        for timer in timers:
            when = self._really_due(shards, timer)
            if when is not None and (when > now or isinstance(timer, ContinueRun)):
                self.arm(when, timer)

    def _really_due(self, shards: Mapping[int, Shard], timer: Timer) -> int | None:
        key = target_of(timer)
        shard = shards.get(shard_of(key.name, self._partitions))
        state = shard.aggregates.get(key) if shard is not None else None
        if shard is None or state is None:
            return None
        when = due_at(state, timer, self._rules.backlog_runs)
        if when is not None and isinstance(timer, ExpireLease | ExpireWorker):
            return max(when, shard.grace_until)
        return when
