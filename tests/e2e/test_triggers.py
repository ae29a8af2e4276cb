"""Records of a topic that start runs: on a real Kafka while listeners die, and in `tidewheel dev` without any."""

from __future__ import annotations

import contextlib
import json
import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.e2e.journals import events_of
from tests.e2e.running import Process, dev, document, eventually
from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.definition.canonical import canonical_json
from tidewheel.definition.load import load_text
from tidewheel.log.interface import COMMANDS, Append
from tidewheel.log.opening import open_log
from tidewheel.wire.codec import encode

EXAMPLES = Path(__file__).parents[2] / "examples"
RECORDS = 400
PARTITIONS = 4

DAG = """\
id: {name}
inputs:
  day: {{type: string, default: ""}}
triggers:
  - id: late_file
    kafka:
      topic: {topic}
      filter: ${{{{ event.value.kind == "orders" }}}}
      dedupe_key: ${{{{ event.value.file }}}}
      inputs: {{day: "${{{{ event.value.day }}}}"}}
tasks: [{{id: load, run: 'echo "$DAY"', env: {{DAY: "${{{{ inputs.day }}}}"}}}}]
"""


@dataclass
class Site:
    """Topics of its own on a real broker, and a scheduler."""

    env: dict[str, str]
    kafka: str
    topic: str

    def deploy(self, *names: str) -> None:
        log = open_log(self.env["TIDEWHEEL_LOG"])
        producer = log.producer()
        for name in names:
            loaded = load_text(DAG.format(name=name, topic=self.topic), f"{name}.yaml")
            assert loaded.workflow is not None and loaded.version is not None, loaded.mistakes
            command = c.DeployDag(dag=name, version=loaded.version, definition=canonical_json(loaded.workflow))
            producer.send(Append(COMMANDS, name.encode(), encode(command)))
        producer.flush(20)
        log.close()

    def publish(self, numbers: range) -> None:
        producer = Producer({"bootstrap.servers": self.kafka})
        for number in numbers:
            value = json.dumps({"kind": "orders" if number % 4 else "returns", "file": f"f{number}", "day": "d"})
            producer.produce(self.topic, key=f"k{number % 16}", value=value)
        assert producer.flush(30) == 0


@pytest.fixture
def site(kafka_address: str, tmp_path: Path) -> Iterator[Site]:
    prefix = f"e2e.{uuid4().hex[:8]}."
    found = Site(
        {"TIDEWHEEL_LOG": f"kafka://{kafka_address}?prefix={prefix}&partitions=4"}, kafka_address, f"{prefix}files"
    )
    document("topics", "create", env=found.env)
    admin = AdminClient({"bootstrap.servers": kafka_address})
    admin.create_topics([NewTopic(found.topic, PARTITIONS, 1)])[found.topic].result(20)
    with Process("scheduler", "--name", "s1", output=tmp_path / "scheduler.log", env=found.env):
        yield found


@pytest.mark.kafka
def test_each_record_is_one_run_of_each_dag_whichever_listener_dies(site: Site, tmp_path: Path) -> None:
    log = site.env["TIDEWHEEL_LOG"]
    with contextlib.ExitStack() as stack:

        def listener(name: str) -> Process:
            return stack.enter_context(
                Process("listener", "--name", name, output=tmp_path / f"{name}.log", env=site.env)
            )

        site.publish(range(-40, 0))  # before anybody asked for them
        first, second = listener("l1"), listener("l2")
        site.deploy("one", "two")
        eventually(lambda: len(events_of(log, e.DagDeployed)) == 2, 40, "the deployments")
        site.publish(range(RECORDS // 2))
        eventually(lambda: len(events_of(log, e.RunCreated)) > 50, 60, "the first runs")
        first.kill()
        site.publish(range(RECORDS // 2, RECORDS))
        second.kill()
        listener("l3")
        wanted = {f"f{number}" for number in range(RECORDS) if number % 4}
        eventually(lambda: len(events_of(log, e.RunCreated)) >= 2 * len(wanted), 90, "every run")
        runs = events_of(log, e.RunCreated)
    for dag in ("one", "two"):
        of_dag = [event for event in runs if event.dag == dag]
        assert Counter(event.run_id for event in of_dag) == Counter(f"trigger__late_file:{file}" for file in wanted)
        assert len({event.origin for event in of_dag}) == len(wanted)
        assert {event.origin.rpartition("/")[0] for event in of_dag} == {
            f"{site.topic}/{number}" for number in range(PARTITIONS)
        }
    assert document("verify", env=site.env)["ok"]


def test_without_kafka_records_are_published_by_hand(tmp_path: Path) -> None:
    flows = tmp_path / "flows"
    flows.mkdir()
    (flows / "late_files.yaml").write_text((EXAMPLES / "late_files.yaml").read_text())
    with dev(flows) as (_, env):
        env["TIDEWHEEL_LOG"] = f"sqlite://{flows}/.tidewheel/log.db"
        for file in ("f1", "f2", "f1"):
            value = json.dumps({"kind": "orders", "file": file, "day": "2026-01-31"})
            document("publish", "landing.late", "--value", value, "--header", "from=test", env=env)
        document("publish", "landing.late", "--value", '{"kind": "orders"}', env=env)

        def ended() -> list[Any]:
            runs: list[Any] = document("runs", "late_files", env=env)
            return runs if [run["state"] for run in runs] == ["success"] * 2 else []

        runs = eventually(ended, 60, "two runs")
        assert sorted(run["run_id"] for run in runs) == ["trigger__landed:f1", "trigger__landed:f2"]
        run = httpx.get(f"{env['TIDEWHEEL_API']}/api/v1/dags/late_files/runs/trigger__landed:f1", timeout=20).json()
        assert (run["kind"], run["trigger"], run["origin"]) == ("kafka", "landed", "landing.late/0/0")
        assert run["inputs"] == {"file": "f1", "day": "2026-01-31"}
        checks = {check["check"]: check for check in document("doctor", env=surroundings(flows, env))}
        assert checks["Listeners"]["found"] == "1 topics that triggers name"
        (letter,) = eventually(lambda: document("dead-letters", env=env), 30, "a dead letter")
        assert letter["source_topic"] == "landing.late" and "trigger 'landed' of DAG 'late_files'" in letter["reason"]


def surroundings(flows: Path, env: dict[str, str]) -> dict[str, str]:
    """What `source .tidewheel/environment` would set."""
    lines = (flows / ".tidewheel" / "environment").read_text().splitlines()
    written = dict(line.removeprefix("export ").split("=", 1) for line in lines)
    return {**env, **{name: shlex.split(value)[0] for name, value in written.items()}}
