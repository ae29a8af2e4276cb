"""From input records to commands: decoding what anybody may have written, and sending on what lies on the wrong
shard."""

from __future__ import annotations

from typing import cast

from tidewheel.core import commands as c
from tidewheel.log.interface import COMMANDS, TRIGGERS, Record
from tidewheel.runtime.answered import Answered
from tidewheel.runtime.backlog import Backlog
from tidewheel.runtime.shard import shard_of, target_of
from tidewheel.runtime.work import Work
from tidewheel.wire.codec import DecodeError, decode
from tidewheel.wire.triggers import decode_trigger


def take_in(work: Work, record: Record, partitions: int, backlog: Backlog, answered: Answered) -> bool:
    """Decide one input record, unless it is a trigger that has to wait; one that is no command is a dead letter.

    False if the journal answers it: it was read again, and nothing is done.
    """
    if record.topic == COMMANDS and answered.covers_command(record.offset):
        return False
    try:
        command = command_of(record)
    except DecodeError as error:
        work.reject(record, error.code, error.reason)
        return True
    name = target_of(cast("c.DagCommand | c.PoolCommand", command)).name
    if shard_of(name, partitions) != record.partition:
        work.forward(record, name, command)
        return True
    if record.topic == TRIGGERS and answered.covers_trigger(name, record.offset):
        return False
    if record.topic == COMMANDS or backlog.admits(work, name, record):
        work.handle(command, f"{record.topic}/{record.partition}/{record.offset}", record)
    return True


def command_of(record: Record) -> c.Command:
    """What the record asks for. Raises ``DecodeError``."""
    value = record.value
    if value is None:
        raise DecodeError("foreign", "the record has no value")
    if record.topic == TRIGGERS:
        return decode_trigger(
            value,
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            timestamp=record.timestamp,
        )
    message = decode(value)
    if not isinstance(message, c.Command):
        raise DecodeError("unexpected", f"a {type(message).__name__} is no command")
    return message
