"""What a journal partition proves by itself (invariant 7): numbers without gap, an unbroken chain, a writer that never
goes back, and no input answered twice."""

from __future__ import annotations

import re

from tidewheel.core.events import Recorded, RunCreated
from tidewheel.log.interface import TRIGGERS
from tidewheel.runtime.witness.findings import Findings
from tidewheel.wire.codec import CHAIN_SIZE, GENESIS, DecodeError, chain_matches, decode_event

_INPUT = re.compile(r"((?:commands|triggers)/[0-9]+)/([0-9]+)")


class Proof:
    """One partition, read in offset order."""

    __slots__ = (
        "_answered",
        "_cause",
        "_chain",
        "_claim",
        "_findings",
        "_trimmed",
        "_writer",
        "complete",
        "offset",
        "shard_seq",
    )

    def __init__(self, findings: Findings, claim: tuple[int, bytes] | None = None, *, trimmed: bool = False) -> None:
        self._findings = findings
        #: The oldest event kept is believed; what it follows is gone.
        self._trimmed = trimmed
        #: Number and chain of an event that must be here.
        self._claim = claim
        self.offset = -1
        self.shard_seq = 0
        self._chain = GENESIS
        self._writer = 0
        self._cause = ""
        self._answered: dict[tuple[str, str], int] = {}
        #: No event is missing so far.
        self.complete = True

    def follow(self, offset: int, data: bytes) -> Recorded | None:
        """The event in ``data`` with its place checked; None if it can not be judged: undecodable, or seen before."""
        if offset <= self.offset:
            self._findings.add(7, f"offset {offset} follows offset {self.offset}")
        self.offset = offset
        chained = chain_matches(self._chain, data)
        try:
            recorded = decode_event(data)
        except DecodeError as error:
            self._findings.add(7, f"the record is no event: {error}")
            self.complete = False
            self._chain = data[-CHAIN_SIZE:].rjust(CHAIN_SIZE, b"\0")
            self.shard_seq += 1
            return None
        if self._trimmed:
            self._trimmed = False
            self.shard_seq, chained = recorded.shard_seq - 1, True
        expected = self.shard_seq + 1
        if recorded.shard_seq != expected:
            self._findings.add(7, f"expected event {expected} of the partition, found {recorded.shard_seq}")
        elif not chained:
            self._findings.add(
                7, f"event {expected} does not follow the one before it or was altered: its chain differs"
            )
        if recorded.shard_seq < expected:
            return None
        self.complete &= recorded.shard_seq == expected
        self.shard_seq = recorded.shard_seq
        self._chain = recorded.chain
        if self._claim is not None and self._claim[0] == recorded.shard_seq and self._claim[1] != recorded.chain:
            self._findings.add(7, f"a checkpoint names another event {recorded.shard_seq}: this is another journal")
        if recorded.writer < self._writer:
            self._findings.add(7, f"writer {recorded.writer} writes after writer {self._writer}")
        self._writer = max(self._writer, recorded.writer)
        self._check_cause(recorded)
        return recorded

    def _check_cause(self, recorded: Recorded) -> None:
        """The answers to one input stand together, and inputs are answered in their order.

        Triggers are only in order for each DAG: those of one with too many waiting runs are passed over at first. The
        run that a trigger makes is its DAG's; what follows from it for other DAGs, and for pools, is in no order.
        """
        before, self._cause = self._cause, recorded.cause
        if recorded.cause == before:
            return
        if not recorded.cause:
            self._findings.add(7, "the event does not say what caused it")
        match = _INPUT.fullmatch(recorded.cause)
        if match is None:
            return
        source, offset = match[1], int(match[2])
        latest = self._answered.get((source, ""), -1)
        self._answered[source, ""] = offset
        if not source.startswith(TRIGGERS):
            again = offset <= latest
        else:
            event, again = recorded.event, offset == latest
            if isinstance(event, RunCreated) and event.kind == "kafka":
                latest = self._answered.get((source, event.dag), -1)
                again = again or offset <= latest
                self._answered[source, event.dag] = max(latest, offset)
        if again:
            self._findings.add(7, f"input {recorded.cause} is answered again, after input {source}/{latest}")
