"""Why an attempt has no slot: the pool's own rules (``core.decide.pool``, ``core.shares``), applied to its rows."""

from __future__ import annotations

import msgspec

from tidewheel.core.backfill import PRIORITY_DROP
from tidewheel.core.shares import capacity_needed, capacity_of, slots_of
from tidewheel_projections.views import PoolRow, WorkerRow
from tidewheel_projections.waiting import PlaceInPool, PoolHead, PoolHolder
from tidewheel_services.why.reason import Code, number


class PoolFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A pool as its rows are: workers that are on its list, the next attempt of each DAG in the pool's order, and who
    holds most."""

    name: str
    pool: PoolRow | None = None
    workers: tuple[WorkerRow, ...] = ()
    heads: tuple[PoolHead, ...] = ()
    holders: tuple[PoolHolder, ...] = ()

    @property
    def living(self) -> list[WorkerRow]:
        """The workers that are heard."""
        return [worker for worker in self.workers if worker.state == "active"]

    @property
    def widest(self) -> int:
        """Slots of the widest worker."""
        return max((worker.slots for worker in self.workers), default=0)

    @property
    def limit(self) -> int | None:
        """The pool's own limit."""
        return None if self.pool is None else self.pool.slots

    @property
    def capacity(self) -> int:
        """Slots that may be held now."""
        return capacity_of(self.limit, sum(worker.slots for worker in self.living))

    @property
    def used(self) -> int:
        """Slots that are held."""
        return 0 if self.pool is None else self.pool.used

    def fits(self, slots: int) -> bool:
        """Whether somebody who is next could have so many."""
        room = self.limit is None or self.used + slots <= self.limit
        return room and any(worker.slots - worker.used >= slots for worker in self.living)

    def at_share(self, head: PoolHead) -> bool:
        """Whether its DAG holds its share, and so is passed over."""
        return capacity_needed(head.max_pool_share, head.held_slots, head.pool_slots) > self.capacity

    def next(self) -> PoolHead | None:
        """Whose turn it is: who is at its share, or too wide for every worker, holds up nobody."""
        return next((head for head in self.heads if not self.at_share(head) and head.pool_slots <= self.widest), None)


def why_in_pool(facts: PoolFacts, place: PlaceInPool | None, slots: int) -> tuple[Code, str]:
    """Of an attempt in state ``queued`` that takes so many slots; ``place`` None: the pool has not taken it in yet."""
    name = facts.name
    if not facts.workers:
        return "no_worker", f"no worker serves pool {name}; start one with `tidewheel worker --pool {name}=8`"
    if facts.limit == 0:
        return "pool_closed", f"pool {name} is closed: its limit is 0; `tidewheel pools {name} --slots N` opens it"
    if not facts.living:
        silent = facts.workers[0]
        told = f"{silent.worker} is {silent.state}: {silent.reason}"
        return "worker_silent", f"no worker of pool {name} is heard ({told})"
    if slots > facts.widest:
        widest = number(facts.widest, "slot")
        return "too_wide", f"it takes {slots:,} slots of one worker, and the widest worker of pool {name} has {widest}"
    if place is None:
        return "starting", f"pool {name} is about to take it in"
    return _of_dag(facts, place) or _turn(facts, place)


def _of_dag(facts: PoolFacts, place: PlaceInPool) -> tuple[Code, str] | None:
    """What holds back all attempts of the DAG, if anything does: the first of its queue speaks for all."""
    head = next((head for head in facts.heads if head.dag == place.dag), None)
    if head is None:
        return None
    if facts.at_share(head) and head.max_pool_share is not None:
        most = f"{slots_of(head.max_pool_share, facts.capacity):,} ({head.max_pool_share}%, max_pool_share)"
        return (
            "max_pool_share",
            f"of pool {facts.name} DAG {head.dag} holds {head.held_slots:,} slots and may hold {most}",
        )
    if head.pool_slots > facts.widest:
        wide = f"{head.task} of run {head.run_id} takes {head.pool_slots:,} slots"
        return (
            "too_wide",
            f"{wide}, no worker of pool {facts.name} has so many, and it goes before what its DAG has behind it",
        )
    return None


def _turn(facts: PoolFacts, place: PlaceInPool) -> tuple[Code, str]:
    """Of an attempt of a DAG that may go on here."""
    if not facts.fits(place.pool_slots):
        return "pool_full", _full(facts, place)
    following = facts.next()
    if following is None or _is(following, place) or facts.fits(following.pool_slots):
        return "starting", f"it is about to be given a slot of pool {facts.name}"
    free = facts.capacity - facts.used
    kept = f"{number(free, 'slot')} of pool {facts.name} {'is' if free == 1 else 'are'} kept for {following.task} of"
    wide = f"{following.dag} {following.run_id}, which takes {following.pool_slots:,} of one worker and goes first"
    return "wider_task", f"{kept} {wide}"


def _full(facts: PoolFacts, place: PlaceInPool) -> str:
    waiting = 0 if facts.pool is None else facts.pool.waiting
    free = [worker.slots - worker.used for worker in facts.living]
    if place.pool_slots > 1 and sum(free) >= place.pool_slots and facts.used + place.pool_slots <= facts.capacity:
        most = f"and at most {max(free):,} are free on one"
        text = f"it takes {place.pool_slots:,} slots of one worker of pool {facts.name}, {most}"
    else:
        text = f"{facts.used:,} of {number(facts.capacity, 'slot')} of pool {facts.name} are in use"
        if facts.holders:
            text += f" (DAG {facts.holders[0].dag} has {facts.holders[0].slots:,})"
    text += f", {waiting:,} wait"
    if place.before:
        text += f", {place.before:,} of its DAG before it"
    return text + ("; tasks of a backfill go after all others" if place.priority <= -PRIORITY_DROP // 2 else "")


def _is(head: PoolHead, place: PlaceInPool) -> bool:
    return (head.dag, head.run_id, head.task, head.attempt) == (place.dag, place.run_id, place.task, place.attempt)
