"""All of Tidewheel in this process: an SQLite log, an embedded Postgres, and a thread for each service.

One process, so that `kill -9` of it ends everything at once, tasks included (their supervisor watches it), and so that
a commit wakes the next reader without a poll in between. Tasks run in processes of their own; these threads only wait
and write, so the interpreter's lock is no bound at this size.
"""

from __future__ import annotations

import contextlib
import importlib
import socket
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO
from urllib.parse import quote

import msgspec
import structlog

from tidewheel.log.interface import Log, LogError
from tidewheel.log.opening import open_log
from tidewheel_services.api.main import CannotServe, listen
from tidewheel_services.cli.faults import explain
from tidewheel_services.config import Settings
from tidewheel_services.embedded_postgres import EmbeddedPostgres, PostgresUnavailable
from tidewheel_services.lock_file import Held, hold

#: Few enough to fold at once, enough that DAGs lie apart as they do on Kafka.
PARTITIONS = 4
NAME = "dev"
#: Shorter than on a cluster: no network is in between, and what was killed should run again soon.
LEASE_MS = 10_000
READY_S = 30.0
#: How often Postgres is looked after; while it cannot be started, growing to the second number.
POSTGRES_LOOK_S = (1.0, 5.0)
STOP_S = 20.0
#: What a stop leaves running tasks; after it they are handed back, and run again at the next start.
DRAIN_S = 5.0

#: What the parts' threads import. Threads that import at one time what imports each other can deadlock, which Python
#: ends with a fault in one of them; so all of it is there before the first one starts.
PARTS = (
    "tidewheel.log.sqlite.feed",
    "tidewheel_projections.projector",
    "tidewheel_services.api.app",
    "tidewheel_services.listener.main",
    "tidewheel_services.notifier.notifier",
    "tidewheel_services.notifier.targets",
    "tidewheel_services.scheduler.main",
    "tidewheel_services.waiter.main",
    "tidewheel_services.worker.main",
)

_log = structlog.get_logger("tidewheel.standalone")


class CannotRun(Exception):
    """It cannot be started here; the message says why and what to do."""


