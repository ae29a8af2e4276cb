"""A runner: a warm Python process that calls the project's callables, one at a time, and keeps no trace of one.

Started with two arguments: the project's directory, and the descriptor of its channel to the worker. What cannot be
undone (threads, child processes, grown memory) ends the runner after the call.
"""

from __future__ import annotations

import ctypes
import fcntl
import importlib
import io
import os
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType

import msgspec

from tidewheel.core.assignment import PythonSpec
from tidewheel.task.call import Function, call, exit_outcome, takes_context
from tidewheel.task.context import Context
from tidewheel.task.outcome import Failed, Outcome, outcome_of_exception
from tidewheel_services.worker.frames import Frames, frame
from tidewheel_services.worker.messages import CHANNEL_GONE, Answer, Begun, Call, Checkpoint, Ended, Progress, Stale

RECEIVE_BYTES = 65_536
#: After so many calls a fresh runner takes over: small leaks stay small.
CALLS_MAX = 1_000
RSS_GROWTH_BYTES_MAX = 512 * 1024 * 1024
#: Descriptors of our own go where user code that closes or reuses low numbers does not meet them.
DESCRIPTOR_MIN = 200

_decode_call = msgspec.msgpack.Decoder(Call).decode
_decode_action = msgspec.json.Decoder(PythonSpec).decode
_libc = ctypes.CDLL(None)


class _Voice:
    """How a callable's context reaches the worker."""

    def __init__(self, runner: Runner, env: Mapping[str, str]) -> None:
        self._runner = runner
        self._env = env

    def progress(self, progress: str | None) -> None:
        if progress is not None:
            self._runner.say(Progress(progress))

    def checkpoint(self, checkpoint: str) -> None:
        self._runner.say(Checkpoint(checkpoint))

    def log(self, text: str) -> None:
        sys.stdout.write(text)

    def environment(self) -> Mapping[str, str]:
        return self._env


class Surroundings:
    """What a call may change and the next must find as it was."""

    def __init__(self) -> None:
        self._environment = dict(os.environ)
        self._cwd = Path.cwd()
        self._path = list(sys.path)
        self._umask = os.umask(0o022)
        os.umask(self._umask)
        self._stdio = [_out_of_the_way(number) for number in (0, 1, 2)]
        self._streams = [_text(number, "rww"[number]) for number in (0, 1, 2)]
        self.restore()

    def restore(self) -> None:
        """Put everything back."""
        try:
            for number, kept in enumerate(self._stdio):
                os.dup2(kept, number, inheritable=True)
        except OSError:
            # User code closed them.
            os._exit(CHANNEL_GONE)
        self._streams = [_text(n, "rww"[n]) if stream.closed else stream for n, stream in enumerate(self._streams)]
        sys.stdin, sys.stdout, sys.stderr = self._streams
        now = os.environ.copy()
        for name in now.keys() - self._environment.keys():
            del os.environ[name]
        for name, value in self._environment.items():
            if now.get(name) != value:
                os.environ[name] = value
        os.chdir(self._cwd)
        sys.path[:] = self._path
        os.umask(self._umask)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def flush(self) -> None:
        """Whatever was printed is in the pipes after this."""
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError, AttributeError):
                # User code closed or replaced it.
                continue
        _libc.fflush(None)


class Project:
    """The user's code: found, loaded, and watched for changes."""

    def __init__(self, directory: Path) -> None:
        self._directory = str(directory) + os.sep
        self._functions: dict[str, tuple[Function, bool]] = {}
        self._loaded: dict[str, int] = {}
        self._known = 0
        sys.path.insert(0, str(directory))

    def find(self, name: str) -> tuple[Function, bool] | Failed:
        """The callable ``module:name`` and whether it takes a context."""
        found = self._functions.get(name)
        if found is not None:
            return found
        module_name, _, path = name.partition(":")
        if not module_name or not path:
            return Failed("setup", f"'{name}' is not of the form module:callable")
        try:
            target: object = importlib.import_module(module_name)
            for part in path.split("."):
                target = getattr(target, part)
        except SystemExit as error:
            return Failed("setup", f"cannot import '{module_name}': {exit_outcome(error)}")
        except BaseException as error:
            where = self._directory.rstrip(os.sep)
            return Failed("setup", f"cannot load '{name}' from {where}: {outcome_of_exception(error).message}")
        if not callable(target):
            return Failed("setup", f"'{name}' is not callable, it is a {type(target).__name__}")
        self._functions[name] = found = (target, takes_context(target))
        return found

    def note_loaded(self, since_ns: int) -> None:
        """Remember the files of modules loaded since the last time, which was after ``since_ns``."""
        if len(sys.modules) == self._known:
            return
        self._known = len(sys.modules)
        for module in list(sys.modules.values()):
            file = getattr(module, "__file__", None)
            if isinstance(file, str) and file.startswith(self._directory) and file not in self._loaded:
                modified = _modified(file)
                # Written while the call ran: before it was loaded or after? Then rather load it again.
                self._loaded[file] = modified if modified < since_ns else -1

    def changed(self) -> bool:
        """Whether a file that was loaded is another now."""
        return any(_modified(file) != at for file, at in self._loaded.items())


