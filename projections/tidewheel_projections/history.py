"""All that happened to a run, as the events that they are in the journal, read from the tables.

Heartbeats and checkpoints are not among them, and of a task's outputs only the last one is: neither changes what a run
has come to once it has ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, TypeAlias

import msgspec
import psycopg

from tidewheel.core import events as e
from tidewheel_projections.queries import named_queries

#: Events of one read.
_PAGE = 5_000

Connection: TypeAlias = psycopg.Connection[Any]


class TooLarge(Exception):
    """The run is not read, since nobody could use it."""


def list_run_history(connection: Connection, dag: str, run_id: str, outputs_max: int) -> Iterator[e.RunEvent]:
    """The run's events in their order, without those that only its journal has.

    Raises ``TooLarge`` if its outputs have more than ``outputs_max`` bytes together.
    """
    outputs = _outputs(connection, dag, run_id, outputs_max)
    after = 0
    while True:
        rows = _rows(connection, "list_run_history", dag=dag, run_id=run_id, after=after, limit=_PAGE)
        for _, kind, at, actor, task, attempt, body in rows:
            columns = {"dag": dag, "run_id": run_id, "at": at, "actor": actor, "task": task, "attempt": attempt}
            yield event_of(getattr(e, kind), {**columns, "output": outputs.get(task)}, body)
        if len(rows) < _PAGE:
            return
        after = rows[-1][0]


def _outputs(connection: Connection, dag: str, run_id: str, most: int) -> dict[str, str]:
    """What each task gave last. Not joined to the events: that takes half a minute where Postgres has no statistics."""
    ((size,),) = _rows(connection, "get_size_of_outputs", dag=dag, run_id=run_id)
    if size > most:
        raise TooLarge(f"its outputs have {size:,} bytes; the limit is {most:,}")
    return dict(_rows(connection, "list_outputs_of_run", dag=dag, run_id=run_id))


def _rows(connection: Connection, name: str, **parameters: object) -> list[Any]:
    return connection.execute(named_queries()[name], parameters, prepare=False).fetchall()


def get_definition(connection: Connection, dag: str, version: str) -> str:
    """The definition of a version, in its canonical form. Raises ``LookupError``."""
    rows = _rows(connection, "get_definition", dag=dag, version=version)
    if not rows:
        raise LookupError(f"version {version} of '{dag}' is not known")
    return str(rows[0][0])


def event_of(kind: type[e.RunEvent], columns: Mapping[str, Any], body: str) -> e.RunEvent:
    """The event of an audit row: what ``audit.audit_row`` left out because it was empty is empty."""
    said: dict[str, Any] = msgspec.json.decode(body)
    if "inputs" in said:  # they are JSON, and this is their text
        said["inputs"] = bytes(msgspec.json.decode(body, type=_Inputs).inputs).decode()
    return msgspec.convert({**_empty(kind), **columns, **said}, kind)


class _Inputs(msgspec.Struct):
    inputs: msgspec.Raw


@cache
def _empty(kind: type[e.RunEvent]) -> dict[str, Any]:
    """The fields that have no default, empty."""
    return {field.name: "" if field.type is str else None for field in msgspec.structs.fields(kind) if field.required}
