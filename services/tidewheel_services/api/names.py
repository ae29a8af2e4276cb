"""Names and times in addresses and bodies: what a legal one looks like, told when it is not."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, get_args
from urllib.parse import unquote

from fastapi import Path, Query
from pydantic import AfterValidator, BeforeValidator
from pydantic_core import PydanticCustomError

from tidewheel.core.events import AnyEvent
from tidewheel.core.nearest import did_you_mean
from tidewheel.wire.rules import ID_LENGTH_MAX, RUN_ID_LENGTH_MAX

PAGE_MAX = 1000
EVENT_TYPES = frozenset(event.__name__ for event in get_args(AnyEvent))
_ID = re.compile(r"[a-z][a-z0-9_]*")
_TASK = re.compile(r"[a-z][a-z0-9_]*(\[[0-9]{1,9}\])?")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d([Tt ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?([Zz]|[+ -]\d\d:\d\d))?", re.ASCII)


def checked_id(value: str) -> str:
    """An id of a DAG or pool. Raises ``PydanticCustomError``."""
    if len(value) > ID_LENGTH_MAX or not _ID.fullmatch(value):
        raise PydanticCustomError(
            "id",
            f"an id begins with a small letter (a-z), then small letters, digits, underscores; {ID_LENGTH_MAX} at most",
        )
    return value


def checked_task(value: str) -> str:
    """An id of a task, or of an instance of one. Raises ``PydanticCustomError``."""
    if len(value) > ID_LENGTH_MAX or not _TASK.fullmatch(value):
        raise PydanticCustomError("task", "a task is named by its id, such as 'load'; an instance as 'load[3]'")
    return value


def checked_run_id(value: str) -> str:
    """A run id. Raises ``PydanticCustomError``."""
    if not 0 < len(value) <= RUN_ID_LENGTH_MAX or not value.isprintable() or value != value.strip():
        raise PydanticCustomError(
            "run_id",
            f"a run id has 1 to {RUN_ID_LENGTH_MAX} printable characters and no space at its ends",
        )
    return value


def checked_event_type(value: str) -> str:
    """The name of an event. Raises ``PydanticCustomError``."""
    if value not in EVENT_TYPES:
        raise PydanticCustomError("event_type", "no event is called so" + did_you_mean(value, EVENT_TYPES))
    return value


def moment(value: object) -> datetime:
    """An RFC 3339 time, or a date (its midnight UTC). Raises ``PydanticCustomError``."""
    wanted = "a time like 2026-01-31T06:00:00Z, with Z or an offset, or a date like 2026-01-31"
    if not isinstance(value, str) or not _MOMENT.fullmatch(value):
        raise PydanticCustomError("time", f"expected {wanted}")
    # A plus sign in a query string that was not quoted arrives as a space.
    text = value[:-6] + "+" + value[-5:] if len(value) > 16 and value[-6] == " " else value
    try:
        found = datetime.fromisoformat(text.upper())
        return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    except (ValueError, OverflowError) as error:
        raise PydanticCustomError("time", f"expected {wanted}: " + str(error).replace("{", "(")) from error


DagName = Annotated[str, Path(description="Id of the DAG.", examples=["daily_orders"]), AfterValidator(unquote)]
RunName = Annotated[
    str, Path(description="Id of the run.", examples=["scheduled__2026-01-31T06:00:00Z"]), AfterValidator(unquote)
]
TaskName = Annotated[str, Path(description="Id of the task.", examples=["load"]), AfterValidator(unquote)]
LegalTaskName = Annotated[TaskName, AfterValidator(checked_task)]
PoolName = Annotated[str, Path(description="Name of the pool.", examples=["default"]), AfterValidator(unquote)]
NewPoolName = Annotated[
    str,
    Path(description="Name of the pool.", examples=["default"]),
    AfterValidator(unquote),
    AfterValidator(checked_id),
]
VersionName = Annotated[
    str, Path(description="Version of the definition.", examples=["5c0f6ae19b3d2c77"]), AfterValidator(unquote)
]
AttemptNumber = Annotated[int, Path(description="Number of the attempt.", ge=1, le=2**31 - 1, examples=[1])]
Moment = Annotated[datetime, BeforeValidator(moment)]

Limit = Annotated[int, Query(ge=1, le=PAGE_MAX, description="Largest number of entries in the answer.")]
After = Annotated[
    str | None, Query(max_length=2000, description="The `next` of the page before: the answer goes on behind it.")
]
AfterEvent = Annotated[int | None, Query(ge=0, le=2**62, description="The `next` of the page before.")]
EventTypes = Annotated[
    list[Annotated[str, AfterValidator(checked_event_type)]] | None,
    Query(alias="type", description="Only events of this type, such as `TasksCleared`; may be repeated."),
]
NewestFirst = Annotated[bool, Query(description="From the newest backwards.")]
