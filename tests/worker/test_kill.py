"""A worker process that dies takes its tasks with it."""

from __future__ import annotations

import ast
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidewheel.worker
import tidewheel_services.worker
from tests.worker.conftest import wait_until, written
from tests.worker.test_shell import alive

PIDS = ("shell.self", "shell.child", "python.self", "python.child")


@pytest.fixture
def victim(project: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).parent / "victim.py"), str(project)], stdout=subprocess.PIPE, text=True
    )
    wait_until(lambda: written(*(project / name for name in PIDS)), "all processes are up", 20)
    assert all(alive(project / name) for name in PIDS)
    yield process
    process.kill()
    process.wait()


def test_killed_hard_it_leaves_nothing_running(victim: subprocess.Popen[str], project: Path) -> None:
    victim.kill()
    victim.wait()
    wait_until(lambda: not any(alive(project / name) for name in PIDS), "all are gone", 3)


def test_told_to_end_it_gives_up_what_runs_and_ends(victim: subprocess.Popen[str], project: Path) -> None:
    victim.send_signal(signal.SIGTERM)
    said, _ = victim.communicate(timeout=15)
    assert victim.returncode == 0
    assert said.count("ReportFailure worker_lost") == 2
    assert not any(alive(project / name) for name in PIDS)


@pytest.mark.parametrize("package", [tidewheel.worker, tidewheel_services.worker])
def test_nothing_forks_a_process_with_a_log_client_in_it(package: object) -> None:
    """Clients of the log do not survive a fork: tasks start by exec, from a process that has no client."""
    for path in Path(package.__file__).parent.glob("*.py"):  # type: ignore[attr-defined]
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute):
                assert node.attr not in ("fork", "forkpty"), path
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [name.name for name in node.names]
                assert not any(name.split(".")[0] == "multiprocessing" for name in names), path
            if isinstance(node, ast.keyword) and node.arg == "preexec_fn":
                assert path.name == "supervisor_main.py", path
    supervisor = Path(tidewheel_services.worker.__file__).parent / "supervisor_main.py"  # type: ignore[type-var]
    assert "tidewheel.log" not in supervisor.read_text()
