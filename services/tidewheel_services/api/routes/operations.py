"""What people decide about runs that are there: marking a task, clearing tasks, repeating a run."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from fastapi import Depends
from pydantic import AfterValidator, Field
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from tidewheel.core.commands import ClearTasks, Mark, MarkTask, StartRun
from tidewheel_projections import views
from tidewheel_services.api import shapes
from tidewheel_services.api.body import Body, body_of, documented
from tidewheel_services.api.names import DagName, LegalTaskName, RunName, checked_run_id, checked_task
from tidewheel_services.api.positions import reached
from tidewheel_services.api.recalling import ask_of_run
from tidewheel_services.api.routes.routers import writer
from tidewheel_services.api.routes.runs import Reason, inputs_text, new_run_id
from tidewheel_services.api.services import Actor, Api, answer
from tidewheel_services.api.unknown import known_run

write = writer("runs")


class MarkTaskBody(Body):
    """How the task ended."""

    state: Annotated[Mark, Field(description="How the task ended.")]
    reason: Reason = ""
    output: Annotated[
        Any, Field(description="Of a success: the output for the tasks downstream, any JSON value; null: none.")
    ] = None
    downstream: Annotated[bool, Field(description="Clear what is downstream of it, so that it runs again.")] = False


class ClearBody(Body):
    """Which tasks begin anew, and how."""

    tasks: Annotated[
        list[Annotated[str, AfterValidator(checked_task)]],
        Field(max_length=1000, description="Ids, and instances such as `load[3]`; none: all tasks."),
    ] = Field(default_factory=list)
    downstream: Annotated[bool, Field(description="With all that is downstream of them.")] = True
    upstream: Annotated[bool, Field(description="With all that is upstream of them.")] = False
    only_failed: Annotated[
        bool,
        Field(description="Of these only what is failed, upstream_failed or cancelled; of a mapped task, instances."),
    ] = False
    version: Annotated[
        Literal["same", "latest"],
        Field(description="Of a run that has ended: the definition that it goes on with."),
    ] = "same"
    preview: Annotated[bool, Field(description="Change nothing; answer what it would come to.")] = False
    reason: Reason = ""


class RerunBody(Body):
    """What to repeat, and how."""

    run_id: Annotated[
        Annotated[str, AfterValidator(checked_run_id)] | None,
        Field(description="Names the new run: the same id again is the same run. Without it one is made up."),
    ] = None
    version: Annotated[
        Literal["latest", "same"],
        Field(description="The DAG's definition of today, or the one that the repeated run had."),
    ] = "latest"
    inputs: dict[str, Any] = Field(default_factory=dict, description="Inputs that shall differ.")
    reason: Reason = ""


@write.post(
    "/dags/{dag}/runs/{run_id}/tasks/{task}/mark",
    summary="Mark a task",
    responses=shapes.gives(shapes.Marked, "It is marked, or will be once its live attempt has ended."),
    openapi_extra=documented(
        MarkTaskBody, required=True, example={"state": "success", "reason": "loaded by hand", "output": {"rows": 17}}
    ),
)
async def mark_task(
    dag: DagName,
    run_id: RunName,
    task: LegalTaskName,
    api: Api,
    actor: Actor,
    body: Annotated[MarkTaskBody, Depends(body_of(MarkTaskBody))],
) -> Response:
    """Say by hand how a task ended; what waits downstream goes on by that.

    A live attempt is ended first: the mark stands from the moment it is recorded, whatever the attempt reports. What
    has ended downstream stays as it is, unless it is cleared by `downstream`. A run that has ended is live again, and
    ends again by its rules.
    """
    output = None if body.output is None else msgspec.json.encode(body.output).decode()
    command = MarkTask(
        dag=dag,
        run_id=run_id,
        task=task,
        state=body.state,
        reason=body.reason,
        output=output,
        downstream=body.downstream,
        actor=actor,
    )
    reply = await ask_of_run(api, command, "Asking again is safe.")
    content = shapes.Marked(
        dag=dag,
        run_id=run_id,
        task=task,
        changed=reply.created,
        message=reply.message,
        position=reply.position,
    )
    return answer(content, position=reply.position)


@write.post(
    "/dags/{dag}/runs/{run_id}/clear",
    summary="Clear tasks",
    responses=shapes.gives(shapes.Cleared, "They begin anew; or, as a preview, what would."),
    openapi_extra=documented(
        ClearBody, required=False, example={"tasks": ["load"], "reason": "the source was repaired", "preview": True}
    ),
)
async def clear_tasks(
    dag: DagName,
    run_id: RunName,
    api: Api,
    actor: Actor,
    body: Annotated[ClearBody, Depends(body_of(ClearBody))],
) -> Response:
    """Let tasks of a run begin anew, with all that is downstream of them.

    Their outputs are gone, their attempts go on counting; live ones end first, and whatever they report counts for
    nothing. A run that has ended is live again, however long ago that was, as far as its DAG remembers it.
    """
    command = ClearTasks(
        dag=dag,
        run_id=run_id,
        tasks=msgspec.json.encode(body.tasks).decode(),
        downstream=body.downstream,
        upstream=body.upstream,
        only_failed=body.only_failed,
        latest=body.version == "latest",
        preview=body.preview,
        reason=body.reason,
        actor=actor,
    )
    reply = await ask_of_run(api, command, "Ask for a preview first: what was cleared already would be cleared again.")
    content = shapes.Cleared(
        dag=dag,
        run_id=run_id,
        changed=reply.created,
        message=reply.message,
        position=reply.position,
        **msgspec.json.decode(reply.details),
    )
    return answer(content, position=reply.position)


@write.post(
    "/dags/{dag}/runs/{run_id}/rerun",
    summary="Repeat a run",
    status_code=201,
    responses={
        **shapes.gives(shapes.Started, "The new run is created.", 201),
        **shapes.gives(shapes.Started, "A run of this id was there already; nothing was started."),
    },
    openapi_extra=documented(
        RerunBody, required=False, example={"version": "latest", "reason": "the source was repaired"}
    ),
    dependencies=[Depends(reached)],
)
async def rerun(
    dag: DagName,
    run_id: RunName,
    api: Api,
    actor: Actor,
    body: Annotated[RerunBody, Depends(body_of(RerunBody))],
) -> Response:
    """Create a new run with the inputs and the interval of this one, linked to it by `rerun_of`.

    It has no logical date: a slot of the schedule has one run. The old run stays as it is.
    """
    old: views.RunDetail = await run_in_threadpool(
        api.reads.read, lambda connection: known_run(connection, dag, run_id)
    )
    new = body.run_id or new_run_id("rerun")
    command = StartRun(
        dag=dag,
        run_id=new,
        kind="api" if actor == "api" else "manual",
        actor=actor,
        inputs=inputs_text({**old.inputs, **body.inputs}),
        reason=body.reason,
        version=old.version if body.version == "same" else "",
        rerun_of=run_id,
        interval_start=_ms(old.interval_start),
        interval_end=_ms(old.interval_end),
    )
    again = f"Ask again with the same run_id ({new}): the run is created at most once."
    reply = await api.ask(command, again, {"run_id": new})
    content = shapes.Started(
        dag=dag, run_id=reply.run_id or new, created=reply.created, message=reply.message, position=reply.position
    )
    return answer(content, 201 if reply.created else 200, reply.position)


def _ms(instant: str | None) -> int | None:
    return None if instant is None else round(datetime.fromisoformat(instant).timestamp() * 1000)
