"""When a notifier has begun: what happens before that is told to nobody."""

from __future__ import annotations

import psycopg


def has_begun(dsn: str) -> bool:
    """Whether one has noted in this database where it begins."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        there = connection.execute("SELECT to_regclass('tidewheel_notifier.positions') IS NOT NULL").fetchone()
        if there is None or not there[0]:
            return False
        return connection.execute("SELECT 1 FROM tidewheel_notifier.positions").fetchone() is not None
