"""A file that one process on this host holds; the system lets it go when the process ends, however it ends."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import IO


class Held(Exception):
    """Another process holds the file; the message is its pid, as far as it has said so."""


def hold(path: Path) -> IO[str]:
    """Hold the file until this process ends or closes what is given, and write its pid there. Raises ``Held``."""
    file = path.open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.seek(0)
        holder = file.read().strip() or "unknown"
        file.close()
        raise Held(holder) from None
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    return file
