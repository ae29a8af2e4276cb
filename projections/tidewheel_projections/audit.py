"""The events as people want to see them, in ``events``.

Left out are heartbeats, checkpoints and renewals, of which there are too many to read, and a pool's per-attempt
bookkeeping, which says nothing that the DAG's own events do not. The journal has them all.
"""

from __future__ import annotations

import functools
from datetime import UTC, datetime
from typing import Any

import msgspec

from tidewheel.core import events as e

#: No rows for these.
UNLISTED: frozenset[type[e.Event]] = frozenset(
    {e.TaskHeartbeat, e.TaskCheckpointed, e.WorkerRenewed, e.TaskEnqueued, e.SlotGranted, e.SlotReleased}
)
#: Columns of their own, or too large (definitions, sources and outputs have their own tables).
_NOT_IN_BODY = frozenset(
    {"at", "actor", "dag", "pool", "run_id", "task", "attempt", "definition", "source", "output", "recalled"}
)

#: Of an event that names both, the pool is part of what a DAG's event says.
_DAG_TYPES = e.DagEvent

_encode = msgspec.json.Encoder().encode


@functools.lru_cache(maxsize=4096)
def instant_text(at: int) -> str:
    """Milliseconds since the epoch as Postgres reads them. Cached: the events of a batch share their instants."""
    seconds, ms = divmod(at, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}.{ms:03d}+00"


@functools.cache
def _body_fields(kind: type[e.Event]) -> tuple[str, ...]:
    own = _NOT_IN_BODY - {"pool"} if issubclass(kind, _DAG_TYPES) else _NOT_IN_BODY
    return tuple(name for name in kind.__struct_fields__ if name not in own)


def _body(event: e.AnyEvent) -> str:
    body: dict[str, Any] = {}
    for name in _body_fields(type(event)):
        value = getattr(event, name)
        if value is not None and value != "":
            body[name] = value
    if "inputs" in body:
        body["inputs"] = msgspec.Raw(body["inputs"].encode())
    return _encode(body).decode()


def audit_row(topic: str, partition: int, offset: int, recorded: e.Recorded) -> tuple[object, ...]:
    """The row of an event; its instant is text, since these rows are copied straight into their table."""
    event = recorded.event
    if isinstance(event, e.DagEvent):
        key = event.dag
        run_id = event.run_id if isinstance(event, e.RunEvent) else ""
        task, attempt = (event.task, event.attempt) if isinstance(event, e.TaskEvent) else ("", 0)
    elif isinstance(event, e.JournalRepaired):
        key, run_id, task, attempt = f"{topic}/{partition}", "", "", 0
    else:
        key = event.pool
        run_id, task, attempt = "", "", 0
        if isinstance(event, e.SlotRefused):
            run_id, task, attempt = event.run_id, event.task, event.attempt
    return (
        topic,
        key,
        partition,
        recorded.shard_seq,
        offset,
        recorded.seq,
        run_id,
        task,
        attempt,
        type(event).__name__,
        instant_text(event.at),
        event.actor,
        recorded.cause,
        _body(event),
    )
