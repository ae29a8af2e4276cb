"""Following partitions: what comes next, and the proof that nothing is missing, doubled or altered.

A journal partition is believed as long as each record decodes, carries the next ``shard_seq`` and is chained to the
one before. At the first that does not, the partition is stopped with a report; the others go on. Log chunks and dead
letters carry no such proof, and one that cannot be read is passed over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import msgspec
import structlog

from tidewheel.core.events import Recorded
from tidewheel.log.interface import DEAD_LETTERS, EVENTS, JOURNALS, LOGS, POOL_EVENTS, Record
from tidewheel.runtime.repairs import Repair
from tidewheel.wire.codec import CHAIN_SIZE, GENESIS, DecodeError, chain_matches, decode, decode_event
from tidewheel.wire.messages import DeadLetter, LogChunk

Place: TypeAlias = tuple[str, int]

FOLLOWED = (EVENTS, POOL_EVENTS, LOGS, DEAD_LETTERS)

_log = structlog.get_logger("tidewheel.projector")


class Track(msgspec.Struct):
    """How far a partition has been projected."""

    topic: str
    partition: int
    #: Of the last record applied; reading starts there again, which proves that it is still the same log.
    last_offset: int = -1
    next_offset: int = 0
    shard_seq: int = 0
    chain: bytes = GENESIS
    last_at: int | None = None
    end_offset: int = 0
    stopped: str = ""

    @property
    def place(self) -> Place:
        """Topic and partition."""
        return (self.topic, self.partition)

    @property
    def start(self) -> int:
        """Where to read from."""
        return max(self.last_offset, 0)


class Placed(msgspec.Struct, frozen=True):
    """A decoded record and where it lies."""

    topic: str
    partition: int
    offset: int
    message: Recorded | LogChunk | DeadLetter


class Journals:
    """The tracks of all followed partitions."""

    def __init__(self, tracks: Iterable[Track]) -> None:
        self.tracks: Mapping[Place, Track] = {track.place: track for track in tracks}
        #: Repairs that are known; what they declared void is passed over.
        self.repairs: dict[Place, tuple[Repair, ...]] = {}
        #: Tracks to be written.
        self.moved: set[Place] = set()

    def accept(self, records: Iterable[Record]) -> list[Placed]:
        """What is new in these records, each partition's in order."""
        placed: list[Placed] = []
        for record in records:
            track = self.tracks[record.topic, record.partition]
            if track.stopped:
                continue
            if record.topic in JOURNALS:
                self._accept_event(track, record, placed)
            elif record.offset > track.last_offset:
                self._accept_message(track, record, placed)
        return placed

    def stop(self, place: Place, report: str) -> None:
        """Follow the partition no further."""
        self.tracks[place].stopped = report
        self.moved.add(place)
        _log.error("partition_stopped", topic=place[0], partition=place[1], report=report)

    def take_up(self, place: Place, repairs: tuple[Repair, ...]) -> None:
        """Follow a stopped partition again, past what these repairs declared void."""
        track = self.tracks[place]
        self.repairs[place] = repairs
        self.moved.add(place)
        if any(repair.event.void_from <= track.last_offset < repair.offset for repair in repairs):
            track.stopped = (
                f"{place[0]}/{place[1]} was repaired, and events were projected that are void now: "
                "run `tidewheel projection rebuild`"
            )
            return
        track.stopped = ""
        _log.info("partition_taken_up", topic=place[0], partition=place[1], repairs=len(repairs))

    def _accept_event(self, track: Track, record: Record, placed: list[Placed]) -> None:
        if any(repair.voids(record.offset) for repair in self.repairs.get(track.place, ())):
            return
        value = record.value
        if record.offset <= track.last_offset:
            if record.offset == track.last_offset and (value is None or value[-CHAIN_SIZE:] != track.chain):
                self.stop(
                    track.place,
                    f"{_where(record)} is not the record that was projected from there: this is another log, or its "
                    "history was altered; check TIDEWHEEL_LOG, and rebuild the read model if the log is the right one",
                )
            return
        try:
            if value is None:
                raise DecodeError("foreign", "the record has no value")
            recorded = decode_event(value)
        except DecodeError as error:
            self.stop(
                track.place,
                f"{_where(record)} is no event of ours ({error.code}: {error.reason}); "
                "run `tidewheel verify`, and upgrade the projector if a newer release wrote it",
            )
            return
        wanted = track.shard_seq + 1
        if recorded.shard_seq != wanted:
            what = "events are missing before it" if recorded.shard_seq > wanted else "it repeats an event"
            if track.shard_seq == 0 and recorded.shard_seq > wanted:
                what = (
                    "the journal was trimmed, and only a copy of this database has what was before (docs/upgrading.md)"
                )
            self.stop(
                track.place,
                f"{_where(record)} carries shard_seq {recorded.shard_seq}, and {wanted} was next: {what}; "
                "run `tidewheel verify`",
            )
            return
        if not chain_matches(track.chain, value):
            self.stop(
                track.place,
                f"{_where(record)} (shard_seq {recorded.shard_seq}) is not chained to the event before it: "
                "history forks or was altered there; run `tidewheel verify`",
            )
            return
        track.last_offset = record.offset
        track.next_offset = record.offset + 1
        track.shard_seq = wanted
        track.chain = recorded.chain
        track.last_at = recorded.event.at
        self.moved.add(track.place)
        placed.append(Placed(record.topic, record.partition, record.offset, recorded))

    def _accept_message(self, track: Track, record: Record, placed: list[Placed]) -> None:
        track.last_offset = record.offset
        track.next_offset = record.offset + 1
        self.moved.add(track.place)
        wanted = LogChunk if record.topic == LOGS else DeadLetter
        try:
            if record.value is None:
                raise DecodeError("foreign", "the record has no value")
            message = decode(record.value)
        except DecodeError as error:
            self.passed_over(record, f"{error.code}: {error.reason}")
            return
        if not isinstance(message, wanted):
            self.passed_over(record, f"a {type(message).__name__} where a {wanted.__name__} belongs")
            return
        track.last_at = message.at
        placed.append(Placed(record.topic, record.partition, record.offset, message))

    def passed_over(self, record: Record, reason: str) -> None:
        """Say that a log chunk or dead letter cannot be shown."""
        _log.warning("record_passed_over", record=_where(record), reason=reason)


def _where(record: Record) -> str:
    return f"{record.topic}/{record.partition} offset {record.offset}"
