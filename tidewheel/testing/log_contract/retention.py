"""Contract: old records can be forgotten, a journal only behind its snapshots, and the log knows who owns."""

from __future__ import annotations

import time
from collections.abc import Mapping

import pytest

from tidewheel.core import commands as c
from tidewheel.core.snapshot import encode_snapshot
from tidewheel.definition.expressions import CelEvaluator
from tidewheel.log.interface import COMMANDS, EVENTS, POOL_EVENTS, SNAPSHOTS, Append, Log
from tidewheel.log.partition import partition_of
from tidewheel.runtime.journal import JournalBroken
from tidewheel.runtime.recovery import bring_up_to_date
from tidewheel.runtime.scheduler import Scheduler
from tidewheel.runtime.shard import AggregateKey, Shard
from tidewheel.runtime.snapshots import restore
from tidewheel.testing.log_contract.driver import (
    PARTITIONS,
    PATIENCE_S,
    Driver,
    event,
    owns_all,
    poll_until,
    read_all,
    read_until_end,
    send,
    texts,
)
from tidewheel.wire.codec import encode

POOL = "etl"
SHARD = partition_of(POOL.encode(), PARTITIONS)


class Retention(Driver):
    """Forgetting."""

    def test_a_start_below_the_oldest_record_means_the_oldest(self, log: Log) -> None:
        send(log, *(event(str(n)) for n in range(10)), event("other", 1))
        log.trim(EVENTS, 0, 6)
        assert log.start_offset(EVENTS, 0) == 6
        assert log.start_offsets([(EVENTS, 0), (EVENTS, 1)]) == {(EVENTS, 0): 6, (EVENTS, 1): 0}
        reader = log.reader({(EVENTS, 0): 2})
        assert texts(read_until_end(log, reader, EVENTS)) == ["6", "7", "8", "9"]
        assert texts(read_all(log, EVENTS, 1)) == ["other"]

    def test_trimming_again_forgets_no_more_than_was_said(self, log: Log) -> None:
        send(log, *(event(str(n)) for n in range(10)))
        log.trim(EVENTS, 0, 6)
        log.trim(EVENTS, 0, 3)
        assert texts(read_all(log, EVENTS)) == ["6", "7", "8", "9"]
        send(log, event("10"))
        assert read_all(log, EVENTS)[-1].offset == 10

    def test_offsets_are_found_by_time(self, log: Log) -> None:
        send(log, event("old"))
        time.sleep(0.02)
        between = time.time_ns() // 1_000_000
        time.sleep(0.02)
        send(log, event("new"), event("newer"))
        places = [(EVENTS, 0), (EVENTS, 1)]
        assert log.offsets_at(places, 0) == {(EVENTS, 0): 0, (EVENTS, 1): 0}
        assert log.offsets_at(places, between) == {(EVENTS, 0): 1, (EVENTS, 1): 0}
        assert log.offsets_at(places, between + 3_600_000) == {(EVENTS, 0): 3, (EVENTS, 1): 0}

    def test_the_log_knows_who_owns(self, log: Log) -> None:
        assert list(log.owners()) == []
        owner = log.owner("one.of-us")
        poll_until(owner, owns_all)
        assert list(log.owners()) == ["one.of-us"]
        owner.close()
        deadline = time.monotonic() + PATIENCE_S
        while log.owners():
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def test_a_journal_may_be_trimmed_behind_its_snapshots_and_no_further(self, log: Log) -> None:
        work(log, 40, checkpoint_events=30)
        checkpoint = checkpointed(log)
        work(log, 5, checkpoint_events=1_000_000)
        whole = images(folded(log, snapshots=False))
        log.trim(POOL_EVENTS, SHARD, checkpoint)
        assert log.start_offset(POOL_EVENTS, SHARD) == checkpoint
        assert images(folded(log)) == whole
        with pytest.raises(JournalBroken, match=rf"pool-events/{SHARD}/{checkpoint}: trimmed: .* offset 0: "):
            folded(log, snapshots=False)
        log.trim(POOL_EVENTS, SHARD, checkpoint + 2)
        start = log.start_offset(POOL_EVENTS, SHARD)
        assert start > checkpoint
        with pytest.raises(JournalBroken, match=rf"/{start}: trimmed: .* up to offset {checkpoint}: "):
            folded(log)


def work(log: Log, commands: int, *, checkpoint_events: int) -> None:
    """Let a scheduler carry out so many commands, and stop it."""
    before = folded(log).aggregates.get(AggregateKey("pool", POOL))
    until = (before.seq if before else 0) + commands
    slots = (c.ConfigurePool(pool=POOL, slots=until - n, actor="user:test") for n in range(commands))
    send(log, *(Append(COMMANDS, POOL.encode(), encode(command), partition=SHARD) for command in slots))
    scheduler = Scheduler(log, "contract", CelEvaluator(), checkpoint_events=checkpoint_events)
    deadline = time.monotonic() + PATIENCE_S
    while scheduler.status.events < commands or scheduler.step(0.05):
        assert time.monotonic() < deadline, f"{scheduler.status.events} of {commands} events"
        scheduler.step(0.05)
    scheduler.close()


def folded(log: Log, *, snapshots: bool = True) -> Shard:
    """The shard as a new owner would have it."""
    shard = Shard(SHARD)
    bring_up_to_date([shard], log, lambda: 0, snapshots=snapshots)
    return shard


def checkpointed(log: Log) -> int:
    """The offset of pool-events that the snapshots cover."""
    shard = Shard(SHARD)
    restore(shard, read_all(log, SNAPSHOTS, SHARD))
    assert shard.heads[POOL_EVENTS].offset > 0, "no checkpoint was written"
    return shard.heads[POOL_EVENTS].offset


def images(shard: Shard) -> Mapping[AggregateKey, bytes]:
    """All state."""
    return {key: encode_snapshot(state) for key, state in shard.aggregates.items()}
