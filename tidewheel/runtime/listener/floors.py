"""Where triggers that are new to a partition begin in it."""

from __future__ import annotations

from collections.abc import Iterable

from tidewheel.log.feed import Follower, Place


class Floors:
    """Per partition: the instants from which triggers take records, and the offsets found for them.

    A later instant never has a lower offset, so what is known of one often tells of another without asking.
    """

    def __init__(self) -> None:
        self._found: dict[Place, dict[int, int]] = {}

    def has_begun(self, place: Place, since: int, offset: int, follower: Follower) -> bool:
        """Whether what takes records since then takes the one at ``offset``."""
        found = self._found.get(place, {})
        if any(later >= since and floor <= offset for later, floor in found.items()):
            return True
        if any(earlier <= since and floor > offset for earlier, floor in found.items()):
            return False
        return self._floor(place, since, follower) <= offset

    def passed(self, place: Place, known: int, sinces: Iterable[int], position: int, follower: Follower) -> int:
        """The last instant whose floor the position has reached, and those of all before it; one is after ``known``."""
        new = sorted({since for since in sinces if since > known})
        if self.has_begun(place, new[-1], position, follower):
            self.forget(place)
            return new[-1]
        for since in new:
            if not self.has_begun(place, since, position, follower):
                break
            known = since
        return known

    def forget(self, place: Place) -> None:
        """It is not held any more, or nothing is new to it."""
        self._found.pop(place, None)

    def _floor(self, place: Place, since: int, follower: Follower) -> int:
        found = self._found.setdefault(place, {})
        if since not in found:
            found[since] = follower.offsets_at([place], since)[place]
        return found[since]
