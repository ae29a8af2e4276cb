"""A real Kafka broker for tests, demos and benchmarks: from the environment, from Docker, or from Maven's jars.

``open_broker`` takes the first that is there: an address in ``TIDEWHEEL_TEST_KAFKA``; a container, where Docker
answers; a process of our own (``KafkaBroker``). It listens on 127.0.0.1 only and dies with its starter.
"""

from __future__ import annotations

import base64
import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import cast

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tidewheel.testing.kafka_jars import KAFKA_VERSION, BrokerUnavailable, find_java, resolve_jars

ADDRESS_VARIABLE = "TIDEWHEEL_TEST_KAFKA"
_START_S_MAX = 60.0
_STOP_S_MAX = 20.0

#: What a broker for Tidewheel is set to, beyond its addresses.
BROKER_SETTINGS = {
    # Every test starts new groups; waiting for more members costs 3 s each.
    "group.initial.rebalance.delay.ms": "0",
    # A dead scheduler's open transaction holds up its shards' positions until this finds it; the default is 10 s.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    # A misspelt topic must be an error.
    "auto.create.topics.enable": "false",
    # One node, and few partitions of Kafka's own topics, so that it starts and stops fast.
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    # A killed broker may come back once its old session is over; the default is 9 s.
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "2000",
    # The default of 128 MiB is a quarter of our heap.
    "log.cleaner.dedupe.buffer.size": "8388608",
}

#: Beyond those, for one of three brokers: each may be lost without losing anything.
REPLICATED_SETTINGS = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
    "min.insync.replicas": "2",
    # A dead broker is out of the sync set within its session rather than in 30 s.
    "replica.lag.time.max.ms": "3000",
}

#: Runs the broker and kills it when our end of the pipe closes, however we die.
_SUPERVISE = 'trap "" INT; "$@" </dev/null >>"$BROKER_OUTPUT" 2>&1 & echo $!; read -r _; kill -9 $! 2>/dev/null; wait'


