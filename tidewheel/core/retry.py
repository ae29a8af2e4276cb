"""Back-off and budgets: whether a failed attempt is tried again, and when."""

from __future__ import annotations

import hashlib
from typing import Literal

from tidewheel.core.commands import FailureKind
from tidewheel.core.workflow import Retry, Task

#: Failures that are nobody's code's fault: they count toward ``infra_retries``.
INFRASTRUCTURE: frozenset[FailureKind] = frozenset({"lease_expired", "worker_lost"})
#: Failures that another try can not change.
HOPELESS: frozenset[FailureKind] = frozenset(
    {"expression", "instances", "queue_timeout", "wait_timeout", "wait_failed", "rejected", "unplaceable"}
)

_JITTER = 0.25


def budget_of(kind: FailureKind) -> Literal["retries", "infra_retries", "none"]:
    """Which budget a failure of this kind draws on."""
    if kind in INFRASTRUCTURE:
        return "infra_retries"
    return "none" if kind in HOPELESS else "retries"


def delay_ms(retry: Retry, failures: int, identity: str) -> int:
    """The wait before the next attempt after ``failures`` (from 1) failed ones, in milliseconds.

    ``min(max_delay, delay · 2^(k-1))`` (linear: ``delay · k``), then ±25 % derived from ``identity`` so that a replay
    agrees.
    """
    if retry.delay_ms <= 0:
        return 0
    if retry.backoff == "fixed":
        wait = retry.delay_ms
    elif retry.backoff == "linear":
        wait = retry.delay_ms * failures
    else:
        # Past the cap's own length the power can only be larger than the cap.
        wait = retry.delay_ms << min(failures - 1, retry.max_delay_ms.bit_length())
    wait = min(wait, retry.max_delay_ms)
    if not retry.jitter:
        return wait
    digest = hashlib.blake2b(identity.encode(), digest_size=8).digest()
    unit = int.from_bytes(digest, "big") / (1 << 64)
    return int(wait * (1 - _JITTER + 2 * _JITTER * unit))


def is_retried(retry: Retry, kind: FailureKind, *, exit_code: int | None, http_status: int | None) -> bool:
    """Whether the task wants another try after such a failure: it names it, by code, status or kind, or names none."""
    if not (retry.only_on_exit_codes or retry.only_on_http_status or retry.only_on_kinds):
        return True
    return (
        exit_code in retry.only_on_exit_codes or http_status in retry.only_on_http_status or kind in retry.only_on_kinds
    )


def retry_at(
    task: Task,
    *,
    kind: FailureKind,
    failures: int,
    losses: int,
    identity: str,
    now: int,
    exit_code: int | None = None,
    http_status: int | None = None,
) -> int | None:
    """When the next attempt is due after a failure, or None if there is none.

    ``failures`` and ``losses`` count this one. An infrastructure loss is tried again at once; so that a node which
    kills everything it is given does not burn the budget in a second, from the second loss on it waits as a failure
    would.
    """
    budget = budget_of(kind)
    if budget == "infra_retries":
        if losses > task.infra_retries:
            return None
        return now if losses == 1 else now + delay_ms(task.retry, losses - 1, identity)
    if budget == "none" or failures > task.retry.max:
        return None
    if not is_retried(task.retry, kind, exit_code=exit_code, http_status=http_status):
        return None
    return now + delay_ms(task.retry, failures, identity)
