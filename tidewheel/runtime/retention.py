"""What may be deleted from the journals, and deleting it.

A shard's state is its snapshots and the events behind them, so events before the newest checkpoint may go. They are the
only history there is, though: nothing is deleted that is younger than wanted, or that a reader has not read yet. Before
the first deletion the snapshots are compared with what the whole journal says, for afterwards nothing else can tell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from tidewheel.core.snapshot import state_hash
from tidewheel.log.interface import JOURNALS, SNAPSHOTS, Log
from tidewheel.runtime.recovery import bring_up_to_date
from tidewheel.runtime.repairs import read_to_end
from tidewheel.runtime.shard import Shard
from tidewheel.runtime.snapshots import restore

#: How often two folds of a shard that is written to are brought on until they meet.
_MEET_MAX = 100


class Cut(msgspec.Struct, frozen=True, kw_only=True):
    """How far one journal partition may be trimmed, and what holds the rest: snapshots, age or a reader's name."""

    topic: str
    partition: int
    start: int
    end: int
    #: Offsets below may go.
    before: int
    held_by: str

    @property
    def offsets(self) -> int:
        """How many there are to delete."""
        return max(0, self.before - self.start)


class SnapshotsDiffer(Exception):
    """The snapshots are not what the journal says, so it must not be trimmed behind them."""


def plan_trim(
    log: Log, older_than: int, readers: Mapping[str, Mapping[tuple[str, int], int]] | None = None
) -> list[Cut]:
    """How far each journal may be trimmed.

    Nothing written at ``older_than`` (ms since the epoch) or later goes, nor what a reader, by name, has to read from
    an offset on; a reader that does not say where it is in a partition holds all of it.
    """
    places = [(topic, number) for topic in JOURNALS for number in range(log.partitions)]
    starts, ends, young = log.start_offsets(places), log.end_offsets(places), log.offsets_at(places, older_than)
    covered = _covered(log)
    cuts = []
    for place in places:
        limits = {"snapshots": covered[place], "age": young[place]}
        limits |= {name: positions.get(place, 0) for name, positions in (readers or {}).items()}
        held_by = min(limits, key=lambda name: limits[name])
        cuts.append(
            Cut(
                topic=place[0],
                partition=place[1],
                start=starts[place],
                end=ends[place],
                before=limits[held_by],
                held_by=held_by,
            )
        )
    return cuts


def trim(log: Log, cuts: Sequence[Cut]) -> None:
    """Delete what the cuts say. Raises ``SnapshotsDiffer`` or ``JournalBroken``, and has deleted nothing then."""
    wanted = [cut for cut in cuts if cut.offsets]
    for number in sorted({cut.partition for cut in wanted}):
        _compare(log, number)
    for cut in wanted:
        log.trim(cut.topic, cut.partition, cut.before)


def _covered(log: Log) -> dict[tuple[str, int], int]:
    """Up to where the snapshots of each shard hold its journals; 0 where there are none that can be used."""
    covered = {}
    for number in range(log.partitions):
        shard = Shard(number)
        restore(shard, read_to_end(log, {(SNAPSHOTS, number): 0}))
        for topic, head in shard.heads.items():
            covered[topic, number] = head.offset
    return covered


def _compare(log: Log, number: int) -> None:
    """The snapshots of an untrimmed shard lead where its whole journal leads."""
    if any(log.start_offset(topic, number) for topic in JOURNALS):
        return
    short, whole = Shard(number), Shard(number)
    bring_up_to_date([short], log, lambda: 0)
    bring_up_to_date([whole], log, lambda: 0, snapshots=False)
    for _ in range(_MEET_MAX):  # it may be written to: both are brought on until they stand at the same event
        if _stands(short) == _stands(whole):
            break
        for shard in (short, whole):
            bring_up_to_date([shard], log, lambda: 0)
    for key in sorted(short.aggregates.keys() | whole.aggregates.keys()):
        one, other = short.aggregates.get(key), whole.aggregates.get(key)
        if one is None or other is None or state_hash(one) != state_hash(other):
            raise SnapshotsDiffer(
                f"the snapshot of {key.kind} '{key.name}' (shard {number}) is not what the journal says: nothing was "
                "trimmed; please report it"
            )


def _stands(shard: Shard) -> list[int]:
    return [shard.heads[topic].shard_seq for topic in JOURNALS]
