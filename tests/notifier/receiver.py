"""A real HTTP server that takes notifications (apprise's ``json://``), and may be told to misbehave."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tidewheel_services.notifier.targets import Target


class Receiver:
    """What has arrived. ``status`` is answered, after ``on_arrival``; while ``hanging`` is set nothing is."""

    def __init__(self) -> None:
        self.status = 200
        self.hanging = threading.Event()
        self.let_go = threading.Event()
        self.on_arrival: Callable[[], None] = lambda: None
        self.taken: list[dict[str, Any]] = []
        self.tries = 0
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.server.daemon_threads = True

    def url(self, more: str = "") -> str:
        """For apprise, with short time-outs of its own unless it says otherwise."""
        return f"json://{self.server.server_address[0]!s}:{self.server.server_address[1]}/hook/s3cr3t-token{more}"

    def target(self, name: str, more: str = "") -> Target:
        """As configured."""
        return Target(name, self.url(more))


@contextmanager
def receiving() -> Iterator[Receiver]:
    """One at work."""
    receiver = Receiver()
    thread = threading.Thread(target=receiver.server.serve_forever, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        receiver.let_go.set()
        receiver.server.shutdown()
        receiver.server.server_close()
        thread.join(10)


def _handler(receiver: Receiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            receiver.tries += 1
            if receiver.hanging.is_set():
                receiver.let_go.wait(60)
                return
            if receiver.status == 200:
                receiver.taken.append(body)
            receiver.on_arrival()
            self.send_response(receiver.status)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the name is the library's)
            """Not in a test's output."""

    return Handler


Eventually = Callable[[Callable[[], Any], str], None]
