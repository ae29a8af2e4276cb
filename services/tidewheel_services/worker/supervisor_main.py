"""The supervisor: a process with one thread that starts, reaps and ends all processes of a worker. See the package.

A task's connection is its lifeline: when it closes, the task is killed. A task has ended only when nothing of it is
left: its group is empty and no orphan carries its cookie.
"""

from __future__ import annotations

import enum
import math
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import time

import msgspec

from tidewheel_services.worker.frames import Frames, frame
from tidewheel_services.worker.messages import Exited, Extend, Kill, Order, Spawn, SpawnFailed, Stop, Word
from tidewheel_services.worker.processes import (
    adopt_orphans,
    children,
    cookie_of,
    dying_with_parent,
    dying_wrapper,
    signal_group,
    signal_process,
)

#: What a task leaves running when its first process has ended (a logger reading a pipe) may finish in this time.
LINGER_S = 0.5
#: How often to look at what is being ended.
TICK_S = 0.02
#: After so long of killing, say that something is left: it hangs in the kernel.
KILL_S_MAX = 10.0
RECEIVE_BYTES = 65_536

_decode_order = msgspec.msgpack.Decoder(Order).decode


class Phase(enum.Enum):
    """A task's life here."""

    NEW = "new"
    RUNNING = "running"
    LINGERING = "lingering"
    STOPPING = "stopping"
    KILLING = "killing"
    ENDED = "ended"


