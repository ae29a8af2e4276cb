"""The fencing token: which attempt of which task of which run is writing."""

from __future__ import annotations

import os
from collections.abc import Mapping

import msgspec

from tidewheel.task.context import Attempt, current


class Token(msgspec.Struct, frozen=True):
    """An attempt's identity as plain data, to hand to a thread or another process."""

    dag: str
    run_id: str
    task: str
    attempt: int


class StaleAttempt(Exception):
    """A newer attempt of the task has claimed: this one's write was refused and must not be tried again."""

    def __init__(self, stale: Attempt, newest: int) -> None:
        super().__init__(
            f"attempt {stale.attempt} of task '{stale.task}' in run '{stale.run_id}' of DAG '{stale.dag}' "
            f"was replaced by attempt {newest}: its write is refused"
        )
        self.attempt = stale.attempt
        self.newest = newest


def current_token(environment: Mapping[str, str] | None = None) -> Token:
    """The attempt that this code runs for: by its context, or by the environment that a shell task passes on.

    Raises ``LookupError`` where there is neither.
    """
    try:
        context = current()
    except LookupError:
        return _of_environment(os.environ if environment is None else environment)
    return Token(context.dag, context.run_id, context.task, context.attempt)


def _of_environment(environment: Mapping[str, str]) -> Token:
    names = ("TIDEWHEEL_DAG", "TIDEWHEEL_RUN_ID", "TIDEWHEEL_TASK", "TIDEWHEEL_ATTEMPT")
    missing = [name for name in names if not environment.get(name)]
    if missing:
        raise LookupError(
            f"which attempt is writing? This runs in no task's function, and {', '.join(missing)} is not set; in a "
            "thread of your own take current_token() before you start it and hand it over"
        )
    dag, run_id, task, attempt = (environment[name] for name in names)
    if not attempt.isdecimal():
        raise LookupError(f"TIDEWHEEL_ATTEMPT must be a number, it is {attempt!r}")
    return Token(dag, run_id, task, int(attempt))
