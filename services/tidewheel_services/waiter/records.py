"""Records that tasks wait for: the topics of open waits are read, each from where its waits begin.

A wait begins with the first record written when its window opens, by the topic's times, and is shown each record from
there on, once. A topic is read for all its waits together; one that begins earlier than what is being read has the
topic read again from there, and the others pass over what they were shown.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec
import structlog

from tidewheel.core.attempt import AttemptKey
from tidewheel.core.expressions import Evaluator, ExpressionError, Scope
from tidewheel.core.rules import OUTPUT_BYTES_MAX
from tidewheel.log.feed import Feed, Place, Scanner
from tidewheel.log.interface import Record
from tidewheel.runtime.listener.judging import happening

#: Records of one turn, and how long it may take: others wait meanwhile.
RECORDS_MAX: Final = 500
TURN_S: Final = 0.5
#: How late a topic, or a partition of one, that was made is noticed.
LOOK_FOR_TOPICS_S: Final = 10.0

_log = structlog.get_logger("tidewheel.waiter")


class Awaited(msgspec.Struct, frozen=True):
    """What a ``kafka`` wait asks for, as the scheduler wrote it down when the wait began."""

    topic: str
    #: Records written before this (ms since the epoch) are not looked at.
    since_ms: int
    match: str | None = None
    run: dict[str, Any] = msgspec.field(default_factory=dict)
    inputs: dict[str, Any] = msgspec.field(default_factory=dict)


class _Open:
    """An open wait, and of each partition the next record that it has not been shown."""

    __slots__ = ("awaited", "next")

    def __init__(self, awaited: Awaited, begins: Mapping[int, int]) -> None:
        self.awaited = awaited
        self.next = dict(begins)


class Watching(Protocol):
    """Whoever reports."""

    def __call__(self, key: AttemptKey, output: str) -> None:
        """The attempt's record has come."""


class Records:
    """Looks for the records of open waits on the topics of a feed. Everything raises ``LogError``."""

    def __init__(
        self,
        open_feed: Callable[[], Feed],
        evaluator: Evaluator,
        instance: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._open_feed = open_feed
        self._evaluator = evaluator
        self._instance = instance
        #: Seconds that only grow.
        self._clock = clock
        self._feed: Feed | None = None
        self._scanner: Scanner | None = None
        self._open: dict[AttemptKey, _Open] = {}
        #: By topic; where it is read on.
        self._positions: dict[Place, int] = {}
        self._looked_at = 0.0
        #: Records read.
        self.read = 0

    def turn(self, waits: Mapping[AttemptKey, Awaited], report: Watching) -> bool:
        """Read some records for these waits and report what was waited for; true if there may be more."""
        if not waits:
            self.close()
            return False
        scanner = self._scanner or self._connect()
        self._follow(waits, scanner)
        deadline = self._clock() + TURN_S
        while self._clock() < deadline:
            records = scanner.read(RECORDS_MAX, 0.05)
            if not records:
                return False
            self.read += len(records)
            for record in records:
                self._positions[record.topic, record.partition] = record.offset + 1
                for key, output in self._matches(record):
                    report(key, output)
                    del self._open[key]
        return True

    def close(self) -> None:
        """Let go of everything; the next turn begins anew."""
        self._open.clear()
        self._positions.clear()
        scanner, self._scanner = self._scanner, None
        feed, self._feed = self._feed, None
        if scanner is not None:
            scanner.close()
        if feed is not None:
            feed.close()

    def _connect(self) -> Scanner:
        self._feed = self._open_feed()
        self._scanner = self._feed.scanner(self._instance)
        self._looked_at = 0.0
        return self._scanner

    def _follow(self, waits: Mapping[AttemptKey, Awaited], scanner: Scanner) -> None:
        """Read what these waits name; what nobody waits for any more is left."""
        before = dict(self._positions)
        for key in self._open.keys() - waits.keys():
            del self._open[key]
        self._begin({key: waits[key] for key in sorted(waits.keys() - self._open.keys())}, scanner)
        topics = {wait.awaited.topic for wait in self._open.values()}
        if self._clock() - self._looked_at > LOOK_FOR_TOPICS_S:
            self._looked_at = self._clock()
            self._look_for_partitions(topics, scanner)
        self._positions = {place: offset for place, offset in self._positions.items() if place[0] in topics}
        if self._positions != before:
            scanner.scan(self._positions)

    def _begin(self, fresh: Mapping[AttemptKey, Awaited], scanner: Scanner) -> None:
        instants: dict[str, set[int]] = {}
        for awaited in fresh.values():
            instants.setdefault(awaited.topic, set()).add(awaited.since_ms)
        begins = {
            topic: offsets_at_each(functools.partial(scanner.offsets_at, topic), sorted(found))
            for topic, found in instants.items()
        }
        for key, awaited in fresh.items():
            offsets = begins[awaited.topic][awaited.since_ms]
            self._open[key] = _Open(awaited, offsets)
            for partition, offset in offsets.items():
                place = (awaited.topic, partition)
                self._positions[place] = min(offset, self._positions.get(place, offset))

    def _look_for_partitions(self, topics: Collection[str], scanner: Scanner) -> None:
        """What came to be since is read from its first record."""
        for topic in sorted(topics):
            for partition, offset in scanner.offsets_at(topic, 0).items():
                self._positions.setdefault((topic, partition), offset)

    def _matches(self, record: Record) -> Iterator[tuple[AttemptKey, str]]:
        """The waits that the record ends, with their output."""
        seen = None
        for key, wait in list(self._open.items()):
            if wait.awaited.topic != record.topic or record.offset < wait.next.get(record.partition, 0):
                continue
            wait.next[record.partition] = record.offset + 1
            seen = seen or happening(record)
            if self._is_awaited(wait.awaited, seen.names, key):
                yield key, _output(seen.names)

    def _is_awaited(self, awaited: Awaited, event: Mapping[str, Any], key: AttemptKey) -> bool:
        if awaited.match is None:
            return True
        scope = Scope(inputs=awaited.inputs, run=awaited.run, task=lambda name: {}, names={"event": event})
        try:
            return self._evaluator.condition(awaited.match, scope)
        except ExpressionError as error:
            # Records of others lie on the topic too, and need not have the fields that this wait looks at.
            _log.debug("a record does not say whether it is waited for", dag=key[0], task=key[2], why=str(error))
            return False


def offsets_at_each(
    offsets_at: Callable[[int], Mapping[int, int]], instants: Sequence[int]
) -> dict[int, Mapping[int, int]]:
    """The offsets at each of these instants, which are in order; a later one never has lower offsets.

    Where two of them agree, so does what is between: a topic on which little happens is asked twice, however many wait.
    """
    found = {instant: offsets_at(instant) for instant in (instants[0], instants[-1])}
    stretches = [(0, len(instants) - 1)]
    while stretches:
        first, last = stretches.pop()
        low, high = found[instants[first]], found[instants[last]]
        if low == high:
            found.update(dict.fromkeys(instants[first:last], low))
        elif last - first > 1:
            middle = (first + last) // 2
            found[instants[middle]] = offsets_at(instants[middle])
            stretches += [(first, middle), (middle, last)]
    return found


def _output(event: Mapping[str, Any]) -> str:
    """The record as the task's output; without its value if that is too large for one."""
    output = msgspec.json.encode(event).decode()
    if len(output.encode()) <= OUTPUT_BYTES_MAX:
        return output
    place = ("topic", "partition", "offset", "timestamp")
    return msgspec.json.encode({name: event[name] for name in place}).decode()
