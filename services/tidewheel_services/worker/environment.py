"""The environment in which a task's code runs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from tidewheel.core.mail import AssignTask

#: Settings and secrets of the worker itself: no task gets them by inheritance.
PRIVATE_PREFIX = "TIDEWHEEL_"


def inherited(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """What tasks inherit from the worker's environment."""
    source = os.environ if environment is None else environment
    kept = {name: value for name, value in source.items() if not name.startswith(PRIVATE_PREFIX)}
    # Else the output of a Python program would show in the log only when it ends.
    kept.setdefault("PYTHONUNBUFFERED", "1")
    return kept


def described(mail: AssignTask, output: Path | None = None, checkpoint: Path | None = None) -> dict[str, str]:
    """The attempt in environment variables, with the files for its output and its checkpoint if it has them."""
    described = {
        "TIDEWHEEL_DAG": mail.dag,
        "TIDEWHEEL_RUN_ID": mail.run_id,
        "TIDEWHEEL_TASK": mail.task,
        "TIDEWHEEL_ATTEMPT": str(mail.attempt),
        "TIDEWHEEL_IDEMPOTENCY_KEY": f"{mail.dag}/{mail.run_id}/{mail.task}",
        "RUN_ID": mail.run_id,
    }
    for name, milliseconds in (
        ("TIDEWHEEL_LOGICAL_DATE", mail.logical_date),
        ("TIDEWHEEL_INTERVAL_START", mail.interval_start),
        ("TIDEWHEEL_INTERVAL_END", mail.interval_end),
    ):
        if milliseconds is not None:
            described[name] = iso(milliseconds)
    if output is not None:
        described["TIDEWHEEL_OUTPUT"] = str(output)
    if checkpoint is not None:
        described["TIDEWHEEL_CHECKPOINT"] = str(checkpoint)
    return described


def iso(milliseconds: int) -> str:
    """An instant as ``2026-01-31T06:00:00Z``, with a fraction only if it has one."""
    at = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return at.isoformat(timespec="milliseconds" if milliseconds % 1000 else "seconds").replace("+00:00", "Z")
