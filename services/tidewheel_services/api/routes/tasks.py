"""Tasks of a run, their attempts, and the attempts' logs, also while they grow."""

from __future__ import annotations

from typing import Annotated

from fastapi import Header, Query
from starlette.responses import Response, StreamingResponse

from tidewheel.core.transitions import TaskPhase
from tidewheel_projections import reads, views
from tidewheel_services.api import shapes
from tidewheel_services.api.following import LogSource, as_events, as_text, follow
from tidewheel_services.api.names import After, AttemptNumber, DagName, Limit, RunName, TaskName
from tidewheel_services.api.problems import Problem
from tidewheel_services.api.routes.pages import answer_page
from tidewheel_services.api.routes.routers import reader
from tidewheel_services.api.services import Api, answer
from tidewheel_services.api.unknown import known_run, known_task

read = reader("tasks")

_RUN = "/dags/{dag}/runs/{run_id}"
_TASK = f"{_RUN}/tasks/{{task}}"

States = Annotated[list[TaskPhase] | None, Query(alias="state", description="Only in this state; may be repeated.")]


@read.get(
    f"{_RUN}/tasks",
    summary="List a run's tasks",
    responses=shapes.gives(views.Page[views.TaskRow], "Tasks, in the order of the definition."),
)
def list_tasks(
    dag: DagName, run_id: RunName, api: Api, limit: Limit = 100, after: After = None, state: States = None
) -> Response:
    """The tasks of a run, each with its current or last attempt."""
    return answer_page(
        api,
        lambda connection: reads.list_tasks(connection, dag, run_id, states=state, after=after, limit=limit),
        lambda connection: known_run(connection, dag, run_id),
    )


@read.get(_TASK, summary="Show a task", responses=shapes.gives(views.TaskDetail, "The task with its output."))
def get_task(dag: DagName, run_id: RunName, task: TaskName, api: Api) -> Response:
    """One task of a run with its output. Of a task with `for_each` that is the list of its instances' outputs, the
    first 1,000 of them or 1 MiB; `outputs_next` is then the `after` with which `outputs` goes on.
    """
    return answer(api.reads.read(lambda connection: known_task(connection, dag, run_id, task)))


@read.get(
    f"{_TASK}/outputs",
    summary="List the outputs of a task's instances",
    responses=shapes.gives(views.Page[views.InstanceOutput], "Outputs, in the order of the items."),
)
def list_outputs(
    dag: DagName, run_id: RunName, task: TaskName, api: Api, limit: Limit = 100, after: After = None
) -> Response:
    """What each instance of a task with `for_each` gave: together the list that tasks downstream see. A page has at
    most 1 MiB of them."""
    return answer_page(
        api,
        lambda connection: reads.list_outputs(connection, dag, run_id, task, after=after, limit=limit),
        lambda connection: known_task(connection, dag, run_id, task),
    )


@read.get(
    f"{_TASK}/attempts",
    summary="List a task's attempts",
    responses=shapes.gives(views.Page[views.AttemptRow], "Attempts, oldest first."),
)
def list_attempts(
    dag: DagName, run_id: RunName, task: TaskName, api: Api, limit: Limit = 100, after: After = None
) -> Response:
    """Every try at the task: on which worker, how long, how it ended."""
    return answer_page(
        api,
        lambda connection: reads.list_attempts(connection, dag, run_id, task, after=after, limit=limit),
        lambda connection: known_task(connection, dag, run_id, task),
    )


@read.get(
    f"{_RUN}/attempts",
    summary="List a run's attempts",
    responses=shapes.gives(views.Page[views.AttemptRow], "Attempts, by task and number."),
)
def list_run_attempts(dag: DagName, run_id: RunName, api: Api, limit: Limit = 100, after: After = None) -> Response:
    """Every try at every task of the run: what a timeline draws."""
    return answer_page(
        api,
        lambda connection: reads.list_attempts(connection, dag, run_id, after=after, limit=limit),
        lambda connection: known_run(connection, dag, run_id),
    )


@read.get(
    f"{_TASK}/attempts/{{attempt}}/logs",
    summary="Read an attempt's log",
    responses={
        200: {
            "description": "Output as it was written: a page of it, or with `follow` a stream until the attempt ends.",
            "content": {
                "application/json": {"schema": {"$ref": "#/components/schemas/LogPage"}},
                "text/plain": {"schema": {"type": "string"}},
                "text/event-stream": {"schema": {"type": "string"}},
            },
        }
    },
)
def read_logs(
    dag: DagName,
    run_id: RunName,
    task: TaskName,
    attempt: AttemptNumber,
    api: Api,
    limit: Limit = 1000,
    after: Annotated[int, Query(ge=-1, le=2**31 - 1, description="Number of the last chunk already read.")] = -1,
    follow_: Annotated[bool, Query(alias="follow", description="Go on until the attempt ends.")] = False,
    accept: Annotated[str, Header(include_in_schema=False)] = "",
    last_event_id: Annotated[
        str | None, Header(description="Where a follower goes on: the id of its last event.")
    ] = None,
) -> Response:
    """The output of one attempt.

    * As JSON: a page of chunks. With `Accept: text/plain`: their text; `X-Tidewheel-Next` is the next `after`, if there
      is more.
    * With `follow=true`: server-sent events `log` (data: a chunk; id: its number) and one `end`; with `text/plain` the
      bare text as it comes.
    """
    source = LogSource(api, dag, run_id, task, attempt)
    plain = "text/plain" in accept
    if follow_:
        if last_event_id is not None:
            after = _event_id(last_event_id)
        source.state()  # an attempt that does not exist is told before the stream begins
        chunks = follow(source, after)
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        if plain:
            return StreamingResponse(as_text(chunks), media_type="text/plain; charset=utf-8", headers=headers)
        return StreamingResponse(as_events(chunks), media_type="text/event-stream; charset=utf-8", headers=headers)
    found = source.chunks(after, limit + 1)
    items = found[:limit]
    last = items[-1].chunk if items else None
    following = last if len(found) > limit else None
    ended = source.ended() if following is None else False
    if plain:
        headers = {} if following is None else {"X-Tidewheel-Next": str(following)}
        text = "".join(item.text for item in items)
        return Response(text.encode("utf-8", "replace"), headers=headers, media_type="text/plain; charset=utf-8")
    return answer(shapes.LogPage(items=items, next=following, last=last, ended=ended))


def _event_id(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text[:12]) >= 2**31:
        raise Problem("invalid", f"the header Last-Event-ID is the number of a chunk, not '{text[:50]}'")
    return int(text)
