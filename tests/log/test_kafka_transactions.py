"""What transactions leave behind, and calls that do not come back."""

from __future__ import annotations

import itertools
import logging
import os
import threading
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from tidewheel.log.interface import COMMANDS, CommitInDoubt, Fenced
from tidewheel.log.kafka import KafkaLog, transaction
from tidewheel.log.kafka.calls import CallThread
from tidewheel.log.kafka.watchdog import Watchdog
from tidewheel.testing.kafka_broker import KafkaBroker, KafkaContainer, own_broker
from tidewheel.testing.kafka_unsettled import leave_unsettled
from tidewheel.testing.log_contract.driver import PARTITIONS, command, event, owns_all, poll_records, poll_until, send

Broker = KafkaBroker | KafkaContainer
_number = itertools.count()
PATIENCE_S = 30.0


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """Our own, for it is told to trust its clients."""
    with own_broker(short_lived=True) as broker:
        yield broker


@pytest.mark.kafka
class TestUnsettledPositions:
    """A position that the log must neither wait for nor ever believe."""

    @pytest.fixture
    def log(self, broker: Broker) -> Iterator[KafkaLog]:
        self.prefix = f"unsettled{os.getpid()}-{next(_number)}."
        log = KafkaLog(broker.address, self.prefix, PARTITIONS)
        log.create_topics()
        yield log
        log.close()

    def _leave(self, broker: Broker, shard: int, offset: int) -> None:
        group, name = self.prefix + "schedulers", self.prefix + "a"
        leave_unsettled(broker.address, group, name, self.prefix + COMMANDS, shard, offset)

    def test_those_of_a_life_before_are_dropped(self, broker: Broker, log: KafkaLog) -> None:
        owner = log.owner("a")
        owner.commit(poll_until(owner, owns_all), [])
        owner.close()
        for shard in range(PARTITIONS):
            self._leave(broker, shard, 7)
        again = log.owner("a")
        poll_until(again, owns_all)
        assert [log.committed(shard)[COMMANDS] for shard in range(PARTITIONS)].count(7) == 0
        again.close()

    def test_those_of_a_failed_transaction_are_dropped_and_not_committed_with_the_next(
        self, broker: Broker, log: KafkaLog
    ) -> None:
        """A later commit of the same producer would make them count: inputs up to there would never be decided."""
        owner = log.owner("a")
        stale = poll_until(owner, owns_all)
        self._leave(broker, 2, 1)
        send(log, command("in", 2), command("else", 1))
        # Fenced by the one who left them, as by any new producer of this name.
        with pytest.raises(Fenced, match="another producer"):
            owner.commit(stale, [event("out", 1)])
        owner.reset()
        records, batch = poll_records(owner, 2)
        assert sorted(record.partition for record in records) == [1, 2]
        owner.commit(batch, [event("out", 1)])
        owner.close()


class FakeProducer:
    """Stands for librdkafka's; the second transaction's positions are never answered, its connection having broken."""

    made: ClassVar[list[FakeProducer]] = []

    def __init__(self, config: dict[str, object]) -> None:
        self._logger: Any = config["logger"]
        self._sent = 0
        self.hangs, self.go_on = threading.Event(), threading.Event()
        self.made.append(self)

    def send_offsets_to_transaction(self, *_: object) -> None:
        self._sent += 1
        if self is self.made[0] and self._sent > 1:
            self.hangs.set()
            self.go_on.wait()

    def poll(self, _: float) -> None:
        if self.hangs.is_set():
            self._logger.log(logging.DEBUG, "%s", "broker: Disconnected (after 7ms in state UP)")

    def _nothing(self, *_: object) -> None:
        """Done."""

    init_transactions = begin_transaction = commit_transaction = abort_transaction = purge = _nothing


def test_positions_that_get_no_answer_cost_the_producer_and_not_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction, "Producer", FakeProducer)
    monkeypatch.setattr(FakeProducer, "made", [])
    stuck: list[str] = []
    dog = Watchdog(PATIENCE_S * 2, lambda doing, seconds: stuck.append(doing))
    transactions = transaction.Transactions({}, "nowhere", "t.", "a", PATIENCE_S * 2, dog, group_metadata=object)
    with pytest.raises(CommitInDoubt, match="positions got no answer"):
        transactions.run([], [], object())
    (hung,) = FakeProducer.made
    assert not hung.go_on.is_set()
    transactions.settle()
    transactions.run([], [], object())
    assert len(FakeProducer.made) == 2
    assert stuck == []
    hung.go_on.set()
    transactions.close()
    dog.close()


class TestCallThread:
    def test_a_call_gives_what_it_returns_or_raises(self) -> None:
        calls = CallThread()
        assert calls.call(lambda: 7, lambda: False) == 7
        with pytest.raises(ZeroDivisionError):
            calls.call(lambda: 1 // 0, lambda: False)
        calls.close()

    def test_a_time_out_of_the_call_itself_is_no_reason_to_leave_it(self) -> None:
        def late() -> None:
            raise TimeoutError("its own")

        calls = CallThread()
        with pytest.raises(TimeoutError, match="its own"):
            calls.call(late, lambda: False)
        calls.close()

    def test_a_call_that_does_not_return_is_left_behind_and_the_next_one_made(self) -> None:
        calls, returned = CallThread(), threading.Event()
        left: list[threading.Thread] = []

        def hang() -> None:
            left.append(threading.current_thread())
            returned.wait()

        with pytest.raises(TimeoutError):
            calls.call(hang, lambda: bool(left))
        assert calls.call(threading.current_thread, lambda: False) is not left[0]
        returned.set()
        left[0].join(PATIENCE_S)
        assert not left[0].is_alive()
        calls.close()
