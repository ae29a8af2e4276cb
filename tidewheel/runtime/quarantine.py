"""Shards that are owned but stand still, because their journal does not prove itself.

Such a shard decides nothing: its inputs are neither read nor passed over, and wait on their topics. All others go on.
The fault is logged and laid among the dead letters, where the API finds it. Whenever the journal has grown, and now
and then anyway, the shard is tried again; once the journal proves itself, by a repair above all, it goes on.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec
import structlog

from tidewheel.log.interface import DEAD_LETTERS, JOURNALS, Append, Log, LogError, Owner, Producer
from tidewheel.runtime.journal import JournalFault
from tidewheel.runtime.recovery import still_broken
from tidewheel.wire.codec import encode
from tidewheel.wire.messages import DeadLetter

log = structlog.get_logger()

#: Dead letters with these codes say that a shard stopped, and that it goes on; the offset is the fault's.
STOPPED = "shard_stopped"
RESUMED = "shard_resumed"
#: Between two looks at the journal's end, doubling up to the second figure.
RETRY_MS = (1_000, 5_000)
#: A journal that has not grown is read again after so long: a broker may have been mended meanwhile.
ANYWAY_MS = 300_000


class StoppedShard(msgspec.Struct, frozen=True, kw_only=True):
    """A shard that stands still, since when (ms since the epoch) and why."""

    shard: int
    since: int
    fault: JournalFault


class _Cell:
    __slots__ = ("anyway_at", "ends", "look_at", "pause_ms", "read_back", "stopped")

    def __init__(self, stopped: StoppedShard, now: int, read_back: bool) -> None:
        self.stopped = stopped
        #: Found by the owner that had written the journal, not by one that folds it.
        self.read_back = read_back
        #: Of the journals before they were last read again.
        self.ends: dict[tuple[str, int], int] = {}
        self.pause_ms = RETRY_MS[0]
        self.look_at = now + self.pause_ms
        self.anyway_at = now + ANYWAY_MS


class Quarantine:
    """The stopped shards of one owner."""

    def __init__(self, source: Log, owner: Owner, producer: Producer, instance: str) -> None:
        self._log = source
        self._owner = owner
        self._producer = producer
        self._instance = instance
        self._cells: dict[int, _Cell] = {}

    def __contains__(self, number: int) -> bool:
        return number in self._cells

    @property
    def stopped(self) -> tuple[StoppedShard, ...]:
        """Those that stand still now."""
        return tuple(cell.stopped for _, cell in sorted(self._cells.copy().items()))

    def stop(self, number: int, fault: JournalFault, now: int, *, read_back: bool = False) -> None:
        """Let the shard stand still. Said once for each fault."""
        cell = self._cells.get(number)
        known = None if cell is None else cell.stopped.fault
        if cell is None:
            self._cells[number] = _Cell(StoppedShard(shard=number, since=now, fault=fault), now, read_back)
            self._owner.hold(frozenset(self._cells))
        else:
            cell.stopped = StoppedShard(shard=number, since=cell.stopped.since, fault=fault)
            cell.anyway_at = now + ANYWAY_MS
        if fault != known:
            log.error("a shard stopped: its journal does not prove itself", shard=number, report=fault.report)
            self._tell(STOPPED, fault, f"shard {number} stopped at {self._instance}: {fault.report}", now)

    def resume(self, number: int, now: int) -> None:
        """Its journal proves itself again: read its inputs."""
        cell = self._cells.pop(number)
        self._owner.hold(frozenset(self._cells))
        log.info("a stopped shard goes on", shard=number, stood_ms=now - cell.stopped.since)
        self._tell(RESUMED, cell.stopped.fault, f"shard {number} goes on at {self._instance}: its journal proves", now)

    def keep(self, owned: Collection[int]) -> None:
        """Let go of shards that went to other owners; those find the fault themselves."""
        gone = [number for number in self._cells if number not in owned]
        for number in gone:
            del self._cells[number]
        if gone:
            self._owner.hold(frozenset(self._cells))

    def due(self, now: int) -> list[int]:
        """Shards whose journal is to be read again: it has grown, or has been left alone for long."""
        found = []
        for number, cell in self._cells.items():
            if now < cell.look_at:
                continue
            ends = self._ends(number)
            if now >= cell.anyway_at or ends != cell.ends:
                found.append(number)
            cell.ends = ends
            cell.pause_ms = min(cell.pause_ms * 2, RETRY_MS[1])
            cell.look_at = now + cell.pause_ms
        return [number for number in found if not self._still_broken(number, now)]

    def _still_broken(self, number: int, now: int) -> bool:
        """What reading back has found must be gone first: a fold may begin behind it."""
        cell = self._cells[number]
        if not cell.read_back or still_broken(self._log, cell.stopped.fault) is None:
            return False
        cell.anyway_at = now + ANYWAY_MS
        return True

    def _ends(self, number: int) -> dict[tuple[str, int], int]:
        return dict(self._log.end_offsets([(topic, number) for topic in JOURNALS]))

    def _tell(self, code: str, fault: JournalFault, reason: str, now: int) -> None:
        letter = DeadLetter(
            at=now,
            topic=fault.topic,
            partition=fault.partition,
            offset=fault.offset,
            key=None,
            value=None,
            code=code,
            reason=reason[:10_000],
        )
        try:
            self._producer.send(Append(DEAD_LETTERS, b"", encode(letter), partition=fault.partition))
        except LogError as error:
            log.warning("the fault could not be laid among the dead letters", shard=fault.partition, why=str(error))
