"""Attempts that run at once, each in its thread, and do a step when they are told to."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable


class Actor:
    """Does one thing at a time, on its own thread. What a thing raises is raised by ``settle``."""

    def __init__(self) -> None:
        self._orders: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._idle = threading.Event()
        self._idle.set()
        self._fault: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def idle(self) -> bool:
        """Whether it waits for its next step."""
        return self._idle.is_set()

    def begin(self, step: Callable[[], None]) -> None:
        assert self.idle
        self._idle.clear()
        self._orders.put(step)

    def settle(self, stuck: Callable[[], bool] = lambda: False, timeout_s: float = 60) -> bool:
        """Until it is idle, or ``stuck`` says that others must move first. Whether it is idle."""
        for _ in range(round(timeout_s / 0.005)):
            if self._idle.wait(0.005):
                if self._fault is not None:
                    raise self._fault
                return True
            if stuck():
                return False
        raise AssertionError("an actor neither goes on nor waits for anybody")

    def close(self) -> None:
        self._orders.put(None)
        self._thread.join(10)

    def _run(self) -> None:
        while (step := self._orders.get()) is not None:
            try:
                step()
            except BaseException as fault:
                self._fault = fault
            self._idle.set()


class Turnstile:
    """Lets one thread through at a time, and only when told which: for steps in the middle of somebody's code."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._arrived: set[int] = set()
        self._let: set[int] = set()
        self._ended: set[int] = set()

    def wait(self, who: int) -> None:
        """Called by ``who`` before each step."""
        with self._changed:
            self._arrived.add(who)
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: who in self._let, 60)
            self._let.discard(who)
            self._arrived.discard(who)

    def end(self, who: int) -> None:
        """Called by ``who`` after its last step."""
        with self._changed:
            self._ended.add(who)
            self._changed.notify_all()

    def step(self, who: int) -> bool:
        """Let ``who`` do one step, to its end. False: it has ended."""
        with self._changed:
            assert self._changed.wait_for(lambda: who in self._arrived | self._ended, 60)
            if who in self._ended:
                return False
            self._let.add(who)
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: who not in self._let and who in self._arrived | self._ended, 60)
            return True
