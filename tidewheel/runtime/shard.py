"""One owned shard in memory: its aggregates, and where its two journals end."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, NamedTuple, TypeAlias

from tidewheel.core import commands as c
from tidewheel.core.state import Aggregate, Dag
from tidewheel.log.interface import EVENTS, POOL_EVENTS
from tidewheel.log.partition import partition_of
from tidewheel.runtime.answered import Answered
from tidewheel.wire.codec import GENESIS

Kind: TypeAlias = Literal["dag", "pool"]

#: Where the events of each kind of aggregate lie.
JOURNAL_OF: dict[Kind, str] = {"dag": EVENTS, "pool": POOL_EVENTS}
KIND_OF: dict[str, Kind] = {EVENTS: "dag", POOL_EVENTS: "pool"}


#: For ``events_since_checkpoint``: more than any shard has before its next checkpoint.
CHECKPOINT_SOON = 1 << 62


class AggregateKey(NamedTuple):
    """Which aggregate."""

    kind: Kind
    name: str


class JournalHead(NamedTuple):
    """The end of a journal partition as folded: what to read next, and what the next event must follow."""

    offset: int = 0
    shard_seq: int = 0
    chain: bytes = GENESIS
    #: The last event's term, and its offset; 0 and -1 where no event has been seen yet.
    writer: int = 0
    last: int = -1


@dataclass(slots=True)
class Shard:
    """The folded state of shard ``number``. ``epoch`` is the ownership under which it was last brought up to date."""

    number: int
    epoch: int = -1
    #: This owner's term in the journal's ``writer`` field.
    writer: int = 0
    aggregates: dict[AggregateKey, Aggregate] = field(default_factory=dict)
    heads: dict[str, JournalHead] = field(default_factory=lambda: {EVENTS: JournalHead(), POOL_EVENTS: JournalHead()})
    #: Leases and workers are not expired before this instant: whoever takes over gives everybody a full term to be
    #: heard.
    grace_until: int = 0
    #: Changed since the last checkpoint, and by how many events.
    dirty: set[AggregateKey] = field(default_factory=set)
    events_since_checkpoint: int = 0
    #: The keys under which each aggregate's snapshot lies in the log, and those of what nobody needs any more.
    stored: dict[AggregateKey, tuple[bytes, ...]] = field(default_factory=dict)
    stale: set[bytes] = field(default_factory=set)
    #: The number of each aggregate that has, or is being given, a snapshot.
    numbers: dict[AggregateKey, int] = field(default_factory=dict)
    #: What the log says elsewhere that the journals held once: they must hold it still.
    claims: dict[str, JournalHead] = field(default_factory=dict)
    #: What ``seqs`` must come to when snapshots have been folded on from; None: nothing says so.
    seqs_expected: int | None = None
    #: Inputs that its journals answer, however old the position may be that the next owner is given.
    answered: Answered = field(init=False)
    #: Live runs of all its DAGs, and the length of their inputs; so many that it reads no triggers.
    runs: int = 0
    input_bytes: int = 0
    full: bool = False

    def __post_init__(self) -> None:
        self.answered = Answered(self.number)

    @property
    def seqs(self) -> int:
        """How many events its aggregates have taken in, each in its own numbers."""
        return sum(state.seq for state in self.aggregates.values())

    @property
    def outgrew_claims(self) -> bool:
        """Whether the journals hold other events than was claimed last."""
        return any(
            head.shard_seq != (claim.shard_seq if (claim := self.claims.get(topic)) is not None else 0)
            for topic, head in self.heads.items()
        )

    def count(self) -> None:
        """Count the runs anew."""
        self.runs = self.input_bytes = 0
        for state in self.aggregates.values():
            self.count_change(None, state)

    def count_change(self, before: Aggregate | None, after: Aggregate) -> None:
        """Count what came and went."""
        if isinstance(after, Dag):
            self.runs += len(after.runs)
            self.input_bytes += after.input_bytes
        if isinstance(before, Dag):
            self.runs -= len(before.runs)
            self.input_bytes -= before.input_bytes

    def forget(self) -> None:
        """Back to nothing, to be folded anew."""
        self.writer = 0
        self.aggregates.clear()
        self.heads = {EVENTS: JournalHead(), POOL_EVENTS: JournalHead()}
        self.dirty.clear()
        self.events_since_checkpoint = 0
        self.stale.update(key for keys in self.stored.values() for key in keys)
        self.stored.clear()
        self.numbers.clear()
        self.seqs_expected = None
        self.answered = Answered(self.number)


_POOL_COMMANDS = (
    c.ConfigurePool,
    c.JoinPool,
    c.RenewWorker,
    c.LeavePool,
    c.EnqueueTask,
    c.ReleaseSlot,
    c.ExpireWorker,
    c.AllocateSlots,
)


def target_of(command: c.DagCommand | c.PoolCommand) -> AggregateKey:
    """The aggregate a command is for."""
    if isinstance(command, _POOL_COMMANDS):
        return AggregateKey("pool", command.pool)
    return AggregateKey("dag", command.dag)


@lru_cache(maxsize=200_000)
def shard_of(name: str, partitions: int) -> int:
    """The shard of the aggregate, worker or DAG called ``name``. Cached: murmur2 in Python costs microseconds."""
    return partition_of(name.encode(), partitions)
