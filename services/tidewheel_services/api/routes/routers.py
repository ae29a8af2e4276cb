"""The two kinds of routers: of reads, which can wait for a position, and of writes."""

from __future__ import annotations

from collections.abc import Iterator

from fastapi import APIRouter, Depends, Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.responses import Response

from tidewheel.core.nearest import did_you_mean
from tidewheel_services.api import shapes
from tidewheel_services.api.positions import reached
from tidewheel_services.api.problems import Problem

PREFIX = "/api/v1"
#: The parameters of the routers' own dependencies.
EVERYWHERE = frozenset({"position"})
_KNOWN: dict[str, frozenset[str]] = {}


async def known_parameters(request: Request) -> None:
    """Refuse a query parameter the route does not have: a filter with a typing mistake would show everything."""
    if not request.scope["query_string"]:
        return
    known = _parameters(request.scope["route"])
    errors = [
        {
            "where": f"query.{name}",
            "code": "unknown_parameter",
            "message": f"there is no parameter '{name}' here{did_you_mean(name, known)}",
        }
        for name in dict.fromkeys(request.query_params)
        if name not in known
    ]
    if errors:
        raise Problem("invalid", "; ".join(error["message"] for error in errors[:3]), errors=errors)


def _parameters(route: APIRoute) -> frozenset[str]:
    known = _KNOWN.get(route.unique_id)
    if known is None:
        known = _KNOWN[route.unique_id] = frozenset(_aliases(route.dependant)) | EVERYWHERE
    return known


def _aliases(dependant: Dependant) -> Iterator[str]:
    yield from (field.alias for field in dependant.query_params)
    for inner in dependant.dependencies:
        yield from _aliases(inner)


def reader(tag: str) -> APIRouter:
    """For reads."""
    return APIRouter(
        prefix=PREFIX,
        tags=[tag],
        responses=shapes.PROBLEMS,
        default_response_class=Response,
        dependencies=[Depends(known_parameters), Depends(reached)],
    )


def writer(tag: str) -> APIRouter:
    """For writes."""
    return APIRouter(
        prefix=PREFIX,
        tags=[tag],
        responses=shapes.PROBLEMS,
        default_response_class=Response,
        dependencies=[Depends(known_parameters)],
    )
