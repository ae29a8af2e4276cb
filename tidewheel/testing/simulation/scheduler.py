"""One scheduler process: the real scheduler behind a watched log, with a clock of its own and faults that await it."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, cast

import msgspec

from tidewheel.log.interface import Append, Batch, Fenced, Log, LogUnavailable
from tidewheel.runtime.scheduler import Scheduler, Status
from tidewheel.testing.simulation.expressions import PlainEvaluator
from tidewheel.testing.simulation.faults import SchedulerPoint
from tidewheel.testing.simulation.interception import Crash, WatchedLog

if TYPE_CHECKING:
    from tidewheel.runtime.shard import Shard
    from tidewheel.testing.simulation.world import TroubledWorld


class SchedulerProcess:
    """``step`` is one turn. What is ``armed`` for a point happens when a turn next comes there."""

    def __init__(self, world: TroubledWorld, name: str, skew_ms: int) -> None:
        self.world = world
        self.name = name
        self.skew_ms = skew_ms
        self.armed: dict[SchedulerPoint, str] = {}
        #: It is within a turn; also while it stands still there.
        self.busy = False
        #: Killed while it stood still: it dies when it would go on.
        self.dead = False
        #: When (by its own clock) it took each shard it holds.
        self.taken: dict[int, int] = {}
        self._epochs: dict[int, int] = {}
        self._taking: list[int] = []
        self._phase: SchedulerPoint = "poll"
        self.scheduler = Scheduler(
            cast(Log, WatchedLog(world.log, self)),
            name,
            PlainEvaluator(self._deciding),
            clock=self._clock,
            rules=msgspec.structs.replace(world.rules, evaluator=PlainEvaluator(self._deciding)),
            checkpoint_events=world.checkpoint_events,
        )

    def step(self, timeout_s: float) -> bool:
        """One turn of the loop, unless it is within one. What would end the process ends it."""
        if self.busy or self.dead:
            return False
        self.busy = True
        self._phase = "poll"
        try:
            return self.scheduler.step(timeout_s)
        except LogUnavailable:
            return True
        except Crash:
            self.world.died(self)
        except Fenced as error:
            # Another process has its name: it says so and ends.
            if "instance" not in str(error):
                self.world.violate(f"{self.name} was fenced outside a commit: {error}")
            self.world.died(self)
        finally:
            self.busy = False
            for stopped in self.scheduler._quarantine.stopped:
                self.world.violate(f"{self.name} found the journal broken: {stopped.fault.report}")
        return True

    @property
    def status(self) -> Status:
        """What it tells of itself."""
        return self.scheduler.status

    @property
    def shards(self) -> dict[int, Shard]:
        """What it holds, as it believes."""
        return self.scheduler._owned

    @property
    def settled(self) -> bool:
        """Its memory is meant to be what the journal says: no turn was cut short."""
        return not self.busy and not self.scheduler._interrupted

    def at(self, point: SchedulerPoint) -> None:
        """It has come to this point."""
        self._phase = point
        if point in self.armed:
            self.world.hit(self, point, self.armed.pop(point))
        if self.dead:
            raise Crash

    def polled(self, batch: Batch) -> None:
        """It holds these shards now."""
        self._phase = "decide"
        self._taking = [shard for shard, epoch in batch.shards.items() if self._epochs.get(shard) != epoch]
        for shard in self._taking:
            self.taken.pop(shard, None)
        self._epochs = dict(batch.shards)

    def wrote(self, places: Collection[tuple[str, int]]) -> None:
        """It may have written to these partitions of the journals."""
        self.world.follower.follow(self, sorted(places))

    def posted(self, mail: Append) -> None:
        """It has sent this."""
        self.world.follower.judge_mail(mail)

    def _clock(self) -> int:
        now = self.world.now + self.skew_ms
        if self._phase == "acknowledge":
            self.at("adopt")
        elif self._phase in ("decide", "recover"):
            for shard in self._taking:
                self.taken[shard] = min(now, self.taken.get(shard, now))
            if self._phase == "decide":
                self.at("decide")
        return self.world.now + self.skew_ms

    def _deciding(self) -> None:
        if self._phase == "decide":
            self.at("decide")
