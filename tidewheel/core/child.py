"""Runs that a task of another run asks for: what they are called, and how each side knows the other.

A task whose action is ``trigger`` ends when the other DAG has the run; one whose action is ``workflow`` waits for the
run's end. The run's id follows from the attempt that asks for it, so that a request that comes twice is one run, and
the next attempt's is another. Both sides may live in different shards: the asking one sends ``LaunchRun``, the other
answers with ``ReportLaunch`` and, if somebody waits, at the end with ``ReportRunEnd``. A DAG without room answers
"later": the attempt waits and asks again, for the same run.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import msgspec

from tidewheel.core.commands import ChildKind
from tidewheel.core.waits import Wait

#: Runs that were asked for by runs that were asked for …: a chain that long is taken for an endless one.
DEPTH_MAX: Final = 16
#: How the ids of such runs begin: nobody else may take them.
CHILD_PREFIXES: Final = ("triggered__", "workflow__")
#: How long an attempt waits that was told "later", doubling up to the second figure.
_ASK_AGAIN_MS: Final = (5_000, 120_000)


class Child(msgspec.Struct, frozen=True):
    """The run that a task asked for: the detail of its wait, and part of its output."""

    dag: str
    run_id: str


def child_run_id(kind: ChildKind, dag: str, run_id: str, task: str, attempt: int) -> str:
    """The id of the run that this attempt asks for: its kind, the asking DAG, and a hash over the attempt."""
    attempt_hash = hashlib.blake2b(f"{dag}/{run_id}/{task}/{attempt}".encode(), digest_size=8).hexdigest()
    return f"{kind}__{dag}__{attempt_hash}"


def ask_again_in(run_id: str, postponed: int) -> int:
    """After how many milliseconds to ask for ``run_id`` again, put off ``postponed`` times before; half as long again
    at most by its hash, so that a thousand that were put off together do not come together."""
    least, most = _ASK_AGAIN_MS
    delay = min(most, least << min(postponed, 10))
    return delay + delay * int(run_id[-4:], 16) // 2**17


def child_of(wait: Wait | None) -> Child | None:
    """The run whose end a deferred attempt waits for; None if it waits for something else."""
    return _child(wait, "workflow")


def to_recall(wait: Wait | None) -> Child | None:
    """The run that is to end before the attempt that waits for it can be cut short. None if there is none yet, as far
    as the attempt was told: of one that was just made the answer is to come, and nobody waiting it is called back."""
    return None if wait is None or wait.ask_at is not None else child_of(wait)


def launched_by(wait: Wait | None) -> Child | None:
    """The run that a deferred attempt asked for, whether it waits for its end or only for its beginning."""
    return child_of(wait) or _child(wait, "trigger")


def _child(wait: Wait | None, what: str) -> Child | None:
    if wait is None or wait.waits_for != what:
        return None
    detail: dict[str, Any] = msgspec.json.decode(wait.detail)
    # An attempt whose inputs could not be evaluated has asked for nothing.
    return msgspec.convert(detail, Child) if "run_id" in detail else None
