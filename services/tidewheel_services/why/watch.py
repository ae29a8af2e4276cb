"""Looking at shards in the log: who could own them, and what is undecided there."""

from __future__ import annotations

import time
from collections.abc import Iterable

from tidewheel.log.interface import COMMANDS, Log, LogError
from tidewheel.log.partition import partition_of
from tidewheel.runtime.backlog import read_note
from tidewheel_services.why.shards import Shard

#: For the first undecided record, of which the time is wanted.
_READ_S = 1.0


class ShardWatch:
    """Looks when asked; a log that cannot be reached is an answer too."""

    def __init__(self, log: Log) -> None:
        self._log = log

    @property
    def partitions(self) -> int:
        """How many shards there are; 1 while the log does not say."""
        try:
            return self._log.partitions
        except LogError:
            return 1

    def look(self, numbers: Iterable[int]) -> list[Shard]:
        """These shards as the log knows them."""
        return [self._shard(number) for number in sorted(numbers)]

    def _shard(self, number: int) -> Shard:
        try:
            schedulers = len(self._log.owners())
            undecided, age_ms = self._undecided(number)
        except LogError as error:
            return Shard(number=number, fault=str(error))
        return Shard(number=number, schedulers=schedulers, undecided=undecided, undecided_ms=age_ms)

    def _undecided(self, number: int) -> tuple[int, int]:
        """Commands of the shard that nobody has decided, and the age of the oldest in milliseconds."""
        done = self._log.committed(number).get(COMMANDS)
        start = self._log.start_offset(COMMANDS, number) if done is None else done
        if (count := self._log.end_offset(COMMANDS, number) - start) <= 0:
            return 0, 0
        reader = self._log.reader({(COMMANDS, number): start})
        try:
            oldest = reader.read(1, _READ_S)
        finally:
            reader.close()
        if not oldest:
            return 0, 0  # only markers of transactions are left
        return count, max(0, round(time.time() * 1000) - oldest[0].timestamp)

    def postponed(self, dag: str) -> bool:
        """Whether records that ask for runs of the DAG wait on the topic ``triggers``."""
        try:
            note = read_note(self._log.noted(partition_of(dag.encode(), self.partitions)))
        except LogError:
            return False
        return note.full or dag in note.postponed
