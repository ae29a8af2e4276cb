"""Backfills: what one would do; starting, watching, holding and ending it."""

from __future__ import annotations

from typing import Annotated, TypedDict
from urllib.parse import unquote

from fastapi import Depends, Path
from pydantic import AfterValidator, ConfigDict, Field
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from tidewheel.core.backfill import WIDTH_MAX
from tidewheel.core.commands import (
    BackfillMode,
    BackfillOrder,
    CancelBackfill,
    PauseBackfill,
    Reprocess,
    ResumeBackfill,
    StartBackfill,
)
from tidewheel.core.mail import Reply
from tidewheel_projections import reads, views
from tidewheel_services.api import shapes
from tidewheel_services.api.body import Body, body_of, documented
from tidewheel_services.api.names import After, DagName, Limit
from tidewheel_services.api.previews import PREVIEW_MAX, instants_of, preview, schedule_of
from tidewheel_services.api.routes.dags import Reason, ReasonBody, Why
from tidewheel_services.api.routes.pages import answer_page
from tidewheel_services.api.routes.routers import reader, writer
from tidewheel_services.api.services import Actor, Api, Services, answer
from tidewheel_services.api.unknown import known_backfill, known_dag

read = reader("backfills")
write = writer("backfills")

BackfillName = Annotated[
    str, Path(description="Id of the backfill.", examples=["backfill-1"], max_length=200), AfterValidator(unquote)
]
_EXAMPLE = {"from": "2026-01-01", "to": "2026-01-31", "mode": "parallel", "width": 4}


class RangeBody(Body):
    """Which slots, and in which order."""

    model_config = ConfigDict(extra="forbid", strict=True, populate_by_name=False)

    begin: Annotated[
        str,
        Field(
            alias="from",
            max_length=40,
            description="The first slot, or any time before it: a date (that whole day, in the schedule's zone) or a "
            "time, in the schedule's zone unless it has an offset.",
        ),
    ]
    end: Annotated[str, Field(alias="to", max_length=40, description="The last slot, included; written like `from`.")]
    order: Annotated[BackfillOrder, Field(description="The earliest slot first, or the latest.")] = "forward"
    reprocess: Annotated[
        Reprocess,
        Field(
            description="Slots that have a run: `none` keep it; `failed`: runs that failed or were cancelled begin "
            "anew; `all`: every run that has ended does. One that goes on is left alone."
        ),
    ] = "none"


class StartBody(RangeBody):
    """What to start."""

    mode: Annotated[
        BackfillMode,
        Field(description="`parallel`: `width` runs at a time (1: one after the other); `chunked`: `width` together."),
    ] = "parallel"
    width: Annotated[int, Field(ge=1, le=WIDTH_MAX, description="How many runs.")] = 1


class PreviewBody(RangeBody):
    """What to preview."""

    limit: Annotated[int, Field(ge=1, le=PREVIEW_MAX, description="How many slots to name.")] = 1000


class Target(TypedDict):
    """The backfill that a request is about, and who asks."""

    dag: str
    backfill_id: str
    actor: str


def target_of(dag: DagName, backfill_id: BackfillName, actor: Actor) -> Target:
    """A dependency: what the address and the headers say."""
    return {"dag": dag, "backfill_id": backfill_id, "actor": actor}


Named = Annotated[Target, Depends(target_of)]


class CancelBody(Body):
    """Why to cancel, and how much."""

    reason: Reason = ""
    running: Annotated[bool, Field(description="Cancel its runs that have begun, too.")] = False


@read.get(
    "/dags/{dag}/backfills",
    summary="List a DAG's backfills",
    responses=shapes.gives(views.Page[views.BackfillRow], "Backfills, newest first."),
)
def list_backfills(dag: DagName, api: Api, limit: Limit = 100, after: After = None) -> Response:
    """Backfills with how far they have come, newest first."""
    return answer_page(
        api,
        lambda connection: reads.list_backfills(connection, dag, after=after, limit=limit),
        lambda connection: known_dag(connection, dag),
    )


@read.get(
    "/dags/{dag}/backfills/{backfill_id}",
    summary="Show a backfill",
    responses=shapes.gives(views.BackfillRow, "The backfill."),
)
def get_backfill(dag: DagName, backfill_id: BackfillName, api: Api) -> Response:
    """One backfill: where it stands, and how its runs ended."""
    return answer(api.reads.read(lambda connection: known_backfill(connection, dag, backfill_id)))


