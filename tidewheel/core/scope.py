"""What an expression of a task sees of its run."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from tidewheel.core.expressions import Scope
from tidewheel.core.mapping import instance_name
from tidewheel.core.state import Dag, RunState

#: How the ids of runs of slots begin; the slot follows.
SCHEDULED = "scheduled__"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def rfc3339(at: int | None) -> str | None:
    """Milliseconds since the epoch as RFC 3339 text in UTC, without a fraction when it is zero."""
    if at is None:
        return None
    moment = _EPOCH + timedelta(milliseconds=at)
    return moment.strftime("%Y-%m-%dT%H:%M:%S") + (f".{at % 1000:03d}Z" if at % 1000 else "Z")


def parse_rfc3339(text: str) -> int | None:
    """Milliseconds since the epoch of what ``rfc3339`` writes; None: it is not written so."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        return None
    ms = (moment - _EPOCH) // timedelta(milliseconds=1)
    return ms if rfc3339(ms) == text else None


def slot_run_id(slot: int) -> str:
    """The id of a slot's run, whatever makes it: so there is one."""
    return f"{SCHEDULED}{rfc3339(slot)}"


def run_names(run: RunState, attempt: int = 0) -> Mapping[str, Any]:
    """The name ``run``."""
    return {
        "id": run.run_id,
        "kind": run.kind,
        "logical_date": rfc3339(run.logical_date),
        "interval": {"start": rfc3339(run.interval_start), "end": rfc3339(run.interval_end)},
        "attempt": attempt,
    }


def scope_of(state: Dag, run: RunState, task: str, attempt: int = 0) -> Scope:
    """The names that expressions of ``task`` see."""
    definition = state.definitions[run.version]
    written, item = definition.task(task), run.task(task).item

    return Scope(
        inputs=msgspec.json.decode(run.inputs),
        run=run_names(run, attempt or run.task(task).attempt),
        task=lambda name: task_name(run, name),
        env={**definition.workflow.env, **written.env},
        names={} if item is None else {written.as_: msgspec.json.decode(item)},
    )


def task_name(run: RunState, name: str) -> Mapping[str, Any]:
    """What ``tasks.NAME`` gives: the output of a mapped task is the list of its instances', unless a person gave it
    one."""
    seen = run.task(name)
    if seen.fan is None or seen.output is not None:
        return {"state": seen.phase, "output": _decoded(seen.output)}
    instances = (run.task(instance_name(name, index)) for index in range(seen.fan.items))
    return {"state": seen.phase, "output": [_decoded(instance.output) for instance in instances]}


def _decoded(output: str | None) -> Any:
    return None if output is None else msgspec.json.decode(output)
