"""The campaign's own reader of the journals: proves them while they grow, and keeps what the verdict compares.

It reads around the proxy, so no fault of the network blinds it.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from tidewheel.core import events as e
from tidewheel.log.interface import JOURNALS, Log, LogError
from tidewheel.runtime.checker import Checker, Report
from tidewheel.wire.codec import DecodeError, decode_event

RunKey = tuple[str, str]
Attempt = tuple[str, str, str, int]

_READ_S = 0.1


def now_ms() -> int:
    """The machine's clock, which everybody here shares."""
    return time.time_ns() // 1_000_000


@dataclass
class Watch:
    """Waits for each shard's first start of a task that was leased after ``begin``; ``found`` has it in seconds."""

    shards: frozenset[int]
    since_ms: int = sys.maxsize
    found: dict[int, float] = field(default_factory=dict)
    done: threading.Event = field(default_factory=threading.Event)

    def begin(self) -> None:
        """The fault is made now."""
        self.since_ms = now_ms()
        if not self.shards:
            self.done.set()

    def saw(self, shard: int, leased_ms: int, started_ms: int) -> None:
        """A task of this shard began."""
        if leased_ms >= self.since_ms and shard in self.shards and shard not in self.found:
            self.found[shard] = max(0, started_ms - self.since_ms) / 1000
            if self.found.keys() >= self.shards:
                self.done.set()


class JournalReader:
    """Follows every journal partition of ``log`` from its start, in a thread of its own."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._checker = Checker()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._positions = {(topic, shard): 0 for topic in JOURNALS for shard in range(log.partitions)}
        self._watches: list[Watch] = []
        self._thread = threading.Thread(target=self._follow, name="journal-reader", daemon=True)
        #: Causes of each run's creation: more than one is a doubled run.
        self.created: dict[RunKey, list[str]] = defaultdict(list)
        #: The record that a run says it answers, of those that triggers made.
        self.origins: dict[RunKey, str] = {}
        self.ended: dict[RunKey, list[str]] = defaultdict(list)
        self.leases: dict[Attempt, tuple[str, int]] = {}
        self.started: dict[Attempt, int] = {}
        #: Attempts that came to a recorded end, with how; and per task the ends that are final.
        self.results: dict[Attempt, list[str]] = defaultdict(list)
        self.final: dict[tuple[str, str, str], list[str]] = defaultdict(list)
        self.counts: Counter[str] = Counter()
        self.undecodable = 0

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._stop.set()
        self._thread.join(20)

    def report(self, *, settled: bool = False) -> Report:
        """What the checker says of what was read so far, which ends anywhere in a transaction until all is settled."""
        with self._lock:
            return self._checker.finish(settled=settled, midway=not settled)

    @contextlib.contextmanager
    def watch(self, shards: frozenset[int]) -> Iterator[Watch]:
        """Look for the first new starts of tasks."""
        watch = Watch(shards)
        with self._lock:
            self._watches.append(watch)
        try:
            yield watch
        finally:
            with self._lock:
                self._watches.remove(watch)

    def works_on(self, worker: str, dags: str, since_ms: int) -> bool:
        """Whether the worker has an attempt of such a DAG that began after ``since_ms`` and has not ended."""
        with self._lock:
            return any(
                began > since_ms
                and attempt[0].startswith(dags)
                and self.leases.get(attempt, ("",))[0] == worker
                and attempt not in self.results
                for attempt, began in self.started.items()
            )

    def succeeded(self) -> list[tuple[Attempt, str]]:
        """The attempts that ended well, with their workers."""
        with self._lock:
            return [
                (attempt, self.leases[attempt][0])
                for attempt, results in self.results.items()
                if results == ["TaskSucceeded"] and attempt in self.leases
            ]

    def succeeded_runs(self) -> set[RunKey]:
        """Those that ended well."""
        with self._lock:
            return {run for run, ends in self.ended.items() if e.RunSucceeded.__name__ in ends}

    def open_runs(self) -> set[RunKey]:
        """Created and not yet ended."""
        with self._lock:
            return self.created.keys() - self.ended.keys()

    def reached_end(self) -> bool:
        """Whether everything that is on the log now has been read."""
        ends = self._log.end_offsets(list(self._positions))
        return all(self._positions[place] >= end for place, end in ends.items())

    def _follow(self) -> None:
        while not self._stop.is_set():
            try:
                reader = self._log.reader(self._positions)
                try:
                    while not self._stop.is_set():
                        for record in reader.read(2_000, _READ_S):
                            self._take(record.topic, record.partition, record.offset, record.value or b"")
                        self._positions = dict(reader.positions())
                finally:
                    reader.close()
            except LogError:
                self._stop.wait(0.3)

    def _take(self, topic: str, partition: int, offset: int, value: bytes) -> None:
        if offset < self._positions[topic, partition]:
            return
        with self._lock:
            self._positions[topic, partition] = offset + 1
            self._checker.feed(topic, partition, offset, value)
            try:
                recorded = decode_event(value)
            except DecodeError:
                self.undecodable += 1
                return
            self.counts[type(recorded.event).__name__] += 1
            if isinstance(recorded.event, e.RunEvent):
                self._note(recorded.event, recorded.cause, partition)

    def _note(self, event: e.RunEvent, cause: str, shard: int) -> None:
        match event:
            case e.RunCreated():
                self.created[event.dag, event.run_id].append(cause)
                if event.origin:
                    self.origins[event.dag, event.run_id] = event.origin
            case e.RunSucceeded() | e.RunFailed() | e.RunCancelled():
                self.ended[event.dag, event.run_id].append(type(event).__name__)
            case e.TaskEvent():
                self._note_task(event, shard)
            case _:
                pass

    def _note_task(self, event: e.TaskEvent, shard: int) -> None:
        attempt = (event.dag, event.run_id, event.task, event.attempt)
        name = type(event).__name__
        match event:
            case e.TaskLeased():
                self.leases[attempt] = (event.worker, event.at)
            case e.TaskStarted():
                self._saw_start(attempt, event.started_at, shard)
            case e.TaskFailed(retry_at=retry_at) | e.LeaseExpired(retry_at=retry_at):
                self.results[attempt].append(name)
                if retry_at is None:
                    self.final[attempt[:3]].append(name)
            case e.TaskSucceeded():
                self._saw_start(attempt, event.started_at, shard)
                self.results[attempt].append(name)
                self.final[attempt[:3]].append(name)
            case e.TaskSkipped() | e.TaskUpstreamFailed() | e.TaskCancelled():
                self.results[attempt].append(name)
                self.final[attempt[:3]].append(name)
            case _:
                pass

    def _saw_start(self, attempt: Attempt, started_ms: int, shard: int) -> None:
        """A short task's end comes without its start having been reported. What waits is leased to nobody."""
        if attempt in self.leases and attempt not in self.started:
            self.started[attempt] = started_ms
            for watch in self._watches:
                watch.saw(shard, self.leases[attempt][1], started_ms)
