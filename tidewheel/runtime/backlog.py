"""Back-pressure: how much of ``triggers`` is taken in, and where the rest waits.

Two bounds (``core.room``). A *DAG* with too many waiting runs is **postponed**: its triggers are passed over and stay
where they are, everybody else's go on. What was passed over is an extent of the topic, first to last offset, noted
beside the shard's position in the same transaction (``Owner.note``); so it survives the owner, and nothing is written
twice. When half of the DAG's runs have had their turn, its triggers are read again from the first one passed over,
in order. A *shard* with too many live runs reads no triggers at all.

Reports, cancels, timers and slots travel by ``commands`` or by nothing, and never wait for any of this.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

import msgspec
import structlog

from tidewheel.core import commands as c
from tidewheel.core.room import has_much_room, has_room, is_full
from tidewheel.core.rules import Rules
from tidewheel.core.state import Dag
from tidewheel.log.interface import NOTE_BYTES_MAX, TRIGGERS, Log, LogMisconfigured, Owner, Reader, Record
from tidewheel.runtime.answered import Answered
from tidewheel.runtime.shard import Shard
from tidewheel.runtime.work import Work
from tidewheel.wire.codec import DecodeError
from tidewheel.wire.triggers import decode_trigger

log = structlog.get_logger()

#: Records looked through in one turn for those of postponed DAGs.
_LOOKED_THROUGH_MAX = 5_000


class Extent(msgspec.Struct, frozen=True, array_like=True):
    """A DAG's triggers with offsets from ``first`` to ``last`` wait on the topic."""

    first: int
    last: int


class Note(msgspec.Struct, omit_defaults=True):
    """What an owner leaves to the next beside a shard's position on triggers."""

    full: bool = False
    postponed: dict[str, Extent] = msgspec.field(default_factory=dict)


def read_note(text: str) -> Note:
    """The note. Raises ``LogMisconfigured`` for one that this version cannot read: triggers would be lost."""
    if not text:
        return Note()
    try:
        return msgspec.json.decode(text, type=Note)
    except msgspec.DecodeError as error:
        raise LogMisconfigured(
            f"what stands beside the position on triggers is not ours ({error}): {text[:200]!r}. If a newer Tidewheel "
            "wrote it, run that; nothing else may commit positions of its consumer group"
        ) from error


def was_postponed(postponed: Mapping[str, Extent], record: Record) -> bool:
    """Whether this trigger was passed over and waits still."""
    command = _command(record)
    extent = postponed.get(command.dag) if command is not None else None
    return extent is not None and extent.first <= record.offset <= extent.last


def still_waiting(postponed: Mapping[str, Extent], answered: Answered) -> dict[str, Extent]:
    """What of it waits in truth: the note may be older than the journal, like the position it stands beside."""
    left = {
        dag: Extent(max(extent.first, answered.triggers.get(dag, -1) + 1), extent.last)
        for dag, extent in postponed.items()
    }
    return {dag: extent for dag, extent in left.items() if extent.first <= extent.last}


def write_note(note: Note) -> str:
    """The note as text; nothing to say is an empty one."""
    return msgspec.json.encode(note).decode() if note.full or note.postponed else ""


