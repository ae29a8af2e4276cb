"""What a driver tells the contract: how to open it, what it cannot do, and how to make trouble for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence, Set
from pathlib import Path
from typing import ClassVar, TypeVar

import pytest

from tidewheel.log.interface import COMMANDS, EVENTS, TRIGGERS, Append, Batch, Log, Owner, Reader, Record

#: Partitions of each topic in the contract's logs.
PARTITIONS = 4
#: Ability: leave a transaction open, its records written but not committed.
HOLD_OPEN = "hold a transaction open"

#: Long enough for a rebalance on a busy machine; a working driver never takes it.
PATIENCE_S = 20.0

Test = TypeVar("Test", bound=Callable[..., None])


def needs(ability: str) -> Callable[[Test], Test]:
    """Mark a test that only drivers with this ability are put to."""

    def mark(test: Test) -> Test:
        test.__dict__["needed_ability"] = ability
        return test

    return mark


class Driver:
    """The part of the contract that a driver fills in, and what the tests share."""

    abilities: ClassVar[frozenset[str]] = frozenset({HOLD_OPEN})

    def __init_subclass__(cls, cannot: Set[str] = frozenset()) -> None:
        """Take the tests of what the driver ``cannot`` do out of the collection."""
        super().__init_subclass__()
        cls.abilities = cls.abilities - cannot
        for name in dir(cls):
            needed = getattr(getattr(cls, name), "needed_ability", None)
            if needed is not None and needed not in cls.abilities:
                setattr(cls, name, None)

    def open(self, path: Path) -> Log:
        """A new, empty log of ``PARTITIONS`` partitions; ``path`` is a directory of its own for each test."""
        raise AssertionError("a driver's test class says how to open its log")

    def expel(self, log: Log, owner: Owner, instance: str) -> None:
        """Make the group take this owner for dead while its object lives on, as if stopped past its session."""
        raise AssertionError("a driver's test class says how an owner is expelled")

    def hold_open(self, log: Log, record: Append) -> Callable[[], None]:
        """Write a record in a transaction and leave it open; gives what aborts it."""
        raise AssertionError("a driver's test class says how to hold a transaction open, or that it cannot")

    @pytest.fixture
    def log(self, tmp_path: Path) -> Iterator[Log]:
        """A fresh log with its topics."""
        log = self.open(tmp_path)
        log.create_topics()
        yield log
        log.close()


def command(text: str, partition: int | None = 0, *, key: str = "etl") -> Append:
    """A record for ``commands``."""
    return Append(COMMANDS, key.encode(), text.encode(), partition=partition)


def trigger(text: str, partition: int | None = 0, *, key: str = "etl") -> Append:
    """A record for ``triggers``."""
    return Append(TRIGGERS, key.encode(), text.encode(), partition=partition)


def event(text: str, partition: int | None = 0, *, key: str = "etl") -> Append:
    """A record for ``events``."""
    return Append(EVENTS, key.encode(), text.encode(), partition=partition)


def send(log: Log, *records: Append) -> None:
    """Write records by a producer of their own and wait until they are durable."""
    producer = log.producer()
    for record in records:
        producer.send(record)
    producer.flush(PATIENCE_S)
    producer.close()


def texts(records: Sequence[Record]) -> list[str]:
    """The values, as text."""
    return [(record.value or b"").decode() for record in records]


def read_all(log: Log, topic: str, partition: int = 0) -> list[Record]:
    """Every committed record of a partition."""
    reader = log.reader({(topic, partition): 0})
    records = read_until_end(log, reader, topic, partition)
    reader.close()
    return records


def read_until_end(log: Log, reader: Reader, topic: str, partition: int = 0) -> list[Record]:
    """Read until the position reaches the partition's end."""
    records: list[Record] = []
    end = log.end_offset(topic, partition)
    deadline = time.monotonic() + PATIENCE_S
    while reader.positions()[topic, partition] < end:
        assert time.monotonic() < deadline, f"stuck at {reader.positions()[topic, partition]} of {end} in {topic}"
        records += reader.read(10_000, 0.2)
    return records


def read_some(reader: Reader, count: int) -> list[Record]:
    """Read until there are ``count`` records."""
    records: list[Record] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(records) < count:
        assert time.monotonic() < deadline, f"only {len(records)} of {count} records came"
        records += reader.read(count - len(records), 0.5)
    return records


def poll_until(owner: Owner, wanted: Callable[[Batch], bool], *others: Owner) -> Batch:
    """Poll until a batch is as wanted; ``others`` poll too, as they must for shards to change hands."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        batch = owner.poll(10_000, 0.05 if others else 0.5)
        if wanted(batch):
            return batch
        for other in others:
            other.poll(10_000, 0.05)
        assert time.monotonic() < deadline, f"gave up waiting; owned shards are {sorted(batch.shards)}"


def owns(*shards: int) -> Callable[[Batch], bool]:
    """Whether a batch's owner owns exactly these shards."""
    return lambda batch: set(batch.shards) == set(shards)


def owns_all(batch: Batch) -> bool:
    """Whether a batch's owner owns every shard."""
    return len(batch.shards) == PARTITIONS


def poll_records(owner: Owner, count: int) -> tuple[list[Record], Batch]:
    """Poll until ``count`` records came; gives them and the last batch."""
    records: list[Record] = []
    deadline = time.monotonic() + PATIENCE_S
    while True:
        batch = owner.poll(10_000, 0.5)
        records += batch.records
        if len(records) >= count:
            return records, batch
        assert time.monotonic() < deadline, f"only {len(records)} of {count} records came"
