"""Two workers of one name would both run what is mailed to it: they notice each other, and the later one goes. Pure.

A worker claims its name by a letter to itself, which everybody of that name reads, and begins to work at once. Who
hears a claim that is not its own after its own was there first, and answers; who is answered goes, and says so. All
read one partition, so they agree on who was first. One that was silent for long (stopped, or cut off) answers late:
then the later one may have worked for hours, and both only complain.
"""

from __future__ import annotations

import enum
import secrets

from tidewheel.core.mail import NameClaim

#: A claim answered later than this is not given up. A busy log takes a second or two; leases live 30 s.
DECIDED_S = 15.0


class NameTaken(Exception):
    """Another living worker has the name; the message says where, and what to do."""


class Verdict(enum.Enum):
    """What to do about a claim that is not one's own."""

    #: Complain, and answer it.
    ANSWER = "answer"
    #: Complain.
    COMPLAIN = "complain"
    #: The other one was first: answer it, and end.
    GO = "go"
    #: The later one goes: what it said under the name is to be put right.
    WENT = "went"


class Naming:
    """One worker's side of it."""

    def __init__(self, name: str, partition: int, host: str) -> None:
        self.session = secrets.token_hex(8)
        #: The last rival, in a sentence.
        self.told = ""
        self._name = name
        self._partition = partition
        self._host = host
        self._claimed_at = 0.0
        self._first = False
        #: Sessions that were told to go.
        self._told_to_go: set[str] = set()

    def claim(self, now: float) -> NameClaim:
        """To be sent once this worker reads its mail."""
        self._claimed_at = now
        return self._letter("")

    def answer(self, claim: NameClaim) -> NameClaim:
        """To a claim, or to the answer of one that was first."""
        self._told_to_go.add(claim.session)
        return self._letter(claim.session)

    def hear(self, claim: NameClaim, now: float) -> Verdict | None:
        """What a claim of this name means; None: nothing."""
        if claim.session == self.session:
            self._first = True
            return None
        if claim.answers not in ("", self.session):
            return None
        if claim.answers and claim.session in self._told_to_go:
            return Verdict.WENT
        self.told = (
            f"another worker named '{self._name}' runs on host {claim.host or 'unknown'} "
            "(--name or TIDEWHEEL_INSTANCE gives this one a name of its own)"
        )
        if claim.answers:
            return Verdict.GO if now - self._claimed_at < DECIDED_S else Verdict.COMPLAIN
        # A claim that stands before one's own: its sender will say so itself, unless it is dead by now.
        return Verdict.ANSWER if self._first else None

    def _letter(self, answers: str) -> NameClaim:
        return NameClaim(
            receiver=self._name, partition=self._partition, session=self.session, host=self._host, answers=answers
        )
