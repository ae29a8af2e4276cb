"""Why a run, a task or a DAG does not go on."""

from __future__ import annotations

import time
from typing import Annotated

from fastapi import Query
from starlette.responses import Response

from tidewheel_projections import reads, views
from tidewheel_services.api import shapes
from tidewheel_services.api.names import DagName, RunName
from tidewheel_services.api.routes.routers import reader
from tidewheel_services.api.services import Api, answer
from tidewheel_services.api.unknown import known_dag, known_run, known_task
from tidewheel_services.why.answer import Draft, finished, why_no_further_run, why_run
from tidewheel_services.why.reason import Why
from tidewheel_services.why.watch import ShardWatch

read = reader("runs")

OfTask = Annotated[str | None, Query(max_length=300, description="Only of this task and its instances.")]


@read.get(
    "/dags/{dag}/runs/{run_id}/why",
    summary="Why does a run not go on, or why did it fail?",
    responses=shapes.gives(Why, "The reasons; none if it did not fail, or all that is left of it is at work."),
)
def explain_run(dag: DagName, run_id: RunName, api: Api, task: OfTask = None) -> Response:
    """What each task that is not at work waits for, or what the run itself waits for: a stable `code` and a sentence.
    First comes whatever keeps everything from being decided. Of a run that failed: which tasks did, after how many
    attempts, with what error, and which did not run for those. Of a single task also that it is at work, or how it
    ended.
    """

    def query(connection: reads.Connection) -> tuple[Draft, views.RunDetail]:
        run = known_run(connection, dag, run_id)
        asked = None if task is None else known_task(connection, dag, run_id, task)
        return why_run(connection, run, asked), run

    draft, run = api.reads.read(query)
    return answer(finished(draft, api.reads.read, ShardWatch(api.log), dag=dag, run_id=run_id, state=run.state))


@read.get(
    "/dags/{dag}/why",
    summary="Why does a DAG not run?",
    responses=shapes.gives(Why, "What holds its next run back, or when it is due."),
)
def explain_dag(dag: DagName, api: Api) -> Response:
    """Whether the DAG is paused or removed, when its next slot is due, and why the last slots got no run."""
    shards = ShardWatch(api.log)
    postponed = shards.postponed(dag)

    def query(connection: reads.Connection) -> tuple[Draft, views.DagRow]:
        row = known_dag(connection, dag)
        return why_no_further_run(connection, row, time.time_ns() // 1_000_000, postponed=postponed), row

    draft, row = api.reads.read(query)
    state = "removed" if row.removed else "paused" if row.paused else "live"
    return answer(finished(draft, api.reads.read, shards, dag=dag, run_id="", state=state))