class Engine:
    """The services over one state directory. ``start`` it, watch ``failed``, ``stop`` it."""

    def __init__(self, state: Path, project: Path, *, port: int, slots: int, throwaway: bool = False) -> None:
        self.state = state
        self.failed = threading.Event()
        #: What failed first, and of what.
        self.why = ""
        self._project = project
        self._port = port
        self._slots = slots
        self._postgres = EmbeddedPostgres(state / "postgres", throwaway=throwaway)
        self._stop = threading.Event()
        self._stop_last = threading.Event()
        self._threads: list[threading.Thread] = []
        self._lock: IO[str] | None = None
        self._log: Log | None = None
        self._pools: set[str] = set()
        self._workers = 0
        self._up = threading.Event()
        log = f"sqlite://{quote(str(state / 'log.db'))}?partitions={PARTITIONS}"
        self._settings = msgspec.structs.replace(Settings.from_environment(), log=log)

    @property
    def settings(self) -> Settings:
        """Where everything is, once started."""
        return self._settings

    def start(self) -> None:
        """Start everything and wait until the API answers. Raises ``CannotRun``."""
        try:
            self.state.mkdir(parents=True, exist_ok=True)
            self._lock = _locked(self.state / "dev.lock")
        except OSError as error:
            reason = f"{error.filename}: {error.strerror}"
            told = (
                f"the state of the engine cannot be kept in {self.state} ({reason}); it needs a directory to write to"
            )
            raise CannotRun(told) from error
        try:
            # First, since a port in use should be told before anything slow is started.
            self._start(listen("127.0.0.1", self._port))
        except (CannotServe, PostgresUnavailable, LogError) as error:
            self.stop()
            raise CannotRun(str(error)) from error
        except BaseException:
            self.stop()
            raise

    def serve_pools(self, names: Iterable[str]) -> None:
        """See that each of these pools has a worker."""
        fresh = set(names) - self._pools
        if fresh and not self._stop.is_set():
            self._pools |= fresh
            pools = dict.fromkeys(sorted(fresh), self._slots)
            # Named alike at each start, so that a worker that was killed is known again and not waited for.
            self._workers += 1
            name = f"{NAME}-{self._workers}"
            self._run("worker", lambda: self._work(name, pools))

    def stop(self) -> None:
        """End everything in order: what decides last, so that the last reports are still taken in."""
        self._stop.set()
        for thread in self._threads:
            if thread.name != "scheduler":
                thread.join(STOP_S)
        self._stop_last.set()
        for thread in self._threads:
            thread.join(STOP_S)
        if self._log is not None:
            self._log.close()
            self._log = None
        self._postgres.stop()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _start(self, listener: socket.socket) -> None:
        with contextlib.ExitStack() as undo:
            undo.callback(listener.close)
            self._open()
            for module in PARTS:
                importlib.import_module(module)
            undo.pop_all()
        self._run("scheduler", self._schedule)
        self._run("projector", self._project_events)
        self._run("listener", self._listen)
        self._run("notifier", self._notify)
        self._run("waiter", self._wait_for_answers)
        self._run("postgres", self._keep_postgres)
        self._run("api", lambda: self._serve(listener))
        self.serve_pools({"default"})
        if not self._wait_up():
            raise CannotRun(f"the engine did not come up: {self.why or f'no answer within {READY_S:g} s'}")

    def _open(self) -> None:
        dsn = self._postgres.start()
        self._settings = msgspec.structs.replace(self._settings, postgres=dsn)
        self._log = open_log(self._settings.log)
        self._log.create_topics()
        self._begin_notifying()

    def _begin_notifying(self) -> None:
        """From the first run on, though the notifier itself is started last."""
        import psycopg

        from tidewheel_services.notifier.notifier import begin

        assert self._log is not None
        with contextlib.suppress(psycopg.Error):  # nothing waits for it: it begins when it can
            begin(self._log, self._settings.postgres)

    def _wait_up(self) -> bool:
        for _ in range(int(READY_S / 0.05)):
            if self._up.wait(0.05):
                return True
            if self.failed.is_set():
                return False
        return False

    def _keep_postgres(self) -> None:
        """Runs go on without Postgres, but nobody else would start this one again."""
        pause = POSTGRES_LOOK_S[0]
        while not self._stop.wait(pause):
            try:
                why = self._postgres.restart_if_ended()
            except (PostgresUnavailable, OSError) as error:
                pause = min(pause * 2, POSTGRES_LOOK_S[1])
                _log.error("Postgres cannot be started; trying again", why=str(error), in_s=pause)
            else:
                pause = POSTGRES_LOOK_S[0]
                if why:
                    _log.error("Postgres ended by itself and was started again", why=why)

    def _schedule(self) -> None:
        from tidewheel_services.scheduler.main import own_shards

        assert self._log is not None
        own_shards(self._log, NAME, self._stop_last, self._settings, lease_ms=LEASE_MS)

    def _project_events(self) -> None:
        from tidewheel_projections.projector import Projector

        assert self._log is not None
        Projector(self._log, self._settings.postgres, NAME).run(self._stop)

    def _listen(self) -> None:
        from tidewheel_services.listener.main import listen_on

        assert self._log is not None
        listen_on(self._log, self._settings, NAME, self._stop)

    def _wait_for_answers(self) -> None:
        from tidewheel_services.waiter.main import wait_on

        assert self._log is not None
        while not self._up.wait(0.2):
            if self._stop.is_set():
                return
        wait_on(self._log, self._settings, NAME, self._stop)

    def _notify(self) -> None:
        from tidewheel_services.notifier.notifier import Notifier
        from tidewheel_services.notifier.targets import configured

        assert self._log is not None
        while not self._up.wait(0.2):
            if self._stop.is_set():
                return
        public_url = self._settings.public_url or self._settings.api
        Notifier(self._log, self._settings.postgres, configured(), public_url).run(self._stop)

    def _serve(self, listener: socket.socket) -> None:
        from tidewheel_services.api.app import create_app
        from tidewheel_services.api.main import serve_app

        def on_ready(url: str) -> None:
            self._settings = msgspec.structs.replace(self._settings, api=url)
            self._up.set()

        assert self._log is not None
        serve_app(
            create_app(self._log, self._settings.postgres, instance=f"api-{NAME}"), listener, self._stop, on_ready
        )

    def _work(self, name: str, pools: dict[str, int]) -> None:
        from tidewheel_services.worker.main import serve

        assert self._log is not None
        serve(self._log, pools, self._project, stop_event=self._stop, name=name, drain_s=DRAIN_S)

    def _run(self, name: str, body: Callable[[], None]) -> None:
        def guarded() -> None:
            try:
                body()
            except BaseException as error:
                told = explain(error)
                if told is None:
                    _log.exception("a part of the engine failed by a fault of ours", part=name)
                self.why = self.why or f"a part of the engine, the {name}, failed: {told or repr(error)}"
                self.failed.set()

        thread = threading.Thread(target=guarded, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()


def _locked(path: Path) -> IO[str]:
    """Held until this process ends, however it ends."""
    try:
        return hold(path)
    except Held as holder:
        raise CannotRun(
            f"another `tidewheel dev` (pid {holder}) runs on {path.parent.parent}; stop it, or use what it serves"
        ) from None
