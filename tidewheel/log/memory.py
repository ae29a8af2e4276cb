"""A log in memory, for tests and simulation: deterministic, under any clock, with faults on demand.

It mimics what makes Kafka harder than a list: offsets have gaps (a marker after each transaction, holes where one was
aborted), an owner can be expelled behind its back, a commit can fail or leave its outcome open. All of it is
thread-safe, so that a whole engine runs on it; with time-out 0 nothing ever blocks.
"""

from __future__ import annotations

import enum
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from tidewheel.log.group import Group, Member
from tidewheel.log.interface import (
    CLOSED,
    COMMANDS,
    INPUTS,
    TOPICS,
    TRIGGERS,
    Append,
    Batch,
    CommitAborted,
    CommitInDoubt,
    Fenced,
    LogError,
    LogUnavailable,
    Record,
    TopicSetting,
)
from tidewheel.log.limits import oversize
from tidewheel.log.partition import partition_of
from tidewheel.log.written import written_shards

#: Commits of a shard whose positions can be brought back.
_FORMER_MAX = 1_000


class Fault(enum.Enum):
    """How an injected commit fails."""

    ABORT = "the commit fails and nothing is written"
    DOUBT_LOST = "the outcome stays open; in truth nothing was written"
    DOUBT_LANDED = "the outcome stays open; in truth all was written"


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class MemoryLog:
    """A log that lives and dies with the object. ``clock`` gives the records' timestamps, in ms since the epoch."""

    def __init__(self, partitions: int = 4, clock: Callable[[], int] = _wall_clock_ms, markers: bool = True) -> None:
        self.partitions = partitions
        self._clock = clock
        self._markers = markers
        self._changed = threading.Condition()
        self._group = Group(partitions)
        self._committed: dict[tuple[str, int], int] = {}
        self._notes: dict[int, str] = {}
        #: What each shard's positions and note were before, the latest last.
        self._former: dict[int, deque[tuple[dict[str, int], str]]] = {}
        self._faults: deque[tuple[str | None, Fault]] = deque()
        self._starts: dict[tuple[str, int], int] = {}
        #: None is an offset without a record: a marker, or part of an aborted transaction.
        self._records: dict[tuple[str, int], list[Record | None]] = {
            (topic, partition): [] for topic in TOPICS for partition in range(partitions)
        }

    def create_topics(self, *, repair: bool = False) -> Sequence[str]:
        """Nothing to create."""
        return ()

    def check_topics(self) -> None:
        """Always fine."""

    def inspect_topics(self) -> Sequence[TopicSetting]:
        """Nothing can be set."""
        return ()

    def producer(self) -> MemoryProducer:
        """A new producer; what it sends is there at once."""
        return MemoryProducer(self)

    def reader(self, starts: Mapping[tuple[str, int], int]) -> MemoryReader:
        """A reader of these partitions from these offsets."""
        return MemoryReader(self, starts)

    def owner(self, instance: str) -> MemoryOwner:
        """Join the group of owners."""
        return MemoryOwner(self, instance)

    def end_offset(self, topic: str, partition: int) -> int:
        """One past the last offset used."""
        with self._changed:
            return len(self._records[topic, partition])

    def end_offsets(self, places: Collection[tuple[str, int]]) -> Mapping[tuple[str, int], int]:
        """The same of many."""
        return {place: self.end_offset(*place) for place in places}

    def start_offset(self, topic: str, partition: int) -> int:
        """The offset of the oldest record kept."""
        with self._changed:
            return self._starts.get((topic, partition), 0)

    def start_offsets(self, places: Collection[tuple[str, int]]) -> Mapping[tuple[str, int], int]:
        """The same of many."""
        return {place: self.start_offset(*place) for place in places}

    def offsets_at(self, places: Collection[tuple[str, int]], timestamp: int) -> Mapping[tuple[str, int], int]:
        """The first records of this time or later."""
        with self._changed:
            return {
                place: next(
                    (record.offset for record in self._records[place] if record and record.timestamp >= timestamp),
                    len(self._records[place]),
                )
                for place in places
            }

    def trim(self, topic: str, partition: int, before: int) -> None:
        """Forget the records below this offset, as retention does."""
        with self._changed:
            kept = self._records[topic, partition]
            before = min(before, len(kept))
            kept[:before] = [None] * before
            self._starts[topic, partition] = max(before, self._starts.get((topic, partition), 0))

    def owners(self) -> Sequence[str]:
        """The members' names."""
        with self._changed:
            return self._group.members()

    def committed(self, partition: int) -> Mapping[str, int | None]:
        """The owners' committed input positions on this shard."""
        with self._changed:
            return {topic: self._committed.get((topic, partition)) for topic in INPUTS}

    def noted(self, partition: int) -> str:
        """What stands beside the position on triggers."""
        with self._changed:
            return self._notes.get(partition, "")

    def close(self) -> None:
        """Nothing to let go of; the records stay readable."""

    # What only tests and simulations ask for.

    def expel(self, instance: str) -> None:
        """Treat the owner as dead, as Kafka does after a session time-out: its shards are free, its commit void."""
        with self._changed:
            self._group.expel(instance)
            self._changed.notify_all()

    def inject(self, fault: Fault, instance: str | None = None) -> None:
        """Let the next commit (of that instance, else of any) fail so. Faults queue up."""
        with self._changed:
            self._faults.append((instance, fault))

    def lose_commits(self, shard: int, commits: int) -> bool:
        """Let the positions on a shard, and what stands beside them, be as they were so many changes ago.

        That is what a broker does that dies hard and keeps the journals. Whoever holds the shard does not notice;
        the next owner does. False if there were not that many.
        """
        with self._changed:
            former = self._former.get(shard, deque())
            if len(former) < commits:
                return False
            for _ in range(commits):
                positions, note = former.pop()
            self._committed.update({(topic, shard): position for topic, position in positions.items()})
            self._notes[shard] = note
            return True

    def cut(self, topic: str, partition: int, end: int) -> None:
        """Lose the records from this offset on, as an unclean election of a leader does."""
        with self._changed:
            del self._records[topic, partition][end:]

    def damage(self, topic: str, partition: int, offset: int) -> None:
        """Flip a bit of a record that lies there, as a bad disk does."""
        with self._changed:
            log = self._records[topic, partition]
            record = log[offset]
            assert record is not None and record.value is not None
            at = len(record.value) // 2
            value = record.value[:at] + bytes([record.value[at] ^ 1]) + record.value[at + 1 :]
            log[offset] = msgspec.structs.replace(record, value=value)

    def records_of(self, topic: str, partition: int) -> list[Record | None]:
        """The records themselves, by offset, None where there is none; what a simulation changes here is damaged."""
        return self._records[topic, partition]

    def epoch_of(self, shard: int) -> int | None:
        """Under which the shard is owned now; None if nobody owns it."""
        with self._changed:
            return self._group.epoch_of(shard)

    def forgive(self) -> None:
        """Forget the faults that have not come yet."""
        with self._changed:
            self._faults.clear()

    # Shared with producers, readers and owners; callers hold the lock.

    def _append(self, record: Append, timestamp: int) -> tuple[tuple[str, int], int]:
        partition = partition_of(record.key, self.partitions) if record.partition is None else record.partition
        place = (record.topic, partition)
        log = self._records[place]
        log.append(
            Record(record.topic, partition, len(log), record.key, record.value, record.headers, timestamp=timestamp)
        )
        return place, len(log) - 1

    def _remember(self, shard: int) -> None:
        """Keep the shard's positions as they are, before a commit moves them."""
        positions = {topic: self._committed.get((topic, shard), 0) for topic in INPUTS}
        former = self._former.setdefault(shard, deque(maxlen=_FORMER_MAX))
        now = (positions, self._notes.get(shard, ""))
        if not former or former[-1] != now:
            former.append(now)

    def _take_fault(self, instance: str) -> Fault | None:
        for index, (wanted, fault) in enumerate(self._faults):
            if wanted is None or wanted == instance:
                del self._faults[index]
                return fault
        return None

    def _read(self, place: tuple[str, int], position: int, max_records: int, into: list[Record]) -> int:
        """Add records from ``position`` on until ``into`` holds ``max_records``; gives the next position."""
        log = self._records[place]
        position = max(position, self._starts.get(place, 0))
        end = len(log)
        while position < end and (log[position] is None or len(into) < max_records):
            record = log[position]
            if record is not None:
                into.append(record)
            position += 1
        return position


