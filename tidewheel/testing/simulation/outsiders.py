"""Processes beside the engine, listeners and waiters: each can be hit at the points of its turn, and comes back."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias

from tidewheel.log.interface import Append, LogUnavailable
from tidewheel.testing.simulation.faults import OutsiderPoint
from tidewheel.testing.simulation.interception import Crash

if TYPE_CHECKING:
    from tidewheel.testing.simulation.world import TroubledWorld

At: TypeAlias = Callable[[OutsiderPoint], None]


class Turning(Protocol):
    """What such a process does."""

    def turn(self) -> bool:
        """One turn; true if it did anything. It says at which points it is."""

    def begin_anew(self) -> None:
        """What it asked for was away: let go of everything."""

    def lose_session(self) -> None:
        """It has not been heard of for too long: what it held is others'."""


#: Makes one of this name, which calls ``at`` at each point of its turns.
Make: TypeAlias = Callable[["TroubledWorld", str, At], Turning]


class Outsider:
    """One process, from its start to its death. What is ``armed`` for a point happens when a turn next comes there."""

    def __init__(self, world: TroubledWorld, name: str, make: Make) -> None:
        self.world = world
        self.name = name
        self.armed: dict[OutsiderPoint, str] = {}
        #: It is within a turn; also while it stands still there.
        self.busy = False
        self.dead = False
        self.process = make(world, name, self._at)

    def step(self) -> bool:
        """One turn, unless it is within one; true if it did anything."""
        if self.busy or self.dead:
            return False
        self.busy = True
        try:
            return self.process.turn()
        except LogUnavailable:
            self.process.begin_anew()
        except Crash:
            self.world.outsider_died(self)
        finally:
            self.busy = False
        return True

    def _at(self, point: OutsiderPoint) -> None:
        if point in self.armed:
            self.world.hit_outsider(self, point, self.armed.pop(point))
        if self.dead:
            raise Crash


class LossyProducer:
    """What was sent is lost with the process until it has been flushed, as with Kafka's; whoever dies meanwhile has
    sent some of it."""

    def __init__(self, world: TroubledWorld, before_each: Callable[[], None], after_all: Callable[[], None]) -> None:
        self._world = world
        self._before_each = before_each
        self._after_all = after_all
        self._sent: list[Append] = []

    def send(self, record: Append) -> None:
        """Keep it for when it is flushed."""
        self._sent.append(record)

    def flush(self, timeout_s: float) -> None:
        """Append what was sent."""
        while self._sent:
            self._before_each()
            self._world.post(self._sent.pop(0))
        self._after_all()

    def close(self) -> None:
        """What was not flushed is gone."""
        self._sent.clear()
