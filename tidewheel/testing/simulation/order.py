"""Who goes next in a pool, judged from its events: priority, then the DAG with the fewest slots in use, then logical
date, then arrival. An attempt may be passed only where it would not have fitted, or its DAG holds its share.

What is given back while a wide attempt is first of all still counts, until that has gone, as held by who gave it back.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from tidewheel.core import events as e

if TYPE_CHECKING:
    from tidewheel.testing.world import AttemptPlace


class _Waiting(NamedTuple):
    priority: int
    logical_date: int
    arrival: int
    pool_slots: int
    share: int | None


class PoolOrder:
    """Follows one pool's events."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._arrivals = 0
        self._waiting: dict[AttemptPlace, _Waiting] = {}
        self._leases: dict[AttemptPlace, int] = {}
        #: Slots in use by each DAG.
        self._live: dict[str, int] = {}
        #: What the pool has: its limit, and what each worker that may be given something offers.
        self._limit: int | None = None
        self._offers: dict[str, int] = {}
        self._asleep: dict[str, int] = {}
        #: The wide attempt that what is given back is kept for, and what others have given back since.
        self._turn: AttemptPlace | None = None
        self._given_back: dict[str, int] = {}

    def apply(self, event: e.PoolEvent) -> Iterator[str]:
        """Go on from the event; gives what is wrong with it."""
        match event:
            case e.PoolConfigured():
                self._limit = event.slots
            case e.WorkerJoined():
                self._asleep.pop(event.worker, None)
                self._offers[event.worker] = event.slots
            case e.WorkerSuspended():
                self._asleep[event.worker] = self._offers.pop(event.worker, 0) or self._asleep.get(event.worker, 0)
            case e.WorkerRenewed():
                self._offers |= {event.worker: self._asleep.pop(event.worker)} if event.worker in self._asleep else {}
            case e.WorkerLeft():
                self._offers.pop(event.worker, None)
                self._asleep.pop(event.worker, None)
        if self._turn is not None and self._waiting[self._turn].pool_slots > self._widest():
            self._end_turn()
        if not isinstance(event, e.TaskEnqueued | e.SlotGranted | e.SlotReleased | e.SlotRefused):
            return
        key = (event.dag, event.run_id, event.task, event.attempt)
        match event:
            case e.TaskEnqueued():
                self._arrivals += 1
                self._waiting[key] = _Waiting(
                    event.priority, event.logical_date, self._arrivals, event.pool_slots, event.max_pool_share
                )
            case e.SlotGranted():
                item = self._waiting.pop(key, None)
                if item is not None:
                    passed = self._passed(key, item)
                    if passed is not None:
                        yield f"pool {self._name} gives {key} a slot, but {passed} was before it"
                    self._leases[key] = item.pool_slots
                    self._live[event.dag] = self._live.get(event.dag, 0) + item.pool_slots
            case e.SlotReleased() | e.SlotRefused():
                self._waiting.pop(key, None)
                if slots := self._leases.pop(key, 0):
                    self._give_back(event.dag, slots)
        if self._turn not in self._waiting:
            self._end_turn()

    def _give_back(self, dag: str, slots: int) -> None:
        self._turn = self._turn or self._next_if_wide()
        self._live[dag] -= slots
        if self._turn is not None and self._turn[0] != dag:
            self._given_back[dag] = self._given_back.get(dag, 0) + slots

    def _end_turn(self) -> None:
        self._turn = None
        self._given_back.clear()

    def _widest(self) -> int:
        return max((*self._offers.values(), *self._asleep.values()), default=0)

    def _next_if_wide(self) -> AttemptPlace | None:
        """The first of all that may go and that a worker here could run, if it takes more than one slot."""
        firsts: dict[str, AttemptPlace] = {}
        for key in sorted(self._waiting, key=lambda key: self._place(key, self._waiting[key])):
            firsts.setdefault(key[0], key)
        for dag, key in firsts.items():
            slots = self._waiting[key].pool_slots
            if slots <= self._widest() and not self._held_back(dag):
                return key if slots > 1 else None
        return None

    def _passed(self, key: AttemptPlace, item: _Waiting) -> AttemptPlace | None:
        """Whoever would have fitted as well and stood before ``key``."""
        for other, waiting in self._waiting.items():
            before = waiting.pool_slots <= item.pool_slots and self._place(other, waiting) < self._place(key, item)
            if not before:
                continue
            if other[0] == key[0]:
                return other
            if not self._behind_in_own_queue(other, waiting, item.pool_slots) and not self._held_back(other[0]):
                return other
        return None

    def _held_back(self, dag: str) -> bool:
        """Whether the DAG holds its share, so that the first of its queue waits and the others behind it."""
        live = self._live.get(dag, 0)
        queue = [(self._place(key, item), item) for key, item in self._waiting.items() if key[0] == dag]
        _, first = min(queue, key=lambda waiting: waiting[0])
        offered = sum(self._offers.values())
        there = offered if self._limit is None else min(offered, self._limit)
        return live > 0 and first.share is not None and (live + first.pool_slots) * 100 > first.share * there

    def _place(self, key: AttemptPlace, item: _Waiting) -> tuple[int, int, int, int]:
        slots = self._live.get(key[0], 0) + self._given_back.get(key[0], 0)
        return (-item.priority, slots, item.logical_date, item.arrival)

    def _behind_in_own_queue(self, key: AttemptPlace, item: _Waiting, fits: int) -> bool:
        """Only the first of a DAG's queue can be granted: one behind a wider one waits with it."""
        return any(
            other[0] == key[0] and waiting.pool_slots > fits and self._place(other, waiting) < self._place(key, item)
            for other, waiting in self._waiting.items()
        )
