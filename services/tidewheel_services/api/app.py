"""Builds the FastAPI application: the guard in front, the routes, the problem documents, and what starts and stops
with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute

from tidewheel.log.interface import Log
from tidewheel_services.api import problems, shapes
from tidewheel_services.api.database import ReadModel
from tidewheel_services.api.guard import Guard
from tidewheel_services.api.lag import LagWatch
from tidewheel_services.api.measures import Measured, Measures
from tidewheel_services.api.requests import Requests
from tidewheel_services.api.routes import (
    backfills,
    dags,
    deployment,
    operations,
    pools,
    runs,
    system,
    tasks,
    waits,
    why,
)
from tidewheel_services.api.services import Services

#: How long a write waits for the shard's owner: longer than a takeover takes (session 6–8 s), so most are answered.
ANSWER_S = 10.0

_DESCRIPTION = """
Tidewheel's HTTP API. Reads come from the read model; writes become commands on the log and are answered by the owner
of the DAG's shard.

* **Errors** are problem documents (`application/problem+json`, RFC 9457).
* **Paging** is by keyset: `?limit=` and `?after=` (the `next` of the page before).
* **Read your writes**: a write answers with `X-Tidewheel-Position`; a read given that, as `?position=` or as the same
  header, waits for it.
* **Asking twice**: a run is created once per `run_id`; after a 504 ask again with the same one.
"""

_TAGS = [
    {"name": "dags", "description": "Workflow definitions and their versions."},
    {"name": "runs", "description": "Executions of a DAG."},
    {"name": "backfills", "description": "Runs for slots of a schedule that have passed."},
    {"name": "tasks", "description": "Tasks of a run, their attempts and logs."},
    {"name": "pools", "description": "Named capacity, and the workers that serve it."},
    {"name": "system", "description": "Health, lag and metrics."},
]


_ROUTERS = (
    dags.read,
    dags.write,
    deployment.write,
    runs.read,
    runs.write,
    why.read,
    operations.write,
    backfills.read,
    backfills.write,
    tasks.read,
    waits.read,
    waits.write,
    pools.read,
    pools.write,
    system.read,
    system.plain,
)


def create_app(
    log: Log,
    dsn: str,
    *,
    token: str = "",
    instance: str = "api",
    answer_s: float = ANSWER_S,
) -> FastAPI:
    """The API over ``log`` and the read model at ``dsn``. It starts also while either is away, and says so per request.

    The log stays the caller's: closing the application does not close it.
    """
    measures = Measures()
    services = Services(
        log, ReadModel(dsn), Requests(log, instance), LagWatch(log), measures, asyncio.Event(), answer_s
    )

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        services.requests.start()
        try:
            yield
        finally:
            services.stopping.set()
            await asyncio.to_thread(services.requests.close)
            await asyncio.to_thread(services.reads.close)

    app = FastAPI(
        title="Tidewheel",
        version=version("tidewheel"),
        description=_DESCRIPTION,
        openapi_tags=_TAGS,
        lifespan=lifespan,
        redirect_slashes=False,
        swagger_ui_parameters={"tryItOutEnabled": False},
    )
    app.state.services = services
    for router in _ROUTERS:
        app.include_router(router)
    _publish(app)
    problems.install(app, [route for router in _ROUTERS for route in router.routes if isinstance(route, APIRoute)])
    app.add_middleware(Guard, token=token)
    app.add_middleware(Measured, measures=measures)
    return app


def _publish(app: FastAPI) -> None:
    """Add the schemas that the routes' answers refer to."""
    plain = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = plain()
            document.setdefault("components", {}).setdefault("schemas", {}).update(shapes.components())
        return app.openapi_schema or {}

    app.openapi = openapi  # type: ignore[method-assign]
