"""A ``ConditionalStore`` on what fsspec reaches, where that can be had honestly.

fsspec has one conditional write: ``pipe_file(mode="create")``, which must fail if the file exists. Its general form
looks first and writes then, which fences nobody; only some file systems do better. So the ones that do are named here,
the others are refused, and what a server promises is tried out before it is relied upon.

A key is a directory of numbered versions, the highest is the value, and putting on condition of version *n* is
creating *n* + 1. No lock is held at any time, so a process that is stopped keeps nobody waiting. Old versions stay:
without them an old writer could create a number anew.
"""

from __future__ import annotations

import os
import re
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from tidewheel.effects.store import CannotFence, Stored

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

#: By protocol: how the server itself is asked to create and never to replace.
REMOTE = {
    "s3": "If-None-Match (s3fs)",
    "gs": "ifGenerationMatch=0 (gcsfs)",
    "abfs": "If-None-Match (adlfs)",
}
_VERSION = re.compile(r"\d{10}")
#: S3's answer when two creations of one object meet: one of them may still fail, look again.
_CONFLICT = "ConditionalRequestConflict"
#: fsspec's memory looks first and writes then; all of it is in this process, so a lock makes that one step.
_memory = threading.Lock()


class FsspecStore:
    """Values under ``url``: a directory on a disk (also without ``file://``), ``s3://``, ``gs://``, ``abfs://`` or ``memory://``.

    ``options`` go to the file system (credentials, endpoints). Raises ``CannotFence`` for any other kind.
    """

    def __init__(self, url: str, **options: object) -> None:
        try:
            from fsspec.core import url_to_fs
        except ImportError as error:
            raise CannotFence("fsspec is not installed; run `pip install 'tidewheel[effects]'`") from error
        filesystem, root = url_to_fs(url, use_listings_cache=False, skip_instance_cache=True, **options)
        names = [filesystem.protocol] if isinstance(filesystem.protocol, str) else list(filesystem.protocol)
        kinds = [name for name in ("file", "memory", *REMOTE) if name in names]
        if not kinds:
            raise CannotFence(
                f"{url}: fsspec's file system for {names[0]} has no atomic way to create a file only if it is not "
                f"there, so attempts cannot be fenced on it; use a local directory, {', '.join(REMOTE)}, or Postgres "
                "(tidewheel.effects.postgres), or write a ConditionalStore of your own"
            )
        self._filesystem: AbstractFileSystem = filesystem
        self._kind = kinds[0]
        self._root: str = root.rstrip("/")
        self._url = url
        self._tried = self._kind not in REMOTE

    def get(self, key: str) -> Stored | None:
        """The newest value; None: there is none."""
        newest = self._newest(key)
        if newest == 0:
            return None
        return Stored(bytes(self._filesystem.cat_file(self._path(key, newest))), str(newest))

    def put_if(self, key: str, data: bytes, version: str | None) -> bool:
        """Put if the key still is at ``version`` (None: still has no value). Raises ``CannotFence``."""
        if not self._tried:
            self._try_out()
        return self._create(self._path(key, int(version or 0) + 1), data)

    def _newest(self, key: str) -> int:
        directory = f"{self._root}/{key}"
        try:
            found = self._filesystem.ls(directory, detail=False)
        except FileNotFoundError:
            return 0
        names = (path.rstrip("/").rpartition("/")[2] for path in found)
        return max((int(name) for name in names if _VERSION.fullmatch(name)), default=0)

    def _path(self, key: str, version: int) -> str:
        return f"{self._root}/{key}/{version:010d}"

    def _create(self, path: str, data: bytes) -> bool:
        match self._kind:
            case "file":
                return _create_locally(Path(path), data)
            case "memory":
                with _memory:
                    return self._ask_to_create(path, data)
            case _:
                return self._ask_to_create(path, data)

    def _ask_to_create(self, path: str, data: bytes) -> bool:
        try:
            self._filesystem.pipe_file(path, data, mode="create")
        except FileExistsError:
            return False
        except OSError as error:
            if _CONFLICT in str(getattr(error.__cause__, "response", "")):
                return False
            raise
        return True

    def _try_out(self) -> None:
        """See that the server refuses: some that speak S3 take no notice of the condition, nor do old clients."""
        path = f"{self._root}/.tidewheel-create-only"
        if self._create(path, b"1") and self._create(path, b"2"):
            raise CannotFence(
                f"{self._url}: an object was overwritten although it was only to be created, by {REMOTE[self._kind]}: "
                "the server or an old version of the client ignores the condition, so attempts cannot be fenced there"
            )
        self._tried = True


def _create_locally(path: Path, data: bytes) -> bool:
    """Create a file with all its content at once, or not: a link to a finished file fails if the name is taken."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, draft = tempfile.mkstemp(prefix=".draft-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        try:
            os.link(draft, path)
        except FileExistsError:
            return False
        except OSError as error:
            raise CannotFence(
                f"{path.parent}: this file system has no hard links to create files by: {error}"
            ) from error
    finally:
        Path(draft).unlink(missing_ok=True)
    _keep(path.parent)
    return True


def _keep(directory: Path) -> None:
    """See that the names in a directory outlast a power cut."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
