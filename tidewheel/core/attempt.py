"""What names an attempt, wherever it stands: in a command, in mail, in an event of its DAG or of its pool."""

from __future__ import annotations

from typing import TypeAlias, TypedDict

from tidewheel.core.commands import AttemptCommand
from tidewheel.core.events import SlotEvent, TaskEvent
from tidewheel.core.mail import AttemptMail

#: dag, run_id, task, attempt
AttemptKey: TypeAlias = tuple[str, str, str, int]
OfAttempt: TypeAlias = AttemptCommand | AttemptMail | TaskEvent | SlotEvent


class AttemptFields(TypedDict):
    """The same as keyword arguments."""

    dag: str
    run_id: str
    task: str
    attempt: int


def attempt_key(of: OfAttempt) -> AttemptKey:
    """The attempt ``of`` is about."""
    return (of.dag, of.run_id, of.task, of.attempt)


def attempt_fields(of: OfAttempt) -> AttemptFields:
    """To say something more of the same attempt: ``TaskCancelled(**attempt_fields(command), at=now)``.

    Unpacking costs three times the message itself (0.8 µs), so what is said of every task, on its way from the queue
    to its success, names its fields one by one instead.
    """
    return {"dag": of.dag, "run_id": of.run_id, "task": of.task, "attempt": of.attempt}