@read.post(
    "/dags/{dag}/backfills/preview",
    summary="Preview a backfill",
    responses=shapes.gives(shapes.BackfillPreview, "What it would do."),
    openapi_extra=documented(PreviewBody, required=True, example={"from": "2026-01-01", "to": "2026-01-31"}),
)
async def preview_backfill(
    dag: DagName, api: Api, body: Annotated[PreviewBody, Depends(body_of(PreviewBody))]
) -> Response:
    """The slots of the range, and what a backfill would do with each of them. Nothing is changed."""

    def query(connection: reads.Connection) -> shapes.BackfillPreview:
        row = known_dag(connection, dag)
        schedule = schedule_of(row)
        since, until = instants_of(schedule, body.begin, body.end)
        return preview(connection, row, schedule, since, until, body.order, body.reprocess, body.limit)

    return answer(await run_in_threadpool(api.reads.read, query))


@write.post(
    "/dags/{dag}/backfills",
    summary="Start a backfill",
    status_code=201,
    responses={
        **shapes.gives(shapes.Backfilling, "It is started.", 201),
        **shapes.gives(shapes.Backfilling, "The very same one goes on already; nothing was started."),
    },
    openapi_extra=documented(StartBody, required=True, example=_EXAMPLE),
)
async def start_backfill(
    dag: DagName, api: Api, actor: Actor, body: Annotated[StartBody, Depends(body_of(StartBody))]
) -> Response:
    """Make runs for the slots of the schedule from `from` to `to`, both included, that have come due and have none;
    with `reprocess`, let those that there are begin anew.

    Asked again while it goes on, it is the same one.
    """
    row = await run_in_threadpool(api.reads.read, lambda connection: known_dag(connection, dag))
    since, until = instants_of(schedule_of(row), body.begin, body.end)
    command = StartBackfill(
        dag=dag,
        actor=actor,
        since=since,
        until=until,
        order=body.order,
        mode=body.mode,
        width=body.width,
        reprocess=body.reprocess,
    )
    reply = await api.ask(command, "Ask again: a slot gets one run, however often it is asked for.")
    return _told(dag, reply, 201 if reply.created else 200)


@write.post(
    "/dags/{dag}/backfills/{backfill_id}/pause",
    summary="Pause a backfill",
    responses=shapes.gives(shapes.Backfilling, "It makes no more runs."),
    openapi_extra=documented(ReasonBody, required=False, example={"reason": "the warehouse is busy"}),
)
async def pause_backfill(target: Named, api: Api, body: Why) -> Response:
    """It makes no more runs until it is resumed; those it made go on."""
    return await _change(api, PauseBackfill(**target, reason=body.reason))


@write.post(
    "/dags/{dag}/backfills/{backfill_id}/resume",
    summary="Resume a backfill",
    responses=shapes.gives(shapes.Backfilling, "It goes on."),
    openapi_extra=documented(ReasonBody, required=False, example={"reason": "the warehouse is free"}),
)
async def resume_backfill(target: Named, api: Api, body: Why) -> Response:
    """It goes on where it was."""
    return await _change(api, ResumeBackfill(**target, reason=body.reason))


@write.post(
    "/dags/{dag}/backfills/{backfill_id}/cancel",
    summary="Cancel a backfill",
    responses=shapes.gives(shapes.Backfilling, "It is over."),
    openapi_extra=documented(CancelBody, required=False, example={"reason": "wrong range", "running": False}),
)
async def cancel_backfill(
    target: Named, api: Api, body: Annotated[CancelBody, Depends(body_of(CancelBody))]
) -> Response:
    """It makes no more runs, and those of its runs that wait are cancelled; with `running` the others too."""
    return await _change(api, CancelBackfill(**target, reason=body.reason, running=body.running))


async def _change(api: Services, command: PauseBackfill | ResumeBackfill | CancelBackfill) -> Response:
    return _told(command.dag, await api.ask(command, "Asking again is safe."))


def _told(dag: str, reply: Reply, status: int = 200) -> Response:
    content = shapes.Backfilling(
        dag=dag,
        backfill_id=reply.backfill_id,
        changed=reply.created,
        message=reply.message,
        position=reply.position,
    )
    return answer(content, status, reply.position)
