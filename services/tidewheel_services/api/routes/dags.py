"""DAGs: reading them and their versions; deploying, pausing, removing them."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Depends, Query
from pydantic import Field
from starlette.responses import Response

from tidewheel.core.commands import PauseDag, RemoveDag, UnpauseDag
from tidewheel_projections import reads, views
from tidewheel_services.api import shapes
from tidewheel_services.api.body import Body, body_of, documented
from tidewheel_services.api.names import After, AfterEvent, DagName, EventTypes, Limit, NewestFirst, VersionName
from tidewheel_services.api.routes.changes import change
from tidewheel_services.api.routes.pages import answer_page
from tidewheel_services.api.routes.routers import reader, writer
from tidewheel_services.api.services import Actor, Api, answer
from tidewheel_services.api.unknown import known_dag, missing

read = reader("dags")
write = writer("dags")

Reason = Annotated[str, Field(max_length=1000, description="Why, for the record.")]


class ReasonBody(Body):
    """Why."""

    reason: Reason = ""


#: A body that may say why.
Why = Annotated[ReasonBody, Depends(body_of(ReasonBody))]


@read.get("/dags", summary="List DAGs", responses=shapes.gives(views.Page[views.DagRow], "DAGs by id."))
def list_dags(
    api: Api,
    limit: Limit = 100,
    after: After = None,
    owner: Annotated[str | None, Query(max_length=200, description="Only of this owner.")] = None,
    tag: Annotated[str | None, Query(max_length=200, description="Only with this tag.")] = None,
    paused: Annotated[bool | None, Query(description="Only paused ones, or only those that are not.")] = None,
    search: Annotated[str | None, Query(max_length=200, description="Text in id or description.")] = None,
    removed: Annotated[Literal["no", "yes", "all"], Query(description="Whether to list removed DAGs.")] = "no",
) -> Response:
    """DAGs by id, a page at a time."""
    only_removed = {"no": False, "yes": True, "all": None}[removed]
    page = api.reads.read(
        lambda connection: reads.list_dags(
            connection,
            owner=owner,
            tag=tag,
            paused=paused,
            removed=only_removed,
            search=search,
            after=after,
            limit=limit,
        )
    )
    return answer(page)


@read.get("/dags/{dag}", summary="Show a DAG", responses=shapes.gives(views.DagRow, "The DAG."))
def get_dag(dag: DagName, api: Api) -> Response:
    """One DAG, also if it was removed."""
    return answer(api.reads.read(lambda connection: known_dag(connection, dag)))


@read.get(
    "/dags/{dag}/versions",
    summary="List versions",
    responses=shapes.gives(views.Page[views.VersionRow], "Versions, newest first."),
)
def list_versions(dag: DagName, api: Api, limit: Limit = 100, after: After = None) -> Response:
    """The versions of a DAG's definition, newest first."""
    return answer_page(
        api,
        lambda connection: reads.list_versions(connection, dag, after=after, limit=limit),
        lambda connection: known_dag(connection, dag),
    )


@read.get(
    "/dags/{dag}/versions/{version}",
    summary="Show a version",
    responses=shapes.gives(views.VersionDetail, "The version with its definition and source."),
)
def get_version(dag: DagName, version: VersionName, api: Api) -> Response:
    """One version: its definition in canonical form, and the text it came from."""

    def query(connection: reads.Connection) -> views.VersionDetail:
        found = reads.get_version(connection, dag, version)
        if found is None:
            known_dag(connection, dag)
            raise missing(f"DAG '{dag}' has no version '{version}'")
        return found

    return answer(api.reads.read(query))


@read.get("/dags/{dag}/events", summary="Audit a DAG", responses=shapes.gives(shapes.EventPage, "Events."))
def list_dag_events(
    dag: DagName,
    api: Api,
    limit: Limit = 100,
    after: AfterEvent = None,
    newest_first: NewestFirst = False,
    type_: EventTypes = None,
) -> Response:
    """Every event of the DAG and of its runs, from the journal: what happened, when, by whom, in answer to what."""

    def query(connection: reads.Connection) -> list[views.EventRow]:
        found = reads.list_events(
            connection, dag, after_seq=after, types=type_, newest_first=newest_first, limit=limit + 1
        )
        if not found:
            known_dag(connection, dag)
        return found

    return answer(shapes.EventPage.of(api.reads.read(query), limit))


@write.post(
    "/dags/{dag}/pause",
    summary="Pause a DAG",
    responses=shapes.gives(shapes.Changed, "It is paused."),
    openapi_extra=documented(ReasonBody, required=False, example={"reason": "warehouse maintenance"}),
)
async def pause_dag(dag: DagName, api: Api, actor: Actor, body: Why) -> Response:
    """No new scheduled runs, and requested runs wait, until it is unpaused. Runs that have begun go on."""
    return await change(api, dag, PauseDag(dag=dag, actor=actor, reason=body.reason))


@write.post(
    "/dags/{dag}/unpause",
    summary="Unpause a DAG",
    responses=shapes.gives(shapes.Changed, "It goes on."),
    openapi_extra=documented(ReasonBody, required=False, example={"reason": "maintenance is over"}),
)
async def unpause_dag(dag: DagName, api: Api, actor: Actor, body: Why) -> Response:
    """Go on; the catch-up policy says what becomes of the slots that passed."""
    return await change(api, dag, UnpauseDag(dag=dag, actor=actor, reason=body.reason))


@write.delete(
    "/dags/{dag}",
    summary="Remove a DAG",
    responses=shapes.gives(shapes.Changed, "It creates no more runs."),
)
async def remove_dag(
    dag: DagName,
    api: Api,
    actor: Actor,
    reason: Annotated[str, Query(max_length=1000, description="Why, for the record.")] = "",
) -> Response:
    """No new runs; those that have begun finish, and the history stays. Deploying it again brings it back."""
    return await change(api, dag, RemoveDag(dag=dag, actor=actor, reason=reason))
