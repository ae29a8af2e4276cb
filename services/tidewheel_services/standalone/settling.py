"""Telling files that lie still from those that an editor or a copy is just writing.

A file is read when it has not changed for a while: a half of it may be a workflow too, with fewer tasks. So with one
that is gone: some editors put a new file in the old one's place, and for a moment there is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeAlias

#: Time, size and number of a file; None if they say nothing.
Stamp: TypeAlias = tuple[int, int, int] | None
Stamps: TypeAlias = tuple[Stamp, ...]
GONE: Final = (0, 0, 0)
#: Writing is done when nothing has changed for so long.
SETTLE_NS: Final = 400_000_000


class Settling:
    """Remembers since when files look as they do."""

    def __init__(self) -> None:
        self._since: dict[Path, tuple[Stamps, int]] = {}

    @property
    def waiting(self) -> bool:
        """Whether any file was changed at the last look and did not lie still."""
        return bool(self._since)

    def is_waiting(self, path: Path) -> bool:
        """Whether this one is such a file."""
        return path in self._since

    def settled(self, changed: Mapping[Path, Stamps], now_ns: int) -> set[Path]:
        """Those of the files that changed which lie still; the others are to be shown again at the next look."""
        since = {}
        for path, stamps in changed.items():
            before = self._since.get(path)
            since[path] = before if before is not None and before[0] == stamps else (stamps, now_ns)
        still = {path for path, (stamps, seen_ns) in since.items() if _is_still(stamps, seen_ns, now_ns)}
        self._since = {path: seen for path, seen in since.items() if path not in still}
        return still


def _is_still(stamps: Stamps, seen_ns: int, now_ns: int) -> bool:
    """By the files' own times, if they are believable; else they have looked like this for long enough."""
    written = [stamp[0] for stamp in stamps if stamp is not None and stamp != GONE]
    if len(written) == len(stamps) and max(written) <= now_ns - SETTLE_NS:
        return True
    return now_ns - seen_ns >= SETTLE_NS
