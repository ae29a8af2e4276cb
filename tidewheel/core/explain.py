"""Why a task is not running, in words for people."""

from __future__ import annotations

from tidewheel.core.child import launched_by
from tidewheel.core.scope import rfc3339
from tidewheel.core.waits import Wait


def explain_wait(wait: Wait) -> str:
    """What a deferred attempt waits for, and how long at most."""
    if wait.waits_for == "time" and (wait.timeout_at is None or wait.wakes_at == wait.resume_at):
        return f"waits until {rfc3339(wait.resume_at)}"
    until = "" if wait.timeout_at is None else f", until {rfc3339(wait.timeout_at)} at most"
    return f"waits for {_what(wait)}{until}"


def waits_for_room(explained: str) -> bool:
    """Whether this is said of an attempt that asks for a run where there is no room."""
    return explained.startswith(f"waits for {_ROOM}")


def _what(wait: Wait) -> str:
    if wait.ask_at is not None and (child := launched_by(wait)) is not None:
        return f"{_ROOM} '{child.dag}', asks again at {rfc3339(wait.ask_at)}"
    if wait.waits_for == "approval" and (roles := wait.asked.get("roles")):
        return f"an approval by {' or '.join(map(str, roles))}"
    if wait.waits_for == "run" and "run_id" in wait.asked:
        return f"the end of run {wait.asked['run_id']} of '{wait.asked['dag']}'"
    if (child := launched_by(wait)) is not None:
        return f"{'the end of ' if wait.waits_for == 'workflow' else ''}run {child.run_id} of '{child.dag}'"
    if wait.waits_for == "http" and "request" in wait.asked:
        return f"an answer of {wait.asked['request']['url'].partition('?')[0]}"
    if wait.waits_for == "kafka" and "topic" in wait.asked:
        return f"a record of topic {wait.asked['topic']}"
    return _WHAT[wait.waits_for]


_ROOM = "room in DAG"
_WHAT = {
    "time": "its time",
    "kafka": "a Kafka record",
    "http": "an HTTP answer",
    "run": "a run",
    "approval": "an approval",
    "trigger": "the run that it asks for",
    "workflow": "its sub-workflow",
}
