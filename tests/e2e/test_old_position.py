"""The group's position on Kafka comes back old, as after the hard kill of an only broker: nothing is answered twice."""

from __future__ import annotations

import json
import os
import time

import msgspec
import pytest
from confluent_kafka import Consumer, TopicPartition

from tidewheel.core import commands as c
from tidewheel.core.workflow import Run, Task, Workflow
from tidewheel.definition.expressions import CelEvaluator
from tidewheel.log.interface import COMMANDS, INPUTS, JOURNALS, TRIGGERS, Append, Log
from tidewheel.log.kafka import KafkaLog
from tidewheel.runtime.checker import check_log
from tidewheel.runtime.scheduler import Scheduler
from tidewheel.testing.log_contract.driver import read_all
from tidewheel.wire.codec import encode

pytestmark = pytest.mark.kafka

SHARDS = 2
PATIENCE_S = 60.0


def work_off(log: Log, wanted: dict[tuple[str, int], int]) -> None:
    """Schedule until the group's positions have come so far."""
    scheduler = Scheduler(log, "s", CelEvaluator(), checkpoint_events=50)
    deadline = time.monotonic() + PATIENCE_S
    while any((log.committed(shard)[topic] or 0) < end for (topic, shard), end in wanted.items()):
        for _ in range(20):
            scheduler.step(0.05)
        assert time.monotonic() < deadline, {shard: log.committed(shard) for shard in range(SHARDS)}
    scheduler.close()


def journals(log: Log) -> dict[tuple[str, int], list[bytes | None]]:
    places = [(topic, shard) for topic in JOURNALS for shard in range(SHARDS)]
    return {place: [record.value for record in read_all(log, *place)] for place in places}


def test_what_was_answered_is_passed_over_and_what_is_new_is_not(kafka_address: str) -> None:
    prefix = f"old{os.getpid()}."
    log = KafkaLog(kafka_address, prefix, SHARDS)
    log.create_topics()
    producer = log.producer()

    def send(command: c.DagCommand | c.PoolCommand, key: str) -> None:
        producer.send(Append(COMMANDS, key.encode(), encode(command)))

    send(c.JoinPool(actor="worker:w", pool="default", worker="w", slots=1_000, mail_partition=0), "default")
    names = [f"dag{number}" for number in range(4)]
    for name in names:
        definition = msgspec.json.encode(Workflow(id=name, tasks=(Task(id="t", action=Run(command="true")),))).decode()
        send(c.DeployDag(actor="user:t", dag=name, version="v", definition=definition), name)
        for number in range(25):
            send(c.StartRun(dag=name), name)
            # Of an attempt that never was: refused, and each refusal is an event.
            place = {"dag": name, "run_id": f"r{number}", "task": "t", "attempt": 1, "worker": "w"}
            send(c.ReportSuccess(**place, started_at=0, ended_at=0), name)
            producer.send(Append(TRIGGERS, name.encode(), json.dumps({"dag": name, "id": f"{number}"}).encode()))
    producer.flush(PATIENCE_S)
    ends = log.end_offsets([(topic, shard) for topic in INPUTS for shard in range(SHARDS)])
    work_off(log, dict(ends))
    before = journals(log)
    assert sum(map(len, before.values())) > 500

    consumer = Consumer({"bootstrap.servers": kafka_address, "group.id": f"{prefix}schedulers"})
    consumer.commit(
        offsets=[TopicPartition(prefix + topic, shard, end // 4) for (topic, shard), end in ends.items()],
        asynchronous=False,
    )
    consumer.close()
    assert all((log.committed(shard)[COMMANDS] or 0) < ends[COMMANDS, shard] for shard in range(SHARDS))
    send(c.StartRun(dag="dag0", run_id="new"), "dag0")
    producer.flush(PATIENCE_S)
    work_off(log, dict(log.end_offsets(list(ends))))

    after = journals(log)
    assert all(after[place][: len(found)] == found for place, found in before.items())
    more = sum(map(len, after.values())) - sum(map(len, before.values()))
    assert 1 <= more <= 6, "the new run, its one task, and nothing else"
    assert check_log(log).ok
    log.close()
