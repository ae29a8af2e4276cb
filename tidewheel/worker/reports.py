"""What is said about an attempt's end."""

from __future__ import annotations

import time

import msgspec

from tidewheel.core.attempt import AttemptFields, attempt_fields
from tidewheel.core.commands import ClosingReport, ReportCancelled, ReportFailure, ReportSuccess
from tidewheel.core.mail import AttemptMail, StopAttempt
from tidewheel.task.outcome import MESSAGE_CHARS_MAX, Failed, Outcome, Succeeded, outcome_of_json, trimmed
from tidewheel.worker.attempt import Attempt, StopReason
from tidewheel.worker.masking import Masker

_LOST = {
    StopReason.FENCE: "the lease was about to end and could not be renewed, so the worker ended the attempt",
    StopReason.GIVE_UP: "the worker is shutting down and gave the attempt up",
}


def wall_ms() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


class _Closing(AttemptFields):
    """What every report of an attempt's end says."""

    actor: str
    worker: str
    started_at: int
    ended_at: int


def closing_report(worker: str, attempt: Attempt, outcome: Outcome | None, masker: Masker) -> ClosingReport | None:
    """The report of the attempt's end; None if nobody wants one. A stop outweighs what the code said on its way out.

    ``outcome`` is None when the attempt is reported before (or without) an outcome.
    """
    closing = _closing(worker, attempt.assignment, attempt.started_at)
    match attempt.stopped:
        case StopReason.DISCARD:
            return None
        case StopReason.CANCEL:
            return ReportCancelled(**closing)
        case StopReason.TIMEOUT:
            seconds = (attempt.assignment.timeout_ms or 0) / 1000
            outcome = Failed("timeout", f"ran longer than its timeout of {seconds:g} s and was ended")
        case StopReason.FENCE | StopReason.GIVE_UP:
            outcome = Failed("worker_lost", _LOST[attempt.stopped])
        case None:
            assert outcome is not None, "an attempt that was not stopped ends with an outcome"
    if masker.pattern is not None:
        outcome = _masked(outcome, masker)
    if isinstance(outcome, Succeeded):
        return ReportSuccess(**closing, output=outcome.output)
    message = trimmed(outcome.message, MESSAGE_CHARS_MAX)
    codes = {"exit_code": outcome.exit_code, "http_status": outcome.http_status}
    return ReportFailure(**closing, kind=outcome.kind, message=message, **codes)


def cancelled_unseen(worker: str, mail: StopAttempt) -> ReportCancelled:
    """The answer to a cancel of an attempt whose assignment never came here: nothing of it runs."""
    return ReportCancelled(**_closing(worker, mail, 0))


def _closing(worker: str, mail: AttemptMail, started_at: int) -> _Closing:
    """``started_at`` 0: it never began."""
    ended_at = wall_ms()
    return {
        **attempt_fields(mail),
        "actor": f"worker:{worker}",
        "worker": worker,
        "started_at": started_at or ended_at,
        "ended_at": ended_at,
    }


def _masked(outcome: Outcome, masker: Masker) -> Outcome:
    """``outcome`` without secrets. An output that the mask breaks (the secret was a number) is refused."""
    if isinstance(outcome, Failed):
        return msgspec.structs.replace(outcome, message=masker.mask(outcome.message))
    if outcome.output is None:
        return outcome
    masked = masker.mask_json(outcome.output)
    if masked == outcome.output:
        return outcome
    return outcome_of_json(masked.encode(), "the output, with its secrets masked,")
