"""The witness of waits: how long each may last, and what becomes of a task whose wait has lasted too long."""

from __future__ import annotations

from typing import Any

import msgspec

from tidewheel.core import events as e
from tidewheel.core.waits import FAULT
from tidewheel.core.workflow import Task, TimeWait, WaitFor


def wrong_times(event: e.TaskDeferred, task: Task) -> str:
    """What is wrong with when a wait ends by itself."""
    if FAULT in msgspec.json.decode(event.detail, type=dict[str, Any]):
        return ""  # what it waits for did not evaluate: it ends in a turn of its own
    timeout_ms = task.timeout_ms
    if isinstance(task.action, WaitFor):
        timeout_ms, what = task.action.timeout_ms, task.action.what
        until = None if not isinstance(what, TimeWait) or what.after_ms is None else event.at + what.after_ms
        if until not in (None, event.resume_at):
            return f"waits until {event.resume_at}, not {until}"
    longest = None if timeout_ms is None else event.at + timeout_ms
    return "" if event.timeout_at == longest else f"has time until {event.timeout_at}, not {longest}"


def wrong_give_up(event: e.TaskFailed | e.TaskSkipped, task: Task) -> str:
    """What is wrong with the end of an attempt whose time is over."""
    right = task.action.on_timeout if isinstance(task.action, WaitFor) else "fail"
    found = "skip" if isinstance(event, e.TaskSkipped) else "fail"
    return "" if found == right else f"gives up and is to {right} then, not to {found}"
