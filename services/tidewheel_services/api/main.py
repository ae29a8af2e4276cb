"""The API process: opens the log, takes its port, serves until it is told to stop."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket
import threading
from collections.abc import Callable

import structlog
import uvicorn
from tidewheel.log.opening import open_log

from tidewheel_services.api.app import create_app
from tidewheel_services.config import DEFAULT_API_PORT, Settings

#: How long open streams and requests may go on after a stop.
GRACE_S = 3
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
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except (OSError, OverflowError) as error:
        listener.close()
        raise CannotServe(_why(error, host, port)) from error
    return listener


def serve(
    settings: Settings,
    host: str = "127.0.0.1",
    port: int = DEFAULT_API_PORT,
    stop: threading.Event | None = None,
    on_ready: Callable[[str], None] | None = None,
) -> None:
    """Serve until ``stop`` is set, or a signal comes if this is the main thread. ``on_ready`` is told the base URL.

    Port 0 takes a free one. Raises ``CannotServe``, and ``LogError`` if the log's address makes no sense.
    """
    listener = listen(host, port, token=settings.token)
    log = open_log(settings.log)
    try:
        app = create_app(log, settings.postgres, token=settings.token, instance=f"api-{settings.instance or 'local'}")
        server = uvicorn.Server(
            uvicorn.Config(
                app,
                loop="asyncio",
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=GRACE_S,
            )
        )
        asyncio.run(_serve(server, listener, stop, on_ready))
    finally:
        listener.close()
        log.close()


async def _serve(
    server: uvicorn.Server,
    listener: socket.socket,
    stop: threading.Event | None,
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
    while stop is not None and not serving.done():
        if stop.is_set():
            server.should_exit = True
            break
        await asyncio.wait([serving], timeout=0.2)
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
