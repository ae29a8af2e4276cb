"""Mail: what shard owners send to workers and API processes after a commit, and workers of one name to each other. At
least once; never a fact.

A receiver reads one partition of the ``mail`` topic and drops what is not addressed to its ``receiver`` name.
Each kind has its schema in ``schemas/mail/``.
"""

from __future__ import annotations

import msgspec


class Mail(msgspec.Struct, frozen=True, kw_only=True):
    """Base: ``receiver`` is a worker's or API process's name; ``partition`` (not on the wire) says where it reads.

    Partition -1 means the one that the receiver's name hashes to, as for every worker.
    """

    receiver: str
    partition: int


class AttemptMail(Mail, frozen=True, kw_only=True):
    """Mail about one attempt."""

    dag: str
    run_id: str
    task: str
    attempt: int


class AssignTask(AttemptMail, frozen=True, kw_only=True):
    """A lease: run ``action`` (JSON text of ``core.assignment.ActionSpec``).

    A worker drops an attempt it already has.
    """

    pool: str
    action: str
    #: The lease's length; the worker must be heard, or have stopped the attempt, before it is over.
    lease_ms: int
    #: The same on the scheduler's clock, for people and logs.
    expires_at: int
    timeout_ms: int | None = None
    logical_date: int | None = None
    interval_start: int | None = None
    interval_end: int | None = None
    #: What an earlier attempt of the task left for this one, as JSON text.
    checkpoint: str | None = None


class LeaseRenewed(AttemptMail, frozen=True, kw_only=True):
    """Acknowledges beat ``beat`` of an attempt: the lease runs ``lease_ms`` from when that beat was sent."""

    beat: int
    lease_ms: int


class StopAttempt(AttemptMail, frozen=True, kw_only=True):
    """End the attempt. ``cancel``: and report it cancelled; else nobody wants its reports any more (it is fenced)."""

    cancel: bool
    reason: str = ""


class WorkerWelcome(Mail, frozen=True, kw_only=True):
    """The pool has the worker on its list for ``term_ms``; renew by then."""

    pool: str
    term_ms: int


class WorkerUnknown(Mail, frozen=True, kw_only=True):
    """The pool does not have the worker on its list: join again."""

    pool: str


class NameClaim(Mail, frozen=True, kw_only=True):
    """From a worker to those of its name: ``session`` goes by it. ``answers`` names the later claim that must go."""

    session: str
    host: str
    answers: str = ""


class Reply(Mail, frozen=True, kw_only=True):
    """The answer to a request.

    ``position`` (``topic/partition/shard_seq``) is what a reader waits for to see the effect.
    """

    request_id: str
    ok: bool
    #: Why it was refused, or what came of it.
    message: str = ""
    #: ``core.decide.decision.RefusalCode``, or empty.
    code: str = ""
    run_id: str = ""
    #: False when the request named something that existed already.
    created: bool = False
    position: str = ""
    backfill_id: str = ""
    #: More of the answer for programs, as JSON.
    details: str = ""


AnyMail = AssignTask | LeaseRenewed | StopAttempt | WorkerWelcome | WorkerUnknown | NameClaim | Reply
