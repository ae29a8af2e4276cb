"""Health, readiness, lag, dead letters, metrics."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from tidewheel.log.interface import LogError
from tidewheel_projections import reads, views
from tidewheel_services.api import shapes
from tidewheel_services.api.lag import Lag
from tidewheel_services.api.names import After, Limit
from tidewheel_services.api.problems import Problem
from tidewheel_services.api.routes.routers import PREFIX, reader
from tidewheel_services.api.services import Api, Services, answer

read = reader("system")
plain = APIRouter(tags=["system"], responses=shapes.PROBLEMS, default_response_class=Response)

_READY_S = 2.0


@plain.get("/health", summary="Is the process alive?", responses=shapes.gives(shapes.Health, "It is."))
@plain.get(f"{PREFIX}/health", include_in_schema=False)
@plain.get("/healthz", include_in_schema=False)
async def health() -> Response:
    """Answers whenever the process does; looks at nothing else. For liveness probes. Needs no token."""
    return answer(shapes.Health(status="ok"))


@plain.get("/ready", summary="Can it serve?", responses=shapes.gives(shapes.Health, "It can read and write."))
@plain.get(f"{PREFIX}/ready", include_in_schema=False)
@plain.get("/readyz", include_in_schema=False)
async def ready(api: Api) -> Response:
    """503 while the log or the read model cannot be reached. For readiness probes. Needs no token.

    `checks.journal` names shards that stand still; all others are served, so that is no reason for 503.
    """
    read_model, journal = await run_in_threadpool(_read_model_faults, api)
    checks = {"log": api.requests.fault or "", "read_model": read_model}
    wrong = {name: fault for name, fault in checks.items() if fault}
    if wrong:
        detail = "; ".join(f"{name}: {fault}" for name, fault in wrong.items())
        kind = "log_unavailable" if "log" in wrong else "read_model_unavailable"
        raise Problem(kind, detail, retry_after_s=2, extra={"checks": checks})
    return answer(shapes.Health(status="ready", checks={**checks, "journal": journal}))


def _read_model_faults(api: Services) -> tuple[str, str]:
    """What is wrong with the read model itself, and what it says of the journal."""
    try:
        stopped = api.reads.read(reads.list_stopped_shards)
    except Problem as problem:
        return problem.detail, ""
    return "", "; ".join(row.reason for row in stopped)


@read.get("/lag", summary="How far behind?", responses=shapes.gives(Lag, "Per partition, with sums."))
def lag(api: Api) -> Response:
    """Of each journal partition: its end and how far the read model is; of each input: its end and what is decided."""
    return answer(_lag(api))


def _lag(api: Services) -> Lag:
    try:
        return api.lag.measure(api.reads)
    except LogError as error:
        raise Problem("log_unavailable", str(error), retry_after_s=2) from error


@read.get(
    "/dead-letters",
    summary="List dead letters",
    responses=shapes.gives(views.Page[views.DeadLetterRow], "Dead letters, newest first."),
)
def list_dead_letters(api: Api, limit: Limit = 100, after: After = None) -> Response:
    """Records that could not be decoded or applied, with the reason and where they came from."""
    return answer(api.reads.read(lambda connection: reads.list_dead_letters(connection, after=after, limit=limit)))


@plain.get(
    "/metrics",
    summary="Metrics",
    responses={
        200: {"description": "Prometheus' text format.", "content": {"text/plain": {"schema": {"type": "string"}}}}
    },
)
@plain.get(f"{PREFIX}/metrics", include_in_schema=False)
def metrics(api: Api) -> Response:
    """Requests by route and status, lag by topic and partition, and the process's own figures."""
    try:
        api.measures.set_lag(_lag(api))
    except Problem:
        api.measures.set_lag(None)
    return Response(api.measures.text(), media_type="text/plain; version=0.0.4; charset=utf-8")
