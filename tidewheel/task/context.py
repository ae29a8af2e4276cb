"""What a task's code may know of the attempt it runs in, and say while it runs."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Protocol

import msgspec

#: A checkpoint travels in an event; what is larger belongs into a store of the user's.
CHECKPOINT_BYTES_MAX = 64 * 1024


class Attempt(Protocol):
    """Which attempt it is: a task's ``Context`` is one, and so is an ``effects.Token``."""

    @property
    def dag(self) -> str: ...
    @property
    def run_id(self) -> str: ...
    @property
    def task(self) -> str: ...
    @property
    def attempt(self) -> int: ...


class Identity(Attempt, Protocol):
    """An attempt and what it runs for; ``core.mail.AssignTask`` is one."""

    @property
    def logical_date(self) -> int | None: ...
    @property
    def interval_start(self) -> int | None: ...
    @property
    def interval_end(self) -> int | None: ...
    @property
    def checkpoint(self) -> str | None: ...


class Voice(Protocol):
    """How the context reaches the worker."""

    def progress(self, progress: str | None) -> None:
        """Show ``progress`` (JSON text) with a heartbeat soon."""

    def checkpoint(self, checkpoint: str) -> None:
        """Leave ``checkpoint`` (JSON text) for the task's next attempt."""

    def log(self, text: str) -> None:
        """Add to the task's log."""

    def environment(self) -> Mapping[str, str]:
        """The task's ``env``, secrets resolved."""


class Context:
    """The attempt a function runs for, given to its parameter ``context`` or by ``current()``."""

    __slots__ = ("_checkpoint", "_identity", "_voice", "cancelled")

    def __init__(self, identity: Identity, voice: Voice, cancelled: threading.Event) -> None:
        self._identity = identity
        self._voice = voice
        self._checkpoint = identity.checkpoint
        #: Set when the attempt is cancelled, timed out or about to lose its lease: return or raise soon.
        self.cancelled = cancelled

    @property
    def dag(self) -> str:
        """The DAG's id."""
        return self._identity.dag

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self._identity.run_id

    @property
    def task(self) -> str:
        """The task's id."""
        return self._identity.task

    @property
    def attempt(self) -> int:
        """The attempt's number: the fencing token. Write with it what must not be overwritten by an older attempt."""
        return self._identity.attempt

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt of this task in this run: give it to services that do a thing once per key."""
        return f"{self.dag}/{self.run_id}/{self.task}"

    @property
    def logical_date(self) -> datetime | None:
        """The schedule slot the run stands for."""
        return instant(self._identity.logical_date)

    @property
    def interval(self) -> tuple[datetime, datetime] | None:
        """The run's data interval: from, and up to but not including."""
        start, end = instant(self._identity.interval_start), instant(self._identity.interval_end)
        return None if start is None or end is None else (start, end)

    @property
    def env(self) -> Mapping[str, str]:
        """The task's ``env``, secrets resolved."""
        return self._voice.environment()

    def heartbeat(self, progress: object = None) -> None:
        """Show ``progress`` (any JSON value). The lease needs no help: it is renewed while the function runs."""
        self._voice.progress(None if progress is None else msgspec.json.encode(progress).decode())

    @property
    def checkpoint(self) -> Any:
        """What was saved last, by this attempt or by an earlier one of the same task and run; None: nothing was."""
        return None if self._checkpoint is None else msgspec.json.decode(self._checkpoint)

    def save_checkpoint(self, value: object) -> None:
        """Leave ``value`` (JSON, at most 64 KiB) for the next attempt, should there be one; it replaces the one before.

        It goes out within a second, and before the attempt's end is reported. Call it as often as you like: of what
        is saved within one second the last counts. Raises ``ValueError`` if the value is too large or no JSON.
        """
        try:
            text = msgspec.json.encode(value).decode()
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise ValueError(f"the checkpoint cannot be written as JSON: {error}") from error
        size = len(text.encode())
        if size > CHECKPOINT_BYTES_MAX:
            limit = f"at most {CHECKPOINT_BYTES_MAX:,} are kept"
            raise ValueError(f"the checkpoint has {size:,} bytes; {limit}: store it elsewhere and save where it is")
        self._checkpoint = text
        self._voice.checkpoint(text)

    def log(self, text: str) -> None:
        """Add a line to the task's log."""
        self._voice.log(text if text.endswith("\n") else text + "\n")


def instant(milliseconds: int | None) -> datetime | None:
    """Milliseconds since the epoch as a time in UTC."""
    return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, UTC)


active: ContextVar[Context] = ContextVar("tidewheel_context")


def current() -> Context:
    """The context of the attempt that this code runs for. Raises ``LookupError`` outside of one."""
    try:
        return active.get()
    except LookupError:
        raise LookupError("current() works only inside a function that a worker is running") from None
