"""Runs: reading them; starting and cancelling them."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import msgspec
from fastapi import Depends, Query
from pydantic import AfterValidator, Field
from starlette.responses import Response

from tidewheel.core.commands import CancelRun, RunKind, StartRun
from tidewheel.core.rules import INPUTS_BYTES_MAX
from tidewheel.core.transitions import RunPhase
from tidewheel_projections import reads, views
from tidewheel_services.api import shapes
from tidewheel_services.api.body import Body, body_of, documented
from tidewheel_services.api.names import (
    After,
    AfterEvent,
    DagName,
    EventTypes,
    Limit,
    Moment,
    NewestFirst,
    RunName,
    checked_run_id,
)
from tidewheel_services.api.problems import Problem
from tidewheel_services.api.routes.pages import answer_page
from tidewheel_services.api.routes.routers import reader, writer
from tidewheel_services.api.services import Actor, Api, answer
from tidewheel_services.api.unknown import known_dag, known_run

read = reader("runs")
write = writer("runs")

States = Annotated[list[RunPhase] | None, Query(alias="state", description="Only in this state; may be repeated.")]
Kind = Annotated[RunKind | None, Query(description="Only of this kind.")]
Since = Annotated[Moment | None, Query(description="Only created at this time or later.")]
Reason = Annotated[str, Field(max_length=1000, description="Why, for the record.")]
Until = Annotated[Moment | None, Query(description="Only created before this time.")]


class StartRunBody(Body):
    """What to start."""

    run_id: Annotated[
        Annotated[str, AfterValidator(checked_run_id)] | None,
        Field(description="Names the run: the same id again is the same run. Without it one is made up."),
    ] = None
    inputs: dict[str, Any] = Field(
        default_factory=dict, description="Values of the workflow's inputs, at most 64 KiB as JSON."
    )
    reason: Reason = ""


class CancelRunBody(Body):
    """Why to cancel."""

    reason: Reason = ""


@read.get("/runs", summary="List runs", responses=shapes.gives(views.Page[views.RunRow], "Runs, newest first."))
def list_runs(
    api: Api,
    limit: Limit = 100,
    after: After = None,
    state: States = None,
    kind: Kind = None,
    since: Since = None,
    until: Until = None,
) -> Response:
    """Runs of all DAGs, newest first."""
    return answer(
        api.reads.read(
            lambda connection: reads.list_runs(
                connection, states=state, kind=kind, since=since, until=until, after=after, limit=limit
            )
        )
    )


@read.get(
    "/dags/{dag}/runs",
    summary="List a DAG's runs",
    responses=shapes.gives(views.Page[views.RunRow], "Runs, newest first."),
)
def list_runs_of_dag(
    dag: DagName,
    api: Api,
    limit: Limit = 100,
    after: After = None,
    state: States = None,
    kind: Kind = None,
    since: Since = None,
    until: Until = None,
) -> Response:
    """Runs of one DAG, newest first."""
    return answer_page(
        api,
        lambda connection: reads.list_runs(
            connection, dag=dag, states=state, kind=kind, since=since, until=until, after=after, limit=limit
        ),
        lambda connection: known_dag(connection, dag),
    )


@read.get("/dags/{dag}/runs/{run_id}", summary="Show a run", responses=shapes.gives(views.RunDetail, "The run."))
def get_run(dag: DagName, run_id: RunName, api: Api) -> Response:
    """One run with its inputs and how many of its tasks are in which state."""
    return answer(api.reads.read(lambda connection: known_run(connection, dag, run_id)))


@read.get(
    "/dags/{dag}/runs/{run_id}/children",
    summary="List the runs that a run asked for",
    responses=shapes.gives(views.Page[views.RunRow], "Runs, newest first."),
)
def list_children(dag: DagName, run_id: RunName, api: Api, limit: Limit = 100, after: After = None) -> Response:
    """Runs that tasks of this one asked for, by `trigger` or `workflow`. The `parent` of each says which task did."""
    return answer_page(
        api,
        lambda connection: reads.list_runs(connection, parent=(dag, run_id), after=after, limit=limit),
        lambda connection: known_run(connection, dag, run_id),
    )


@read.get(
    "/dags/{dag}/runs/{run_id}/events", summary="Audit a run", responses=shapes.gives(shapes.EventPage, "Events.")
)
def list_run_events(
    dag: DagName,
    run_id: RunName,
    api: Api,
    limit: Limit = 100,
    after: AfterEvent = None,
    newest_first: NewestFirst = False,
    task: Annotated[str | None, Query(max_length=300, description="Only of this task.")] = None,
    type_: EventTypes = None,
) -> Response:
    """Every event of the run, from the journal: what happened, when, by whom, because of which input."""

    def query(connection: reads.Connection) -> list[views.EventRow]:
        found = reads.list_events(
            connection,
            dag,
            run_id=run_id,
            task=task,
            after_seq=after,
            types=type_,
            newest_first=newest_first,
            limit=limit + 1,
        )
        if not found:
            known_run(connection, dag, run_id)
        return found

    return answer(shapes.EventPage.of(api.reads.read(query), limit))


@write.post(
    "/dags/{dag}/runs",
    summary="Start a run",
    status_code=201,
    responses={
        **shapes.gives(shapes.Started, "The run is created.", 201),
        **shapes.gives(shapes.Started, "A run of this id was there already; nothing was started."),
    },
    openapi_extra=documented(
        StartRunBody, required=False, example={"run_id": "orders-2026-01-31", "inputs": {"day": "2026-01-31"}}
    ),
)
async def start_run(
    dag: DagName, api: Api, actor: Actor, body: Annotated[StartRunBody, Depends(body_of(StartRunBody))]
) -> Response:
    """Create a run of the DAG, unless one of this `run_id` exists: then that run is the answer (200, `created` false).

    The answer comes when the run is in the journal. Before that, its inputs are checked against their declarations.
    """
    kind: Literal["api", "manual"] = "api" if actor == "api" else "manual"
    run_id = body.run_id or new_run_id(kind)
    command = StartRun(
        dag=dag,
        run_id=run_id,
        kind=kind,
        actor=actor,
        inputs=inputs_text(body.inputs),
        reason=body.reason,
    )
    again = f"Ask again with the same run_id ({run_id}): the run is created at most once."
    reply = await api.ask(command, again, {"run_id": run_id})
    content = shapes.Started(
        dag=dag,
        run_id=reply.run_id or run_id,
        created=reply.created,
        message=reply.message,
        position=reply.position,
    )
    return answer(content, 201 if reply.created else 200, reply.position)


@write.post(
    "/dags/{dag}/runs/{run_id}/cancel",
    summary="Cancel a run",
    status_code=202,
    responses=shapes.gives(shapes.Cancelling, "The run is being cancelled.", 202),
    openapi_extra=documented(CancelRunBody, required=False, example={"reason": "wrong day"}),
)
async def cancel_run(
    dag: DagName,
    run_id: RunName,
    api: Api,
    actor: Actor,
    body: Annotated[CancelRunBody, Depends(body_of(CancelRunBody))],
) -> Response:
    """Cancel what has not ended: waiting tasks at once, running ones when their worker confirms or the lease ends."""
    command = CancelRun(dag=dag, run_id=run_id, actor=actor, reason=body.reason)
    reply = await api.ask(command, "Asking again is safe: a run is cancelled once.")
    content = shapes.Cancelling(dag=dag, run_id=run_id, message=reply.message, position=reply.position)
    return answer(content, 202, reply.position)


def inputs_text(inputs: dict[str, Any]) -> str:
    """Inputs as they travel. Raises ``Problem`` if they are too large."""
    text = msgspec.json.encode(inputs)
    if len(text) > INPUTS_BYTES_MAX:
        raise Problem(
            "too_large",
            f"the inputs have {len(text):,} bytes as JSON; the limit is {INPUTS_BYTES_MAX:,}. "
            "Put large data where the tasks can read it, and pass its address",
            errors=[{"where": "body.inputs", "code": "too_large", "message": f"more than {INPUTS_BYTES_MAX} bytes"}],
        )
    return text.decode()


def new_run_id(kind: str) -> str:
    """An id for a run that was given none."""
    # Named here, before it is asked for: read twice by whatever mishap, the request is for one run. Two requests of one
    # second must not meet: the second would start nothing.
    return f"{kind}__{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}__{uuid.uuid4().hex[:16]}"
