"""Calls into the client that may never return, made in a thread that is left behind with one that does not.

``send_offsets_to_transaction`` of librdkafka 2.16 waits without any limit for the group's coordinator to be found, and
only a change of some connection makes it look again: after a broker's death and return it has been seen to wait for
ever. What is left behind ends with the next such change; its producer has long been fenced by then.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TypeVar

T = TypeVar("T")

#: How often a caller that waits looks whether to go on waiting.
_LOOK_S = 0.05

_Call = tuple[Future[object], Callable[[], object]]


class CallThread:
    """One daemon thread that makes calls, one after another. Not thread-safe."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[_Call | None] = self._begin()

    def call(self, work: Callable[[], T], give_up: Callable[[], bool]) -> T:
        """What ``work`` returns or raises; ``TimeoutError`` as soon as it has not returned and ``give_up`` says so."""
        future: Future[T] = Future()
        self._calls.put((future, work))  # type: ignore[arg-type]
        while True:
            try:
                return future.result(_LOOK_S)
            except TimeoutError:
                if future.done():
                    return future.result()
                if give_up():
                    self.close()
                    self._calls = self._begin()
                    raise

    def close(self) -> None:
        """End the thread once its call has returned."""
        self._calls.put(None)

    def _begin(self) -> SimpleQueue[_Call | None]:
        calls: SimpleQueue[_Call | None] = SimpleQueue()
        threading.Thread(target=_serve, args=(calls,), name="kafka-calls", daemon=True).start()
        return calls


def _serve(calls: SimpleQueue[_Call | None]) -> None:
    while (call := calls.get()) is not None:
        future, work = call
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)
        # What was called with must not live on here until the next call.
        del call, future, work