class KafkaBroker:
    """One node, broker and controller, run from Kafka's jars. ``data`` is kept if given, else removed at the end.

    A ``short_lived`` one compiles its code fast rather than well: measured, it starts on 2.8 s of CPU instead of 4.5 s
    and its first transactions take 8 ms instead of 27 ms, but after some thousands it is the slower one by half.

    ``advertised`` is the port of a proxy: who connects to ``proxied_port`` is told to stay on that one, while ``port``
    remains a way around it. ``quorum`` makes it one of several: the controllers' ports, by node number from 1.
    """

    def __init__(
        self,
        port: int = 0,
        data: Path | None = None,
        *,
        heap_mb: int = 512,
        short_lived: bool = False,
        advertised: int = 0,
        node: int = 1,
        quorum: Mapping[int, int] | None = None,
    ) -> None:
        self._node = node
        self._quorum = quorum
        self._short_lived = short_lived
        self._advertised = advertised
        self.port = port or free_port()
        #: Where a proxy connects to.
        self.proxied_port = free_port() if advertised else 0
        self._heap_mb = heap_mb
        self._keep = data is not None
        self._data = data
        self._supervisor: subprocess.Popen[str] | None = None
        self._pid = 0

    @property
    def address(self) -> str:
        """``host:port`` for clients."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> KafkaBroker:
        """Start and wait until it answers; a stopped or killed broker starts again on its old data and port."""
        self.launch()
        self.wait_until_up()
        return self

    def launch(self) -> None:
        """Start, and do not wait: of several, none answers before most are there."""
        java, jars = find_java(), resolve_jars()
        if _answers(self.port):
            raise BrokerUnavailable(f"port {self.port} is in use: stop what listens there or choose another port")
        data = self._data = self._data or Path(tempfile.mkdtemp(prefix="tidewheel-kafka-"))
        data.mkdir(parents=True, exist_ok=True)
        properties = self._write_properties(data)
        command = [java, f"-Xmx{self._heap_mb}m", "-XX:+UseSerialGC", "-Xshare:auto", "-cp", f"{jars}/*"]
        command.append(f"-Dlog4j2.configurationFile={jars / 'log4j2.properties'}")
        if self._short_lived:
            command.append("-XX:TieredStopAtLevel=1")
        if not (data / "log" / "meta.properties").exists():
            shutil.copytree(_formatted(command, jars), data / "log", dirs_exist_ok=True)
            if self._quorum:
                _name_node(data / "log" / "meta.properties", self._node)
        output = data / "broker.txt"
        self._supervisor = subprocess.Popen(
            ["/bin/sh", "-c", _SUPERVISE, "sh", *command, "kafka.Kafka", str(properties)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "BROKER_OUTPUT": str(output)},
        )
        assert self._supervisor.stdout is not None
        self._pid = int(self._supervisor.stdout.readline())

    def stop(self) -> None:
        """Shut down in order, and remove the data unless it is the caller's."""
        if self._supervisor is not None:
            self._signal(signal.SIGCONT)
            self._signal(signal.SIGTERM)
            deadline = time.monotonic() + _STOP_S_MAX
            while _is_alive(self._pid) and time.monotonic() < deadline:
                time.sleep(0.05)
        self.kill()
        if not self._keep and self._data is not None:
            shutil.rmtree(self._data, ignore_errors=True)
            self._data = None

    def kill(self) -> None:
        """End it as ``kill -9`` does; the data stay."""
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is not None:
            self._signal(signal.SIGKILL)
            assert supervisor.stdin is not None
            assert supervisor.stdout is not None
            supervisor.stdin.close()
            supervisor.wait()
            supervisor.stdout.close()

    def pause(self) -> None:
        """Freeze it: connections stay open and nothing answers."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a frozen broker go on."""
        self._signal(signal.SIGCONT)

    def is_running(self) -> bool:
        """Whether the process lives."""
        return self._supervisor is not None and _is_alive(self._pid)

    def __enter__(self) -> KafkaBroker:
        """Start."""
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Stop."""
        self.stop()

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, number)

    def _write_properties(self, data: Path) -> Path:
        quorum = self._quorum or {self._node: free_port()}
        settings = {
            "process.roles": "broker,controller",
            "node.id": str(self._node),
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{quorum[self._node]}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": ",".join(f"{node}@127.0.0.1:{port}" for node, port in quorum.items()),
            "log.dirs": str(data / "log"),
            **BROKER_SETTINGS,
            **(REPLICATED_SETTINGS if len(quorum) > 1 else {}),
        }
        if self._advertised:
            settings["listeners"] += f",PROXIED://127.0.0.1:{self.proxied_port}"
            settings["advertised.listeners"] += f",PROXIED://127.0.0.1:{self._advertised}"
            settings["listener.security.protocol.map"] = ",".join(
                f"{name}:PLAINTEXT" for name in ("PLAINTEXT", "CONTROLLER", "PROXIED")
            )
        path = data / "server.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return path

    def wait_until_up(self) -> None:
        """Until it answers. Raises ``BrokerUnavailable``."""
        assert self._data is not None
        output = self._data / "broker.txt"
        deadline = time.monotonic() + _START_S_MAX
        while not _answers(self.port) or not serves(self.address):
            if not _is_alive(self._pid) or time.monotonic() > deadline:
                tail = "\n".join(output.read_text(errors="replace").splitlines()[-8:])
                self.kill()
                raise BrokerUnavailable(f"Kafka {KAFKA_VERSION} did not come up on {self.address}:\n{tail}")
            time.sleep(0.05)


class KafkaContainer:
    """The same broker in a Docker container."""

    def __init__(self, port: int = 0) -> None:
        from testcontainers.core.container import DockerContainer

        self.port = port or free_port()
        settings = {
            "node.id": "1",
            "process.roles": "broker,controller",
            "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "controller.quorum.voters": "1@localhost:9093",
            **BROKER_SETTINGS,
        }
        self._container = DockerContainer(f"apache/kafka:{KAFKA_VERSION}")
        # docker-py takes an address to bind as well; testcontainers' own method would publish the port to the network.
        self._container.ports.update(cast("dict[str, int | None]", {"9092/tcp": ("127.0.0.1", self.port)}))
        for name, value in settings.items():
            self._container.with_env("KAFKA_" + name.replace(".", "_").upper(), value)
        self._started = False

    @property
    def address(self) -> str:
        """``host:port`` for clients."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> KafkaContainer:
        """Start, or start again after ``kill``."""
        if self._started:
            self._container.get_wrapped_container().start()
        else:
            self._container.start()
            self._started = True
        deadline = time.monotonic() + _START_S_MAX
        while not serves(self.address):
            if time.monotonic() > deadline:
                raise BrokerUnavailable(f"the Kafka container did not come up on {self.address}: see `docker logs`")
        return self

    def stop(self) -> None:
        """End and remove it."""
        self._container.stop()

    def kill(self) -> None:
        """End it as ``kill -9`` does; the data stay."""
        self._container.get_wrapped_container().kill()

    def pause(self) -> None:
        """Freeze it."""
        self._container.get_wrapped_container().pause()

    def resume(self) -> None:
        """Let it go on."""
        self._container.get_wrapped_container().unpause()

    def __enter__(self) -> KafkaContainer:
        """Start."""
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Stop."""
        self.stop()


@contextlib.contextmanager
def open_broker(port: int = 0, data: Path | None = None, *, short_lived: bool = False) -> Iterator[str]:
    """The address of a broker, started if need be and stopped at the end."""
    if address := os.environ.get(ADDRESS_VARIABLE):
        if not serves(address, timeout_s=5):
            raise BrokerUnavailable(f"no Kafka broker answers at {address} ({ADDRESS_VARIABLE})")
        yield address
    else:
        with own_broker(port, data, short_lived=short_lived) as broker:
            yield broker.address


def own_broker(port: int = 0, data: Path | None = None, *, short_lived: bool = False) -> KafkaBroker | KafkaContainer:
    """A broker of one's own, not yet started, that may be paused and killed."""
    return KafkaContainer(port) if docker_answers() else KafkaBroker(port, data, short_lived=short_lived)


