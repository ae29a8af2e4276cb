"""A real HTTP server on a free port, whose answers are a function of the test."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Request:
    """What was asked. ``path`` has the query; the names of ``headers`` are in small letters."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    _connection: socket.socket = field(repr=False)

    def hung_up(self, within_s: float) -> bool:
        """Wait for the client to end the connection, and say whether it did."""
        self._connection.settimeout(within_s)
        try:
            return self._connection.recv(1) == b""
        except TimeoutError:
            return False
        except OSError:  # reset, or an end that TLS did not expect
            return True


@dataclass(frozen=True)
class Answer:
    """What is said."""

    status: int = 200
    body: bytes = b""
    kind: str = "text/plain"
    headers: Mapping[str, str] = field(default_factory=dict)


def in_json(document: Any, status: int = 200) -> Answer:
    """The document as an answer."""
    return Answer(status, json.dumps(document).encode(), "application/json")


@contextmanager
def http_service(answer: Callable[[Request], Answer | None], tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Serve; gives the URL, without a slash at its end. None instead of an answer ends the connection.

    Each connection has a thread of its own. What ``answer`` raises is raised at the end of the block.
    """
    server = _Server(answer)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), name="http-service", daemon=True)
    thread.start()
    try:
        yield f"{'http' if tls is None else 'https'}://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
    if server.raised:
        raise server.raised[0]


class _Server(ThreadingHTTPServer):
    def __init__(self, answer: Callable[[Request], Answer | None]) -> None:
        self.answer = answer
        self.raised: list[Exception] = []
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, *_: object) -> None:
        """A client that is gone is no fault: some tests kill theirs."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def _do(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        try:
            answer = self.server.answer(Request(self.command, self.path, headers, body, self.connection))
        except Exception as error:
            self.server.raised.append(error)
            answer = Answer(500, repr(error).encode())
        self.close_connection = True
        if answer is None:
            return
        self.send_response(answer.status)
        for name, value in {
            "Content-Type": answer.kind,
            "Content-Length": str(len(answer.body)),
            **answer.headers,
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer.body)

    do_GET = do_POST = do_PUT = do_DELETE = _do  # noqa: N815 (the names are the library's)

    def log_message(self, *_: object) -> None:
        """Not in a test's output."""
