"""Contract: a record comes out as it went in, in order, in the partition its key says."""

from __future__ import annotations

import time

import pytest

from tidewheel.log.interface import EVENTS, LOGS, MAIL, SNAPSHOTS, TOPICS, TRIGGERS, Append, Log, LogError
from tidewheel.log.limits import RECORD_BYTES_MAX
from tidewheel.log.partition import partition_of
from tidewheel.testing.log_contract.driver import (
    PARTITIONS,
    Driver,
    event,
    read_all,
    read_some,
    send,
    texts,
    trigger,
)


class Records(Driver):
    """Records outside transactions."""

    def test_records_of_a_partition_keep_their_order(self, log: Log) -> None:
        send(log, *(event(str(n), n % 2) for n in range(400)))
        assert texts(read_all(log, EVENTS, 0)) == [str(n) for n in range(0, 400, 2)]
        assert texts(read_all(log, EVENTS, 1)) == [str(n) for n in range(1, 400, 2)]

    def test_offsets_only_grow(self, log: Log) -> None:
        send(log, *(event(str(n)) for n in range(50)))
        offsets = [record.offset for record in read_all(log, EVENTS)]
        assert offsets == sorted(set(offsets))

    def test_key_value_and_headers_come_back(self, log: Log) -> None:
        headers = (("message-id", b"\x00\xff"), ("cause", b"events/3/17"), ("cause", b"twice"), ("empty", b""))
        send(log, Append(MAIL, b"worker-1", b"\x00\xc3\x01", headers, partition=2))
        (record,) = read_all(log, MAIL, 2)
        assert (record.topic, record.partition, record.key, record.value) == (MAIL, 2, b"worker-1", b"\x00\xc3\x01")
        assert record.headers == headers

    def test_a_tombstone_is_not_an_empty_value(self, log: Log) -> None:
        send(log, Append(SNAPSHOTS, b"gone", None, partition=0), Append(SNAPSHOTS, b"void", b"", partition=0))
        assert [record.value for record in read_all(log, SNAPSHOTS)] == [None, b""]

    def test_the_time_stamp_is_when_it_was_written(self, log: Log) -> None:
        before = time.time_ns() // 1_000_000
        send(log, event("x"))
        after = time.time_ns() // 1_000_000
        (record,) = read_all(log, EVENTS)
        assert before - 50 <= record.timestamp <= after + 50

    def test_a_key_goes_to_its_murmur2_partition(self, log: Log) -> None:
        keys = ["etl", "a", "daily/α-βήτα", "日次", "naïve café", "x" * 255, "🎡"]
        send(log, *(trigger(key, None, key=key) for key in keys))
        found = {
            (record.key or b"").decode(): partition
            for partition in range(PARTITIONS)
            for record in read_all(log, TRIGGERS, partition)
        }
        assert found == {key: partition_of(key.encode(), PARTITIONS) for key in keys}

    def test_a_foreign_partitioner_s_record_is_read_where_it_lies(self, log: Log) -> None:
        wrong = (partition_of(b"etl", PARTITIONS) + 1) % PARTITIONS
        send(log, trigger("lost", wrong))
        (record,) = read_all(log, TRIGGERS, wrong)
        assert (record.partition, record.key) == (wrong, b"etl")

    def test_every_topic_takes_a_record_of_1_mib(self, log: Log) -> None:
        value = bytes(range(256)) * 4096
        send(log, *(Append(topic, b"big", value, partition=1) for topic in TOPICS))
        for topic in TOPICS:
            (record,) = read_all(log, topic, 1)
            assert record.value == value, topic

    def test_a_record_over_the_limit_is_refused_by_name(self, log: Log) -> None:
        producer = log.producer()
        with pytest.raises(LogError, match=r"'logs' \(key 'etl/1'\) is over the limit"):
            producer.send(Append(LOGS, b"etl/1", bytes(RECORD_BYTES_MAX)))
        producer.send(Append(LOGS, b"etl/1", b"fine", partition=0))
        producer.flush(10)
        producer.close()
        assert texts(read_all(log, LOGS)) == ["fine"]

    def test_ten_thousand_sends_arrive(self, log: Log) -> None:
        send(log, *(event(str(n), 3) for n in range(10_000)))
        assert texts(read_all(log, EVENTS, 3)) == [str(n) for n in range(10_000)]

    def test_a_sent_record_arrives_without_a_flush(self, log: Log) -> None:
        producer = log.producer()
        reader = log.reader({(EVENTS, 0): 0})
        producer.send(event("soon"))
        assert texts(read_some(reader, 1)) == ["soon"]
        producer.close()

    def test_close_writes_what_was_sent(self, log: Log) -> None:
        producer = log.producer()
        for n in range(100):
            producer.send(event(str(n)))
        producer.close()
        assert len(read_all(log, EVENTS)) == 100

    def test_everything_may_be_closed_twice(self, log: Log) -> None:
        for opened in (log.producer(), log.reader({(EVENTS, 0): 0}), log.owner("a")):
            opened.close()
            opened.close()

    def test_creating_topics_again_creates_nothing(self, log: Log) -> None:
        assert list(log.create_topics()) == []
        log.check_topics()
        assert log.partitions == PARTITIONS
