"""The installation under fire: a real broker and Postgres, each behind a proxy, and every process of Tidewheel."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import httpx
from confluent_kafka.admin import AdminClient
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.chaos.journal import JournalReader
from tests.chaos.landing import Landing
from tests.chaos.load import TARGET, Load, dags, write_dags
from tests.chaos.members import Member
from tests.e2e.running import document, eventually
from tests.notifier.beginning import has_begun
from tests.notifier.receiver import receiving
from tidewheel.log.interface import TRIGGERS
from tidewheel.log.opening import open_log
from tidewheel.testing.kafka_broker import KafkaBroker, free_port
from tidewheel.testing.kafka_cluster import replicated, start_all
from tidewheel.testing.kafka_frames import Request
from tidewheel.testing.tcp_proxy import Hold, TcpProxy
from tidewheel_services.embedded_postgres import EmbeddedPostgres

PREFIX = "chaos."
GROUP = PREFIX + "schedulers"
PARTITIONS = 4
SCHEDULERS = ("s1", "s2")
WORKERS = ("w1", "w2")
LISTENERS = ("l1", "l2")
#: One record of the user's own for so many other requests.
LANDING_SHARE = 1 / 6

_ROOT = Path(__file__).parents[2]
_TIDEWHEEL = ("-m", "tidewheel_services.cli")
_PYTHONPATH = os.pathsep.join(str(_ROOT / part) for part in ("", "services", "projections"))


class Site:
    """Everything that runs, and how to reach it. Use it as a context."""

    def __init__(self, home: Path, *, rate: float, brokers: int = 1, short_lived: bool = False) -> None:
        self.home = home
        self.ledger = home / "ledger"
        self.members: dict[str, Member] = {}
        self._later: list[tuple[float, Callable[[], object]]] = []
        self._rate = rate
        self._size = brokers
        self._short_lived = short_lived
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Site:
        with contextlib.ExitStack() as stack:
            self._start_servers(stack)
            self._start_members(stack)
            self._start_load(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def shards(self) -> frozenset[int]:
        """All of them."""
        return frozenset(range(PARTITIONS))

    def shards_of(self, scheduler: str) -> frozenset[int]:
        """What the group has given to this scheduler."""
        admin = AdminClient({"bootstrap.servers": self.direct, "log_level": 0})
        members = admin.describe_consumer_groups([GROUP])[GROUP].result(timeout=10).members
        return frozenset(
            partition.partition
            for member in members
            if member.group_instance_id == PREFIX + scheduler
            for partition in member.assignment.topic_partitions
        )

    def owners(self, timeout_s: float = 10.0) -> list[str]:
        """The running schedulers that own shards; all of them, if that comes about in time."""
        deadline = time.monotonic() + timeout_s
        while True:
            running = self.running(SCHEDULERS)
            found = [name for name in running if self.shards_of(name)]
            if found == running or time.monotonic() > deadline:
                return found or running
            time.sleep(0.2)

    @contextlib.contextmanager
    def held(self, wanted: Callable[[Request], bool], *, answer: bool = False) -> Iterator[Hold]:
        """A hold on the broker's proxy, forgotten in the end."""
        hold = self.kafka.hold(wanted, answer=answer)
        try:
            yield hold
        finally:
            self.kafka.forget(hold)

    def restart_ended(self) -> list[str]:
        """Start again what ended by itself, and say what."""
        return [member.name for member in self.members.values() if member.start_if_ended()]

    def later(self, seconds: float, action: Callable[[], object]) -> None:
        """Do this at the first cycle that begins after so long."""
        self._later.append((time.monotonic() + seconds, action))

    def do_what_is_due(self, *, all_of_it: bool = False) -> None:
        """Do what was put off: what is due by now, or in its time ``all_of_it``."""
        if all_of_it and self._later:
            time.sleep(max(0.0, max(when for when, _ in self._later) - time.monotonic()))
        now = time.monotonic()
        due = [action for when, action in self._later if when <= now]
        self._later = [(when, action) for when, action in self._later if when > now]
        for action in due:
            action()

    def running(self, names: Sequence[str]) -> list[str]:
        """Those of them that live and are not stopped."""
        return [name for name in names if self.members[name].running]

    def restore(self) -> None:
        """Everything runs and every connection works."""
        self.do_what_is_due(all_of_it=True)
        self.kafka.delay_s = self.postgres_proxy.delay_s = 0.0
        self.kafka.thaw()
        self.postgres_proxy.thaw()
        for broker in self.brokers:
            if not broker.is_running():
                broker.start()
        for member in self.members.values():
            if member.stopped:
                member.resume()
            elif not member.running:
                member.kill()
                member.start()

    def kill_postgres(self) -> None:
        """As ``kill -9`` of the whole server does: its children follow their parent."""
        pid = int((self._postgres_data / "postmaster.pid").read_text().split("\n", 1)[0])
        os.kill(pid, signal.SIGKILL)
        self.postgres.stop()

    def start_postgres(self) -> None:
        """Start it again on its data; its socket keeps its place."""
        self.postgres.start()

    def member(self, name: str, command: tuple[str, ...], more: Mapping[str, str] | None = None) -> Member:
        """A process of the installation, not started, with a client id of its own and the proxies in its settings."""
        env = {
            **(more or {}),
            "TIDEWHEEL_LOG": f"{self.url}&client.id={name}",
            "TIDEWHEEL_POSTGRES": self.dsn,
            "TIDEWHEEL_INSTANCE": name,
            "PYTHONPATH": _PYTHONPATH,
            "CHAOS_LEDGER": str(self.ledger),
            "CHAOS_WORKER": name,
        }
        return Member(name, command, env, self.home)

    def scheduler(self, name: str) -> Member:
        """A scheduler, not started."""
        return self.member(name, ("-m", "tests.chaos.scheduler_process"))

    def _start_servers(self, stack: contextlib.ExitStack) -> None:
        self.kafka = stack.enter_context(TcpProxy(kafka=True))
        ports = [self.kafka.listen() for _ in range(self._size)]
        if self._size == 1:
            place = self.home / "kafka"
            self.brokers = [KafkaBroker(data=place, short_lived=self._short_lived, advertised=ports[0])]
        else:
            self.brokers = replicated(self.home / "kafka", self._size, advertised=ports)
        for port, broker in zip(ports, self.brokers, strict=True):
            stack.callback(broker.stop)
            self.kafka.servers[port] = ("127.0.0.1", broker.proxied_port)
        start_all(self.brokers)
        self.direct = ",".join(broker.address for broker in self.brokers)
        proxied = ",".join(f"127.0.0.1:{port}" for port in ports)
        self.url, self.direct_url = (
            f"kafka://{servers}?prefix={PREFIX}&partitions={PARTITIONS}" for servers in (proxied, self.direct)
        )
        self._start_postgres(stack)
        self.log = open_log(self.direct_url)
        stack.callback(self.log.close)
        self.log.create_topics()

    def _start_postgres(self, stack: contextlib.ExitStack) -> None:
        # Flushed as in production: what is killed here must keep what it has acknowledged.
        self.postgres = stack.enter_context(EmbeddedPostgres(self.home / "postgres"))
        place = conninfo_to_dict(self.postgres.dsn)
        directory = Path(str(place["host"]))
        self._postgres_data = self.postgres.directory.resolve()
        self.postgres_proxy = stack.enter_context(TcpProxy(kafka=False))
        self.dsn = make_conninfo(
            "",
            host="127.0.0.1",
            port=self.postgres_proxy.listen(directory / ".s.PGSQL.5432"),
            user=place["user"],
            dbname=place["dbname"],
            sslmode="disable",
            gssencmode="disable",
            connect_timeout=5,
        )

    def _start_members(self, stack: contextlib.ExitStack) -> None:
        self.api = f"http://127.0.0.1:{free_port()}"
        worker = ("worker", "--pool", "default=8", "--pool", "other=8", "--project")
        project = str(Path(__file__).parent / "project")
        for name in SCHEDULERS:
            self.members[name] = self.scheduler(name)
        for name in WORKERS:
            self.members[name] = self.member(name, (*_TIDEWHEEL, *worker, project))
        for name in LISTENERS:
            self.members[name] = self.member(name, (*_TIDEWHEEL, "listener"))
        self.members["waiter"] = self.member("waiter", (*_TIDEWHEEL, "waiter"))
        self.target = stack.enter_context(receiving())
        told = {f"TIDEWHEEL_NOTIFY_{TARGET.upper()}": self.target.url()}
        self.members["notifier"] = self.member("notifier", (*_TIDEWHEEL, "notifier"), told)
        self.members["projector"] = self.member("projector", (*_TIDEWHEEL, "projector"))
        self.members["api"] = self.member("api", (*_TIDEWHEEL, "api", "--port", self.api.rpartition(":")[2]))
        for member in self.members.values():
            stack.callback(member.stop)
            member.start()
        for name in SCHEDULERS:
            self.members[name].wait_until_up("scheduler is up")
        self.members["api"].wait_until_up("api is up")
        eventually(lambda: httpx.get(f"{self.api}/ready").status_code == 200, 60, "the API to be ready")
        eventually(lambda: has_begun(self.dsn), 60, "the notifier to have begun")

    def _start_load(self, stack: contextlib.ExitStack) -> None:
        self.journal = JournalReader(self.log)
        self.journal.start()
        stack.callback(self.journal.stop)
        written = write_dags(self.home / "dags", PARTITIONS, self.api)
        env = {"TIDEWHEEL_API": self.api, "PYTHONPATH": _PYTHONPATH}
        assert len(document("deploy", self.home / "dags", env=env)) == written
        self.load = Load(self.api, self.direct, PREFIX + TRIGGERS, PARTITIONS, self._rate)
        self.load.start()
        fed, wait = (list(dags(PARTITIONS)[shape].values()) for shape in ("fed", "waits"))
        rate = self._rate * LANDING_SHARE
        self.landing = Landing(self.direct, PREFIX + TRIGGERS, fed, wait, rate=rate, replicas=self._size)
        self.landing.start()
        with self.journal.watch(self.shards) as watch:
            watch.begin()
            assert watch.done.wait(60), f"no task starts on shards {sorted(self.shards - watch.found.keys())}"
