"""All that happened to a run, as the events that they are in the journal, read from the tables.

Heartbeats and checkpoints are not among them, and of a task's outputs only the last one is: neither changes what a run
has come to once it has ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import msgspec
import psycopg

from tidewheel.core import events as e
from tidewheel_projections.queries import named_queries

#: Events of one read.
_PAGE = 5_000

Connection: TypeAlias = psycopg.Connection[Any]


def list_run_history(connection: Connection, dag: str, run_id: str) -> Iterator[e.RunEvent]:
    """The run's events in their order, without those that only its journal has."""
    after = 0
    while True:
        parameters = {"dag": dag, "run_id": run_id, "after": after, "limit": _PAGE}
        rows = connection.execute(named_queries()["list_run_history"], parameters, prepare=False).fetchall()
        for _, kind, at, actor, task, attempt, body, output in rows:
            columns = {"dag": dag, "run_id": run_id, "at": at, "actor": actor, "task": task, "attempt": attempt}
            yield event_of(getattr(e, kind), {**columns, "output": output}, body)
        if len(rows) < _PAGE:
            return
        after = rows[-1][0]


def get_definition(connection: Connection, dag: str, version: str) -> str:
    """The definition of a version, in its canonical form. Raises ``LookupError``."""
    parameters = {"dag": dag, "version": version}
    row = connection.execute(named_queries()["get_definition"], parameters, prepare=False).fetchone()
    if row is None:
        raise LookupError(f"version {version} of '{dag}' is not known")
    return str(row[0])


def event_of(kind: type[e.RunEvent], columns: Mapping[str, Any], body: str) -> e.RunEvent:
    """The event of an audit row: what ``audit.audit_row`` left out because it was empty is empty."""
    said = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    fields: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        if field.name == "inputs" and field.name in said:
            fields[field.name] = bytes(said[field.name]).decode()  # JSON, and this is its text
        elif field.name in said:
            fields[field.name] = msgspec.json.decode(said[field.name])
        elif field.name in columns:
            fields[field.name] = columns[field.name]
        elif field.required:
            fields[field.name] = "" if field.type is str else None
    return msgspec.convert(fields, kind)
