"""What worker, supervisor and runners say to each other."""

from __future__ import annotations

import msgspec

from tidewheel.core.commands import FailureKind

#: In the environment of every process of a task: tells whose it is, whatever session or group it moved to.
COOKIE = "TIDEWHEEL_PROCESS_ID"
#: Exit status of a runner that finds its channel closed.
CHANNEL_GONE = 77


class Spawn(msgspec.Struct, frozen=True, tag=True):
    """Start a process. The first two descriptors sent along are its stdout and stderr, the others end its argv."""

    argv: tuple[bytes, ...]
    env: dict[bytes, bytes]
    cwd: str
    cookie: str
    descriptors: int = 2
    #: Monotonic instant at which to kill it unless told a later one; the clock is the same in all processes.
    fence_at: float | None = None


class Stop(msgspec.Struct, frozen=True, tag=True):
    """TERM now, KILL after ``grace_s``."""

    grace_s: float


class Kill(msgspec.Struct, frozen=True, tag=True):
    """KILL now."""


class Extend(msgspec.Struct, frozen=True, tag=True):
    """Kill at this instant and no earlier; None: never."""

    fence_at: float | None


Order = Spawn | Stop | Kill | Extend


class Exited(msgspec.Struct, frozen=True, tag=True):
    """The process ended and nothing of it runs any more, or (``left``) these many processes could not be killed."""

    #: Exit status, or minus the signal's number.
    status: int
    fenced: bool = False
    left: int = 0


class SpawnFailed(msgspec.Struct, frozen=True, tag=True):
    """It could not be started."""

    reason: str


Word = Exited | SpawnFailed


class Call(msgspec.Struct, frozen=True, tag=True):
    """Call a Python callable; ``action`` is the JSON of a ``PythonSpec``, ``env`` what to add to the environment."""

    action: str
    env: dict[str, str]
    dag: str
    run_id: str
    task: str
    attempt: int
    logical_date: int | None = None
    interval_start: int | None = None
    interval_end: int | None = None
    checkpoint: str | None = None


class Begun(msgspec.Struct, frozen=True, tag=True):
    """The call was taken up; from here on a death of the runner is the call's doing."""


class Stale(msgspec.Struct, frozen=True, tag=True):
    """The call was not taken up: the project's code has changed since this runner loaded it."""


class Progress(msgspec.Struct, frozen=True, tag=True):
    """The callable has progress to show, as JSON text."""

    progress: str


class Checkpoint(msgspec.Struct, frozen=True, tag=True):
    """The callable leaves this for the task's next attempt, as JSON text."""

    checkpoint: str


class Ended(msgspec.Struct, frozen=True, tag=True):
    """The call's outcome; ``kind`` None is success. ``retire`` says why the runner should take no further call."""

    output: str | None = None
    kind: FailureKind | None = None
    message: str = ""
    exit_code: int | None = None
    retire: str = ""


Answer = Begun | Stale | Progress | Checkpoint | Ended
