"""Carrying out a repair: events that say what is void, behind the last one that is proved. Nothing is ever deleted.

It writes as a plain producer, for the shard's owner stands still and must not be disturbed. Should a scheduler write
all the same, one that has not met the damage yet, the repair is one more record that proves nothing, and the next one
names it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import msgspec

from tidewheel.core.events import JournalRepaired
from tidewheel.log.interface import COMMANDS, TRIGGERS, Append, Log, LogError, Record
from tidewheel.runtime.intake import command_of
from tidewheel.runtime.repair_plan import InputsAgain, Plan, examine
from tidewheel.runtime.repairs import read_to_end
from tidewheel.wire.codec import DecodeError, encode, encode_event

#: A journal that is written within this time is not repaired: its owner must have met the damage and stopped first.
QUIET_S = 3.0
_FLUSH_S = 30.0


class NotRepaired(Exception):
    """The repair was refused; the message says why and what to do."""


class Repaired(msgspec.Struct, frozen=True, kw_only=True):
    """What was written: repair events, and inputs that were sent again."""

    topic: str
    partition: int
    repairs: int
    inputs: int


def repair(
    source: Log,
    plan: Plan,
    *,
    actor: str,
    reason: str,
    now: int,
    give_up: int = 0,
    pause: Callable[[float], None] = time.sleep,
) -> Repaired:
    """Do what ``plan`` says. ``give_up``: so many unproven events may be lost. Raises ``NotRepaired``."""
    where = f"{plan.topic}/{plan.partition}"
    if plan.verdict == "whole":
        raise NotRepaired(f"{where} proves itself: there is nothing to repair")
    if plan.verdict == "unsure":
        raise NotRepaired(f"{where}: {plan.why}")
    if plan.unproven != give_up:
        raise NotRepaired(
            f"{where}: {plan.unproven} events cannot be proved or are missing and would be given up for good; if they "
            f"cannot be brought back, say `--give-up {plan.unproven}`"
        )
    pause(QUIET_S)
    if source.end_offset(plan.topic, plan.partition) != plan.end_offset:
        raise NotRepaired(f"{where} is still being written: its scheduler stops once it has met the damage; try again")
    producer = source.producer()
    try:
        sent = 0
        for append in _inputs(source, plan):
            producer.send(append)
            sent += 1
        producer.flush(_FLUSH_S)
        marks = list(_marks(plan, actor, reason, now))
        for append in marks:
            producer.send(append)
        producer.flush(_FLUSH_S)
    finally:
        producer.close()
    after = examine(source, plan.topic, plan.partition)
    if after.verdict != "whole":
        raise NotRepaired(f"{where} does not prove itself after the repair: {after.report}; look again")
    return Repaired(topic=plan.topic, partition=plan.partition, repairs=len(marks), inputs=sent)


def _marks(plan: Plan, actor: str, reason: str, now: int) -> Iterator[Append]:
    """One event for each stretch, the first behind the last event kept; one at least, for what was cut off."""
    shard_seq, chain = plan.shard_seq, bytes.fromhex(plan.chain)
    voids = [(stretch.void_from, stretch.void_to, stretch.records, stretch.why) for stretch in plan.stretches]
    for number, (void_from, void_to, records, why) in enumerate(voids or [(plan.end_offset, plan.end_offset, 0, "")]):
        shard_seq += 1
        event = JournalRepaired(
            at=now,
            actor=actor,
            void_from=void_from,
            void_to=void_to,
            records=records,
            lost=plan.unproven + plan.elsewhere if number == 0 else 0,
            known_shard_seq=plan.known_shard_seq if number == 0 else 0,
            reason=". ".join(part for part in (reason, plan.why, why) if part)[:2_000],
        )
        data, chain = encode_event(
            event, seq=0, shard_seq=shard_seq, writer=plan.writer + 1, cause="repair", previous=chain
        )
        yield Append(plan.topic, b"", data, partition=plan.partition)


def _inputs(source: Log, plan: Plan) -> Iterator[Append]:
    """What was answered only by events that are given up. A trigger is sent as the command it stands for, so that its
    identity stays its first place's; what cannot be read was a dead letter before."""
    for again in plan.inputs_again:
        for record in _between(source, again, plan.partition):
            value = record.value
            if record.topic == TRIGGERS:
                try:
                    value = encode(command_of(record))
                except DecodeError:
                    continue
            yield Append(COMMANDS, record.key or b"", value, partition=plan.partition)


def _between(source: Log, again: InputsAgain, partition: int) -> Iterator[Record]:
    try:
        for record in read_to_end(source, {(again.topic, partition): again.from_offset}):
            if record.offset >= again.to_offset:
                return
            yield record
    except LogError as error:
        raise NotRepaired(f"the inputs to be sent again cannot be read: {error}") from error
