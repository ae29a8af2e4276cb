"""The processes of the installation: started, killed, stopped and started again, each under its own name."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.e2e.running import CLEAN, eventually

_STOP_S = 20.0


class Member:
    """One process. ``command`` are arguments for Python; its output is added to one file over all its lives."""

    def __init__(self, name: str, command: tuple[str, ...], env: Mapping[str, str], directory: Path) -> None:
        self.name = name
        self._command = (sys.executable, *command)
        self._env = {**CLEAN, "PYTHONUNBUFFERED": "1", **env}
        self.output = directory / f"{name}.log"
        self._popen: subprocess.Popen[bytes] | None = None
        self.stopped = False
        #: Exit codes of lives that ended without being told to.
        self.own_ends: list[int] = []
        self._seen = 0

    @property
    def running(self) -> bool:
        """Whether it lives and is not stopped."""
        return self._popen is not None and self._popen.poll() is None and not self.stopped

    def start(self) -> None:
        """Start it, or start it again."""
        self._seen = self.output.stat().st_size if self.output.exists() else 0
        with self.output.open("ab") as file:
            self._popen = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
                env=self._env,
            )
        self.stopped = False

    def start_if_ended(self) -> bool:
        """What a supervisor such as systemd does. True if it had ended by itself."""
        if self._popen is None or self._popen.poll() is None:
            return False
        self.own_ends.append(self._popen.returncode)
        self.start()
        return True

    def wait_until_up(self, text: str, timeout_s: float = 60) -> None:
        """Until this life has written ``text``."""

        def look() -> bool:
            assert self._popen is not None
            assert self._popen.poll() is None or text in self.said(), f"{self.name} ended:\n{self.said()}"
            return text in self.said()

        eventually(look, timeout_s, f"{text!r} of {self.name}")

    def said(self) -> str:
        """What this life has written."""
        with self.output.open("rb") as file:
            file.seek(self._seen)
            return file.read().decode(errors="replace")

    def kill(self) -> None:
        """As ``kill -9`` does."""
        if self._popen is not None:
            self._popen.kill()
            self._popen.wait()
            self._popen = None
            self.stopped = False

    def pause(self) -> None:
        """SIGSTOP."""
        self._signal(signal.SIGSTOP)
        self.stopped = True

    def resume(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)
        self.stopped = False

    def stop(self) -> None:
        """In order, or by force if it takes too long."""
        popen = self._popen
        if popen is None:
            return
        self.resume()
        self._signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            popen.wait(_STOP_S)
        self.kill()

    def _signal(self, number: int) -> None:
        if self._popen is not None and self._popen.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._popen.pid, number)
