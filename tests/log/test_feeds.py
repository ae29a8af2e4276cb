"""Feeds: the contract on both drivers, what only Kafka can do to us, and their addresses."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic  # type: ignore[attr-defined]

from tests.e2e.running import eventually
from tidewheel.log.feed import Feed, Stand
from tidewheel.log.feeds import feed_beside, open_feed
from tidewheel.log.interface import LogMisconfigured, LogUnavailable
from tidewheel.log.kafka.feed import KafkaFeed, KafkaFollower
from tidewheel.log.memory_feed import MemoryFeed
from tidewheel.log.sqlite.feed import SqliteFeed
from tidewheel.testing import feed_contract
from tidewheel.testing.feed_contract import FeedContract, now_ms, poll_until_held, take, values

_number = itertools.count()


class TestSqliteFeed(FeedContract):
    def open(self, path: Path) -> Feed:
        return SqliteFeed(path / "feed.db")

    def test_offsets_go_on_when_what_was_dealt_with_is_old(self, tmp_path: Path) -> None:
        now = 0
        feed = SqliteFeed(tmp_path / "old.db", clock=lambda: now)
        follower = feed.follower("l1")
        follower.follow({"t": 0})
        feed.publish("t", None, b"0")
        take(follower, 1)
        follower.commit({("t", 0): Stand(1, 0)})
        now = 8 * 86_400_000
        assert feed.publish("t", None, b"1") == (0, 1)
        assert feed.publish("t", None, b"2") == (0, 2)
        again = feed.follower("l1")
        again.follow({"t": 0})
        assert values(take(again, 2)[0]) == [b"1", b"2"]
        feed.close()

    def test_two_processes_use_one_file(self, tmp_path: Path) -> None:
        here, there = SqliteFeed(tmp_path / "feed.db"), SqliteFeed(tmp_path / "feed.db")
        follower = here.follower("l1")
        follower.follow({"t": 0})
        there.publish("t", b"k", b"v")
        assert values(take(follower, 1)[0]) == [b"v"]
        here.close()
        there.close()


class TestMemoryFeed(FeedContract):
    def open(self, path: Path) -> Feed:
        return MemoryFeed()

    def test_a_partition_passes_to_another_member_and_both_read_it_until_the_first_looks_again(self) -> None:
        feed = MemoryFeed()
        feed.create("t", 2)
        one, two = feed.follower("l1"), feed.follower("l2")
        one.follow({"t": 0})
        assert one.poll(10, 0).held == {("t", 0), ("t", 1)}
        feed.publish("t", b"b", b"v")
        two.follow({"t": 0})
        (place,) = two.poll(10, 0).held
        one.commit({place: Stand(1, 0)})  # nobody hears it: the partition is another's by now
        assert one.poll(10, 0).held == {("t", 0), ("t", 1)} - {place}
        feed.expel("l1")
        taken = two.poll(10, 0)
        assert taken.held == {("t", 0), ("t", 1)}
        assert all(stand.offset == 0 for stand in taken.fresh.values())
        assert feed.members() == ["l2"]


@pytest.mark.kafka
class TestKafkaFeed(FeedContract):
    @pytest.fixture(autouse=True)
    def broker(self, kafka_address: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        self.address = kafka_address
        self.admin = AdminClient({"bootstrap.servers": kafka_address})
        self.prefix = f"feed{os.getpid()}-{next(_number)}."
        monkeypatch.setattr(feed_contract, "TOPIC", self.prefix + "landing.files")
        self.topic = feed_contract.TOPIC
        yield

    def open(self, path: Path) -> Feed:
        return KafkaFeed(self.address, self.prefix + "listeners")

    def create(self, topic: str, partitions: int = 1) -> None:
        for future in self.admin.create_topics([NewTopic(topic, partitions, 1)], operation_timeout=20).values():
            future.result(20)
        eventually(lambda: topic in self.admin.list_topics(timeout=20).topics, 30, f"{topic} to be seen")

    @pytest.fixture
    def feed(self, tmp_path: Path) -> Iterator[Feed]:
        feed = self.open(tmp_path)
        self.create(self.topic)
        yield feed
        feed.close()

    def test_members_share_the_partitions_and_take_over_from_each_other(self, feed: Feed) -> None:
        topic = self.prefix + "wide"
        self.create(topic, 4)
        since = now_ms()
        for number in range(20):
            feed.publish(topic, b"%d" % number, b"%d" % number)
        one, two = self.follow(feed, {topic: since}), self.follow(feed, {topic: since})
        found = []
        for _ in range(200):
            for follower in (one, two):
                taken = follower.poll(100, 0.1)
                found += taken.records
                follower.commit({(r.topic, r.partition): Stand(r.offset + 1, since) for r in taken.records})
            if len({record.value for record in found}) == 20 and len(two.poll(0, 0.1).held) == 2:
                break
        assert {record.value for record in found} == {b"%d" % number for number in range(20)}
        assert feed.members() == ["l1", "l1"]
        assert feed.missing([topic, self.prefix + "nosuch"]).keys() == {self.prefix + "nosuch"}
        one.close()
        poll_until_held(two, frozenset((topic, number) for number in range(4)))
        two.close()

    def test_a_broker_that_does_not_say_in_time_which_topic_it_is_is_away(self, feed: Feed) -> None:
        follower = self.follow(feed, {self.topic: 0})
        assert isinstance(follower, KafkaFollower)
        silent: Future[None] = Future()
        silent.set_exception(TimeoutError())
        follower._admin.describe_topics = lambda *_, **__: {self.topic: silent}  # type: ignore[method-assign]
        with pytest.raises(LogUnavailable, match="does not answer"):
            poll_until_held(follower, frozenset({(self.topic, 0)}))
        follower.close()

    def test_a_partition_that_comes_later_is_read_from_its_first_record(self, feed: Feed) -> None:
        follower = self.follow(feed, {self.topic: 0})
        poll_until_held(follower, frozenset({(self.topic, 0)}))
        follower.commit({(self.topic, 0): Stand(0, now_ms() + 3_600_000)})
        self.admin.create_partitions([NewPartitions(self.topic, 3)])[self.topic].result(20)
        wanted = {b"%d" % number for number in range(12)}
        for value in sorted(wanted):
            feed.publish(self.topic, value, value)
        found: set[bytes | None] = set()
        # One at a time: what was handed out before the new partitions were is handed out again.
        while not wanted <= found:
            found |= {record.value for record in take(follower, 1)[0]}
        assert found == wanted
        follower.close()

    def test_a_topic_that_is_not_there_yet_is_waited_for_and_the_others_are_read(self, feed: Feed) -> None:
        missing = self.prefix + "missing"
        since = now_ms()
        follower = self.follow(feed, {self.topic: since, missing: since})
        feed.publish(self.topic, None, b"here")
        assert values(take(follower, 1)[0]) == [b"here"]
        follower.commit({(self.topic, 0): Stand(1, since)})
        for _ in range(100):
            if missing in follower.missing:
                break
            follower.poll(1, 0.2)
        assert set(follower.missing) == {missing}
        with pytest.raises(LogMisconfigured, match="has no topic"):
            feed.publish(missing, None, b"too early")
        self.create(missing)
        feed.publish(missing, None, b"there")
        assert values(take(follower, 1)[0]) == [b"there"]
        follower.close()

    @pytest.mark.parametrize("longer", [False, True], ids=["shorter", "longer"])
    def test_a_topic_made_anew_while_nobody_looked_is_read_from_its_beginning(self, feed: Feed, longer: bool) -> None:
        follower = self.follow(feed, {self.topic: 0})
        for number in range(3):
            feed.publish(self.topic, None, b"%d" % number)
        take(follower, 3)
        follower.commit({(self.topic, 0): Stand(3, 0)})
        follower.close()
        self.admin.delete_topics([self.topic], operation_timeout=20)[self.topic].result(20)
        eventually(lambda: self.topic not in self.admin.list_topics(timeout=20).topics)
        self.create(self.topic)
        wanted = [b"new%d" % number for number in range(5 if longer else 2)]
        for value in wanted:
            feed.publish(self.topic, None, value)
        again = self.follow(feed, {self.topic: 0})
        records, _ = take(again, len(wanted))
        assert values(records) == wanted
        again.commit({(self.topic, 0): Stand(1, 0)})
        again.close()
        third = self.follow(feed, {self.topic: 0})
        assert values(take(third, len(wanted) - 1)[0]) == wanted[1:]
        third.close()

    def test_a_topic_made_anew_is_read_from_its_beginning(self, feed: Feed) -> None:
        follower = self.follow(feed, {self.topic: 0})
        for number in range(3):
            feed.publish(self.topic, None, b"%d" % number)
        take(follower, 3)
        follower.commit({(self.topic, 0): Stand(3, 0)})
        self.admin.delete_topics([self.topic], operation_timeout=20)[self.topic].result(20)
        poll_until_held(follower, frozenset())
        self.create(self.topic)
        feed.publish(self.topic, None, b"new")
        assert values(take(follower, 1)[0]) == [b"new"]
        follower.close()


def test_without_an_address_the_feed_is_where_the_log_is(tmp_path: Path) -> None:
    assert feed_beside("kafka://a:1,b:2?prefix=x.&partitions=4&security.protocol=ssl") == (
        "kafka://a:1,b:2?group=x.listeners&security.protocol=ssl"
    )
    assert feed_beside("kafka://a:1") == "kafka://a:1?group=tidewheel.listeners"
    assert feed_beside("sqlite:///state/log.db?partitions=4") == "sqlite:///state/log-topics.db"
    feed = open_feed(feed_beside(f"sqlite://{tmp_path}/log.db"))
    assert isinstance(feed, SqliteFeed) and feed.path == tmp_path / "log-topics.db"
    feed.close()


@pytest.mark.parametrize("url", ["memory:", "kafka://", "kafka://a:1?nosuch=1", "sqlite://host/x", "sqlite:///"])
def test_a_bad_address_is_refused(url: str) -> None:
    with pytest.raises(LogMisconfigured):
        open_feed(feed_beside(url) if url == "memory:" else url)
