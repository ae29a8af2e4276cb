"""A notice in words: a title that says what happened to what, a body that says what to look at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from tidewheel.core import events as e
from tidewheel.core.scope import rfc3339

Kind = Literal["failure", "warning", "success", "info"]
#: Characters of what a failed attempt said.
MESSAGE_MAX = 2_000


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """An attempt that ended its task."""

    task: str
    attempt: int
    kind: str
    message: str
    exit_code: int | None = None
    worker: str = ""


def failure_of(event: e.TaskFailed | e.LeaseExpired) -> Failure:
    """The attempt that ended by it."""
    return Failure(
        task=event.task,
        attempt=event.attempt,
        kind=event.kind if isinstance(event, e.TaskFailed) else "lease_expired",
        message=event.message[:MESSAGE_MAX],
        exit_code=event.exit_code if isinstance(event, e.TaskFailed) else None,
        worker=event.worker,
    )


class Told(msgspec.Struct, frozen=True):
    """What is told, whoever is told."""

    kind: Kind
    title: str
    body: str


_KINDS: dict[str, Kind] = {
    "run_failed": "failure",
    "task_failed": "failure",
    "deadline_missed": "failure",
    "deadline_near": "warning",
    "task_retrying": "warning",
    "run_succeeded": "success",
    "first_success_after_failure": "success",
}


def words(
    event: e.TaskFailed | e.LeaseExpired | e.RunEvent,
    name: str,
    failures: Sequence[Failure],
    failed: int,
    owner: str,
) -> Told:
    """The notice of ``event``, told as ``name``. ``failures`` are those of the run so far, ``failed`` their number."""
    lines: list[str] = []
    match event:
        case e.TaskFailed() | e.LeaseExpired():
            again = event.retry_at is not None
            title = f"{event.dag}: {event.task} {'is tried again' if again else 'failed'}"
            lines = _failure(failure_of(event))
            if again:
                lines.append(f"The next attempt begins at {rfc3339(event.retry_at)}.")
        case e.DeadlineMissed():
            title = f"{event.dag}: {'a deadline is near' if event.before_ms else 'deadline missed'}"
            lines = [_sentence(event.reason)]
            if event.action == "fail":
                lines.append("The run is ended as failed by this.")
        case e.RunFailed():
            title = f"{event.dag} failed"
            lines = [_sentence(event.reason)]
            for failure in failures:
                lines += ["", *_failure(failure)]
            if failed > len(failures):
                lines += ["", f"{failed - len(failures):,} more tasks failed."]
        case _:
            title = f"{event.dag} succeeded{' again' if name == 'first_success_after_failure' else ''}"
            if name == "first_success_after_failure":
                lines = ["The run of this DAG that ended before it had failed."]
    head = [f"Run {event.run_id} of {event.dag}, {rfc3339(event.at)}"]
    tail = ["", f"Owner: {owner}"] if owner else []
    return Told(_KINDS[name], title, "\n".join([*head, *lines, *tail]))


def _failure(failure: Failure) -> list[str]:
    """What failed, which attempt, where, how, and the last it said."""
    how = failure.kind if failure.exit_code is None else f"{failure.kind} {failure.exit_code}"
    attempt = f", attempt {failure.attempt}" if failure.attempt else ""
    worker = f" on worker {failure.worker}" if failure.worker else ""
    found = [f"{failure.task}{attempt}{worker}: {how}"]
    return [*found, *(f"    {line}" for line in failure.message.splitlines())]


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"
