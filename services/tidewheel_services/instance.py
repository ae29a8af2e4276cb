"""Names of processes across restarts: two processes of one name would push each other out for ever.

On one host a name is held by a file lock, which goes with its process however that ends: a restart gets its old name.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: Processes of one kind on one host and log.
_NAMES_MAX = 1000


class NameTaken(Exception):
    """A living process on this host has the name; the message says what to do."""


@contextmanager
def hold_name(kind: str, log_url: str, wanted: str, fallback: str) -> Iterator[str]:
    """Hold ``wanted``, or, if it is empty, the first free of ``fallback``, ``fallback-2`` …. Raises ``NameTaken``."""
    places = [wanted] if wanted else [fallback, *(f"{fallback}-{number}" for number in range(2, _NAMES_MAX))]
    for name in places:
        held = _lock(kind, log_url, name)
        if held is not None:
            try:
                yield name
            finally:
                os.close(held)
            return
    raise NameTaken(
        f"a {kind} named '{places[0]}' already runs on this host and log; stop it, or give this one another name "
        "(--name or TIDEWHEEL_INSTANCE)"
    )


def _lock(kind: str, log_url: str, name: str) -> int | None:
    directory = Path(tempfile.gettempdir()) / f"tidewheel-{os.getuid()}"
    directory.mkdir(mode=0o700, exist_ok=True)
    key = hashlib.blake2b(f"{log_url}\n{name}".encode(), digest_size=8).hexdigest()
    handle = os.open(directory / f"{kind}-{key}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle
