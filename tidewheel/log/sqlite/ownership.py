"""Only one process at a time owns shards of a SQLite log.

The right is a POSIX lock on a file beside the log: the system drops it with the process, however that ends, so a
``tidewheel dev`` killed by ``kill -9`` starts again at once. The term in the log, raised by each new owner and checked
in every commit, is the fence behind it, should the lock ever fail (a deleted lock file, some network file systems).
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from tidewheel.log.interface import LogUnavailable

#: A predecessor that is just ending may take a moment.
_PATIENCE_S = 2.0


class OwnershipLock:
    """The lock of one process on one log."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(path.name + ".owner")
        self._file = -1

    def acquire(self) -> None:
        """Take the lock, or raise naming who has it."""
        file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() > deadline:
                    holder = os.pread(file, 32, 0).decode("ascii", "replace").strip() or "unknown"
                    os.close(file)
                    raise LogUnavailable(
                        f"another scheduler (process {holder}) runs on this log ({self._path}): "
                        "stop it first, or give each its own file; several schedulers need Kafka"
                    ) from None
                time.sleep(0.02)
        os.ftruncate(file, 0)
        os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
        self._file = file

    def holder(self) -> str:
        """Which other process has the lock now; nothing if none. Not while this process has it."""
        assert self._file < 0, "closing any handle of a file drops this process's own lock on it"
        try:
            file = os.open(self._path, os.O_RDWR)
        except FileNotFoundError:
            return ""
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return f"process {os.pread(file, 32, 0).decode('ascii', 'replace').strip() or 'unknown'}"
        finally:
            os.close(file)
        return ""

    def release(self) -> None:
        """Let the next one in."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
