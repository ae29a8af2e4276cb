"""Journals damaged in every way that has been seen or can be thought of, made from a sound one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from tidewheel.core import commands as c
from tidewheel.core.events import Recorded
from tidewheel.core.workflow import Run, Task, Workflow
from tidewheel.definition.expressions import CelEvaluator
from tidewheel.log.interface import EVENTS, SNAPSHOTS, Append
from tidewheel.log.partition import partition_of
from tidewheel.runtime.checkpoints import CHECKPOINT_KEY, checkpoint_of
from tidewheel.runtime.seals import sealed
from tidewheel.runtime.shard import JournalHead
from tidewheel.testing.world import World
from tidewheel.wire.codec import GENESIS, decode_event, encode_event

Values = Sequence[bytes | None]
#: Events before any fork; the sound journal has more.
TRUNK = 8


def sound() -> list[bytes]:
    """The events of one DAG's shard, all by writer 1."""
    world = World(CelEvaluator(), partitions=1)
    world.add_worker()
    tasks = (Task(id="a", action=Run(command="true")), Task(id="b", action=Run(command="true"), needs=("a",)))
    world.deploy(Workflow(id="etl", tasks=tasks))
    for number in range(3):
        world.ask(c.StartRun(dag="etl", run_id=f"r{number}"))
    world.settle()
    place = (EVENTS, partition_of(b"etl", 1))
    return [record.value or b"" for record in world.log.reader({place: 0}).read(10_000, 0)]


def again(values: Sequence[bytes], previous: bytes, writer: int, later_ms: int = 0) -> list[bytes]:
    """The same events, written by another behind ``previous``."""
    chain, written = previous, []
    for value in values:
        said = decode_event(value)
        event = msgspec.structs.replace(said.event, at=said.event.at + later_ms)
        place = {"seq": said.seq, "shard_seq": said.shard_seq, "writer": writer, "cause": said.cause}
        data, chain = encode_event(event, **place, previous=chain)  # type: ignore[arg-type]
        written.append(data)
    return written


def last(values: Values) -> Recorded:
    value = values[-1]
    assert value is not None
    return decode_event(value)


def claim(partition: int, values: Values) -> Append:
    """A checkpoint written when the journal ended with these."""
    end = last(values)
    heads = {EVENTS: JournalHead(len(values), end.shard_seq, end.chain), "pool-events": JournalHead()}
    checkpoint = msgspec.structs.replace(checkpoint_of(partition, heads, end.writer, 0), format="not today's")
    return Append(SNAPSHOTS, CHECKPOINT_KEY, sealed(checkpoint), partition=partition)


def flipped(value: bytes, at: int) -> bytes:
    return value[:at] + bytes([value[at] ^ 1]) + value[at + 1 :]


@dataclass(frozen=True)
class Picture:
    """A damaged journal, what the examination must say, and which of the sound events remain after the repair."""

    name: str
    damage: Callable[[list[bytes]], Values]
    verdict: str
    #: Number of the last event that is kept, counted from the sound journal's end.
    short: int = 0
    unproven: int = 0
    #: The events a checkpoint was written behind.
    claimed: Callable[[list[bytes]], Values] | None = None
    keep: Callable[[list[bytes]], int] | None = None


def _branches(good: list[bytes], loser_writer: int, winner_writer: int) -> tuple[list[bytes], list[bytes], list[bytes]]:
    """A trunk, two events that lose, and all others that win."""
    trunk, rest = good[:TRUNK], good[TRUNK:]
    fork = last(trunk).chain
    return trunk, again(rest[:2], fork, loser_writer, later_ms=5), again(rest, fork, winner_writer)


def _deposed_first(good: list[bytes]) -> Values:
    trunk, loser, winner = _branches(good, 1, 2)
    return [*trunk, *loser, *winner]


def _deposed_last(good: list[bytes]) -> Values:
    trunk, loser, winner = _branches(good, 1, 2)
    return [*trunk, *winner[:3], *loser, *winner[3:]]


def _one_term(good: list[bytes]) -> Values:
    trunk, loser, winner = _branches(good, 1, 1)
    return [*trunk, *loser, *winner]


def _another(good: list[bytes]) -> Values:
    return again(good, GENESIS, 1, later_ms=77)


PICTURES = (
    Picture("sound", lambda good: good, "whole"),
    Picture("a foreign record in the middle", lambda good: [*good[:5], b"hello", *good[5:]], "repairable"),
    Picture("a foreign record at the end", lambda good: [*good, b"hello"], "repairable"),
    Picture("several foreign records", lambda good: [b"x", *good[:3], b"y", b"z", *good[3:], None], "repairable"),
    Picture("a tombstone", lambda good: [*good[:5], None, *good[5:]], "repairable"),
    Picture("a batch written twice", lambda good: [*good[:7], *good[4:7], *good[7:]], "repairable"),
    Picture(
        "an altered copy beside the event", lambda good: [*good[:5], flipped(good[4], 30), *good[5:]], "repairable"
    ),
    Picture("the last event damaged", lambda good: [*good[:-1], flipped(good[-1], 30)], "gives_up", 1, 1),
    Picture("the last event cut short", lambda good: [*good[:-1], good[-1][:-9]], "gives_up", 1, 1),
    Picture("an event missing", lambda good: [*good[:-4], *good[-3:]], "gives_up", 4, 4),
    Picture("compacted by mistake", lambda good: good[-1:], "gives_up", 10_000, 10_000),
    Picture("cut off", lambda good: good[:-3], "gives_up", 3, 3, claimed=lambda good: good),
    Picture("lost altogether", lambda good: [], "gives_up", 10_000, 10_000, claimed=lambda good: good),
    Picture("another journal in its place", _another, "unsure", claimed=lambda good: good[:TRUNK]),
    Picture("a deposed owner wrote first", _deposed_first, "repairable"),
    Picture("a deposed owner wrote late", _deposed_last, "repairable"),
    Picture("two branches of one term", _one_term, "unsure"),
    Picture("one of them under a checkpoint", _one_term, "repairable", claimed=lambda good: good[: TRUNK + 3]),
    Picture("one of them chosen", _one_term, "repairable", keep=lambda good: len(good) + 1),
)