class Task:
    """One process with its connection."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection: socket.socket | None = connection
        self.frames = Frames()
        self.descriptors: list[int] = []
        self.phase = Phase.NEW
        self.process: subprocess.Popen[bytes] | None = None
        self.pid = 0
        self.cookie = ""
        self.status: int | None = None
        self.fence_at = math.inf
        self.fenced = False
        #: When STOPPING and LINGERING turn into KILLING, and when KILLING is given up.
        self.until = math.inf
        self.asked: set[int] = set()
        #: What its first process left, as last seen.
        self.orphans: set[int] = set()


class Supervisor:
    """The loop."""

    def __init__(self, door: socket.socket) -> None:
        self._door: socket.socket | None = door
        self._tasks: set[Task] = set()
        self._by_pid: dict[int, Task] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(door, selectors.EVENT_READ, None)
        # A signal's byte in this pipe ends the wait; so no exit is noticed late.
        self._signals, signal_in = os.pipe()
        os.set_blocking(self._signals, False)
        os.set_blocking(signal_in, False)
        signal.set_wakeup_fd(signal_in, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._selector.register(self._signals, selectors.EVENT_READ, self._signals)
        self._wrapper = tuple(word.encode() for word in dying_wrapper())
        self._before_exec = None if self._wrapper else dying_with_parent()

    def run(self) -> None:
        """Serve until the worker is gone and nothing of it runs."""
        while self._door is not None or self._tasks:
            for key, _ in self._selector.select(self._wait_s()):
                if key.data is None:
                    self._greet()
                elif isinstance(key.data, Task):
                    self._listen(key.data)
                else:
                    os.read(self._signals, RECEIVE_BYTES)
            self._reap()
            now = time.monotonic()
            for task in list(self._tasks):
                self._advance(task, now)

    def _wait_s(self) -> float | None:
        now = time.monotonic()
        due = math.inf
        for task in self._tasks:
            if task.phase in (Phase.LINGERING, Phase.KILLING) or (
                task.phase is Phase.STOPPING and task.status is not None
            ):
                return TICK_S
            due = min(due, task.fence_at, task.until)
        return None if due == math.inf else max(0.0, due - now)

    # --- words with the worker ----------------------------------------------------------------------------------

    def _greet(self) -> None:
        """Take a new task's connection; without a worker, end everything."""
        assert self._door is not None
        try:
            data, descriptors, _, _ = socket.recv_fds(self._door, 1, 1)
        except OSError:
            data, descriptors = b"", []
        if not data:
            self._selector.unregister(self._door)
            self._door.close()
            self._door = None
            for task in list(self._tasks):
                self._kill(task)
            return
        for descriptor in descriptors:
            connection = socket.socket(fileno=descriptor)
            connection.setblocking(False)
            task = Task(connection)
            self._tasks.add(task)
            self._selector.register(connection, selectors.EVENT_READ, task)

    def _listen(self, task: Task) -> None:
        if task.connection is None:
            return  # it ended while others were listened to
        try:
            data, descriptors, _, _ = socket.recv_fds(task.connection, RECEIVE_BYTES, 16)
        except BlockingIOError:
            return
        except OSError:
            data, descriptors = b"", []
        task.descriptors += descriptors
        if not data:
            self._hang_up(task)
            self._kill(task)
            return
        for body in task.frames.take(data):
            self._obey(task, _decode_order(body))

    def _obey(self, task: Task, order: Order) -> None:
        now = time.monotonic()
        if isinstance(order, Spawn):
            self._spawn(task, order)
        elif isinstance(order, Extend):
            task.fence_at = math.inf if order.fence_at is None else order.fence_at
        elif isinstance(order, Kill):
            self._kill(task)
        elif isinstance(order, Stop) and task.phase in (Phase.RUNNING, Phase.LINGERING):
            task.phase = Phase.STOPPING
            task.until = now + order.grace_s
            signal_group(task.pid, signal.SIGTERM)

    def _say(self, task: Task, word: Word) -> None:
        if task.connection is None:
            return
        try:
            task.connection.setblocking(True)
            task.connection.sendall(frame(word))
        except OSError:
            pass

    def _hang_up(self, task: Task) -> None:
        if task.connection is not None:
            self._selector.unregister(task.connection)
            task.connection.close()
            task.connection = None

    # --- processes ----------------------------------------------------------------------------------------------

    def _spawn(self, task: Task, order: Spawn) -> None:
        stdout, stderr, *others = task.descriptors
        task.cookie = order.cookie
        task.fence_at = math.inf if order.fence_at is None else order.fence_at
        try:
            task.process = subprocess.Popen(
                [*self._wrapper, *order.argv, *(str(number).encode() for number in others)],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                pass_fds=others,
                cwd=order.cwd,
                env=order.env,
                start_new_session=True,
                # Safe here: this process has one thread.
                preexec_fn=self._before_exec,
            )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            self._say(task, SpawnFailed(str(error)))
            self._end(task)
        else:
            task.pid = task.process.pid
            task.phase = Phase.RUNNING
            self._by_pid[task.pid] = task
        finally:
            for descriptor in task.descriptors:
                os.close(descriptor)
            task.descriptors = []

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            task = self._by_pid.pop(pid, None)
            if task is not None and task.process is not None:
                task.status = task.process.returncode = os.waitstatus_to_exitcode(status)

    def _advance(self, task: Task, now: float) -> None:
        """Take the task one step further, if it is time."""
        if task.phase in (Phase.NEW, Phase.ENDED):
            return
        if now >= task.fence_at and task.phase is not Phase.KILLING:
            task.fenced = True
            self._kill(task)
        if task.status is None and now < task.until:
            return
        left = self._left(task) if task.status is not None else [task.pid]
        if not left:
            self._say(task, Exited(task.status or 0, task.fenced))
            self._end(task)
            return
        if task.phase is Phase.RUNNING:
            task.phase = Phase.LINGERING
            task.until = now + LINGER_S
        elif task.phase is Phase.STOPPING and now < task.until:
            for pid in task.orphans - task.asked:
                task.asked.add(pid)
                signal_process(pid, signal.SIGTERM)
        elif task.phase is Phase.KILLING and now >= task.until:
            self._say(task, Exited(-signal.SIGKILL if task.status is None else task.status, task.fenced, len(left)))
            self._end(task)
        elif task.phase is Phase.KILLING or now >= task.until:
            self._kill(task)
            for pid in task.orphans:
                signal_process(pid, signal.SIGKILL)

    def _left(self, task: Task) -> list[int]:
        """What the task's first process left: orphans with its cookie or, just now, with none that could be read, and
        the group's number if that has members."""
        cookies = {pid: cookie_of(pid) for pid in children() if pid not in self._by_pid}
        task.orphans = {pid for pid, cookie in cookies.items() if cookie == task.cookie}
        left = [pid for pid, cookie in cookies.items() if cookie in (task.cookie, None)]
        if signal_group(task.pid, 0):
            left.append(task.pid)
        return left

    def _kill(self, task: Task) -> None:
        if task.phase is Phase.NEW:
            self._end(task)
            return
        if task.phase is not Phase.KILLING:
            task.phase = Phase.KILLING
            task.until = time.monotonic() + KILL_S_MAX
        signal_group(task.pid, signal.SIGKILL)

    def _end(self, task: Task) -> None:
        task.phase = Phase.ENDED
        self._hang_up(task)
        self._tasks.discard(task)


def main() -> None:
    """``argv``: the descriptor of the door, and a directory to remove in the end."""
    door, scratch = int(sys.argv[-2]), sys.argv[-1]
    # The worker decides when to end. Handlers, not SIG_IGN: that would be inherited by every task.
    signal.signal(signal.SIGINT, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: None)
    adopt_orphans()
    try:
        Supervisor(socket.socket(fileno=door)).run()
    finally:
        # Orphans that hid their cookie.
        for pid in children():
            signal_process(pid, signal.SIGKILL)
        shutil.rmtree(scratch, ignore_errors=True)
