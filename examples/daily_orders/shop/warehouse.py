"""The warehouse, an SQLite file here: what each run expects, and the rows it has loaded."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

FILE = Path("build/warehouse.db")
#: How long a writer waits for another.
BUSY_S = 20.0
TABLES = """
CREATE TABLE IF NOT EXISTS expected (run_id TEXT PRIMARY KEY, rows INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS orders (run_id TEXT, file TEXT, line INTEGER, number TEXT, amount REAL,
                                   PRIMARY KEY (run_id, file, line));
"""


@contextlib.contextmanager
def opened() -> Iterator[sqlite3.Connection]:
    """A connection whose work is one transaction. Raises ``sqlite3.OperationalError`` if others hold it too long."""
    FILE.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(FILE, timeout=BUSY_S, isolation_level="IMMEDIATE")
    try:
        connection.executescript(TABLES)
        with connection:
            yield connection
    finally:
        connection.close()
