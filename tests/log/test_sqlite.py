"""The log in a SQLite file: the contract, other processes, and files that are not what they should be."""

from __future__ import annotations

from pathlib import Path

from tidewheel.log.interface import Log, Owner
from tidewheel.log.sqlite import SqliteLog
from tidewheel.testing.log_contract import HOLD_OPEN, PARTITIONS, LogContract


class TestSqliteLog(LogContract, cannot={HOLD_OPEN}):
    def open(self, path: Path) -> Log:
        return SqliteLog(path / "log.db", PARTITIONS)

    def expel(self, log: Log, owner: Owner, instance: str) -> None:
        assert isinstance(log, SqliteLog)
        log.expel(instance)

    def trim(self, log: Log, topic: str, partition: int, before: int) -> None:
        assert isinstance(log, SqliteLog)
        log.trim(topic, partition, before)
