"""The log as one process sees it: every call is a point at which the process can be hit.

The scheduler is not touched: crashes, pauses and a log that is away come to it through the interfaces it uses.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from tidewheel.log.interface import JOURNALS, MAIL, SNAPSHOTS, Append, Batch, Reader
from tidewheel.log.memory import MemoryLog, MemoryOwner, MemoryProducer
from tidewheel.testing.simulation.faults import SchedulerPoint


class Crash(BaseException):
    """kill -9 at this very point: nothing that the process would still do is done."""


class Process(Protocol):
    """Whose view this is."""

    def at(self, point: SchedulerPoint) -> None:
        """It has come to this point: hit it, or let it go on."""

    def polled(self, batch: Batch) -> None:
        """It holds these shards now."""

    def wrote(self, places: Collection[tuple[str, int]]) -> None:
        """It may have written to these partitions of the journals."""

    def posted(self, mail: Append) -> None:
        """It has sent this."""


class WatchedLog:
    """A memory log under one process's name; what is not watched is the log's own."""

    def __init__(self, log: MemoryLog, process: Process) -> None:
        self.partitions = log.partitions
        self._log = log
        self._process = process

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def producer(self) -> WatchedProducer:
        """A new producer."""
        return WatchedProducer(self._log.producer(), self._process)

    def reader(self, starts: Mapping[tuple[str, int], int]) -> Reader:
        """A reader of these partitions; only recovery asks for one."""
        self._process.at("recover")
        return self._log.reader(starts)

    def owner(self, instance: str) -> WatchedOwner:
        """Join the group of owners."""
        return WatchedOwner(self._log.owner(instance), self._process)

    def end_offsets(self, places: Collection[tuple[str, int]]) -> Mapping[tuple[str, int], int]:
        """The same of many."""
        self._process.at("recover")
        return self._log.end_offsets(places)


class WatchedProducer:
    """Sends mail."""

    def __init__(self, producer: MemoryProducer, process: Process) -> None:
        self._producer = producer
        self._process = process

    def send(self, record: Append) -> None:
        """Append the record."""
        self._process.at("mail")
        self._producer.send(record)
        if record.topic == MAIL:
            self._process.posted(record)
        self._process.at("mailed")

    def flush(self, timeout_s: float) -> None:
        """Nothing is ever under way."""

    def close(self) -> None:
        """Nothing to let go of."""


class WatchedOwner:
    """Polls and commits; what is not watched is the owner's own."""

    def __init__(self, owner: MemoryOwner, process: Process) -> None:
        self._owner = owner
        self._process = process

    def __getattr__(self, name: str) -> Any:
        return getattr(self._owner, name)

    def poll(self, max_records: int, timeout_s: float) -> Batch:
        """The next batch."""
        self._process.at("poll")
        batch = self._owner.poll(max_records, timeout_s)
        self._process.polled(batch)
        return batch

    def commit(self, batch: Batch, appends: Sequence[Append]) -> Mapping[tuple[str, int], int]:
        """Append and move the positions, or raise."""
        checkpoint = bool(appends) and appends[0].topic == SNAPSHOTS
        self._process.at("checkpoint" if checkpoint else "commit")
        try:
            last = self._owner.commit(batch, appends)
        finally:
            if not checkpoint:
                journals = [record for record in appends if record.topic in JOURNALS]
                self._process.wrote({(record.topic, record.partition or 0) for record in journals})
        self._process.at("checkpointed" if checkpoint else "acknowledge")
        return last

    def reset(self) -> None:
        """Go back to the committed positions."""
        self._process.at("reset")
        self._owner.reset()
