"""The processes of a small installation, and what they cost by the kernel's own accounts (``/proc``)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_CLI = (sys.executable, "-c", "from tidewheel_services.cli import main; main()")


@dataclass(frozen=True, slots=True)
class Process:
    """One process of the installation, its output in ``log``."""

    name: str
    popen: subprocess.Popen[bytes]
    log: Path

    def cpu_s(self) -> float:
        """CPU seconds (user and system) it and its ended and living children have used."""
        return sum(_cpu_s(pid) for pid in [self.popen.pid, *_descendants(self.popen.pid)])

    def rss_mb(self) -> float:
        """Resident memory, in MiB."""
        return self._memory_mb("VmRSS:")

    def peak_mb(self) -> float:
        """The most it ever was, in MiB."""
        return self._memory_mb("VmHWM:")

    def _memory_mb(self, which: str) -> float:
        for line in Path(f"/proc/{self.popen.pid}/status").read_text(encoding="utf-8").splitlines():
            if line.startswith(which):
                return int(line.split()[1]) / 1024
        return 0.0

    def stop(self) -> None:
        """Ask it to end, and see that it does."""
        self.popen.send_signal(signal.SIGTERM)
        try:
            self.popen.wait(20)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()


def start(name: str, arguments: tuple[str, ...], environment: Mapping[str, str], directory: Path) -> Process:
    """Start ``tidewheel arguments…``, or another Python program if they begin with ``-m``."""
    command = (sys.executable, *arguments) if arguments[0] == "-m" else (*_CLI, *arguments)
    log = directory / f"{name}.log"
    with log.open("wb") as output:
        popen = subprocess.Popen(
            command, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    return Process(name, popen, log)


def wait_for(process: Process, text: str, timeout_s: float = 60.0) -> float:
    """Wait until ``text`` appears in what the process writes; gives the seconds it took."""
    begun = time.monotonic()
    while text not in process.log.read_text(encoding="utf-8", errors="replace"):
        if process.popen.poll() is not None or time.monotonic() - begun > timeout_s:
            tail = process.log.read_text(encoding="utf-8", errors="replace")[-2_000:]
            raise RuntimeError(f"{process.name} did not say {text!r} within {timeout_s:.0f} s:\n{tail}")
        time.sleep(0.02)
    return time.monotonic() - begun


def cpu_of(pid: int) -> float:
    """CPU seconds of a process that is not ours to start (the broker, Postgres), with its living children."""
    return sum(_cpu_s(each) for each in [pid, *_descendants(pid)])


def _cpu_s(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(int(field) for field in fields[11:15]) / _TICKS


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()
    except (FileNotFoundError, ProcessLookupError):
        return found
    for child in children:
        found += [int(child), *_descendants(int(child))]
    return found
