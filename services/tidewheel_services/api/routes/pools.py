"""Pools and workers: reading them; setting a pool's limit."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Depends, Query
from pydantic import Field
from starlette.responses import Response

from tidewheel.core.commands import ConfigurePool
from tidewheel_projections import reads, views
from tidewheel_services.api import shapes
from tidewheel_services.api.body import Body, body_of, documented
from tidewheel_services.api.names import After, Limit, NewPoolName, PoolName
from tidewheel_services.api.routes.changes import change
from tidewheel_services.api.routes.pages import answer_page
from tidewheel_services.api.routes.routers import reader, writer
from tidewheel_services.api.services import Actor, Api, answer
from tidewheel_services.api.unknown import known_pool

read = reader("pools")
write = writer("pools")

SLOTS_MAX = 1_000_000


class PoolBody(Body):
    """How a pool shall be."""

    slots: Annotated[
        Annotated[int, Field(ge=0, le=SLOTS_MAX)] | None,
        Field(description="Most slots held at once; null: as many as its workers have. 0 lets nothing start."),
    ]
    description: Annotated[str, Field(max_length=1000)] = ""


@read.get("/pools", summary="List pools", responses=shapes.gives(views.Page[views.PoolRow], "Pools by name."))
def list_pools(api: Api, limit: Limit = 100, after: After = None) -> Response:
    """Pools with their slots, those held, and how many attempts wait."""
    return answer(api.reads.read(lambda connection: reads.list_pools(connection, after=after, limit=limit)))


@read.get("/pools/{pool}", summary="Show a pool", responses=shapes.gives(views.PoolRow, "The pool."))
def get_pool(pool: PoolName, api: Api) -> Response:
    """One pool."""
    return answer(api.reads.read(lambda connection: known_pool(connection, pool)))


@read.get(
    "/pools/{pool}/tasks",
    summary="List a pool's tasks",
    responses=shapes.gives(views.Page[views.PoolTaskRow], "Attempts that wait in the pool or hold its slots."),
)
def list_pool_tasks(
    pool: PoolName,
    api: Api,
    limit: Limit = 100,
    after: After = None,
    state: Annotated[
        Literal["waiting", "held"] | None, Query(description="Only those that wait, or hold slots.")
    ] = None,
) -> Response:
    """Who waits in the pool and who holds its slots."""
    return answer_page(
        api,
        lambda connection: reads.list_pool_tasks(connection, pool, state=state, after=after, limit=limit),
        lambda connection: known_pool(connection, pool),
    )


@read.get(
    "/pools/{pool}/dags",
    summary="List a pool's DAGs",
    responses=shapes.gives(views.Page[views.PoolDagRow], "DAGs with what they hold of the pool and what waits."),
)
def list_pool_dags(
    pool: PoolName,
    api: Api,
    limit: Limit = 100,
    after: After = None,
    dag: Annotated[str | None, Query(max_length=200, description="Only this DAG.")] = None,
) -> Response:
    """Who has how much of the pool, and what each DAG's `max_pool_share` comes to now."""
    return answer_page(
        api,
        lambda connection: reads.list_pool_dags(connection, pool, dag=dag, after=after, limit=limit),
        lambda connection: known_pool(connection, pool),
    )


@read.get(
    "/workers", summary="List workers", responses=shapes.gives(views.Page[views.WorkerRow], "Workers by pool and name.")
)
def list_workers(
    api: Api,
    limit: Limit = 100,
    after: After = None,
    pool: Annotated[str | None, Query(max_length=200, description="Only of this pool.")] = None,
    state: Annotated[
        list[Literal["active", "suspended", "left"]] | None,
        Query(description="Only in this state; may be repeated. Without it: all but those that left."),
    ] = None,
) -> Response:
    """Workers with the slots they offer and those in use."""
    states = state or ["active", "suspended"]
    return answer(
        api.reads.read(
            lambda connection: reads.list_workers(connection, pool=pool, states=states, after=after, limit=limit)
        )
    )


@write.put(
    "/pools/{pool}",
    summary="Configure a pool",
    responses=shapes.gives(shapes.Changed, "The pool is so."),
    openapi_extra=documented(PoolBody, required=True, example={"slots": 16, "description": "the warehouse takes 16"}),
)
async def configure_pool(
    pool: NewPoolName, api: Api, actor: Actor, body: Annotated[PoolBody, Depends(body_of(PoolBody))]
) -> Response:
    """Set a pool's limit, making the pool if there is none. Attempts that hold slots keep them, limit or not."""
    command = ConfigurePool(pool=pool, actor=actor, slots=body.slots, description=body.description)
    return await change(api, pool, command)
