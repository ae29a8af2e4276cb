"""One stretch of projecting on one connection: batches of records into transactions.

Memory is ahead of the database while a batch is applied; whenever one fails, memory is thrown away and read again. A
batch that holds a record that can not be applied is halved until that record stands alone; then its partition stops
there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import psycopg
import structlog

from tidewheel.core.events import Recorded
from tidewheel.log.interface import JOURNALS, Log, Record
from tidewheel.runtime.repairs import repairs_of
from tidewheel_projections.folding import Folding
from tidewheel_projections.journal import Journals, Place
from tidewheel_projections.store import REFUSED, Store

_log = structlog.get_logger("tidewheel.projector")


class Replaced(Exception):
    """The tables were rebuilt meanwhile: begin again from the new ones."""


class CannotFold(Exception):
    """An event that the rows before it do not allow."""


#: What a batch raises that holds a record which can never be applied as it is.
_UNFIT: tuple[type[Exception], ...] = (CannotFold, *REFUSED)


class Session:
    """Applies records to the tables of ``store``."""

    def __init__(self, store: Store, log: Log) -> None:
        self._log = log
        self._store = store
        self._epoch = self._store.epoch()
        self.journals = Journals(())
        #: Ends of stopped journals when they were last searched for repairs.
        self._looked_at: dict[Place, int] = {}
        self._folding = Folding()
        self.reload()
        self._find_replaced_log()

    def reload(self) -> None:
        """Throw memory away; positions come from the database."""
        self._store.rolled_back()
        self._folding = Folding()
        repairs = self.journals.repairs
        self.journals = Journals(self._store.tracks(self._log.partitions))
        self.journals.repairs = repairs

    def take_up_repaired(self) -> bool:
        """Look whether a repair lets stopped journals be followed again. True if any is."""
        taken = False
        for place, track in self.journals.tracks.items():
            if not track.stopped or place[0] not in JOURNALS:
                continue
            end = self._log.end_offset(*place)
            if self._looked_at.get(place) == end:
                continue
            self._looked_at[place] = end
            repairs = repairs_of(self._log, *place, min(track.start, end))
            known = self.journals.repairs.get(place, ())
            if repairs and repairs != known:
                self.journals.take_up(place, repairs)
                taken |= not track.stopped
        self._write_tracks()
        return taken

    def starts(self) -> Mapping[Place, int]:
        """Where to read each partition that is followed from."""
        return {place: track.start for place, track in self.journals.tracks.items() if not track.stopped}

    def apply(self, records: Sequence[Record], next_offsets: Mapping[Place, int] | None = None) -> int:
        """Apply records in one transaction; gives how many were new. ``next_offsets`` are known to follow them."""
        try:
            return self._apply(records, next_offsets or {}, careful=False)
        except _UNFIT as error:
            _log.info("batch_halved", records=len(records), reason=_first_line(error))
            self.reload()
            return self._apply_carefully(records)

    def beat(
        self, instance: str, started_at: int, ends: Mapping[Place, int], next_offsets: Mapping[Place, int]
    ) -> None:
        """Say that the projector lives, where the log ends, and which markers were passed since the last record."""
        for place, track in self.journals.tracks.items():
            end = ends.get(place, track.end_offset)
            following = track.next_offset if track.stopped else next_offsets.get(place, 0)
            if end != track.end_offset or following > track.next_offset:
                track.end_offset = end
                track.next_offset = max(following, track.next_offset)
                self.journals.moved.add(place)
        with self._store.transaction():
            self._refuse_if_replaced()
            self._store.write_tracks(self.journals)
            self._store.write_health(instance, started_at)
        self.journals.moved.clear()

    def stop_partition(self, place: Place, report: str) -> None:
        """Follow it no further, and say why in the database."""
        self.journals.stop(place, report)
        self._write_tracks()

    def _apply(self, records: Sequence[Record], next_offsets: Mapping[Place, int], careful: bool) -> int:
        journals, folding, store = self.journals, self._folding, self._store
        placed = journals.accept(records)
        for place in journals.moved:
            if place in next_offsets:
                journals.tracks[place].next_offset = next_offsets[place]
        if not journals.moved:
            return 0
        with self._store.transaction():
            self._refuse_if_replaced()
            recorded = [(item.message, item.partition) for item in placed if isinstance(item.message, Recorded)]
            store.load(folding, folding.needed([message.event for message, _ in recorded]))
            for message, partition in recorded:
                self._fold(message, partition)
            store.write(folding, placed, careful)
            store.write_tracks(journals)
        folding.written()
        journals.moved.clear()
        return len(placed)

    def _fold(self, recorded: Recorded, partition: int) -> None:
        try:
            self._folding.fold(recorded.event, partition, recorded.shard_seq)
        except (KeyError, ValueError) as error:
            kind = type(recorded.event).__name__
            raise CannotFold(f"the {kind} does not fit what was projected before it ({error!r})") from error

    def _apply_carefully(self, records: Sequence[Record]) -> int:
        try:
            return self._apply(records, {}, careful=True)
        except _UNFIT as error:
            self.reload()
            if len(records) > 1:
                middle = len(records) // 2
                return self._apply_carefully(records[:middle]) + self._apply_carefully(records[middle:])
            self._give_up(records[0], error)
            return 0

    def _give_up(self, record: Record, error: Exception) -> None:
        place = (record.topic, record.partition)
        if record.topic in JOURNALS:
            where = f"{record.topic}/{record.partition} offset {record.offset}"
            self.stop_partition(place, f"{where} cannot be projected: {_first_line(error)}")
            return
        track = self.journals.tracks[place]
        track.last_offset = record.offset
        track.next_offset = record.offset + 1
        self.journals.passed_over(record, _first_line(error))
        self.journals.moved.add(place)
        self._write_tracks()

    def _write_tracks(self) -> None:
        if self.journals.moved:
            with self._store.transaction():
                self._refuse_if_replaced()
                self._store.write_tracks(self.journals)
            self.journals.moved.clear()

    def _refuse_if_replaced(self) -> None:
        if self._store.epoch() != self._epoch:
            raise Replaced

    def _find_replaced_log(self) -> None:
        ends = self._log.end_offsets(self.journals.tracks)
        for place, track in self.journals.tracks.items():
            if track.stopped:
                # Tried again: the cause may be gone, with an upgrade for example.
                track.stopped = ""
                self.journals.moved.add(place)
            end = ends[place]
            if track.last_offset >= end:
                self.journals.stop(
                    place,
                    f"{place[0]}/{place[1]} ends at offset {end}, but has been projected up to {track.last_offset}: "
                    "this is another log, or it was cut; check TIDEWHEEL_LOG, and rebuild the read model if the log "
                    "is the right one",
                )
        self._write_tracks()


def _first_line(error: Exception) -> str:
    if isinstance(error, psycopg.Error) and error.diag.message_primary:
        return error.diag.message_primary
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
