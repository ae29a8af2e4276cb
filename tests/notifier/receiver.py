"""A real HTTP server that takes notifications (apprise's ``json://``), and may be told to misbehave."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.http_service import Answer, Request, http_service
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
        #: ``host:port``.
        self.address = ""

    def url(self, more: str = "") -> str:
        """For apprise, with short time-outs of its own unless it says otherwise."""
        return f"json://{self.address}/hook/s3cr3t-token{more}"

    def target(self, name: str, more: str = "") -> Target:
        """As configured."""
        return Target(name, self.url(more))

    def answer(self, request: Request) -> Answer | None:
        body = json.loads(request.body)
        self.tries += 1
        if self.hanging.is_set():
            self.let_go.wait(60)
            return None
        if self.status == 200:
            self.taken.append(body)
        self.on_arrival()
        return Answer(self.status)


@contextmanager
def receiving() -> Iterator[Receiver]:
    """One at work."""
    receiver = Receiver()
    with http_service(receiver.answer) as url:
        receiver.address = url.removeprefix("http://")
        try:
            yield receiver
        finally:
            receiver.let_go.set()