def serves(address: str, timeout_s: float = 1.0) -> bool:
    """Whether a Kafka broker answers there."""
    try:
        AdminClient({"bootstrap.servers": address, "log_level": 0}).list_topics(timeout=timeout_s)
    except KafkaException:
        return False
    return True


def docker_answers() -> bool:
    """Whether a Docker engine can be used from here."""
    if shutil.which("docker") is None:
        return False
    asked = subprocess.run(["docker", "info", "--format", "{{.ServerVersion}}"], capture_output=True, check=False)
    return asked.returncode == 0 and bool(asked.stdout.strip())


def _formatted(command: list[str], jars: Path) -> Path:
    """An empty formatted storage to copy: formatting costs two seconds of Java and is the same for every broker."""
    blank = jars / "formatted"
    if blank.exists():
        return blank
    with tempfile.TemporaryDirectory(dir=jars) as scratch:
        properties = Path(scratch, "server.properties")
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": "1@127.0.0.1:9093",
            "log.dirs": f"{scratch}/log",
        }
        properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        # A hexadecimal id never begins with "-", which the tool would take for an option.
        arguments = ["format", "--cluster-id", secrets.token_hex(11), "--config", str(properties)]
        made = subprocess.run(
            [*command, "kafka.tools.StorageTool", *arguments], capture_output=True, text=True, check=False
        )
        if made.returncode != 0:
            raise BrokerUnavailable(f"Kafka could not format its storage:\n{made.stdout}{made.stderr}")
        with contextlib.suppress(OSError):  # another process was first
            Path(scratch, "log").rename(blank)
    return blank


def _name_node(properties: Path, node: int) -> None:
    """Make the copied storage this node's own: number and directory must be unlike those of the others."""
    lines = properties.read_text().splitlines()
    own = {"node.id": str(node), "directory.id": base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")}
    kept = [line for line in lines if line.partition("=")[0] not in own]
    properties.write_text("".join(f"{line}\n" for line in [*kept, *(f"{name}={value}" for name, value in own.items())]))


def free_port() -> int:
    """A port of the loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A dead child of the supervising shell stays a zombie until the shell reaps it.
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return True
