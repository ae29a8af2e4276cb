"""Contract: a commit is one atomic step of records and positions, and its failure leaves nothing behind."""

from __future__ import annotations

import pytest

from tidewheel.log.interface import (
    COMMANDS,
    EVENTS,
    POOL_EVENTS,
    SNAPSHOTS,
    TRIGGERS,
    Append,
    CommitAborted,
    Log,
)
from tidewheel.log.limits import RECORD_BYTES_MAX
from tidewheel.log.partition import partition_of
from tidewheel.testing.log_contract.driver import (
    PARTITIONS,
    Driver,
    command,
    event,
    owns_all,
    poll_records,
    poll_until,
    read_all,
    send,
    texts,
    trigger,
)


class Commits(Driver):
    """Transactions of one owner."""

    def test_a_commit_appends_and_moves_the_positions(self, log: Log) -> None:
        owner = log.owner("a")
        poll_until(owner, owns_all)
        send(log, command("1"), command("2"), trigger("3", 2))
        _, batch = poll_records(owner, 3)
        owner.commit(batch, [event("a"), Append(POOL_EVENTS, b"default", b"b", partition=1)])
        assert texts(read_all(log, EVENTS)) == ["a"]
        assert texts(read_all(log, POOL_EVENTS, 1)) == ["b"]
        assert log.committed(0)[COMMANDS] == 2
        assert log.committed(2)[TRIGGERS] == 1
        owner.close()

    def test_it_gives_the_last_offset_of_each_partition(self, log: Log) -> None:
        owner = log.owner("a")
        batch = poll_until(owner, owns_all)
        owner.commit(batch, [event("x", 2)])
        last = owner.commit(
            batch,
            [event("a", 0), event("b", 2), event("c", 0), command("d", None, key="etl")],
        )
        assert set(last) == {(EVENTS, 0), (EVENTS, 2), (COMMANDS, partition_of(b"etl", PARTITIONS))}
        assert last[EVENTS, 0] == read_all(log, EVENTS, 0)[-1].offset == 1
        assert last[EVENTS, 2] == read_all(log, EVENTS, 2)[-1].offset
        owner.close()

    def test_order_headers_and_tombstones_hold_in_a_commit(self, log: Log) -> None:
        owner = log.owner("a")
        batch = poll_until(owner, owns_all)
        appends = [
            Append(SNAPSHOTS, b"k%d" % n, None if n % 3 == 0 else b"%d" % n, (("n", b"%d" % n),), 1) for n in range(30)
        ]
        owner.commit(batch, appends)
        read = read_all(log, SNAPSHOTS, 1)
        assert [(r.key, r.value, r.headers) for r in read] == [(a.key, a.value, a.headers) for a in appends]
        owner.close()

    def test_a_commit_of_nothing_is_a_commit(self, log: Log) -> None:
        owner = log.owner("a")
        assert owner.commit(poll_until(owner, owns_all), []) == {}
        assert log.committed(1) == {COMMANDS: 0, TRIGGERS: 0}
        owner.close()

    def test_positions_move_past_all_that_was_polled(self, log: Log) -> None:
        owner = log.owner("a")
        poll_until(owner, owns_all)
        send(log, command("1"))
        _, first = poll_records(owner, 1)
        send(log, command("2"))
        poll_records(owner, 1)
        owner.commit(first, [])
        assert log.committed(0)[COMMANDS] == 2
        owner.close()

    def test_an_owner_reads_the_commands_it_committed_itself(self, log: Log) -> None:
        owner = log.owner("a")
        batch = poll_until(owner, owns_all)
        owner.commit(batch, [command("to myself", 3)])
        records, _ = poll_records(owner, 1)
        assert texts(records) == ["to myself"]
        owner.close()

    def test_five_thousand_records_in_one_commit(self, log: Log) -> None:
        owner = log.owner("a")
        batch = poll_until(owner, owns_all)
        last = owner.commit(batch, [event(str(n), n % PARTITIONS) for n in range(5_000)])
        assert {partition for _, partition in last} == set(range(PARTITIONS))
        for partition in range(PARTITIONS):
            assert texts(read_all(log, EVENTS, partition)) == [str(n) for n in range(partition, 5_000, PARTITIONS)]
        owner.close()

    def test_a_commit_of_several_mib(self, log: Log) -> None:
        owner = log.owner("a")
        batch = poll_until(owner, owns_all)
        value = bytes(1024 * 1024)
        owner.commit(batch, [Append(SNAPSHOTS, b"%d" % n, value, partition=n % 2) for n in range(6)])
        assert [len(r.value or b"") for r in read_all(log, SNAPSHOTS, 1)] == [len(value)] * 3
        owner.close()

    def test_an_aborted_commit_leaves_nothing_behind(self, log: Log) -> None:
        owner = log.owner("a")
        poll_until(owner, owns_all)
        send(log, command("1"))
        _, batch = poll_records(owner, 1)
        with pytest.raises(CommitAborted, match="over the limit"):
            owner.commit(batch, [event("never"), Append(EVENTS, b"etl", bytes(RECORD_BYTES_MAX), partition=0)])
        assert log.committed(0)[COMMANDS] in (None, 0)
        owner.reset()
        records, batch = poll_records(owner, 1)
        assert texts(records) == ["1"]
        owner.commit(batch, [event("second try")])
        assert texts(read_all(log, EVENTS)) == ["second try"]
        owner.close()

    def test_a_reset_reads_again_under_new_epochs(self, log: Log) -> None:
        owner = log.owner("a")
        before = poll_until(owner, owns_all).shards
        send(log, command("1"), trigger("2", 3))
        poll_records(owner, 2)
        owner.reset()
        records, batch = poll_records(owner, 2)
        assert sorted(texts(records)) == ["1", "2"]
        assert set(batch.shards) == set(before)
        assert all(batch.shards[shard] != before[shard] for shard in before)
        owner.close()
