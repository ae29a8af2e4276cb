"""Tidewheel as on a cluster: topics of its own on a real Kafka, a database, and a process for each service."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.e2e.journals import events_of
from tests.e2e.running import PROGRAM, Process, document, eventually
from tidewheel.core.commands import DeployDag
from tidewheel.core.events import DagDeployed
from tidewheel.definition.canonical import canonical_json
from tidewheel.definition.load import load_text
from tidewheel.log.interface import COMMANDS, Append
from tidewheel.log.opening import open_log
from tidewheel.wire.codec import encode

PARTITIONS = 4
_VICTIM = (sys.executable, str(Path(__file__).with_name("victim.py")))
#: Until a run has ended that was asked for, whatever else the machine does.
WAIT_S = 120
ENDS = frozenset({"success", "failed", "cancelled"})


class Installation:
    """What runs, and how to reach it. ``env`` is what commands and processes find in their environment."""

    def __init__(self, home: Path, kafka: str, postgres: str) -> None:
        self.home = home
        self.kafka = kafka
        self.prefix = f"e2e.{uuid4().hex[:8]}."
        self.log = f"kafka://{kafka}?prefix={self.prefix}&partitions={PARTITIONS}"
        self.env = {"TIDEWHEEL_LOG": self.log, "TIDEWHEEL_POSTGRES": postgres}
        self.processes: dict[str, Process] = {}
        self._lives = 0
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Installation:
        document("topics", "create", env=self.env)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start(
        self,
        name: str,
        *arguments: str | Path,
        env: Mapping[str, str] | None = None,
        program: tuple[str, ...] = PROGRAM,
    ) -> Process:
        """A process, which ends with the installation if not before."""
        self._lives += 1
        output = self.home / f"{name}.{self._lives}.log"
        process = Process(*arguments, output=output, env={**self.env, **(env or {})}, program=program)
        self.processes[name] = self._stack.enter_context(process)
        return process

    def victim(self, step: str, *arguments: str, env: Mapping[str, str] | None = None) -> Process:
        """A process that dies at this step (``victim.STEPS``)."""
        return self.start(step, step, *arguments, env=env, program=_VICTIM)

    def start_api(self) -> None:
        """With it up, ``env`` says where it is."""
        said = self.start("api", "api", "--port", "0").wait_for("api is up")
        self.env["TIDEWHEEL_API"] = said.split('"url": "')[1].split('"')[0]
        eventually(lambda: httpx.get(f"{self.env['TIDEWHEEL_API']}/ready").status_code == 200, WAIT_S, "the API")

    def create_topic(self, name: str, partitions: int = 1) -> str:
        """A topic of the user's; its name has the prefix, so that nobody else's records are on it."""
        topic = self.prefix + name
        admin = AdminClient({"bootstrap.servers": self.kafka})
        admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(20)
        return topic

    def create_topics(self, *names: str) -> None:
        """Topics of just these names, where there is none yet."""
        admin = AdminClient({"bootstrap.servers": self.kafka})
        missing = set(names) - admin.list_topics(timeout=20).topics.keys()
        made = admin.create_topics([NewTopic(name, 1, 1) for name in sorted(missing)]) if missing else {}
        for future in made.values():
            future.result(20)

    def publish(self, topic: str, *values: Any, key: str | None = None) -> None:
        """JSON, with a plain producer."""
        producer = Producer({"bootstrap.servers": self.kafka, "partitioner": "murmur2_random"})
        for value in values:
            producer.produce(topic, key=key, value=json.dumps(value))
        assert producer.flush(20) == 0

    def deploy(self, *texts: str) -> None:
        """Workflows, by commands on the log: no API is needed."""
        log = open_log(self.log)
        producer = log.producer()
        for text in texts:
            loaded = load_text(text, "a test's.yaml")
            assert loaded.workflow is not None and loaded.version is not None, loaded.mistakes
            name = loaded.workflow.id
            command = DeployDag(dag=name, version=loaded.version, definition=canonical_json(loaded.workflow))
            producer.send(Append(COMMANDS, name.encode(), encode(command)))
        producer.flush(20)
        log.close()
        eventually(lambda: len(events_of(self.log, DagDeployed)) >= len(texts), WAIT_S, "the deployment")

    def trigger(self, dag: str, run_id: str) -> None:
        """A run, by the API."""
        address = f"{self.env['TIDEWHEEL_API']}/api/v1/dags/{dag}/runs"
        assert httpx.post(address, json={"run_id": run_id}, timeout=60).status_code == 201

    def get(self, *path: str) -> Any:
        """What the API answers below ``/dags``; nothing while it does not know that."""
        return found_below(self.env["TIDEWHEEL_API"], *path)

    def ended(self, dag: str, run_id: str) -> Any:
        """The run, once it has ended."""
        return ended(self.env["TIDEWHEEL_API"], dag, run_id)

    def proved(self) -> None:
        """The journal proves itself."""
        proof = document("verify", env=self.env)
        assert (proof["ok"], proof["violations"]) == (True, [])


def found_below(api: str, *path: str) -> Any:
    """What the API at ``api`` answers below ``/dags``; nothing while it does not know that."""
    answer = httpx.get("/".join((api, "api/v1/dags", *path)), timeout=20)
    return answer.json() if answer.status_code == 200 else None


def ended(api: str, dag: str, run_id: str) -> Any:
    """The run, once it has ended."""

    def over() -> Any:
        run = found_below(api, dag, "runs", run_id)
        return run if run is not None and run["state"] in ENDS else None

    return eventually(over, WAIT_S, f"the end of {dag} {run_id}")


@contextlib.contextmanager
def installed(home: Path, kafka: str, postgres: str) -> Iterator[Installation]:
    """With a scheduler, a projector and an API; whatever else is wanted is started by ``start``."""
    with Installation(home, kafka, postgres) as found:
        found.start("scheduler", "scheduler", "--name", "s1")
        found.start("projector", "projector")
        found.start_api()
        yield found
