"""The in-memory log: the contract, and what only simulations ask of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidewheel.log.interface import COMMANDS, EVENTS, Append, CommitAborted, CommitInDoubt, Log, Owner
from tidewheel.log.memory import Fault, MemoryLog
from tidewheel.testing.log_contract import HOLD_OPEN, PARTITIONS, LogContract


class TestMemoryLog(LogContract, cannot={HOLD_OPEN}):
    def open(self, path: Path) -> Log:
        return MemoryLog(PARTITIONS)

    def expel(self, log: Log, owner: Owner, instance: str) -> None:
        assert isinstance(log, MemoryLog)
        log.expel(instance)


def _values(log: MemoryLog) -> list[bytes | None]:
    return [record.value for record in log.reader({(EVENTS, 0): 0}).read(100, 0)]


def test_the_clock_given_stamps_the_records() -> None:
    log = MemoryLog(1, clock=lambda: 86_400_000)
    log.producer().send(Append(EVENTS, b"etl", b"x"))
    (record,) = log.reader({(EVENTS, 0): 0}).read(1, 0)
    assert record.timestamp == 86_400_000


@pytest.mark.parametrize(
    ("fault", "error", "landed"),
    [
        (Fault.ABORT, CommitAborted, False),
        (Fault.DOUBT_LOST, CommitInDoubt, False),
        (Fault.DOUBT_LANDED, CommitInDoubt, True),
    ],
)
def test_an_injected_fault_strikes_once_and_the_journal_tells(
    fault: Fault, error: type[Exception], landed: bool
) -> None:
    log = MemoryLog(1)
    log.producer().send(Append(COMMANDS, b"etl", b"in"))
    owner = log.owner("a")
    batch = owner.poll(10, 0)
    log.inject(fault, "another")
    log.inject(fault, "a")
    with pytest.raises(error):
        owner.commit(batch, [Append(EVENTS, b"etl", b"out")])
    owner.reset()
    again = owner.poll(10, 0)
    assert _values(log) == ([b"out"] if landed else [])
    assert len(again.records) == (0 if landed else 1)
    owner.commit(again, [Append(EVENTS, b"etl", b"more")])
    assert _values(log)[-1] == b"more"


def test_a_failed_commit_wants_a_reset_first() -> None:
    log = MemoryLog(1)
    owner = log.owner("a")
    batch = owner.poll(1, 0)
    log.inject(Fault.ABORT)
    with pytest.raises(CommitAborted):
        owner.commit(batch, [])
    with pytest.raises(AssertionError, match="reset"):
        owner.commit(batch, [])


def test_offsets_have_gaps_as_on_kafka() -> None:
    log = MemoryLog(1)
    owner = log.owner("a")
    batch = owner.poll(1, 0)
    for text in (b"a", b"b"):
        owner.commit(batch, [Append(EVENTS, b"etl", text)])
    reader = log.reader({(EVENTS, 0): 0})
    assert [record.offset for record in reader.read(10, 0)] == [0, 2]
    assert reader.positions()[EVENTS, 0] == log.end_offset(EVENTS, 0) == 4


def test_the_same_calls_give_the_same_log() -> None:
    def play() -> list[object]:
        log = MemoryLog(4, clock=lambda: 7)
        producer = log.producer()
        one, two = log.owner("a"), log.owner("b")
        seen: list[object] = []
        for n in range(50):
            producer.send(Append(COMMANDS, b"dag-%d" % (n % 9), b"%d" % n))
            for owner in (one, two):
                batch = owner.poll(3, 0)
                seen.append((batch.records, dict(batch.shards)))
                owner.commit(batch, [Append(EVENTS, r.key or b"", r.value) for r in batch.records])
        return seen

    assert play() == play()
