"""Another number of partitions: a new log written from the old one, which stays as it is.

Offline: nobody owns the old log meanwhile. The new journals hold the same events, each aggregate's in its order and
with its numbers; what belongs to a partition (``shard_seq``, ``chain``, ``writer``) is made anew, and a cause that
names an input of the old log is kept, marked as such. What is written is a function of the old log alone. So a run that
was cut off is simply repeated: what is there already is compared by its chain and passed over.

Everything is written as the new log's owner, in fenced transactions. Requests that nobody has read yet go last, in one:
they are carried over whole or not at all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import cast

import msgspec

from tidewheel.core import commands as c
from tidewheel.core.events import DagEvent, JournalRepaired
from tidewheel.core.snapshot import state_hash
from tidewheel.log.interface import (
    COMMANDS,
    DEAD_LETTERS,
    INPUTS,
    JOURNALS,
    LOGS,
    TRIGGERS,
    Append,
    Batch,
    CommitAborted,
    CommitInDoubt,
    Fenced,
    Log,
    Owner,
    Record,
)
from tidewheel.log.partition import partition_of
from tidewheel.runtime.answered import Answered
from tidewheel.runtime.backlog import read_note, was_postponed
from tidewheel.runtime.checkpoints import Round
from tidewheel.runtime.intake import command_of
from tidewheel.runtime.journal import JournalBroken
from tidewheel.runtime.recovery import bring_up_to_date
from tidewheel.runtime.repairs import read_to_end, repairs_of
from tidewheel.runtime.shard import AggregateKey, JournalHead, Shard, target_of
from tidewheel.wire.codec import DecodeError, decode_event, encode, encode_event

#: The new log's owner while it is written, and the term it writes under.
INSTANCE = "reshard"
_WRITER = 1
#: Of one transaction.
_RECORDS_MAX = 5_000
_BYTES_MAX = 4 * 1024 * 1024
#: Requests must fit into one transaction. More are worked off sooner than carried.
_REQUESTS_MAX = 10_000
_OWN_S_MAX = 30.0


class ReshardRefused(Exception):
    """The log cannot be moved now. The message says why and what to do."""


class Resharded(msgspec.Struct, frozen=True, kw_only=True):
    """What was moved."""

    #: DAGs and pools, each with an equal state in both logs.
    aggregates: int
    events: int
    #: Of these, what this run wrote; the rest was there.
    written: int
    requests: int
    #: Task log chunks and dead letters.
    others: int


def reshard(old: Log, new: Log, progress: Callable[[int], None] | None = None) -> Resharded:
    """Write ``old``'s contents into ``new``, whose topics exist and are empty or hold what an earlier try wrote.

    ``progress(events)`` is called after each transaction. Raises ``ReshardRefused`` or ``JournalBroken``.
    """
    _refuse_owners(old, "old")
    _refuse_owners(new, "new")
    states, answered = _states(old)
    requests, ends = _requests(old, new.partitions, answered)
    finished = any(new.end_offset(topic, q) for topic in INPUTS for q in range(new.partitions))
    writing = _Writing(new, progress)
    try:
        if not finished:
            writing.begin()
        for append in _events(old, new.partitions, _heads(new)):
            if append is not None:
                writing.add(append)
        writing.flush()
        written = writing.records
        others = 0
        for append in _others(old, new):
            writing.add(append)
            others += 1
        writing.flush()
        _compare(states, _new_states(new, None if finished else writing))
        if not finished:
            _refuse_owners(old, "old")
            if any(old.end_offset(*place) > end for place, end in ends.items()):
                raise ReshardRefused(
                    "requests were sent to the old log meanwhile: stop its workers, API and other producers, run again"
                )
            writing.commit(requests)
    finally:
        writing.close()
    events = sum(head.shard_seq for head in _heads(new).values())
    return Resharded(aggregates=len(states), events=events, written=written, requests=len(requests), others=others)


def _refuse_owners(log: Log, which: str) -> None:
    if names := [name for name in log.owners() if name != INSTANCE]:
        raise ReshardRefused(
            f"{len(names)} scheduler(s) own the {which} log ({', '.join(names[:5])}): stop all of them first; one that "
            "was killed counts until its session is over, some seconds"
        )


def _states(log: Log) -> tuple[dict[AggregateKey, str], list[Answered]]:
    """The hash of every aggregate's state, folded from the journals' beginning, a shard at a time; and what each shard
    has answered."""
    found: dict[AggregateKey, str] = {}
    answered: list[Answered] = []
    for number in range(log.partitions):
        shard = Shard(number)
        bring_up_to_date([shard], log, lambda: 0, snapshots=False)
        found.update((key, state_hash(state)) for key, state in shard.aggregates.items())
        answered.append(shard.answered)
    return found, answered


def _compare(before: Mapping[AggregateKey, str], after: Mapping[AggregateKey, str]) -> None:
    for key in sorted(before.keys() | after.keys()):
        if before.get(key) != after.get(key):
            raise ReshardRefused(
                f"{key.kind} '{key.name}' is {after.get(key)} in the new log and {before.get(key)} in the old one: "
                "delete the new log, run again, and report it if it happens again"
            )


def _heads(log: Log) -> dict[tuple[str, int], JournalHead]:
    """Where the journals end, by their last event."""
    heads = {(topic, number): JournalHead() for topic in JOURNALS for number in range(log.partitions)}
    for record in read_to_end(log, dict.fromkeys(heads, 0)):
        try:
            recorded = decode_event(record.value or b"")
        except DecodeError as error:
            raise ReshardRefused(f"the new log holds what is no event ({error}): give an empty one") from error
        heads[record.topic, record.partition] = JournalHead(record.offset + 1, recorded.shard_seq, recorded.chain)
    return heads


def _events(old: Log, partitions: int, there: Mapping[tuple[str, int], JournalHead]) -> Iterator[Append | None]:
    """Every event that counts, in its new place; None for one that is there already."""
    heads = {(topic, number): JournalHead() for topic in JOURNALS for number in range(partitions)}
    for topic in JOURNALS:
        for number in range(old.partitions):
            repairs = repairs_of(old, topic, number)
            for record in read_to_end(old, {(topic, number): 0}):
                if any(repair.voids(record.offset) for repair in repairs):
                    continue
                recorded = decode_event(record.value or b"")
                event = recorded.event
                if isinstance(event, JournalRepaired):
                    continue
                name = (event.dag if isinstance(event, DagEvent) else event.pool).encode()
                place = (topic, partition_of(name, partitions))
                head = heads[place]
                data, chain = encode_event(
                    event,
                    seq=recorded.seq,
                    shard_seq=head.shard_seq + 1,
                    writer=_WRITER,
                    cause=_kept(recorded.cause),
                    previous=head.chain,
                )
                heads[place] = JournalHead(0, head.shard_seq + 1, chain)
                yield None if _is_there(heads[place], there[place], place) else Append(topic, name, data, (), place[1])
    for place, head in heads.items():
        if there[place].shard_seq > head.shard_seq:
            raise _in_use(place)


def _kept(cause: str) -> str:
    """An input of the old log, told from those of the new one."""
    return f"before/{cause}" if cause.startswith(tuple(f"{topic}/" for topic in INPUTS)) else cause


def _is_there(head: JournalHead, there: JournalHead, place: tuple[str, int]) -> bool:
    if head.shard_seq == there.shard_seq and head.chain != there.chain:
        raise _in_use(place)
    return head.shard_seq <= there.shard_seq


def _in_use(place: tuple[str, int]) -> ReshardRefused:
    return ReshardRefused(
        f"{place[0]}/{place[1]} of the new log holds events that the old one does not: it is in use already, or was "
        "written from another log; use it as it is, or give an empty one"
    )


def _others(old: Log, new: Log) -> Iterator[Append]:
    """Task logs and dead letters, without what is there already."""
    for topic in (LOGS, DEAD_LETTERS):
        places = {(topic, number): 0 for number in range(new.partitions)}
        there = {_digest(record) for record in read_to_end(new, places)}
        for record in read_to_end(old, {(topic, number): 0 for number in range(old.partitions)}):
            if not there or _digest(record) not in there:
                yield Append(topic, record.key or b"", record.value, record.headers)


def _digest(record: Record) -> bytes:
    return blake2b((record.key or b"") + b"\0" + (record.value or b""), digest_size=8).digest()


def _requests(
    old: Log, partitions: int, answered: Sequence[Answered]
) -> tuple[list[Append], dict[tuple[str, int], int]]:
    """What nobody has answered yet, for its new place, and where the old inputs end.

    A trigger becomes the command it stands for, so that its run keeps the name that its first place gave it. Triggers
    that were put off lie before the committed position; they come along.
    """
    committed = {number: old.committed(number) for number in range(old.partitions)}
    starts = {(topic, number): at or 0 for number, found in committed.items() for topic, at in found.items()}
    ends = dict(old.end_offsets(starts))
    notes = {number: read_note(old.noted(number)).postponed for number in range(old.partitions)}
    froms = {
        place: min([at, *(extent.first for extent in notes[place[1]].values())]) if place[0] == TRIGGERS else at
        for place, at in starts.items()
    }
    carried: list[Append] = []
    for record in read_to_end(old, froms):
        if record.offset < starts[record.topic, record.partition] and not was_postponed(
            notes[record.partition], record
        ):
            continue
        if record.topic == COMMANDS and answered[record.partition].covers_command(record.offset):
            continue
        try:
            command = command_of(record)
        except DecodeError:
            carried.append(Append(record.topic, record.key or b"", record.value, record.headers))
            continue
        name = target_of(cast("c.DagCommand | c.PoolCommand", command)).name
        if record.topic == TRIGGERS and answered[record.partition].covers_trigger(name, record.offset):
            continue
        value = encode(command) if record.topic == TRIGGERS else record.value
        carried.append(Append(COMMANDS, name.encode(), value, (), partition_of(name.encode(), partitions)))
        if len(carried) > _REQUESTS_MAX:
            raise ReshardRefused(
                f"over {_REQUESTS_MAX} requests wait in the old log: let its schedulers work them off first"
            )
    return carried, ends


def _new_states(new: Log, writing: _Writing | None) -> dict[AggregateKey, str]:
    """What the new journals lead to; with checkpoints, so that the first start need not fold all there ever was."""
    found: dict[AggregateKey, str] = {}
    for number in range(new.partitions):
        shard = Shard(number)
        bring_up_to_date([shard], new, lambda: 0)
        found.update((key, state_hash(state)) for key, state in shard.aggregates.items())
        if shard.dirty and writing is not None:
            shard.writer = _WRITER
            round_ = Round(shard)
            while not round_.finished:
                writing.commit(round_.next_piece())
                round_.committed()
    return found


class _Writing:
    """The new log's owner, joined when there is something to write."""

    def __init__(self, log: Log, progress: Callable[[int], None] | None) -> None:
        self._log = log
        self._progress = progress
        self._owner: Owner | None = None
        self._waiting: list[Append] = []
        self._bytes = 0
        self._wait_s = 0.2
        self.records = 0

    def begin(self) -> None:
        """Own every shard; what an earlier process of ours left open is aborted."""
        self._batch()

    def add(self, append: Append) -> None:
        """Write it with the next transaction."""
        self._waiting.append(append)
        self._bytes += len(append.value or b"")
        if len(self._waiting) >= _RECORDS_MAX or self._bytes >= _BYTES_MAX:
            self.flush()

    def flush(self) -> None:
        """Write what waits."""
        waiting, self._waiting, self._bytes = self._waiting, [], 0
        self.commit(waiting)

    def commit(self, appends: list[Append]) -> None:
        """One transaction."""
        if not appends:
            return
        batch = self._batch()
        assert self._owner is not None
        try:
            self._owner.commit(batch, appends)
        except (Fenced, CommitAborted, CommitInDoubt) as error:
            raise ReshardRefused(
                f"the new log could not be written ({error}): see that no scheduler runs on it, and run again; "
                "it goes on where it was"
            ) from error
        self.records += len(appends)
        if self._progress is not None:
            self._progress(self.records)

    def close(self) -> None:
        """Leave the group."""
        if self._owner is not None:
            self._owner.close()

    def _batch(self) -> Batch:
        """The proof that every shard is ours."""
        if self._owner is None:
            self._owner = self._log.owner(INSTANCE)
        deadline = time.monotonic() + _OWN_S_MAX
        while True:
            batch = self._owner.poll(1, self._wait_s)
            if batch.records:
                raise ReshardRefused("somebody sends requests to the new log: stop that, delete the log, run again")
            if len(batch.shards) == self._log.partitions:
                self._wait_s = 0.0
                return batch
            self._wait_s = 0.2
            if time.monotonic() > deadline:
                raise ReshardRefused(
                    f"not all shards of the new log were ours within {_OWN_S_MAX:.0f} s: does a scheduler run on it?"
                )


__all__ = ["INSTANCE", "JournalBroken", "ReshardRefused", "Resharded", "reshard"]