class Runner:
    """The loop."""

    def __init__(self, channel: socket.socket, project: Project) -> None:
        self._channel = channel
        self._project = project
        self._surroundings = Surroundings()
        self._calls = 0
        self._rss_first = _rss_bytes()

    def run(self) -> None:
        """Answer calls until the worker hangs up."""
        frames = Frames()
        while data := self._channel.recv(RECEIVE_BYTES):
            for body in frames.take(data):
                self._answer(_decode_call(body))

    def say(self, answer: Answer) -> None:
        """Tell the worker."""
        try:
            self._channel.sendall(frame(answer))
        except OSError:
            # Closed by the user's code, or the worker is gone: there is nobody left to tell.
            os._exit(CHANNEL_GONE)

    def _answer(self, request: Call) -> None:
        if self._project.changed():
            self.say(Stale())
            return
        self.say(Begun())
        self._calls += 1
        began_ns = time.time_ns()
        try:
            outcome = self._call(request)
        except BaseException as error:
            # A signal's exception may come between user code and here.
            outcome = exit_outcome(error) if isinstance(error, SystemExit) else outcome_of_exception(error)
        self._surroundings.flush()
        self._project.note_loaded(began_ns)
        retire = self._retire()
        if isinstance(outcome, Failed):
            ended = Ended(kind=outcome.kind, message=outcome.message, exit_code=outcome.exit_code, retire=retire)
        else:
            ended = Ended(output=outcome.output, retire=retire)
        self.say(ended)
        # The next call comes after this: nobody waits for the tidying.
        self._surroundings.restore()

    def _call(self, request: Call) -> Outcome:
        action = _decode_action(request.action)
        cancelled = threading.Event()

        def end(_number: int, _frame: FrameType | None) -> None:
            # Once: a second TERM must not interrupt the clean-up that the first one began.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            cancelled.set()
            raise SystemExit(128 + signal.SIGTERM)

        signal.signal(signal.SIGTERM, end)
        os.environ.update(request.env)
        found = self._project.find(action.callable)
        if isinstance(found, Failed):
            return found
        function, with_context = found
        return call(function, action.kwargs, Context(request, _Voice(self, request.env), cancelled), with_context)

    def _retire(self) -> str:
        """Why this runner should take no further call."""
        if threading.active_count() > 1:
            return "the call left threads running"
        try:
            while True:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    return "the call left processes running"
        except ChildProcessError:
            pass
        if self._calls >= CALLS_MAX:
            return f"it has answered {self._calls} calls"
        if _rss_bytes() > self._rss_first + RSS_GROWTH_BYTES_MAX:
            return "its memory has grown"
        return ""


def _text(number: int, mode: str) -> io.TextIOWrapper:
    """A standard stream as user code expects it: UTF-8 whatever the locale, line by line."""
    return io.TextIOWrapper(
        open(number, mode + "b", closefd=False),
        encoding="utf-8",
        errors="backslashreplace",
        line_buffering=True,
    )


def _out_of_the_way(number: int) -> int:
    return fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, DESCRIPTOR_MIN)


def _modified(file: str) -> int:
    try:
        return Path(file).stat().st_mtime_ns
    except OSError:
        return 0


def _rss_bytes() -> int:
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * resource.getpagesize()
    except OSError:
        # Not Linux: the highest it ever was.
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> None:
    """``argv``: the project's directory and the channel's descriptor."""
    directory, descriptor = Path(sys.argv[-2]), int(sys.argv[-1])
    channel = socket.socket(fileno=_out_of_the_way(descriptor))
    os.close(descriptor)
    sys.argv[:] = ["tidewheel-runner"]
    # Under the worker's own packages stands only what the library brings; the project's comes first.
    Runner(channel, Project(directory)).run()
