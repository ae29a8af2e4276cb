"""Tasks that wait without a worker: finding them; saying yes or no to those that wait for an approval."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Query
from pydantic import Field
from starlette.responses import Response

from tidewheel.core.commands import DecideApproval
from tidewheel.core.events import WaitsFor
from tidewheel_projections import reads, views
from tidewheel_services.api import shapes
from tidewheel_services.api.body import Body, body_of, documented
from tidewheel_services.api.names import After, DagName, Limit, RunName, TaskName
from tidewheel_services.api.routes.routers import reader, writer
from tidewheel_services.api.services import Actor, Api, answer

read = reader("tasks")
write = writer("tasks")

For = Annotated[WaitsFor | None, Query(description="Only those that wait for this.")]
OfDag = Annotated[str | None, Query(max_length=300, description="Only of this DAG.")]


class DecideBody(Body):
    """A yes or a no."""

    approve: Annotated[bool, Field(description="True: the task succeeds. False: it fails.")]
    reason: Annotated[str, Field(max_length=1000, description="Why, for the record.")] = ""
    role: Annotated[
        str, Field(max_length=200, description="In which role you decide; one of the task's, if it names some.")
    ] = ""
    attempt: Annotated[int, Field(ge=0, lt=2**31, description="Only if this wait is still open; 0: whichever is.")] = 0


@read.get(
    "/waits",
    summary="List waits",
    responses=shapes.gives(views.Page[views.TaskRow], "Tasks that wait, by what they wait for, DAG, run and task."),
)
def list_waits(api: Api, limit: Limit = 100, after: After = None, waits_for: For = None, dag: OfDag = None) -> Response:
    """Tasks of all runs that wait for a time, an approval or something else, without a worker."""
    return answer(
        api.reads.read(
            lambda connection: reads.list_waits(connection, waits_for=waits_for, dag=dag, after=after, limit=limit)
        )
    )


@write.post(
    "/dags/{dag}/runs/{run_id}/tasks/{task}/approval",
    summary="Approve or reject",
    responses=shapes.gives(shapes.Decided, "It is decided."),
    openapi_extra=documented(DecideBody, required=True, example={"approve": True, "reason": "the figures are right"}),
)
async def decide_approval(
    dag: DagName,
    run_id: RunName,
    task: TaskName,
    api: Api,
    actor: Actor,
    body: Annotated[DecideBody, Depends(body_of(DecideBody))],
) -> Response:
    """Say yes or no to a task that waits for an approval. Who said it, and why, is in the journal and in its output."""
    command = DecideApproval(
        dag=dag,
        run_id=run_id,
        task=task,
        actor=actor,
        approve=body.approve,
        attempt=body.attempt,
        role=body.role,
        reason=body.reason,
    )
    reply = await api.ask(command, "Asking again is safe: a wait is decided once.")
    content = shapes.Decided(
        dag=dag, run_id=run_id, task=task, approved=body.approve, message=reply.message, position=reply.position
    )
    return answer(content, 200, reply.position)
