"""Serving the API: takes a port, or says why not; serves until told to stop, and ends what is open."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import socket
import threading
from collections.abc import Callable, Iterator

import structlog
import uvicorn
from fastapi import FastAPI

#: How long open streams and requests may go on after a stop.
GRACE_S = 3
#: How much of that a write goes on waiting for its answer; then it is told that nobody waits any more.
ANSWER_S = 2
#: How late a stop is noticed.
STOP_LOOK_S = 0.2
_BACKLOG = 512

_log = structlog.get_logger("tidewheel.api")


class CannotServe(Exception):
    """The API cannot be started as asked; the message says why and what to do."""


def listen(host: str, port: int, *, token: str = "") -> socket.socket:
    """A listening socket. Raises ``CannotServe``: the port is taken, or ``host`` is open to others without a token."""
    if not token and not _is_loopback(host):
        raise CannotServe(
            f"refusing to listen on {host} without a token: anybody who reaches it could run commands on the workers. "
            "Set TIDEWHEEL_TOKEN to a long random text, or listen on 127.0.0.1"
        )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named: asyncio turns Nagle's algorithm off only then, which else costs 40 ms an answer.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except (OSError, OverflowError) as error:
        listener.close()
        raise CannotServe(_why(error, host, port)) from error
    return listener


def serve_app(
    app: FastAPI,
    listener: socket.socket,
    stop: threading.Event,
    on_ready: Callable[[str], None] | None = None,
) -> None:
    """Serve ``app`` on ``listener``, which it closes, until ``stop`` is set. ``on_ready`` is told the base URL."""
    config = uvicorn.Config(
        app,
        loop="asyncio",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE_S,
    )
    try:
        asyncio.run(_serve(_Server(config), app, listener, stop, on_ready))
    finally:
        listener.close()


class _Server(uvicorn.Server):
    """uvicorn's server, leaving signals to its caller: it would raise them again at its end, and skip all closing."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


async def _serve(
    server: uvicorn.Server,
    app: FastAPI,
    listener: socket.socket,
    stop: threading.Event,
    on_ready: Callable[[str], None] | None,
) -> None:
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started and not serving.done():
        await asyncio.sleep(0.01)
    if server.started:
        url = _url(listener)
        _log.info("api is up", url=url)
        if on_ready is not None:
            on_ready(url)
    while not stop.is_set() and not serving.done():
        await asyncio.wait([serving], timeout=STOP_LOOK_S)
    # Streams first: the server waits for what is open.
    app.state.services.stopping.set()
    server.should_exit = True
    if not serving.done() and not (await asyncio.wait([serving], timeout=ANSWER_S))[0]:
        app.state.services.requests.abandon()
    await serving


def _url(listener: socket.socket) -> str:
    name, port = listener.getsockname()[:2]
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _why(error: Exception, host: str, port: int) -> str:
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is in use already; choose another with --port, or --port 0 for any free one"
    if isinstance(error, OSError) and error.errno == errno.EACCES:
        return f"not allowed to listen on port {port}; choose one above 1023 with --port"
    return f"cannot listen on {host} port {port}: {error}"
