"""Bugs to plant into the waiter, as ``tidewheel.testing.simulation.bugs`` does into the engine; and all there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from unittest import mock

from msgspec.structs import replace

from tidewheel.testing.simulation.bugs import Bug
from tidewheel.testing.simulation.campaign import Plant
from tidewheel_projections import simulated_bugs
from tidewheel_services.waiter.records import Awaited, Records
from tidewheel_services.waiter.rounds import Rounds


def window_forgotten() -> Any:
    """A wait for a record ends by one from before its window."""
    begin = Records._begin

    def from_the_first(self: Records, fresh: Mapping[Any, Awaited], scanner: Any) -> None:
        begin(self, {key: replace(awaited, since_ms=0) for key, awaited in fresh.items()}, scanner)

    return mock.patch.object(Records, "_begin", from_the_first)


def not_read_again() -> Any:
    """For a wait whose window opens before where a topic is being read, it is not read again."""
    begin = Records._begin

    def on_only(self: Records, fresh: Mapping[Any, Awaited], scanner: Any) -> None:
        before = dict(self._positions)
        begin(self, fresh, scanner)
        self._positions |= before

    return mock.patch.object(Records, "_begin", on_only)


def looked_once() -> Any:
    """A service that is not ready when it is asked first is never asked again."""
    answered = Rounds._answered

    def never_again(self: Rounds, key: Any, wait: Any, *more: Any) -> bool:
        reported = answered(self, key, wait, *more)
        wait.due = wait.due if reported else float("inf")
        return reported

    return mock.patch.object(Rounds, "_answered", never_again)


_PLANTS: tuple[Plant, ...] = (window_forgotten, not_read_again, looked_once)
#: Those of the engine and of the projector too.
ALL_BUGS: Mapping[str, Bug] = {
    **simulated_bugs.ALL_BUGS,
    **{plant.__name__: Bug((plant.__doc__ or "").strip(), plant) for plant in _PLANTS},
}
