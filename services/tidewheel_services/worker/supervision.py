"""The worker's side of the supervisor: start processes, reach them, hear of their end."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import structlog

import tidewheel
import tidewheel_services
from tidewheel_services.worker.frames import Frames, frame
from tidewheel_services.worker.messages import COOKIE, Exited, Extend, Kill, Order, Spawn, SpawnFailed, Stop, Word
from tidewheel_services.worker.processes import signal_process, with_cookie

CLOSE_S = 15.0
RECEIVE_BYTES = 65_536
#: Where this program's own packages are. Added at the end of ``sys.path`` (see ``python_argv``).
_ROOTS = sorted(
    {str(Path(module.__file__).parents[1]) for module in (tidewheel, tidewheel_services) if module.__file__}
)

_log = structlog.get_logger(__name__)
_decode_word = msgspec.msgpack.Decoder(Word).decode


def python_argv(module: str, *arguments: str) -> tuple[str, ...]:
    """The command line that runs ``main`` of ``module`` in a fresh interpreter like this one.

    Not ``-m``: it puts the current directory first on ``sys.path``, where a user's ``queue.py`` hides the library's.
    """
    start = f"import sys; sys.path += {_ROOTS!r}; from {module} import main; main()"
    return (sys.executable, "-P", "-c", start, *arguments)


class Lost(Exception):
    """The supervisor is gone, and with it all that it ran."""


class Process:
    """A process of a task, as the worker sees it. Its ``fileno`` is readable when there is word of its end."""

    def __init__(self, connection: socket.socket, cookie: str) -> None:
        self.cookie = cookie
        self._connection = connection
        self._frames = Frames()
        self._lock = threading.Lock()
        self._closed = False

    def fileno(self) -> int:
        """What to poll."""
        return self._connection.fileno()

    def stop(self, grace_s: float) -> None:
        """TERM now, KILL after ``grace_s``."""
        self._order(Stop(grace_s))

    def kill(self) -> None:
        """KILL now."""
        self._order(Kill())

    def extend(self, fence_at: float) -> None:
        """It may run until this monotonic instant."""
        self._order(Extend(None if fence_at == math.inf else fence_at))

    def word(self) -> Exited | SpawnFailed | None:
        """What the supervisor has said, None: nothing yet. Raises ``Lost``."""
        try:
            data = self._connection.recv(RECEIVE_BYTES)
        except OSError as error:
            raise Lost("the connection to the supervisor broke") from error
        if not data:
            raise Lost("the supervisor is gone")
        for body in self._frames.take(data):
            word: Exited | SpawnFailed = _decode_word(body)
            return word
        return None

    def close(self) -> None:
        """Let go; what still runs of it is killed."""
        with self._lock:
            self._closed = True
            self._connection.close()

    def _order(self, order: Order) -> None:
        with self._lock, contextlib.suppress(OSError):
            if not self._closed:
                self._connection.sendall(frame(order))


class Supervisor:
    """Starts the supervisor when it is first needed, and again if it was killed."""

    def __init__(self) -> None:
        #: For files of tasks while they run; the supervisor removes it when the worker is gone.
        self.scratch = Path(tempfile.mkdtemp(prefix="tidewheel-"))
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._door: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._mark = ""

    def start(self) -> None:
        """Start it now rather than with the first task."""
        with self._lock:
            if self._door is None:
                self._start()

    def spawn(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: Path,
        descriptors: Sequence[int],
        fence_at: float = math.inf,
    ) -> Process:
        """Start a process with these descriptors as stdout, stderr, and more; the caller closes its own copies."""
        ours, theirs = socket.socketpair()
        with theirs:
            cookie = self._introduce(theirs)
        process = Process(ours, cookie)
        order = frame(
            Spawn(
                argv=tuple(map(_bytes, argv)),
                env={_bytes(name): _bytes(value) for name, value in (*env.items(), (COOKIE, cookie))},
                cwd=str(cwd),
                cookie=cookie,
                descriptors=len(descriptors),
                fence_at=None if fence_at == math.inf else fence_at,
            )
        )
        try:
            # The descriptors travel with the first bytes; a large environment may need more than one call.
            sent = socket.send_fds(ours, [order], list(descriptors))
            # Not with nothing left: a command that has ended by now has closed the connection, and that is no fault.
            if sent < len(order):
                ours.sendall(order[sent:])
        except OSError as error:
            process.close()
            raise Lost("the supervisor died while it was told to start a process") from error
        return process

    def close(self) -> None:
        """End it, and with it all that still runs."""
        with self._lock:
            door, process = self._door, self._process
            self._door = self._process = None
        if door is not None and process is not None:
            door.close()
            try:
                process.wait(CLOSE_S)
            except subprocess.TimeoutExpired:
                _log.error("the supervisor does not end; it is killed", pid=process.pid)
                process.kill()
                process.wait()
        with contextlib.suppress(OSError):
            self.scratch.rmdir()

    @property
    def pid(self) -> int | None:
        """The supervisor's process."""
        return None if self._process is None else self._process.pid

    def _introduce(self, connection: socket.socket) -> str:
        """Hand the supervisor a task's connection; gives the task's cookie."""
        with self._lock:
            for _ in range(2):
                if self._door is None:
                    self._start()
                assert self._door is not None
                try:
                    socket.send_fds(self._door, [b"+"], [connection.fileno()])
                    return f"{self._mark}.{next(self._numbers)}"
                except OSError:
                    self._bury()
            raise Lost("the supervisor died twice in a row")

    def _start(self) -> None:
        self._mark = secrets.token_hex(8)
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                python_argv("tidewheel_services.worker.supervisor_main", str(theirs.fileno()), str(self.scratch)),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                # Out of reach of the terminal's Ctrl-C.
                start_new_session=True,
            )
        self._door = ours

    def _bury(self) -> None:
        """The supervisor was killed. Its tasks' first processes died with it; what they left is found by cookie."""
        assert self._door is not None and self._process is not None
        self._door.close()
        self._door = None
        status = self._process.wait()
        left = with_cookie(self._mark + ".")
        _log.error("the supervisor was killed; starting another", status=status, left_processes=left)
        for pid in left:
            signal_process(pid, signal.SIGKILL)
        self.scratch.mkdir(exist_ok=True)


def _bytes(text: str) -> bytes:
    """As the kernel gets it, whatever the locale; bytes that Python could not decode come out as they were."""
    return text.encode("utf-8", "surrogateescape")


def output_pipes() -> tuple[tuple[int, int], tuple[int, int]]:
    """Two pipes, for stdout and stderr: where to read, and where to write."""
    out_read, out_write = os.pipe()
    try:
        err_read, err_write = os.pipe()
    except OSError:
        close_all((out_read, out_write))
        raise
    return (out_read, err_read), (out_write, err_write)


def close_all(descriptors: Sequence[int]) -> None:
    """Close descriptors that are open. Closed twice, a number may be that of another thread's file by then."""
    for descriptor in descriptors:
        os.close(descriptor)
