"""The most of a pool that one DAG may hold: ``concurrency.max_pool_share``, in percent of what the pool has now.

A DAG that holds nothing there may always begin, whatever its share comes to: so it never stands still, and an attempt
wider than the share runs alone. What it holds already is never taken away when the pool shrinks.
"""

from __future__ import annotations


def capacity_of(limit: int | None, offered: int) -> int:
    """Slots that a pool has now: what its workers offer, and no more than its limit."""
    return offered if limit is None else min(limit, offered)


def capacity_needed(share: int | None, live: int, slots: int) -> int:
    """The least capacity at which a DAG with ``live`` slots may get ``slots`` more; 0: its share never forbids it."""
    if share is None or not live:
        return 0
    return -(-100 * (live + slots) // share)


def slots_of(share: int, capacity: int) -> int:
    """Slots that a share comes to: at least one."""
    return max(1, share * capacity // 100)
