"""The parts of `tidewheel dev`: one that fails ends the whole, and what it failed of is told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tidewheel.log.interface import LogMisconfigured
from tidewheel_services.standalone.engine import Engine


@pytest.mark.parametrize(
    ("fault", "why", "traces"),
    [
        (LogMisconfigured("there is no log"), "there is no log", 0),
        (KeyError("run"), "KeyError('run')", 1),
        (MemoryError(), "MemoryError()", 1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_part_that_fails_says_of_what(tmp_path: Path, fault: Exception, why: str, traces: int) -> None:
    """`a part of the engine failed: 'run'` was all that was left of a fault of ours."""

    def fail() -> None:
        raise fault

    engine = Engine(tmp_path, tmp_path, port=0, slots=1)
    with capture_logs() as lines:
        engine._run("waiter", fail)
        assert engine.failed.wait(5)
    assert engine.why == f"a part of the engine, the waiter, failed: {why}"
    assert [line["part"] for line in lines if line["log_level"] == "error" and line.get("exc_info")] == [
        "waiter"
    ] * traces


START = """
import sys, threading
from pathlib import Path
from tidewheel_services.standalone.engine import Engine

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("tidewheel") and threading.current_thread() is not threading.main_thread():
            print("late", threading.current_thread().name, name)

sys.meta_path.insert(0, Watch())
engine = Engine(Path(sys.argv[1]) / "state", Path(sys.argv[1]), port=0, slots=1, throwaway=True)
engine.start()
engine.stop()
print("started")
"""


def test_no_part_imports_while_others_do(tmp_path: Path) -> None:
    """Two threads that imported what imports each other: `deadlock detected by _ModuleLock`, and nothing started."""
    done = subprocess.run(
        [sys.executable, "-c", START, str(tmp_path)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0 and "started" in done.stdout, done.stderr
    assert not [line for line in done.stdout.splitlines() if line.startswith("late ")]
