"""Who may talk to the API: the gate in front of every route.

Without a token the API trusts the machine it runs on, and nothing else: it listens on loopback, answers only to
loopback host names (a page whose DNS name was rebound to 127.0.0.1 sends its own name), and takes no write that a
page of another origin sends. With a token every route but the health checks needs it.
"""

from __future__ import annotations

import hmac
from urllib.parse import unquote, urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidewheel_services.api.problems import Problem

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
#: Asked by load balancers and supervisors, which have no token; they tell nothing of any workflow.
OPEN_PATHS = frozenset({"/health", "/ready", "/healthz", "/readyz", "/api/v1/health", "/api/v1/ready"})
#: Largest request body; a definition of some thousand tasks fits.
BODY_BYTES_MAX = 2 * 1024 * 1024
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class Guard:
    """ASGI middleware: host name, token, origin, characters and size of each request."""

    def __init__(self, app: ASGIApp, token: str = "") -> None:
        self._app = app
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse, or pass on with a bound on the body."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        problem = self._refusal(scope, headers)
        if problem is not None:
            await problem.response(scope["path"])(scope, receive, send)
            return
        scope["path"] = _split_path(scope)
        await self._app(scope, _bounded(receive), send)

    def _refusal(self, scope: Scope, headers: Headers) -> Problem | None:
        if not self._token:
            host = _host_name(headers.get("host", ""))
            if host not in LOOPBACK_NAMES:
                return Problem(
                    "foreign_host",
                    f"the Host header names {host or 'nothing'!r}; without a token this API answers only to "
                    "localhost, 127.0.0.1 and [::1]. To serve other names start it with TIDEWHEEL_TOKEN set",
                )
        elif scope["path"] not in OPEN_PATHS and not self._has_token(headers):
            return Problem(
                "unauthorized",
                "send 'Authorization: Bearer TOKEN' with the token this API was started with (TIDEWHEEL_TOKEN)",
                headers={"WWW-Authenticate": 'Bearer realm="tidewheel"'},
            )
        if scope["method"] not in _SAFE_METHODS and _from_another_site(headers):
            return Problem(
                "foreign_origin",
                "a web page of another origin may not change anything here; use a program, or this server's own pages",
            )
        if b"%00" in scope.get("raw_path", b"") or b"%00" in scope["query_string"] or "\x00" in scope["path"]:
            return Problem("malformed", "the address holds a NUL character (%00)")
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > BODY_BYTES_MAX:
            return too_large()
        return None

    def _has_token(self, headers: Headers) -> bool:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        # Compared even when the scheme is wrong, and in constant time: the answer's delay must tell nothing.
        same = hmac.compare_digest(given.strip().encode("latin-1", "replace"), self._token)
        return same and scheme.lower() == "bearer"


def _split_path(scope: Scope) -> str:
    """The path, with ``/`` and ``%`` in a segment still quoted: run ids may hold slashes, and routes split there."""
    raw: bytes = scope.get("raw_path") or b""
    if b"%" not in raw:
        path: str = scope["path"]
        return path
    segments = raw.partition(b"?")[0].decode("ascii", "replace").split("/")
    return "/".join(unquote(segment).replace("%", "%25").replace("/", "%2F") for segment in segments)


def too_large() -> Problem:
    """The body is over its bound."""
    return Problem("too_large", f"the body is larger than {BODY_BYTES_MAX // 1024} KiB")


def _host_name(host: str) -> str:
    """The name in a Host header, without its port; empty when it is no host."""
    try:
        return (urlsplit(f"//{host}").hostname or "") if "@" not in host and "/" not in host else ""
    except ValueError:
        return ""


def _from_another_site(headers: Headers) -> bool:
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return True
    origin = headers.get("origin")
    if origin is None:
        return False
    return urlsplit(origin).netloc.lower() != headers.get("host", "").lower()


def _bounded(receive: Receive) -> Receive:
    """``receive`` that counts, for bodies sent in chunks without a length."""
    seen = 0

    async def counted() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > BODY_BYTES_MAX:
            raise too_large()
        return message

    return counted
