"""A disk that can be full: a small file system of its own where mounting is allowed, else a limit on the process."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path


class Disk:
    """``path`` lies on it. ``full`` fills it for the process ``pid``; with ``real`` for everybody."""

    def __init__(self, path: Path, real: bool) -> None:
        self.path = path
        self.real = real

    @contextlib.contextmanager
    def full(self, pid: int) -> Iterator[None]:
        """Not a byte is left, until the block ends."""
        if not self.real:
            soft, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (1, hard))
            yield
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (soft, hard))
            return
        ballast = self.path / "ballast"
        self.fill(ballast)
        try:
            yield
        finally:
            ballast.unlink()

    @contextlib.contextmanager
    def read_only(self) -> Iterator[None]:
        """Nothing can be written, until the block ends."""
        if self.real:
            remount = ["mount", "-o", "remount,{}", str(self.path)]
            subprocess.run([part.format("ro") for part in remount], check=True)
            yield
            subprocess.run([part.format("rw") for part in remount], check=True)
            return
        below = [*self.path.rglob("*/"), self.path]
        for folder in below:
            folder.chmod(0o555)
        yield
        for folder in reversed(below):
            folder.chmod(0o755)

    @staticmethod
    def fill(ballast: Path) -> None:
        """Take what is left."""
        descriptor = os.open(ballast, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        with contextlib.suppress(OSError):
            while True:
                os.write(descriptor, bytes(65_536))
        os.close(descriptor)


@contextlib.contextmanager
def small_disk(megabytes: int) -> Iterator[Disk]:
    """A disk of this size. Not below pytest's directories, which Postgres' own user may not enter."""
    path = Path(tempfile.mkdtemp(prefix="tidewheel-disk-"))
    path.chmod(0o755)
    size = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=755", "tmpfs", str(path)]
    real = os.geteuid() == 0 and subprocess.run(size, capture_output=True, check=False).returncode == 0
    try:
        yield Disk(path, real)
    finally:
        if real:
            subprocess.run(["umount", "--lazy", str(path)], check=True)
        shutil.rmtree(path)
