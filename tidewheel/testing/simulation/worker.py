"""A worker in trouble: it stops in the middle and goes on, its mail is lost, late or read twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidewheel.core.mail import AssignTask, LeaseRenewed, StopAttempt
from tidewheel.testing.simulation.decoding import message_in
from tidewheel.testing.world import AttemptPlace, Behaviour, Outcome, SimulatedWorker

if TYPE_CHECKING:
    import msgspec

    from tidewheel.testing.simulation.world import TroubledWorld


class TroubledWorker(SimulatedWorker):
    """It knows nothing of leases' ends: whatever it says too late, the engine must refuse."""

    def __init__(
        self, world: TroubledWorld, name: str, pools: dict[str, int], behaviour: Behaviour, skew_ms: int
    ) -> None:
        self.troubled = world
        self.skew_ms = skew_ms
        #: It stands still until then.
        self.paused_until = 0
        super().__init__(world, name, pools, behaviour)

    def clock(self) -> int:
        """Its own clock."""
        return self.troubled.now + self.skew_ms

    def act(self) -> bool:
        """Read the mail; true if there was any."""
        if not self.alive or self.paused:
            return False
        records = self.reader.read(1_000, 0)
        for record in records:
            assert record.value is not None
            message = message_in(record.value, self.partition)
            if getattr(message, "receiver", None) != self.name or isinstance(message, LeaseRenewed):
                continue
            for delay_ms in self.troubled.mail_fate():
                if delay_ms:
                    self.troubled.after(delay_ms, lambda message=message: self._read(message))  # type: ignore[misc]
                else:
                    self._read(message)
        return bool(records)

    @property
    def paused(self) -> bool:
        """Whether it stands still."""
        return self.troubled.now < self.paused_until

    def _read(self, message: msgspec.Struct) -> None:
        if not self.alive:
            return
        if self.paused:
            self._when_awake(lambda: self._read(message))
        elif isinstance(message, AssignTask):
            self._begin(message)
        elif isinstance(message, StopAttempt):
            self._stop(message)

    def _end(self, key: AttemptPlace, begun: int, outcome: Outcome) -> None:
        if self.paused:
            self._when_awake(lambda: self._end(key, begun, outcome))
        else:
            super()._end(key, begun, outcome)

    def _save(self, key: AttemptPlace, checkpoint: object) -> None:
        if self.paused:
            self._when_awake(lambda: self._save(key, checkpoint))
        else:
            super()._save(key, checkpoint)

    def _send_beat(self, key: AttemptPlace, beat: int) -> None:
        if self.paused:
            self._when_awake(lambda: self._send_beat(key, beat))
        else:
            super()._send_beat(key, beat)

    def join(self) -> None:
        """Offer the slots, and again every third of a worker's term."""
        if self.paused:
            self._when_awake(self.join)
        else:
            super().join()

    def _when_awake(self, act: object) -> None:
        assert callable(act)
        self.troubled.after(self.paused_until - self.troubled.now, act)
