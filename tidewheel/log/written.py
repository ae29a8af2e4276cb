"""Which shards a commit writes to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidewheel.log.interface import JOURNALS, SNAPSHOTS, Append, Fenced
from tidewheel.log.partition import partition_of

#: Partition ``p`` of these is written by the owner of shard ``p`` only.
_OWNED = frozenset((*JOURNALS, SNAPSHOTS))


def written_shards(appends: Iterable[Append], owned: Mapping[int, int], partitions: int) -> set[int]:
    """The shards whose journals or snapshots these records go to. Raises ``Fenced`` if one of them is not owned."""
    written = {
        partition_of(record.key, partitions) if record.partition is None else record.partition
        for record in appends
        if record.topic in _OWNED
    }
    if strange := written - owned.keys():
        raise Fenced(f"shard {min(strange)} is not owned: its journal and snapshots are another owner's to write")
    return written
