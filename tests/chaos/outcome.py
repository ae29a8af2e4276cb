"""What one cycle of the campaign came to."""

from __future__ import annotations

import msgspec

#: The engine's promise: how late the first new task of a shard may start after any process of its died.
FAILOVER_S_MAX = 10.0


class NotReached(Exception):
    """Nobody came to the step of the card in time; the cycle made no fault."""


class Card(msgspec.Struct, frozen=True, order=True):
    """One fault to make: its kind, and the step at which it strikes."""

    kind: str
    step: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.step}".rstrip()


class HeldEnd(msgspec.Struct, frozen=True):
    """A request to commit that the network kept back, delivered when its time was over.

    ``error`` is the broker's answer to it, None: there was none; ``other_open`` says that a later transaction of the
    same name was under way when it was delivered.
    """

    error: int | None
    other_open: bool


class Outcome(msgspec.Struct, kw_only=True):
    """One cycle."""

    card: Card
    victim: str
    #: A process was killed or stopped.
    struck: bool = False
    #: It was struck while the broker, or Postgres, had a transaction of its open.
    inside: bool = False
    #: Seconds from the fault to the first start of a task leased after it, by shard.
    failover_s: dict[int, float] = msgspec.field(default_factory=dict)
    #: Shards on which nothing had started when patience ended.
    silent: tuple[int, ...] = ()
    held: HeldEnd | None = None
    note: str = ""
    took_s: float = 0.0
    runs_ended: int = 0
    refused: int = 0
    own_ends: tuple[str, ...] = ()
