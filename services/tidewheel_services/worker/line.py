"""The line of an HTTP request: what another thread can cut, however the service at its other end answers."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Mapping

from tidewheel.worker.attempt import StopReason


class Cut(Exception):
    """The request was cut."""


class Line:
    """The connection of one request, so that another thread can cut it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._stopped = False

    @property
    def stopped(self) -> bool:
        """Whether it was cut."""
        return self._stopped

    def stop(self, reason: StopReason) -> None:
        """Cut it; who waits for bytes gets the end of the stream."""
        with self._lock:
            self._stopped = True
            self._cut()

    def extend(self, fence_at: float) -> None:
        """Cutting needs no preparation."""

    def trace(self, event: str, info: Mapping[str, object]) -> None:
        """Told by httpx of each step."""
        with self._lock:
            # TLS takes the socket over: the one before is closed then.
            if event.endswith((".connect_tcp.complete", ".start_tls.complete")):
                stream = info.get("return_value")
                found = stream.get_extra_info("socket") if hasattr(stream, "get_extra_info") else None
                self._socket = found if isinstance(found, socket.socket) else None
            if self._stopped:
                self._cut()
                raise Cut

    def _cut(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                # The connection's own, also under TLS: that of TLS would pull its state away from under the reader.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
