"""Checkpoints on Kafka while work goes on: small pieces between the batches, and what they lead to is the journal."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Mapping, Sequence

import msgspec
import pytest

from tidewheel.core import commands as c
from tidewheel.core.snapshot import state_hash
from tidewheel.core.workflow import Run, Task, Workflow
from tidewheel.definition.expressions import CelEvaluator
from tidewheel.log.interface import COMMANDS, SNAPSHOTS, Append, Batch, Log
from tidewheel.log.kafka import KafkaLog
from tidewheel.log.kafka.owner import KafkaOwner
from tidewheel.runtime import checkpoints
from tidewheel.runtime.recovery import bring_up_to_date
from tidewheel.runtime.scheduler import Scheduler
from tidewheel.runtime.shard import AggregateKey, Shard
from tidewheel.wire.codec import encode

pytestmark = pytest.mark.kafka

PIECE = 60_000
DAGS = 40
RUNS = 240
PATIENCE_S = 60.0
_number = itertools.count()


def folded(log: Log, *, snapshots: bool) -> tuple[dict[AggregateKey, str], int]:
    """Every state's hash, and how many events had to be folded for them."""
    found: dict[AggregateKey, str] = {}
    events = 0
    for number in range(log.partitions):
        shard = Shard(number)
        events += bring_up_to_date([shard], log, lambda: 0, snapshots=snapshots)
        found.update((key, state_hash(state)) for key, state in shard.aggregates.items())
    return found, events


def test_work_goes_on_between_the_pieces_and_recovery_is_the_whole_fold(
    kafka_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "PIECE_BYTES_MAX", PIECE)
    sizes: list[int] = []
    commit = KafkaOwner.commit

    def measured(self: KafkaOwner, batch: Batch, appends: Sequence[Append]) -> Mapping[tuple[str, int], int]:
        last = commit(self, batch, appends)
        sizes.append(sum(len(append.value or b"") for append in appends if append.topic == SNAPSHOTS))
        return last

    monkeypatch.setattr(KafkaOwner, "commit", measured)
    log = KafkaLog(kafka_address, f"load{os.getpid()}-{next(_number)}.", 2)
    log.create_topics()
    producer = log.producer()

    def send(command: c.DagCommand | c.PoolCommand, key: str) -> None:
        producer.send(Append(COMMANDS, key.encode(), encode(command)))

    send(c.JoinPool(actor="worker:w", pool="default", worker="w", slots=10_000, mail_partition=0), "default")
    for number in range(DAGS):
        tasks = tuple(Task(id=f"t{n}", action=Run(command="x" * 500)) for n in range(10))
        definition = msgspec.json.encode(Workflow(id=f"dag{number}", tasks=tasks)).decode()
        send(c.DeployDag(actor="user:t", dag=f"dag{number}", version="v", definition=definition), f"dag{number}")
    scheduler = Scheduler(log, "s", CelEvaluator(), checkpoint_events=500)
    deadline = time.monotonic() + PATIENCE_S
    sent = 0
    # A run at a time, so that every batch is small and a checkpoint always meets work to do.
    while scheduler.status.inputs < 1 + DAGS + RUNS or scheduler.step(0.2):
        if sent < RUNS:
            send(c.StartRun(dag=f"dag{sent % DAGS}", run_id=f"r{sent}"), f"dag{sent % DAGS}")
            sent += 1
        scheduler.step(0.01)
        assert time.monotonic() < deadline
    scheduler.close()
    pieces = [at for at, size in enumerate(sizes) if size]
    assert len(pieces) > 5
    assert max(sizes) < PIECE + 2 * checkpoints.PART_BYTES_MAX
    between = sum(size == 0 for size in sizes[pieces[0] : pieces[-1]])
    assert between > len(pieces) // 2, "batches were committed between the pieces"
    short, whole = folded(log, snapshots=True), folded(log, snapshots=False)
    assert short[0] == whole[0]
    assert 0 < short[1] < whole[1] // 2
    log.close()
