"""``TIDEWHEEL_CHECKPOINT``: a file in which a command finds the last checkpoint, and leaves the next one.

The worker looks at it now and then and once more when the command has ended. A command that writes it anew beside and
moves it there never shows half of one; half of one, being no JSON, is passed over until the next look.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

import msgspec

from tidewheel.task.context import CHECKPOINT_BYTES_MAX
from tidewheel.worker.attempt import Attempt

#: How often it is looked at while the command runs, in seconds.
LOOK_S = 5.0


class CheckpointFile:
    """The file of one attempt."""

    def __init__(self, path: Path, attempt: Attempt) -> None:
        self.path = path
        self._attempt = attempt
        self._seen: tuple[int, int, int] | None = None
        if attempt.assignment.checkpoint is not None:
            path.write_text(attempt.assignment.checkpoint, encoding="utf-8")
            # A container's user may be any.
            path.chmod(0o666)
            self._seen = _state(path.stat())

    def look(self, *, last: bool = False) -> None:
        """Save what is new there; with ``last`` say why it can not be saved."""
        fault = self._take()
        if fault and last:
            self._attempt.log.remark(f"the checkpoint is not kept: {fault}")

    def remove(self) -> None:
        """It is not needed any more."""
        self.path.unlink(missing_ok=True)

    def _take(self) -> str:
        """Save it, if it has changed; gives what is wrong with it."""
        try:
            # Whatever the command put there instead of a file must not hold up or mislead the worker.
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return ""
        except OSError as error:
            return f"TIDEWHEEL_CHECKPOINT cannot be read: {error.strerror}"
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                return "TIDEWHEEL_CHECKPOINT is no regular file any more"
            seen = _state(status)
            if seen == self._seen or not status.st_size:
                return ""
            if status.st_size > CHECKPOINT_BYTES_MAX:
                return f"it has {status.st_size} bytes, and may have {CHECKPOINT_BYTES_MAX}"
            data = file.read(CHECKPOINT_BYTES_MAX + 1)
        try:
            msgspec.json.decode(data)
            text = msgspec.json.format(data, indent=-1).decode()
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            return f"the content of TIDEWHEEL_CHECKPOINT is not JSON: {error}"
        self._seen = seen
        self._attempt.save(text)
        return ""


def _state(status: os.stat_result) -> tuple[int, int, int]:
    """What changes when the file does."""
    return (status.st_ino, status.st_size, status.st_mtime_ns)
