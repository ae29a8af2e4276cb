"""Starting Tidewheel's processes as a user does, and talking to them."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

PROGRAM = (sys.executable, "-m", "tidewheel_services.cli")
#: What the tests' surroundings say must not leak into the processes.
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("TIDEWHEEL_")}


def tidewheel(*arguments: str | Path, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run one command to its end."""
    return subprocess.run(
        [*PROGRAM, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**CLEAN, **(env or {})},
    )


def document(*arguments: str | Path, env: Mapping[str, str] | None = None) -> Any:
    """What a command that must succeed writes with ``--json``."""
    done = tidewheel(*arguments, "--json", env=env)
    assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
    return json.loads(done.stdout)


class Process:
    """A long-running command; its output goes to a file. Ended, if need be by force, at the end of the context."""

    def __init__(
        self,
        *arguments: str | Path,
        output: Path,
        env: Mapping[str, str] | None = None,
        program: tuple[str, ...] = PROGRAM,
    ) -> None:
        self.output = output
        with output.open("ab") as file:
            self._process = subprocess.Popen(
                [*program, *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
                env={**CLEAN, "PYTHONUNBUFFERED": "1", **(env or {})},
            )

    @property
    def said(self) -> str:
        """All that it wrote."""
        return self.output.read_text(errors="replace")

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def wait_for(self, text: str, timeout_s: float = 40) -> str:
        """Until it has written ``text``."""

        def look() -> bool:
            assert self.alive or text in self.said, f"ended with {self._process.returncode}: {self.said}"
            return text in self.said

        eventually(look, timeout_s, f"{text!r} in:\n{self.said}")
        return self.said

    def died(self) -> bool:
        """Whether it was killed; anything else that ended it is a fault."""
        ended = self._process.poll()
        assert ended in (None, -signal.SIGKILL), f"ended with {ended}: {self.said}"
        return ended is not None

    def kill(self) -> None:
        """As ``kill -9`` does."""
        self._process.kill()
        self._process.wait()

    def stop(self, number: int = signal.SIGTERM, timeout_s: float = 30) -> int:
        """Ask it to end; its exit code."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)
        return self._process.wait(timeout_s)

    def __enter__(self) -> Process:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            self.stop()
        except subprocess.TimeoutExpired:
            self.kill()
            raise


def eventually(probe: Callable[[], Any], timeout_s: float = 30, what: str = "it") -> Any:
    """What ``probe`` gives once it gives something true."""
    deadline = time.monotonic() + timeout_s
    while not (found := probe()):
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {what}"
        time.sleep(0.05)
    return found


@contextlib.contextmanager
def dev(
    directory: Path, *arguments: str, env: Mapping[str, str] | None = None
) -> Iterator[tuple[Process, dict[str, str]]]:
    """`tidewheel dev` on a free port, up; and the environment in which commands find it."""
    output = directory.parent / f"{directory.name}.{time.monotonic_ns()}.out"
    with Process("dev", directory, "--port", "0", *arguments, output=output, env=env) as process:
        said = process.wait_for("API at ")
        yield process, {"TIDEWHEEL_API": said.split("API at ")[1].split()[0]}


def settings_of(directory: Path) -> dict[str, str]:
    """What `source .tidewheel/environment` sets, beside a `tidewheel dev` on the directory."""
    lines = (directory / ".tidewheel" / "environment").read_text().splitlines()
    pairs = (line.removeprefix("export ").split("=", 1) for line in lines)
    return {name: shlex.split(value)[0] for name, value in pairs}


@contextlib.contextmanager
def standing_still(pid: int) -> Iterator[None]:
    """The process and all below it are stopped, as by a machine that hangs: connections stay, nothing answers."""
    stopped = _family(pid)
    for each in stopped:
        os.kill(each, signal.SIGSTOP)
    try:
        yield
    finally:
        for each in stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGCONT)


def _family(pid: int) -> list[int]:
    found = [pid]
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += _family(int(child))
    return found
