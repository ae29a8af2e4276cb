"""The tests that every feed must pass. A driver's test class derives from ``FeedContract`` and says how to open it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tidewheel.log.feed import Feed, Follower, Place, Stand, Taken
from tidewheel.log.interface import Record

#: How long something may take on a machine that does other things beside this.
PATIENCE_S = 40.0
TOPIC = "landing.files"


def now_ms() -> int:
    """The clock, a moment after whatever was stamped before."""
    time.sleep(0.005)
    return time.time_ns() // 1_000_000


def take(follower: Follower, count: int) -> tuple[list[Record], dict[Place, Stand]]:
    """Poll until so many records have come; gives them, and the partitions that came meanwhile."""
    records: list[Record] = []
    fresh: dict[Place, Stand] = {}
    deadline = time.monotonic() + PATIENCE_S
    while len(records) < count:
        assert time.monotonic() < deadline, f"{len(records)} of {count} records in {PATIENCE_S:g} s"
        taken = follower.poll(100, 0.2)
        records += taken.records
        fresh |= taken.fresh
    return records, fresh


def poll_until_held(follower: Follower, places: frozenset[Place]) -> list[Taken]:
    """Poll until exactly these partitions are held; gives all that was taken."""
    taken: list[Taken] = []
    deadline = time.monotonic() + PATIENCE_S
    while not taken or taken[-1].held != places:
        assert time.monotonic() < deadline, f"{set(places)} not held in {PATIENCE_S:g} s"
        taken.append(follower.poll(100, 0.2))
    return taken


def values(records: list[Record]) -> list[bytes | None]:
    """What they say."""
    return [record.value for record in records]


class FeedContract:
    """Derive, give ``open`` and, where topics must be made first, ``create``."""

    def open(self, path: Path) -> Feed:
        """The feed under test; the same one for the same path."""
        raise AssertionError("a driver's test class says how to open its feed")

    def create(self, topic: str, partitions: int = 1) -> None:
        """Make a topic."""

    @pytest.fixture
    def feed(self, tmp_path: Path) -> Iterator[Feed]:
        self.path = tmp_path
        feed = self.open(tmp_path)
        self.create(TOPIC)
        yield feed
        feed.close()

    def follow(self, feed: Feed, topics: Mapping[str, int]) -> Follower:
        """A new member that follows these."""
        follower = feed.follower("l1")
        follower.follow(topics)
        return follower

    def test_a_record_comes_as_it_was_published(self, feed: Feed) -> None:
        follower = self.follow(feed, {TOPIC: 0})
        headers = [("kind", b"x"), ("kind", b"\xff")]
        assert feed.publish(TOPIC, b"k", b"v", headers) == (0, 0)
        assert feed.publish(TOPIC, None, None) == (0, 1)
        (first, second), _ = take(follower, 2)
        assert (first.topic, first.partition, first.offset, first.key, first.value) == (TOPIC, 0, 0, b"k", b"v")
        assert first.headers == tuple(headers)
        assert abs(first.timestamp - now_ms()) < PATIENCE_S * 1000
        assert (second.offset, second.key, second.value, second.headers) == (1, None, None, ())
        follower.close()

    def test_a_scanner_reads_from_anywhere_and_again_and_moves_nobody(self, feed: Feed) -> None:
        feed.publish(TOPIC, None, b"0")
        since = now_ms()
        feed.publish(TOPIC, None, b"1")
        scanner = feed.scanner("w1")
        assert scanner.offsets_at(TOPIC, since) == {0: 1}
        assert scanner.offsets_at(TOPIC, 0) == {0: 0}
        assert scanner.offsets_at(TOPIC, since + 3_600_000) == {0: 2}
        for begin, wanted in ((1, [b"1", b"2"]), (0, [b"0", b"1", b"2"])):
            scanner.scan({(TOPIC, 0): begin})
            if begin:
                feed.publish(TOPIC, None, b"2")
            found: list[Record] = []
            deadline = time.monotonic() + PATIENCE_S
            while len(found) < len(wanted) and time.monotonic() < deadline:
                found += scanner.read(100, 0.2)
            assert values(found) == wanted
        scanner.scan({})
        assert scanner.read(100, 0) == []
        follower = self.follow(feed, {TOPIC: since})
        assert values(take(follower, 2)[0]) == [b"1", b"2"]
        follower.close()
        scanner.close()

    def test_a_topic_begins_at_the_instant_given_however_late_it_is_followed(self, feed: Feed) -> None:
        feed.publish(TOPIC, None, b"before")
        since = now_ms()
        feed.publish(TOPIC, None, b"after")
        feed.publish(TOPIC, None, b"later")
        follower = self.follow(feed, {TOPIC: since})
        records, fresh = take(follower, 2)
        assert values(records) == [b"after", b"later"]
        assert follower.behind() == 0
        assert fresh == {(TOPIC, 0): Stand(1, since)}
        follower.close()

    def test_who_comes_next_goes_on_from_what_was_committed(self, feed: Feed) -> None:
        since = now_ms()
        first = self.follow(feed, {TOPIC: since})
        for number in range(4):
            feed.publish(TOPIC, None, b"%d" % number)
        take(first, 4)
        first.commit({(TOPIC, 0): Stand(2, since + 5)})
        first.close()
        second = self.follow(feed, {TOPIC: since + 10})
        records, fresh = take(second, 2)
        assert values(records) == [b"2", b"3"]
        assert fresh == {(TOPIC, 0): Stand(2, since + 5)}
        second.close()

    def test_what_began_and_was_never_read_is_not_begun_a_second_time(self, feed: Feed) -> None:
        since = now_ms()
        first = self.follow(feed, {TOPIC: since})
        poll_until_held(first, frozenset({(TOPIC, 0)}))
        first.close()
        feed.publish(TOPIC, None, b"meanwhile")
        later = now_ms()
        second = self.follow(feed, {TOPIC: later})
        records, fresh = take(second, 1)
        assert values(records) == [b"meanwhile"]
        assert fresh == {(TOPIC, 0): Stand(0, since)}
        second.close()

    def test_topics_come_and_go(self, feed: Feed) -> None:
        self.create("other")
        follower = self.follow(feed, {TOPIC: 0})
        feed.publish("other", None, b"o")
        feed.publish(TOPIC, None, b"a")
        assert values(take(follower, 1)[0]) == [b"a"]
        follower.commit({(TOPIC, 0): Stand(1, 0)})
        follower.follow({TOPIC: 0, "other": 0})
        assert values(take(follower, 1)[0]) == [b"o"]
        follower.follow({"other": 0})
        poll_until_held(follower, frozenset({("other", 0)}))
        feed.publish(TOPIC, None, b"not ours")
        follower.commit({(TOPIC, 0): Stand(2, 0)})  # somebody else's to say by now
        follower.follow({TOPIC: 0})
        assert values(take(follower, 1)[0]) == [b"not ours"]
        follower.follow({})
        poll_until_held(follower, frozenset())
        follower.close()

    def test_offsets_are_found_by_time(self, feed: Feed) -> None:
        feed.publish(TOPIC, None, b"0")
        middle = now_ms()
        feed.publish(TOPIC, None, b"1")
        late = now_ms() + 60_000
        follower = self.follow(feed, {TOPIC: 0})
        place = (TOPIC, 0)
        assert [follower.offsets_at([place], at)[place] for at in (0, middle, late)] == [0, 1, 2]
        follower.close()

    def test_a_mebibyte_is_no_trouble(self, feed: Feed) -> None:
        follower = self.follow(feed, {TOPIC: 0})
        large = bytes(range(256)) * 4_000
        feed.publish(TOPIC, b"k", large)
        feed.publish(TOPIC, b"k", b"next")
        assert values(take(follower, 2)[0]) == [large, b"next"]
        follower.close()
