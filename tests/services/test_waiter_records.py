"""Where the records begin of many waits at once: the topic is asked as often as it has to be."""

from __future__ import annotations

import bisect
from collections.abc import Mapping

import pytest

from tidewheel_services.waiter.records import offsets_at_each


class Topic:
    """Two partitions with records of these times, and how often somebody asked."""

    def __init__(self, *times: int) -> None:
        self._times = (times, times[::2])
        self.asked = 0

    def offsets_at(self, timestamp: int) -> Mapping[int, int]:
        self.asked += 1
        return self.begins(timestamp)

    def begins(self, timestamp: int) -> dict[int, int]:
        return {number: bisect.bisect_left(times, timestamp) for number, times in enumerate(self._times)}


@pytest.mark.parametrize("times", [(), (5,), (0, 1, 2, 500, 501, 9_999), range(0, 10_000, 7)])
@pytest.mark.parametrize("instants", [(3,), (3, 4), (0, 1, 2, 3, 498, 499, 500, 501, 502, 20_000), range(1_000)])
def test_each_instant_has_its_own_beginning(times: tuple[int, ...], instants: tuple[int, ...]) -> None:
    topic = Topic(*times)
    assert offsets_at_each(topic.offsets_at, instants) == {instant: topic.begins(instant) for instant in instants}
    assert topic.asked <= max(2, len(instants))


def test_a_quiet_topic_is_asked_seldom() -> None:
    topic = Topic(5_000)
    offsets_at_each(topic.offsets_at, range(10_000))
    assert topic.asked < 40
