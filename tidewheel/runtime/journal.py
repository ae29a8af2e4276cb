"""What a journal partition must prove, record by record, and the report on the first that does not.

The proof is the envelope: an event's number is one more than the one before it, its chain is computed over that one's,
and the writer's term never goes back. Whatever is missing, doubled, altered or not ours breaks one of them, and whoever
folds the journal stops there rather than go on from a wrong state.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from tidewheel.core.events import Recorded
from tidewheel.log.interface import Record
from tidewheel.runtime.shard import JournalHead
from tidewheel.wire.codec import CHAIN_SIZE, DecodeError, chain_matches, decode_event

FaultKind: TypeAlias = Literal[
    "not_an_event",
    "hole",
    "repeat",
    "fork",
    "stale_writer",
    "cut",
    "trimmed",
    "does_not_follow",
    "not_what_was_written",
]


class JournalFault(msgspec.Struct, frozen=True, kw_only=True):
    """Where a journal stops proving itself, and how: what was expected there and what was found."""

    topic: str
    partition: int
    offset: int
    kind: FaultKind
    #: The difference in words.
    detail: str
    expected_shard_seq: int
    #: Hex of the chain that the record must follow.
    expected_chain: str
    #: The least term that may write here.
    expected_writer: int
    #: As the record says; None if it does not say.
    found_shard_seq: int | None = None
    found_chain: str | None = None
    found_writer: int | None = None
    #: Of the last record that is proved; -1: none.
    last_good_offset: int = -1

    @property
    def report(self) -> str:
        """One line for people: where, what, and what is proved."""
        found = "nothing" if self.found_shard_seq is None and self.found_chain is None else self._found()
        return (
            f"{self.topic}/{self.partition}/{self.offset}: {self.kind}: {self.detail} "
            f"(expected event {self.expected_shard_seq} after chain {self.expected_chain} by writer "
            f"{self.expected_writer} or later, found {found}; last good offset {self.last_good_offset}); "
            "see `tidewheel journal repair`"
        )

    def _found(self) -> str:
        number = "no event" if self.found_shard_seq is None else f"event {self.found_shard_seq}"
        writer = "" if self.found_writer is None else f" by writer {self.found_writer}"
        return f"{number} with chain {self.found_chain}{writer}"


class JournalBroken(Exception):
    """The journal does not prove itself at this place: an event is missing, doubled, altered or not ours."""

    def __init__(self, fault: JournalFault) -> None:
        super().__init__(fault.report)
        self.fault = fault


def broken(
    head: JournalHead,
    topic: str,
    partition: int,
    offset: int,
    kind: FaultKind,
    detail: str,
    *,
    found: Recorded | None = None,
    value: bytes | None = None,
) -> JournalBroken:
    """The fault of what lies at ``offset``, where something that follows ``head`` should be."""
    chain = found.chain if found is not None else value[-CHAIN_SIZE:] if value else None
    return JournalBroken(
        JournalFault(
            topic=topic,
            partition=partition,
            offset=offset,
            kind=kind,
            detail=detail,
            expected_shard_seq=head.shard_seq + 1,
            expected_chain=head.chain.hex(),
            expected_writer=head.writer,
            found_shard_seq=None if found is None else found.shard_seq,
            found_chain=None if chain is None else chain.hex(),
            found_writer=None if found is None else found.writer,
            last_good_offset=head.last,
        )
    )


def prove(head: JournalHead, record: Record) -> Recorded:
    """The event in ``record``, which must be the one that follows ``head``. Raises ``JournalBroken``."""
    place = (record.topic, record.partition, record.offset)
    if record.value is None:
        raise broken(head, *place, "not_an_event", "a record without value lies in the journal")
    try:
        recorded = decode_event(record.value)
    except DecodeError as error:
        raise broken(head, *place, "not_an_event", f"{error.code}: {error.reason}", value=record.value) from error
    wanted = head.shard_seq + 1
    if recorded.shard_seq > wanted:
        missing = recorded.shard_seq - wanted
        raise broken(head, *place, "hole", f"{missing} events are missing before it", found=recorded)
    if recorded.shard_seq < wanted:
        raise broken(head, *place, "repeat", "an event of this number came before it", found=recorded)
    if not chain_matches(head.chain, record.value):
        detail = "it follows another event than the one before it, or was altered: its chain differs"
        raise broken(head, *place, "fork", detail, found=recorded)
    if recorded.writer < head.writer:
        raise broken(head, *place, "stale_writer", "an earlier owner wrote after a later one", found=recorded)
    return recorded


def follow(head: JournalHead, record: Record, recorded: Recorded) -> JournalHead:
    """The head behind a record that is proved."""
    return JournalHead(record.offset + 1, recorded.shard_seq, recorded.chain, recorded.writer, record.offset)
