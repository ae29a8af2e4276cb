"""Contract: who has lost a shard can write nothing, whatever it believes."""

from __future__ import annotations

import pytest

from tidewheel.log.interface import COMMANDS, EVENTS, Fenced, Log
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
)


class Fencing(Driver):
    """The deposed owner."""

    def test_an_expelled_owner_s_commit_is_refused_and_invisible(self, log: Log) -> None:
        old = log.owner("a")
        poll_until(old, owns_all)
        send(log, command("1"))
        _, batch = poll_records(old, 1)
        self.expel(log, old, "a")
        new = log.owner("b")
        records, taken_over = poll_records(new, 1)
        assert texts(records) == ["1"]
        with pytest.raises(Fenced):
            old.commit(batch, [event("from the grave")])
        new.commit(taken_over, [event("from the heir")])
        assert texts(read_all(log, EVENTS)) == ["from the heir"]
        assert log.committed(0)[COMMANDS] == 1
        old.close()
        new.close()

    def test_a_commit_after_the_heir_s_is_refused_too(self, log: Log) -> None:
        old = log.owner("a")
        batch = poll_until(old, owns_all)
        self.expel(log, old, "a")
        new = log.owner("b")
        new.commit(poll_until(new, lambda taken: 0 in taken.shards), [event("heir")])
        with pytest.raises(Fenced):
            old.commit(batch, [event("grave")])
        assert texts(read_all(log, EVENTS)) == ["heir"]
        old.close()
        new.close()

    def test_a_timer_only_commit_is_fenced(self, log: Log) -> None:
        """No input moved in this batch; the fence must hold all the same."""
        old = log.owner("a")
        batch = poll_until(old, owns_all)
        self.expel(log, old, "a")
        with pytest.raises(Fenced):
            old.commit(batch, [event("a timer fired")])
        assert read_all(log, EVENTS) == []
        old.close()

    def test_an_expelled_owner_comes_back_under_new_epochs(self, log: Log) -> None:
        owner = log.owner("a")
        batch = poll_until(owner, owns_all)
        self.expel(log, owner, "a")
        with pytest.raises(Fenced):
            owner.commit(batch, [event("lost")])
        owner.reset()
        again = poll_until(
            owner, lambda new: owns_all(new) and all(new.shards[shard] != batch.shards[shard] for shard in new.shards)
        )
        owner.commit(again, [event("back")])
        assert texts(read_all(log, EVENTS)) == ["back"]
        owner.close()

    def test_a_batch_from_before_a_hand_over_is_refused(self, log: Log) -> None:
        one = log.owner("a")
        stale = poll_until(one, owns_all)
        two = log.owner("b")
        poll_until(two, lambda batch: bool(batch.shards), one)
        with pytest.raises(Fenced):
            one.commit(stale, [event("stale", shard) for shard in stale.shards])
        assert [read_all(log, EVENTS, shard) for shard in stale.shards] == [[]] * len(stale.shards)
        one.close()
        two.close()

    def test_a_shard_of_another_owner_cannot_be_written(self, log: Log) -> None:
        one, two = log.owner("a"), log.owner("b")
        theirs = poll_until(two, lambda batch: 0 < len(batch.shards) < PARTITIONS, one)
        poll_until(one, lambda batch: 0 < len(batch.shards) < PARTITIONS, two)
        batch = one.poll(1, 0)
        shard = min(theirs.shards)
        with pytest.raises(Fenced, match=f"shard {shard} is not owned"):
            one.commit(batch, [event("mine"), event("not mine", shard)])
        assert read_all(log, EVENTS, shard) == []
        one.close()
        two.close()

    def test_a_second_process_of_the_same_name_takes_the_place(self, log: Log) -> None:
        old = log.owner("a")
        batch = poll_until(old, owns_all)
        new = log.owner("a")
        poll_until(new, owns_all)
        with pytest.raises(Fenced):
            old.commit(batch, [event("old")])
        new.commit(poll_until(new, owns_all), [event("new")])
        assert texts(read_all(log, EVENTS)) == ["new"]
        old.close()
        new.close()
