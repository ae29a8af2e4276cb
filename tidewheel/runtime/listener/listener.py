"""The loop: records of the feed to triggers on the log, positions after them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping

import msgspec
import structlog

from tidewheel.core.expressions import Evaluator
from tidewheel.log.feed import Feed, Follower, Place, Stand
from tidewheel.log.interface import TRIGGERS, Append, Log, LogError, Producer, Record
from tidewheel.runtime.letters import dead_letter
from tidewheel.runtime.listener.definitions import Definitions, Subscription
from tidewheel.runtime.listener.floors import Floors
from tidewheel.runtime.listener.judging import CannotJudge, happening, run_for
from tidewheel.wire.codec import EncodeError, encode

#: Most records between two commits; a crash repeats at most so many.
RECORDS_MAX = 500
#: Looks of a trigger at a record between two commits, about: a topic that thousands of triggers name is read in small
#: steps, so that none takes long.
JUDGEMENTS_MAX = 100_000
#: How long a turn waits for a first record; a stop, and another trigger, are noticed within it.
POLL_S = 0.5
FLUSH_S = 30.0
BACK_OFF_S = (0.2, 2.0)

_log = structlog.get_logger("tidewheel.listener")


class Status(msgspec.Struct):
    """What a listener shows of itself. Counts are since its start, times ms since the epoch."""

    instance: str
    triggers: int = 0
    topics: int = 0
    partitions: int = 0
    #: Topics that cannot be followed now, with the reason.
    missing: Mapping[str, str] = {}
    #: Records up to the ends last seen.
    behind: int = 0
    records: int = 0
    runs: int = 0
    dead_letters: int = 0
    turned_at: int = 0
    #: Why nothing can be followed now; empty: it can.
    fault: str = "nothing has been reached yet"


class Listener:
    """One member of the group of listeners."""

    def __init__(self, log: Log, feed: Feed, evaluator: Evaluator, instance: str, clock: Callable[[], int]) -> None:
        self._log = log
        self._feed = feed
        self._evaluator = evaluator
        self._clock = clock
        self._definitions = Definitions(log)
        self._follower: Follower | None = None
        self._producer: Producer | None = None
        self._floors = Floors()
        self._next: dict[Place, int] = {}
        #: As they are committed.
        self._stands: dict[Place, Stand] = {}
        self.status = Status(instance=instance)

    def run(self, stop: threading.Event) -> None:
        """Listen until ``stop`` is set. What is away is waited for, and begun anew from the committed positions."""
        back_off_s = BACK_OFF_S[0]
        try:
            while not stop.is_set():
                try:
                    self.turn()
                    back_off_s = BACK_OFF_S[0]
                except LogError as error:
                    self.status.fault = str(error)
                    _log.error("a listener begins anew", why=str(error), in_s=back_off_s)
                    self.close()
                    stop.wait(back_off_s)
                    back_off_s = min(back_off_s * 2, BACK_OFF_S[1])
        finally:
            self.close()

    def turn(self, timeout_s: float = POLL_S) -> None:
        """Take some records, append what they ask for, and commit how far they go. Raises ``LogError``."""
        self._definitions.read_on()
        if self._follower is None:
            self._follower = self._feed.follower(self.status.instance)
        if self._producer is None:
            self._producer = self._log.producer()
        follower, producer = self._follower, self._producer
        follower.follow(self._definitions.topics())
        most = min(RECORDS_MAX, JUDGEMENTS_MAX // max(1, self._definitions.most_on_a_topic))
        taken = follower.poll(max(1, most), timeout_s)
        self._hold(taken.fresh, taken.held)
        if taken.records:
            self._definitions.read_on()
        for record in taken.records:
            for append in self._judge(record, follower):
                producer.send(append)
        if taken.records:
            producer.flush(FLUSH_S)
        self._commit(follower)
        self._show(follower, len(taken.records))

    def close(self) -> None:
        """Leave the group; what was not committed is read again by whoever holds the partitions next."""
        follower, self._follower = self._follower, None
        producer, self._producer = self._producer, None
        self._definitions.close()
        self._hold({}, frozenset())
        if follower is not None:
            follower.close()
        if producer is not None:
            producer.close()

    def _hold(self, fresh: Mapping[Place, Stand], held: frozenset[Place]) -> None:
        """Partitions came or went."""
        for place in (self._next.keys() - held) | fresh.keys():
            self._next.pop(place, None)
            self._stands.pop(place, None)
            self._floors.forget(place)
        for place, stand in fresh.items():
            self._next[place] = stand.offset
            self._stands[place] = stand

    def _judge(self, record: Record, follower: Follower) -> Iterable[Append]:
        """What the record comes to: triggers, and dead letters where that cannot be said."""
        place = (record.topic, record.partition)
        self._next[place] = record.offset + 1
        known = self._stands[place].known
        seen = happening(record)
        for one in self._definitions.of_topic(record.topic):
            if one.since > known and not self._floors.has_begun(place, one.since, record.offset, follower):
                continue
            try:
                run = run_for(one.dag, one.trigger, record, seen, self._evaluator)
                if run is not None:
                    yield Append(TRIGGERS, one.dag.encode(), encode(run))
                    self.status.runs += 1
            except CannotJudge as error:
                yield self._letter(record, one, error.code, str(error))
            except (EncodeError, ValueError, TypeError, RecursionError) as error:
                yield self._letter(record, one, "failed", repr(error))

    def _letter(self, record: Record, one: Subscription, code: str, reason: str) -> Append:
        self.status.dead_letters += 1
        whole = f"trigger '{one.trigger.id}' of DAG '{one.dag}': {reason}"
        place = f"{record.topic}/{record.partition}/{record.offset}"
        _log.warning("a record cannot be judged", record=place, code=code, reason=whole)
        return dead_letter(record, code, whole, self._clock())

    def _commit(self, follower: Follower) -> None:
        moved = {}
        for place, offset in self._next.items():
            known, triggers = self._stands[place].known, self._definitions.of_topic(place[0])
            if triggers and triggers[-1].since > known:
                known = self._floors.passed(place, known, (one.since for one in triggers), offset, follower)
            if (stand := Stand(offset, known)) != self._stands[place]:
                moved[place] = stand
        if moved:
            follower.commit(moved)
            self._stands |= moved

    def _show(self, follower: Follower, records: int) -> None:
        status = self.status
        status.triggers = self._definitions.triggers
        status.topics = len(self._definitions.topics())
        status.partitions = len(self._next)
        status.missing = follower.missing
        status.behind = follower.behind()
        status.records += records
        status.turned_at = self._clock()
        status.fault = ""
