"""Errors as problem documents (RFC 9457), for every status the API can answer with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus

import structlog
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from msgspec.json import encode
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:tidewheel:problem:"

#: Each kind of problem: its status and its title. The code is the end of the problem's ``type``.
KINDS: Mapping[str, tuple[int, str]] = {
    "malformed": (400, "The request cannot be read"),
    "unauthorized": (401, "A token is needed"),
    "foreign_origin": (403, "Requests from other sites are refused"),
    "not_found": (404, "Not found"),
    "method_not_allowed": (405, "This address does not answer to that method"),
    "conflict": (409, "The request contradicts what is there"),
    "too_large": (413, "The request is too large"),
    "unsupported_media_type": (415, "The body's media type is not understood"),
    "foreign_host": (421, "This server does not answer for that host name"),
    "invalid": (422, "The request is not valid"),
    "invalid_definition": (422, "The workflow definition has mistakes"),
    "overloaded": (429, "Too much waits already"),
    "internal": (500, "The server made a mistake"),
    "log_unavailable": (503, "The log cannot be reached"),
    "read_model_unavailable": (503, "The read model cannot be reached"),
    "stopping": (503, "The server is stopping"),
    "no_answer": (504, "No answer came in time"),
    "not_projected": (504, "The read model has not reached that position"),
}

_BY_STATUS = {404: "not_found", 405: "method_not_allowed", 413: "too_large", 415: "unsupported_media_type"}

_log = structlog.get_logger("tidewheel.api")


class Problem(Exception):
    """An answer that is an error: ``detail`` says what is wrong, where, and what to do."""

    def __init__(
        self,
        kind: str,
        detail: str,
        *,
        errors: Sequence[Mapping[str, object]] = (),
        retry_after_s: int | None = None,
        headers: Mapping[str, str] | None = None,
        extra: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.errors = errors
        self.extra = dict(extra or {})
        self.headers = dict(headers or {})
        if retry_after_s is not None:
            self.headers["Retry-After"] = str(retry_after_s)

    def response(self, instance: str) -> Response:
        """The problem document for the request that went to ``instance``."""
        status, title = KINDS[self.kind]
        return _response(status, TYPE_PREFIX + self.kind, title, self.detail, instance, self)


def _response(status: int, kind: str, title: str, detail: str, instance: str, problem: Problem | None) -> Response:
    body: dict[str, object] = {"type": kind, "title": title, "status": status, "detail": detail, "instance": instance}
    headers: dict[str, str] = {}
    if problem is not None:
        if problem.errors:
            body["errors"] = list(problem.errors)
        body.update(problem.extra)
        headers = problem.headers
    return Response(encode(body), status_code=status, headers=headers, media_type=MEDIA_TYPE)


async def _on_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return error.response(request.url.path)


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    kind = _BY_STATUS.get(error.status_code)
    headers = dict(error.headers or {})
    if error.status_code == HTTPStatus.NOT_FOUND:
        return Problem("not_found", f"no such address: {request.url.path}; see /docs").response(request.url.path)
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = ", ".join(sorted(_methods(request)))
        detail = f"{request.method} is not possible on {request.url.path}; possible are {allowed}"
        return Problem("method_not_allowed", detail, headers={"Allow": allowed}).response(request.url.path)
    if kind is not None:
        return Problem(kind, str(error.detail), headers=headers).response(request.url.path)
    title = HTTPStatus(error.status_code).phrase
    return _response(error.status_code, "about:blank", title, str(error.detail), request.url.path, None)


async def _on_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return invalid(error.errors()).response(request.url.path)


async def _on_mistake(request: Request, error: Exception) -> Response:
    _log.error("request failed", method=request.method, path=request.url.path, error=repr(error))
    detail = f"{type(error).__name__} while answering; the server's log says more"
    return Problem("internal", detail).response(request.url.path)


def invalid(errors: Sequence[Mapping[str, object]]) -> Problem:
    """A problem from what pydantic says is wrong: each mistake with its place, code and message."""
    named: list[dict[str, object]] = []
    for error in errors:
        place = error.get("loc")
        steps = [str(step) for step in place] if isinstance(place, tuple | list) else []
        named.append({"where": ".".join(steps), "code": str(error.get("type")), "message": str(error.get("msg"))})
    detail = "; ".join(f"{entry['where']}: {entry['message']}" for entry in named[:3])
    if len(named) > 3:
        detail += f"; and {len(named) - 3} more"
    return Problem("invalid", detail, errors=named)


def _methods(request: Request) -> set[str]:
    """What the address answers to, over all routers: the framework names only the first that knows the path."""
    routes: Sequence[APIRoute] = request.app.state.routes
    path = request.scope["path"]
    return {method for route in routes if route.path_regex.match(path) for method in route.methods or ()}


def install(app: FastAPI, routes: Sequence[APIRoute]) -> None:
    """Answer every error of ``app``, which has these routes, by a problem document."""
    app.state.routes = routes
    app.add_exception_handler(Problem, _on_problem)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(Exception, _on_mistake)
