"""Listeners that die at each of their steps, on a real Kafka, while records flow: records and runs agree."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer

from tests.e2e.installation import WAIT_S, Installation
from tests.e2e.journals import events_of
from tests.e2e.running import Process, document, eventually
from tidewheel.core import events as e

pytestmark = pytest.mark.kafka

PARTITIONS = 8
PAUSE_S = 0.05
#: At once: the group is handed on from one to the next as they die.
TOGETHER = ("listener-read", "listener-sent", "listener-flushed", "listener-committed")
#: By then the group has noticed who is gone and given everything to those who are left.
SESSION_S = 12
VISITS_MAX = 8

DAG = """\
id: {name}
concurrency: {{max_runs: 100000}}
triggers: [{{id: landed, kafka: {{topic: {topic}{more}}}}}]
tasks: [{{id: load, run: "true"}}]
"""
KEYED = ', filter: "${{ event.value.kind == \\"orders\\" }}", dedupe_key: "${{ event.value.file }}"'


class Flow:
    """Records without pause: every file is announced twice, every fourth announcement is none of orders."""

    def __init__(self, site: Installation, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": site.kafka, "enable.idempotence": True})
        self._topic = topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        #: By place: the file of an announcement of orders, else nothing.
        self.written: dict[str, str] = {}

    def __enter__(self) -> Flow:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """What was written is there."""
        self._stop.set()
        self._thread.join(30)
        assert self._producer.flush(30) == 0

    def _write(self) -> None:
        number = 0
        while not self._stop.wait(PAUSE_S):
            number += 1
            kind, file = "orders" if number % 4 else "returns", f"f{number // 2}"
            self._producer.produce(
                self._topic,
                key=f"k{number % 61}",
                value=json.dumps({"kind": kind, "file": file}),
                on_delivery=lambda error, message, of=file if kind == "orders" else "": self._note(error, message, of),
            )
            self._producer.poll(0)

    def _note(self, error: KafkaError | None, message: Message[bytes, bytes], file: str) -> None:
        assert error is None, error
        self.written[f"{self._topic}/{message.partition()}/{message.offset()}"] = file


@pytest.fixture
def site(kafka_address: str, tmp_path: Path) -> Iterator[Installation]:
    """A log and a scheduler; nobody runs the tasks."""
    many = {"TIDEWHEEL_WAITING_RUNS_MAX": "100000", "TIDEWHEEL_SHARD_RUNS_MAX": "100000"}
    with Installation(tmp_path, kafka_address, "") as found:
        found.start("scheduler", "scheduler", "--name", "s1", env=many)
        yield found


def runs(site: Installation, dag: str) -> list[e.RunCreated]:
    """Those that records asked for."""
    return [event for event in events_of(site.log, e.RunCreated) if event.dag == dag and event.origin]


def after_all_that(site: Installation) -> None:
    """Whatever listeners asked for has been decided: a request behind it was."""
    for dag in ("each", "keyed"):
        site.publish(f"{site.prefix}triggers", {"dag": dag, "run_id": "last"}, key=dag)
    eventually(
        lambda: sum(event.run_id == "last" for event in events_of(site.log, e.RunCreated)) == 2, WAIT_S, "the last runs"
    )


def until_dead(*victims: Process) -> None:
    for victim in victims:
        eventually(victim.died, WAIT_S, f"the death that {victim.output.name} was to come to")


def visit_until_dead(site: Installation, victim: Process) -> None:
    """Others join and are killed, until the group has asked this one for partitions that it had."""
    for number in range(VISITS_MAX):
        visitor = site.start(f"visitor-{number}", "listener", "--name", f"visitor-{number}")
        deadline = time.monotonic() + SESSION_S
        while time.monotonic() < deadline:
            if victim.died():
                return
            time.sleep(0.1)
        visitor.kill()
    raise AssertionError(f"nothing was taken from it: {victim.said}")


def test_each_record_is_one_run_whatever_step_its_listener_dies_at(site: Installation) -> None:
    topic = site.create_topic("files", PARTITIONS)
    # Before anybody asked for them.
    site.publish(topic, *({"kind": "orders", "file": f"early{number}"} for number in range(20)))
    site.deploy(DAG.format(name="keyed", topic=topic, more=KEYED), DAG.format(name="each", topic=topic, more=""))
    with Flow(site, topic) as flow:
        for alone in ("listener-beginning", "listener-begun"):
            until_dead(site.victim(alone, "listener", "--name", alone))
        revoked = site.victim("listener-revoked", "listener", "--name", "revoked")
        until_dead(*(site.victim(step, "listener", "--name", step) for step in TOGETHER))
        visit_until_dead(site, revoked)
        for name in ("l1", "l2"):
            site.start(name, "listener", "--name", name)
    wanted = {f"trigger__landed:{file}" for file in flow.written.values() if file}
    eventually(
        lambda: len(runs(site, "each")) >= len(flow.written) and len(runs(site, "keyed")) >= len(wanted),
        WAIT_S,
        "a run for each record",
    )
    for name, process in site.processes.items():
        if name != "scheduler" and process.alive:
            process.stop()
    after_all_that(site)
    each, keyed = runs(site, "each"), runs(site, "keyed")
    assert Counter(run.origin for run in each) == Counter(list(flow.written))
    assert len({run.run_id for run in each}) == len(each)
    assert Counter(run.run_id for run in keyed) == Counter(wanted)
    assert all(run.run_id == f"trigger__landed:{flow.written[run.origin]}" for run in keyed)
    assert len(wanted) < sum(map(bool, flow.written.values())), "files that were announced twice are one run"
    assert document("verify", env=site.env)["ok"]
