"""Read what a process writes while waiting for its end, in one thread."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Mapping

from tidewheel.worker.masking import Masker
from tidewheel.worker.tasklog import Stream, TaskLog
from tidewheel_services.worker.messages import Exited, SpawnFailed
from tidewheel_services.worker.supervision import Process

READ_BYTES = 65_536
#: More than the largest pipe holds: what a process left behind goes on to write is not waited for.
DRAIN_READS_MAX = 32
#: What is kept of stderr, and what a message shows of its last line. Kept is more: it is cut before it is masked, and
#: half a secret at the cut is no secret that could be recognised.
TAIL_BYTES = 8_192
LAST_LINE_CHARS = 500
_READABLE = select.POLLIN | select.POLLHUP | select.POLLERR


class Pump:
    """Moves bytes from pipes to a task's log."""

    def __init__(self, pipes: Mapping[int, Stream], process: Process, others: tuple[int, ...] = ()) -> None:
        self._pipes = dict(pipes)
        self._process = process
        self._poll = select.poll()
        for descriptor in (*pipes, process.fileno(), *others):
            self._poll.register(descriptor, _READABLE)
        #: The last that was written to stderr, to explain a failure by.
        self.tail = b""

    def turn(self, log: TaskLog, wait_s: float | None = None) -> set[int]:
        """Wait for something (at most ``wait_s``), move what was written; gives what else is readable."""
        due_s = log.due_s()
        waits = [wait for wait in (due_s, wait_s) if wait is not None]
        ready = self._poll.poll(min(waits) * 1000 + 1 if waits else None)
        others: set[int] = set()
        for descriptor, _ in ready:
            stream = self._pipes.get(descriptor)
            if stream is None:
                others.add(descriptor)
            elif not self._move(descriptor, stream, log):
                self.forget(descriptor)
        if due_s is not None:
            log.flush_due()
        return others

    def wait_exit(
        self, log: TaskLog, look: Callable[[], None] | None = None, look_s: float | None = None
    ) -> Exited | SpawnFailed:
        """Move what is written until the process has ended, and then all the rest; ``look`` every ``look_s`` seconds
        meanwhile. Raises ``Lost``."""
        look_at = None if look_s is None else time.monotonic() + look_s
        while True:
            readable = self.turn(log, None if look_at is None else max(0.0, look_at - time.monotonic()))
            if look is not None and look_s is not None and look_at is not None and time.monotonic() >= look_at:
                look()
                look_at = time.monotonic() + look_s
            if self._process.fileno() in readable:
                word = self._process.word()
                if word is not None:
                    self.drain(log)
                    return word

    def drain(self, log: TaskLog) -> None:
        """Move what is in the pipes now."""
        for descriptor, stream in list(self._pipes.items()):
            os.set_blocking(descriptor, False)
            for _ in range(DRAIN_READS_MAX):
                if not self._move(descriptor, stream, log):
                    break
            os.set_blocking(descriptor, True)

    def forget(self, descriptor: int) -> None:
        """Wait for this one no more: it is at its end."""
        self._poll.unregister(descriptor)
        self._pipes.pop(descriptor, None)

    def _move(self, descriptor: int, stream: Stream, log: TaskLog) -> bool:
        """Move one piece; False: there is none."""
        try:
            data = os.read(descriptor, READ_BYTES)
        except BlockingIOError:
            return False
        if not data:
            return False
        log.write(stream, data)
        if stream == "stderr":
            self.tail = (self.tail + data)[-TAIL_BYTES:]
        return True

    def last_line(self, masker: Masker) -> str:
        """The last line on stderr, masked."""
        lines = self.tail.decode("utf-8", "replace").strip().splitlines()
        return masker.mask(lines[-1].strip())[-LAST_LINE_CHARS:] if lines else ""