class Backlog:
    """What the shards of one owner have put off."""

    def __init__(self, source: Log, owner: Owner, rules: Rules) -> None:
        self._log = source
        self._owner = owner
        self._rules = rules
        self._notes: dict[int, Note] = {}
        #: As the owner was last told.
        self._written: dict[int, str] = {}
        self._paused: frozenset[int] = frozenset()
        #: Postponed DAGs that are being read again.
        self._flowing: set[str] = set()
        self._scans: dict[int, _Scan] = {}
        #: Shards whose note has no place for another DAG.
        self._crowded: set[int] = set()

    @property
    def paused(self) -> tuple[int, ...]:
        """Shards that read no triggers."""
        return tuple(sorted(self._paused))

    @property
    def postponed(self) -> tuple[str, ...]:
        """DAGs whose triggers wait."""
        return tuple(sorted(dag for note in list(self._notes.values()) for dag in list(note.postponed)))

    @property
    def reading(self) -> bool:
        """Whether triggers passed over are being read again, so that the next turn should come soon."""
        return bool(self._scans)

    def close(self) -> None:
        """Let the readers go."""
        for number in list(self._scans):
            self._end_scan(number)

    def take(self, shard: Shard, text: str) -> None:
        """A shard is ours, or ours anew after a batch that was not committed: what its note says holds."""
        self._end_scan(shard.number)
        self._crowded.discard(shard.number)
        note = self._notes[shard.number] = read_note(text)
        note.postponed = still_waiting(note.postponed, shard.answered)
        self._written[shard.number] = text
        shard.count()
        shard.full = self._notes[shard.number].full

    def drop(self, number: int) -> None:
        """A shard went to another owner."""
        self._end_scan(number)
        self._notes.pop(number, None)
        self._written.pop(number, None)

    def admits(self, work: Work, dag: str, record: Record) -> bool:
        """Whether this trigger is decided now. If not, it is noted as passed over."""
        note = self._notes[record.partition]
        extent = note.postponed.get(dag)
        if extent is not None:
            note.postponed[dag] = Extent(extent.first, max(extent.last, record.offset))
            return False
        state = work.dag(dag)
        if state is None or has_room(state, self._rules):
            return True
        note.postponed[dag] = Extent(record.offset, record.offset)
        if len(write_note(note)) > NOTE_BYTES_MAX - _GROWTH_BYTES * len(note.postponed):
            del note.postponed[dag]
            self._crowded.add(record.partition)
            return True
        log.warning(
            "a DAG has too many waiting runs; its triggers wait on their topic",
            dag=dag,
            waiting=len(state.queued_runs),
            record=f"{record.topic}/{record.partition}/{record.offset}",
        )
        return False

    def read_on(self, work: Work, shards: Mapping[int, Shard], most: int) -> None:
        """Decide at most ``most`` triggers that were passed over, of DAGs that have room again."""
        for number, note in self._notes.items():
            if not note.postponed or shards[number].full:
                self._end_scan(number)
                continue
            going = {dag for dag in note.postponed if self._goes_on(dag, work.dag(dag))}
            if not going:
                self._end_scan(number)
                continue
            scan = self._scan(number, min(note.postponed[dag].first for dag in going))
            most -= scan.decide(work, note, going, self._rules, most)
            self._flowing &= going | (self._flowing - note.postponed.keys())
            if most <= 0:
                return

    def note(self) -> bool:
        """Tell the owner what to write with the next commit; true if that differs from what is there."""
        changed = {
            number: text for number, note in self._notes.items() if (text := write_note(note)) != self._written[number]
        }
        self._owner.note(changed)
        self._written |= changed
        return bool(changed)

    def measure(self, shards: Iterable[Shard]) -> None:
        """See which shards are full, and read triggers of the others only."""
        full = set()
        for shard in shards:
            crowded = shard.number in self._crowded
            if crowded and len(write_note(self._notes[shard.number])) < NOTE_BYTES_MAX // 2:
                self._crowded.discard(shard.number)
                crowded = False
            before, shard.full = shard.full, is_full(shard.runs, shard.input_bytes, self._rules, before=shard.full)
            if shard.full != before:
                what = "a shard is full; its triggers wait" if shard.full else "a shard takes triggers in again"
                log.warning(what, shard=shard.number, runs=shard.runs, input_bytes=shard.input_bytes)
            if shard.full or crowded:
                full.add(shard.number)
            self._notes[shard.number].full = shard.number in full
        if full != self._paused:
            self._paused = frozenset(full)
            self._owner.pause_triggers(self._paused)

    def _goes_on(self, dag: str, state: Dag | None) -> bool:
        if state is None or has_much_room(state, self._rules):
            self._flowing.add(dag)
        elif not has_room(state, self._rules):
            self._flowing.discard(dag)
        return dag in self._flowing

    def _scan(self, number: int, start: int) -> _Scan:
        scan = self._scans.get(number)
        if scan is None or scan.position != start:
            self._end_scan(number)
            oldest = self._log.start_offset(TRIGGERS, number)
            if oldest > start:
                log.error(
                    "retention deleted triggers that waited; raise retention.ms of the topic triggers",
                    shard=number,
                    offsets=f"{start} to {oldest - 1}",
                )
            scan = self._scans[number] = _Scan(self._log.reader({(TRIGGERS, number): start}), number, start)
        return scan

    def _end_scan(self, number: int) -> None:
        scan = self._scans.pop(number, None)
        if scan is not None:
            scan.reader.close()


#: What a note grows by per DAG when offsets get longer.
_GROWTH_BYTES = 12


class _Scan:
    """A walk through the triggers of one shard for those that were passed over."""

    def __init__(self, reader: Reader, number: int, start: int) -> None:
        self.reader = reader
        self._place = (TRIGGERS, number)
        self._start = start
        self._read: deque[Record] = deque()

    @property
    def position(self) -> int:
        """The next offset to look at."""
        if self._read:
            return self._read[0].offset
        return max(self._start, self.reader.positions()[self._place])

    def decide(self, work: Work, note: Note, going: set[str], rules: Rules, most: int) -> int:
        """Go on until ``most`` are decided, or what can be read at once is; gives how many were."""
        decided = 0
        if not self._read:
            self._read.extend(self.reader.read(_LOOKED_THROUGH_MAX, 0))
        while self._read and decided < most and going:
            record = self._read[0]
            command = _command(record)
            if command is not None and command.dag in going:
                extent = note.postponed[command.dag]
                if extent.first <= record.offset <= extent.last:
                    state = work.dag(command.dag)
                    if state is not None and not has_room(state, rules):
                        note.postponed[command.dag] = Extent(record.offset, extent.last)
                        going.discard(command.dag)
                        continue
                    work.handle(command, f"{record.topic}/{record.partition}/{record.offset}", record)
                    decided += 1
            self._read.popleft()
        position = self.position
        for dag in going:
            extent = note.postponed[dag]
            if position > extent.last:
                del note.postponed[dag]
                log.warning("a DAG's triggers wait no more", dag=dag)
            elif position > extent.first:
                note.postponed[dag] = Extent(position, extent.last)
        return decided


def _command(record: Record) -> c.StartRun | None:
    """None for what could not be decoded: it became a dead letter when it was first read."""
    if record.value is None:
        return None
    try:
        return decode_trigger(
            record.value,
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            timestamp=record.timestamp,
        )
    except DecodeError:
        return None
