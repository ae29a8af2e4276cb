"""The real listener behind a watched log and feed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from tidewheel.log.feed import Feed, Place, Stand, Taken
from tidewheel.log.interface import Log
from tidewheel.log.memory_feed import MemoryFollower
from tidewheel.runtime.listener.listener import Listener
from tidewheel.testing.simulation.expressions import PlainEvaluator
from tidewheel.testing.simulation.outsiders import At, LossyProducer

if TYPE_CHECKING:
    from tidewheel.testing.simulation.world import TroubledWorld


class SimulatedListener:
    """The listener; ``at`` is called at each point of its turns."""

    def __init__(self, world: TroubledWorld, name: str, at: At) -> None:
        self._world = world
        self._name = name
        log, feed = cast(Log, _Log(world, at)), cast(Feed, _Feed(world, at))
        self._listener = Listener(log, feed, PlainEvaluator(lambda: None), name, clock=lambda: world.now)

    def turn(self) -> bool:
        """Take some records; true if there were any."""
        before = self._listener.status.records
        self._listener.turn(0)
        return self._listener.status.records > before

    def begin_anew(self) -> None:
        """As its loop does when the log is away."""
        self._listener.close()

    def lose_session(self) -> None:
        """Its partitions are others'."""
        self._world.feed.expel(self._name)


class _Log:
    """The log as this process sees it."""

    def __init__(self, world: TroubledWorld, at: At) -> None:
        self._world = world
        self._at = at

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world.log, name)

    def producer(self) -> LossyProducer:
        """A new producer."""
        return LossyProducer(self._world, lambda: self._at("ask"), lambda: self._at("asked"))


class _Feed:
    """The feed as this process sees it."""

    def __init__(self, world: TroubledWorld, at: At) -> None:
        self._world = world
        self._at = at

    def follower(self, instance: str) -> _Follower:
        """Join the group of listeners."""
        return _Follower(self._world.feed.follower(instance), self._at)


class _Follower:
    """Polls and commits; what is not watched is the follower's own."""

    def __init__(self, follower: MemoryFollower, at: At) -> None:
        self._follower = follower
        self._at = at

    def __getattr__(self, name: str) -> Any:
        return getattr(self._follower, name)

    def poll(self, max_records: int, timeout_s: float) -> Taken:
        """The next records."""
        taken = self._follower.poll(max_records, timeout_s)
        self._at("take")
        return taken

    def commit(self, stands: Mapping[Place, Stand]) -> None:
        """Say how far it has come."""
        self._follower.commit(stands)
        self._at("stood")