class MemoryProducer:
    """Appends at once."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log

    def send(self, record: Append) -> None:
        """Append the record."""
        if problem := oversize((record,)):
            raise LogError(problem)
        with self._log._changed:
            self._log._append(record, self._log._clock())
            self._log._changed.notify_all()

    def flush(self, timeout_s: float) -> None:
        """Nothing is ever under way."""

    def close(self) -> None:
        """Nothing to let go of."""


class MemoryReader:
    """Reads fixed partitions."""

    def __init__(self, log: MemoryLog, starts: Mapping[tuple[str, int], int]) -> None:
        self._log = log
        self._positions = dict(starts)
        self._turn = 0
        self._closed = False
        for (topic, partition), start in starts.items():
            end = log.end_offset(topic, partition)
            if start > end:
                raise LogError(
                    f"cannot read {topic}/{partition} from offset {start}: it ends at {end}; was the log replaced?"
                )

    def read(self, max_records: int, timeout_s: float) -> list[Record]:
        """Wait for a first record, then take what is there."""
        deadline = time.monotonic() + timeout_s
        records: list[Record] = []
        with self._log._changed:
            while True:
                if self._closed:
                    raise LogUnavailable(CLOSED)
                for place in self._places():
                    self._positions[place] = self._log._read(place, self._positions[place], max_records, records)
                remaining = deadline - time.monotonic()
                if records or remaining <= 0:
                    return records
                self._log._changed.wait(remaining)

    def positions(self) -> Mapping[tuple[str, int], int]:
        """The next offset to read of each partition."""
        with self._log._changed:
            for place, position in self._positions.items():
                self._positions[place] = self._log._read(place, position, 0, [])
            return dict(self._positions)

    def close(self) -> None:
        """Wake whoever reads."""
        with self._log._changed:
            self._closed = True
            self._log._changed.notify_all()

    def _places(self) -> list[tuple[str, int]]:
        """The partitions, beginning at another one each time, so that none starves under ``max_records``."""
        places = list(self._positions)
        self._turn = (self._turn + 1) % max(1, len(places))
        return places[self._turn :] + places[: self._turn]


class MemoryOwner:
    """One owner; several may live in one process."""

    def __init__(self, log: MemoryLog, instance: str) -> None:
        self._log = log
        self._member = Member(instance)
        self._positions: dict[tuple[str, int], int] = {}
        self._known: dict[int, int] = {}
        self._notes: dict[int, str] = {}
        self._paused: frozenset[int] = frozenset()
        self._held: frozenset[int] = frozenset()
        self._must_reset = False
        self._turn = 0
        with log._changed:
            log._group.join(self._member)
            log._changed.notify_all()

    def poll(self, max_records: int, timeout_s: float) -> Batch:
        """Wait for a first record or a change of shards, then take what is there."""
        assert not self._must_reset, "a commit failed: reset() first"
        log = self._log
        deadline = time.monotonic() + timeout_s
        with log._changed:
            while True:
                self._refuse_if_replaced()
                changed = log._group.settle(self._member)
                if changed:
                    log._changed.notify_all()
                self._start_shards()
                records = self._take(max_records)
                remaining = deadline - time.monotonic()
                if records or changed or remaining <= 0:
                    shards = dict(self._member.epochs)
                    return Batch(tuple(records), shards, token=shards, notes=dict(self._notes))
                log._changed.wait(remaining)

    def commit(self, batch: Batch, appends: Sequence[Append]) -> Mapping[tuple[str, int], int]:
        """Append and move the positions, or raise; see ``Owner.commit``."""
        assert not self._must_reset, "a commit failed: reset() first"
        log = self._log
        with log._changed:
            self._must_reset = True
            self._refuse_if_replaced()
            if not batch.token or not log._group.holds(self._member, batch.token):
                raise Fenced(f"instance '{self._member.instance}' lost shards since it polled this batch")
            written_shards(appends, batch.token, log.partitions)
            if problem := oversize(appends):
                raise CommitAborted(problem)
            fault = log._take_fault(self._member.instance)
            if fault in (Fault.ABORT, Fault.DOUBT_LOST):
                self._leave_holes(appends)
                if fault is Fault.ABORT:
                    raise CommitAborted("injected: the commit was aborted")
                raise CommitInDoubt("injected: the outcome of the commit is unknown")
            last = self._write(appends)
            if fault is Fault.DOUBT_LANDED:
                raise CommitInDoubt("injected: the outcome of the commit is unknown")
            self._must_reset = False
            return last

    def reset(self) -> None:
        """Go back to the committed positions; every shard gets a new epoch."""
        with self._log._changed:
            self._refuse_if_replaced()
            self._must_reset = False
            self._log._group.renew(self._member)
            self._start_shards()

    def note(self, notes: Mapping[int, str]) -> None:
        """Keep these beside the positions on triggers."""
        self._notes.update(notes)

    def pause_triggers(self, shards: frozenset[int]) -> None:
        """Read no triggers of these shards."""
        with self._log._changed:
            self._paused = shards
            self._log._changed.notify_all()

    def hold(self, shards: frozenset[int]) -> None:
        """Read nothing of these shards, and go back to their committed positions."""
        with self._log._changed:
            for topic, shard in self._positions:
                if shard in shards - self._held:
                    self._positions[topic, shard] = self._log._committed.get((topic, shard), 0)
            self._held = shards
            self._log._changed.notify_all()

    def close(self) -> None:
        """Leave the group."""
        with self._log._changed:
            self._log._group.leave(self._member)
            self._log._changed.notify_all()

    def _refuse_if_replaced(self) -> None:
        if self._member.replaced:
            raise Fenced(f"another scheduler has started as instance '{self._member.instance}'; give each its own name")

    def _start_shards(self) -> None:
        """Begin each shard that is new, or newly reset, at its committed position."""
        epochs = self._member.epochs
        for shard, epoch in epochs.items():
            if self._known.get(shard) != epoch:
                for topic in INPUTS:
                    self._positions[topic, shard] = self._log._committed.get((topic, shard), 0)
                self._notes[shard] = self._log._notes.get(shard, "")
        self._notes = {shard: self._notes[shard] for shard in epochs}
        self._known = dict(epochs)

    def _take(self, max_records: int) -> list[Record]:
        """Commands first, then triggers; each poll begins at another shard, so none starves under ``max_records``."""
        shards = sorted(self._member.epochs.keys() - self._held)
        records: list[Record] = []
        self._turn += 1
        if shards:
            turn = self._turn % len(shards)
            shards = shards[turn:] + shards[:turn]
        for topic in (COMMANDS, TRIGGERS):
            for shard in shards:
                if topic == TRIGGERS and shard in self._paused:
                    continue
                place = (topic, shard)
                self._positions[place] = self._log._read(place, self._positions[place], max_records, records)
        return records

    def _write(self, appends: Sequence[Append]) -> dict[tuple[str, int], int]:
        log = self._log
        now = log._clock()
        last = dict(log._append(record, now) for record in appends)
        if log._markers:
            for place in last:
                log._records[place].append(None)
        for shard in self._member.epochs.keys() - self._held:
            log._remember(shard)
            for topic in INPUTS:
                log._committed[topic, shard] = self._positions[topic, shard]
        log._notes.update(self._notes)
        log._changed.notify_all()
        return last

    def _leave_holes(self, appends: Sequence[Append]) -> None:
        if not self._log._markers:
            return
        for record in appends:
            partition = partition_of(record.key, self._log.partitions) if record.partition is None else record.partition
            self._log._records[record.topic, partition].append(None)
