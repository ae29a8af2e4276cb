"""The advisory locks of the read model's database: who holds one is the only one of its kind there."""

from __future__ import annotations

import enum
from typing import Any

import psycopg


@enum.unique
class Lock(enum.IntEnum):
    """Their numbers; any will do that nobody else uses, and none may stand for two things."""

    #: Migrates the read model's tables.
    MIGRATION = 0x7469_6465_0001
    #: Writes the read model.
    WRITER = 0x7469_6465_0002
    #: Rebuilds or verifies.
    REPLAY = 0x7469_6465_0003
    #: Migrates the notifier's tables.
    NOTIFIER_MIGRATION = 0x7469_6465_0004
    #: Looks for what the open waits wait for.
    WAITER = 0x7469_6465_0005
    #: Finds what is to be told.
    NOTIFIER = 0x7469_6465_0006

    def take(self, connection: psycopg.Connection[Any]) -> bool:
        """Whether this session holds it from now on, until it ends."""
        found = connection.execute("SELECT pg_try_advisory_lock(%s)", (self,)).fetchone()
        return found is not None and bool(found[0])
