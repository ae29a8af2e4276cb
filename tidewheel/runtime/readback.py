"""The owner reads its own journal back, and compares it with what it believes it wrote.

The log has acknowledged every batch; this is for the case that it lied, lost what it had, or let somebody else write
(KAFKA-17754: a commit held back in the network can act on a later transaction). Each record's chain is computed again
from its bytes, which proves everything in it without decoding it, and the last one must be the owner's own. Now and
then the journals' ends are asked for: one before the owner's last event was cut.

It lags a little and costs little: once a second, a bounded number of records. An owner that writes faster than that for
long leaves out stretches and says so.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

import structlog

from tidewheel.log.interface import JOURNALS, Log, LogError, Reader, Record
from tidewheel.runtime.journal import JournalBroken, JournalFault, broken, prove
from tidewheel.runtime.shard import JournalHead, Shard
from tidewheel.wire.codec import CHAIN_SIZE, DecodeError, chain_matches, decode_event

log = structlog.get_logger()

READ_BACK_MS = 1_000
#: Records compared at a time: at about 8 µs each on Kafka, the client's threads included, under 2 % of a core.
RECORDS_MAX = 2_000
#: Further behind than this, the stretch is left out.
LAG_EVENTS_MAX = 40_000
#: How often the ends are asked for, one request to each broker.
ENDS_MS = 10_000

Place = tuple[str, int]


class ReadBack:
    """Follows the journals of the shards it is told of."""

    def __init__(self, source: Log) -> None:
        self._log = source
        #: Up to where each journal has been compared.
        self._heads: dict[Place, JournalHead] = {}
        self._reader: Reader | None = None
        self._next_at = 0
        self._ends_at = 0
        self.compared = 0
        #: Events that were left out.
        self.skipped = 0

    def begin(self, shard: Shard) -> None:
        """Compare what is written to this shard from now on; what lies there has been proved."""
        for topic in JOURNALS:
            if (topic, shard.number) not in self._heads:
                self._heads[topic, shard.number] = shard.heads[topic]
                self.close()

    def end(self, number: int) -> None:
        """The shard went, or stands still."""
        for topic in JOURNALS:
            if self._heads.pop((topic, number), None) is not None:
                self.close()

    def close(self) -> None:
        """Let go of the reader; the next look makes a new one."""
        reader, self._reader = self._reader, None
        if reader is not None:
            with contextlib.suppress(LogError):
                reader.close()

    def look(self, owned: Mapping[int, Shard], now: int) -> dict[int, JournalFault]:
        """Compare what has come since; gives the shards whose journal is not what was written."""
        if now < self._next_at or not self._heads:
            return {}
        self._next_at = now + READ_BACK_MS
        for number in {number for _, number in self._heads if number not in owned}:
            self.end(number)  # it went while it was being brought up to date
        if not self._heads:
            return {}
        try:
            self._skip(owned)
            if self._reader is None:
                self._reader = self._log.reader({place: head.offset for place, head in self._heads.items()})
            faults = self._compare(self._reader.read(RECORDS_MAX, 0.0), owned)
            if now >= self._ends_at:
                self._ends_at = now + ENDS_MS
                for number, fault in self._find_cut(owned).items():
                    faults.setdefault(number, fault)
        except LogError as error:
            log.warning("the journal could not be read back; trying again", why=str(error))
            self.close()
            return self._find_cut_quietly(owned)
        return faults

    def _compare(self, records: list[Record], owned: Mapping[int, Shard]) -> dict[int, JournalFault]:
        faults: dict[int, JournalFault] = {}
        for record in records:
            place = (record.topic, record.partition)
            head, shard = self._heads.get(place), owned.get(record.partition)
            if head is None or shard is None or record.partition in faults or record.offset < head.offset:
                continue
            try:
                self._heads[place] = _matched(head, record, shard)
            except JournalBroken as error:
                faults[record.partition] = error.fault
            except _Deposed:
                # Whoever owns it now compares it; our own next commit will be refused.
                del self._heads[place]
            self.compared += 1
        return faults

    def _skip(self, owned: Mapping[int, Shard]) -> None:
        for place, head in self._heads.items():
            shard = owned.get(place[1])
            written = head if shard is None else shard.heads[place[0]]
            behind = written.shard_seq - head.shard_seq
            if behind > LAG_EVENTS_MAX:
                log.info("a stretch of the journal is not read back", shard=place[1], topic=place[0], events=behind)
                self.skipped += behind
                self._heads[place] = written
                self.close()

    def _find_cut(self, owned: Mapping[int, Shard]) -> dict[int, JournalFault]:
        faults: dict[int, JournalFault] = {}
        places = [place for place in self._heads if place[1] in owned]
        ends = self._log.end_offsets(places) if places else {}
        for (topic, number), end in ends.items():
            head = owned[number].heads[topic]
            if end < head.offset:
                detail = f"the journal ends at offset {end}, and event {head.shard_seq} was written behind it"
                faults.setdefault(number, broken(head, topic, number, end, "cut", detail).fault)
        return faults

    def _find_cut_quietly(self, owned: Mapping[int, Shard]) -> dict[int, JournalFault]:
        """A reader that begins behind the end is refused: then this says where the end is."""
        try:
            return self._find_cut(owned)
        except LogError:
            return {}


class _Deposed(Exception):
    """A later owner writes."""


def _matched(head: JournalHead, record: Record, shard: Shard) -> JournalHead:
    """The head behind ``record`` if it is what the owner wrote there. Raises ``JournalBroken`` or ``_Deposed``."""
    value, written = record.value, shard.heads[record.topic]
    if value is None or not chain_matches(head.chain, value):
        prove(head, record)
        raise AssertionError("a record whose chain differs cannot be proved")
    chain = value[-CHAIN_SIZE:]
    if record.offset > written.last or (record.offset == written.last and chain != written.chain):
        try:
            recorded = decode_event(value)
        except DecodeError:
            recorded = None
        if recorded is not None and _is_of_next_owner(recorded.writer, shard):
            raise _Deposed
        place = (record.topic, record.partition, record.offset)
        detail = f"its owner, writer {shard.writer}, did not write this here"
        raise broken(head, *place, "not_what_was_written", detail, found=recorded, value=value)
    return JournalHead(record.offset + 1, head.shard_seq + 1, chain, head.writer, record.offset)


def _is_of_next_owner(writer: int, shard: Shard) -> bool:
    """Whether an event of this term, which follows the one before it, tells that the shard has gone to another owner.

    Who has written nothing in its term yet may have taken the shard over late, behind an owner that is its successor
    in truth; then whatever follows is that one's, whatever its term.
    """
    wrote = any(head.writer == shard.writer for head in shard.heads.values())
    return writer > shard.writer or not wrote
