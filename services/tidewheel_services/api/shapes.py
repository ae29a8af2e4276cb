"""What the API answers with, and how that is published in the OpenAPI document.

Rows come as ``tidewheel_projections.views`` gives them; the shapes of everything else are here. Schemas are made from
these structs, so the document cannot say anything else than the code.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from tidewheel.definition.mistakes import Mistake
from tidewheel_projections import views
from tidewheel_services.api.lag import Lag
from tidewheel_services.api.problems import MEDIA_TYPE
from tidewheel_services.why.reason import Why


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """A run that was asked for. ``created`` is false when its id named a run that was there already."""

    dag: str
    run_id: str
    created: bool
    message: str
    position: str


class Deployed(msgspec.Struct, frozen=True, kw_only=True):
    """A definition that is current now. ``created`` is false when this version was current already."""

    dag: str
    version: str
    created: bool
    message: str
    position: str


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """A definition without mistakes; nothing was deployed."""

    dag: str
    version: str
    valid: bool = True


class Changed(msgspec.Struct, frozen=True, kw_only=True):
    """A change that is in the journal. ``changed`` is false when it was so already."""

    name: str
    changed: bool
    message: str
    position: str


class Cancelling(msgspec.Struct, frozen=True, kw_only=True):
    """A cancellation that is in the journal; the run ends when nothing of it is live any more."""

    dag: str
    run_id: str
    message: str
    position: str


class Marked(msgspec.Struct, frozen=True, kw_only=True):
    """A word about a task that is in the journal. ``changed`` is false when the task was so already."""

    dag: str
    run_id: str
    task: str
    changed: bool
    message: str
    position: str


class Decided(msgspec.Struct, frozen=True, kw_only=True):
    """A person's yes or no that is in the journal."""

    dag: str
    run_id: str
    task: str
    approved: bool
    message: str
    position: str


class Backfilling(msgspec.Struct, frozen=True, kw_only=True):
    """A backfill that was asked for, held, let go on or ended. ``changed`` is false when it was so already."""

    dag: str
    backfill_id: str
    changed: bool
    message: str
    position: str


class Cleared(msgspec.Struct, frozen=True, kw_only=True):
    """What a clear came to, or would come to: ``changed`` is false of a preview, and where there was nothing to clear.

    ``tasks`` are ids and instances, ``ending`` those of them whose live attempts end first; both null if they are too
    many to list. ``reopens``: the run had ended and is live again, with ``version``.
    """

    dag: str
    run_id: str
    changed: bool
    count: int
    tasks: list[str] | None
    ending: list[str] | None
    version: str
    reopens: bool
    message: str
    position: str


class BackfillSlot(msgspec.Struct, frozen=True, kw_only=True):
    """A slot, and what a backfill would do: ``create`` its run ``run_id``; or, since that is there in ``state``, let it
    begin anew (``restart``) or ``pass`` it."""

    slot: str
    run_id: str
    action: str
    state: str | None


class BackfillPreview(msgspec.Struct, frozen=True, kw_only=True):
    """What a backfill would do with its ``slots`` slots now, in the order in which it would come to them. ``more``:
    there are more of them than ``items`` names."""

    dag: str
    first: str
    last: str
    slots: int
    creates: int
    restarts: int
    passes: int
    items: list[BackfillSlot]
    more: bool


class LogPage(msgspec.Struct, frozen=True, kw_only=True):
    """Output of an attempt. ``last`` is the last chunk here; ``next`` the same if there is more by now, else null.

    ``ended``: the attempt is over.
    """

    items: list[views.LogRow]
    next: int | None
    last: int | None
    ended: bool


class EventPage(msgspec.Struct, frozen=True, kw_only=True):
    """Events of the journal; hand ``next`` back as ``after`` for more."""

    items: list[views.EventRow]
    next: int | None

    @classmethod
    def of(cls, items: list[views.EventRow], limit: int) -> EventPage:
        """Of one event more than the page may have, if there are so many: that tells whether there is more."""
        shown = items[:limit]
        return cls(items=shown, next=shown[-1].shard_seq if len(items) > limit else None)


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """How the process is. ``checks`` names what was looked at and what is wrong with it (empty text: nothing)."""

    status: str
    checks: dict[str, str] = {}


class FieldError(msgspec.Struct, frozen=True, kw_only=True):
    """One mistake in a request: where (``body.inputs``, ``query.limit``), a stable code, and what is wrong."""

    where: str
    code: str
    message: str


Response: TypeAlias = dict[str, Any]

_PUBLISHED: list[Any] = [
    BackfillPreview,
    Backfilling,
    Cancelling,
    Changed,
    Checked,
    Cleared,
    Decided,
    Deployed,
    EventPage,
    FieldError,
    Health,
    Lag,
    LogPage,
    Marked,
    Mistake,
    Started,
    Why,
    views.BackfillRow,
    views.DagRow,
    views.PoolRow,
    views.RunDetail,
    views.TaskDetail,
    views.VersionDetail,
    views.Page[views.AttemptRow],
    views.Page[views.BackfillRow],
    views.Page[views.DagRow],
    views.Page[views.DeadLetterRow],
    views.Page[views.InstanceOutput],
    views.Page[views.PoolRow],
    views.Page[views.PoolTaskRow],
    views.Page[views.PoolDagRow],
    views.Page[views.RunRow],
    views.Page[views.TaskRow],
    views.Page[views.VersionRow],
    views.Page[views.WorkerRow],
]
_REFERENCES, _COMPONENTS = msgspec.json.schema_components(_PUBLISHED, ref_template="#/components/schemas/{name}")
_REFERENCE_OF = dict(zip(_PUBLISHED, _REFERENCES, strict=True))
_PROBLEM: Response = {
    "title": "Problem",
    "description": "RFC 9457. `type` is `urn:tidewheel:problem:` and a stable word for programs. `errors` lists every "
    "mistake: of a definition with file, line and column, of anything else with its place in the request.",
    "type": "object",
    "required": ["type", "title", "status", "detail", "instance"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "instance": {"type": "string"},
        "errors": {
            "type": "array",
            "items": {
                "anyOf": [
                    {"$ref": "#/components/schemas/FieldError"},
                    {"$ref": "#/components/schemas/Mistake"},
                ]
            },
        },
    },
}

#: The errors of every route.
PROBLEMS: dict[int | str, Response] = {
    "default": {
        "description": "A problem document",
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
}


def components() -> Response:
    """The schemas that ``gives`` refers to."""
    return {**_COMPONENTS, "Problem": _PROBLEM}


def gives(shape: Any, description: str, status: int = 200) -> dict[int | str, Response]:
    """The OpenAPI entry of an answer of this shape."""
    content: Response = {"application/json": {"schema": _REFERENCE_OF[shape]}}
    return {status: {"description": description, "content": content}}
