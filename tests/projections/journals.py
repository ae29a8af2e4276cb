"""Journals for the projector's tests: events written as a shard's owner writes them, and a believable day of them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from tidewheel.core import events as e
from tidewheel.core.workflow import Run, Schedule, Task, Workflow
from tidewheel.log.interface import DEAD_LETTERS, EVENTS, LOGS, POOL_EVENTS, Append, Log
from tidewheel.log.partition import partition_of
from tidewheel.wire.codec import GENESIS, encode, encode_event
from tidewheel.wire.messages import DeadLetter, LogChunk

START = 1_790_000_000_000


class JournalWriter:
    """Appends events in order, each with its place and chain."""

    def __init__(self, log: Log, writer: int = 1) -> None:
        self.to = log
        self._producer = log.producer()
        self._writer = writer
        self._seqs: dict[tuple[str, str], int] = {}
        self._ends: dict[tuple[str, int], tuple[int, bytes]] = {}
        self.written = 0

    def write(self, *events: e.AnyEvent) -> None:
        """Append these events."""
        for event in events:
            topic, key, partition, value = self.encoded(event)
            self._producer.send(Append(topic, key, value, partition=partition))
            self.written += 1

    def encoded(self, event: e.AnyEvent) -> tuple[str, bytes, int, bytes]:
        """Topic, key, partition and value of the next record; counts as written."""
        topic, key = (EVENTS, event.dag) if isinstance(event, e.DagEvent) else (POOL_EVENTS, event.pool)
        partition = partition_of(key.encode(), self.to.partitions)
        seq = self._seqs[topic, key] = self._seqs.get((topic, key), 0) + 1
        shard_seq, chain = self._ends.get((topic, partition), (0, GENESIS))
        value, chain = encode_event(
            event, seq=seq, shard_seq=shard_seq + 1, writer=self._writer, cause="commands/0/17", previous=chain
        )
        self._ends[topic, partition] = (shard_seq + 1, chain)
        return topic, key.encode(), partition, value

    def position(self, dag: str) -> str:
        """The position of the DAG's last event, as the API gives it out."""
        partition = partition_of(dag.encode(), self.to.partitions)
        return f"{EVENTS}/{partition}/{self._ends[EVENTS, partition][0]}"

    def raw(self, topic: str, key: str, value: bytes | None) -> None:
        """Append bytes that are no event of ours."""
        self._producer.send(Append(topic, key.encode(), value))

    def log(self, chunk: LogChunk) -> None:
        """Append a log chunk."""
        key = f"{chunk.dag}/{chunk.run_id}/{chunk.task}/{chunk.attempt}"
        self._producer.send(Append(LOGS, key.encode(), encode(chunk)))

    def dead(self, letter: DeadLetter) -> None:
        """Append a dead letter."""
        self._producer.send(Append(DEAD_LETTERS, b"key", encode(letter)))


def workflow(dag: str, tasks: Sequence[str] = ("extract", "load", "report"), **more: object) -> Workflow:
    """A definition with these tasks, one after the other."""
    chain = [
        Task(id=task, action=Run(command="true"), needs=tuple(tasks[index - 1 : index]))
        for index, task in enumerate(tasks)
    ]
    return msgspec.convert({"id": dag, "tasks": [], **more}, Workflow).__replace__(tasks=tuple(chain))


def definition(flow: Workflow) -> str:
    """Its canonical JSON."""
    return msgspec.json.encode(flow, order="deterministic").decode()


def deployed(
    dag: str, tasks: Sequence[str] = ("extract", "load", "report"), version: str = "v1", at: int = START
) -> e.DagDeployed:
    """A deployment of a DAG with these tasks."""
    flow = workflow(dag, tasks, description=f"What {dag} does", owner="data", tags=("daily",))
    flow = msgspec.structs.replace(flow, schedule=Schedule(cron=("0 6 * * *",)))
    return e.DagDeployed(
        dag=dag, version=version, definition=definition(flow), source=f"id: {dag}", cursor=at, at=at, actor="user:ann"
    )


def life(
    dag: str, run_id: str, task: str, at: int, attempt: int = 1, worker: str = "w1", beats: int = 0
) -> Iterator[e.AnyEvent]:
    """One attempt from the queue to success, with its pool's side."""
    where = {"dag": dag, "run_id": run_id, "task": task, "attempt": attempt}
    yield e.TaskQueued(**where, at=at, pool="default", pool_slots=1)
    yield e.TaskEnqueued(**where, at=at, pool="default", pool_slots=1, priority=0, logical_date=at)
    yield e.SlotGranted(**where, at=at + 1, pool="default", worker=worker)
    yield e.TaskLeased(**where, at=at + 1, worker=worker, mail_partition=0, expires_at=at + 30_000)
    yield e.TaskStarted(**where, at=at + 3, worker=worker, started_at=at + 2, expires_at=at + 30_003)
    for beat in range(beats):
        yield e.TaskHeartbeat(
            **where, at=at + 4 + beat, worker=worker, expires_at=at + 30_004 + beat, progress=f'{{"done": {beat}}}'
        )
    yield e.TaskSucceeded(
        **where,
        at=at + 1000,
        worker=worker,
        started_at=at + 2,
        ended_at=at + 999,
        output='{"rows": 17}',
        actor=f"worker:{worker}",
    )
    yield e.SlotReleased(**where, at=at + 1000, pool="default", reason="success")


def run_of(
    dag: str, run_id: str, tasks: Sequence[str], at: int, version: str = "v1", beats: int = 0
) -> Iterator[e.AnyEvent]:
    """A whole run that succeeds."""
    yield e.RunCreated(dag=dag, run_id=run_id, version=version, kind="manual", inputs='{"day": "2026-01-01"}', at=at)
    yield e.RunStarted(dag=dag, run_id=run_id, at=at)
    for index, task in enumerate(tasks):
        yield from life(dag, run_id, task, at + 10 + index * 1000, beats=beats)
    yield e.RunSucceeded(dag=dag, run_id=run_id, at=at + 10 + len(tasks) * 1000)


def pool_ready(at: int = START) -> Iterator[e.AnyEvent]:
    """The pool `default` with one worker."""
    yield e.PoolConfigured(pool="default", slots=512, description="for all", at=at)
    yield e.WorkerJoined(
        pool="default", worker="w1", slots=512, mail_partition=0, expires_at=at + 60_000, host="h1", at=at
    )


def interleaved(streams: Iterable[Iterator[e.AnyEvent]], seed: int) -> Iterator[e.AnyEvent]:
    """The streams mixed, each in its own order."""
    chance = random.Random(seed)
    open_streams = list(streams)
    while open_streams:
        stream = chance.choice(open_streams)
        event = next(stream, None)
        if event is None:
            open_streams.remove(stream)
        else:
            yield event


def mixed_day(writer: JournalWriter, seed: int = 1) -> None:
    """A bit of everything, over several DAGs and partitions."""
    tasks = ("extract", "load", "report")
    writer.write(*pool_ready())
    names = [f"dag_{number}" for number in range(6)]
    for name in names:
        writer.write(deployed(name, tasks))
    streams = [
        run_of(name, f"r{number}", tasks, START + number * 10_000, beats=2) for name in names for number in range(3)
    ]
    streams += [failing_run(name, "bad", START + 50_000) for name in names[:3]]
    streams += [cancelled_run(name, "stopped", START + 60_000) for name in names[2:5]]
    writer.write(*interleaved(streams, seed))
    writer.write(
        e.DagPaused(dag="dag_0", reason="maintenance", at=START + 90_000, actor="user:bob"),
        e.DagUnpaused(dag="dag_0", at=START + 91_000, actor="user:bob"),
        e.SlotsSkipped(
            dag="dag_0", first=START, last=START + 86_400_000, count=1, reason="catchup none", at=START + 91_000
        ),
        e.BackfillStarted(
            dag="dag_0", backfill_id="b1", first=START - 86_400_000, last=START, slots=2, at=START + 91_500
        ),
        e.DagRemoved(dag="dag_5", reason="file deleted", at=START + 92_000),
        deployed("dag_1", ("extract", "load", "report", "publish"), version="v2", at=START + 93_000),
        e.RunCreated(
            dag="dag_1",
            run_id="scheduled__1",
            version="v2",
            kind="scheduled",
            logical_date=START + 94_000,
            interval_start=START,
            interval_end=START + 94_000,
            at=START + 94_001,
        ),
        e.RunCreated(
            dag="dag_3",
            run_id="asked",
            version="v1",
            kind="workflow",
            parent_dag="dag_0",
            parent_run_id="r0",
            parent_task="load",
            parent_attempt=1,
            depth=1,
            at=START + 94_002,
        ),
        e.WorkerSuspended(pool="default", worker="w1", reason="a lease expired", at=START + 95_000),
        e.WorkerRenewed(pool="default", worker="w1", expires_at=START + 190_000, at=START + 96_000),
        e.WorkerJoined(
            pool="other", worker="w2", slots=1, mail_partition=1, expires_at=START + 160_000, at=START + 96_000
        ),
        e.WorkerLeft(pool="other", worker="w2", reason="shutdown", at=START + 97_000),
        e.ReportRefused(
            dag="dag_0",
            run_id="r0",
            task="load",
            attempt=1,
            worker="w9",
            report="success",
            reason="attempt 1 ended",
            at=START,
        ),
    )
    logs_and_a_dead_letter(writer, names[:2])


def logs_and_a_dead_letter(writer: JournalWriter, names: list[str]) -> None:
    """What lies beside the journals."""
    for name in names:
        for chunk in range(3):
            writer.log(
                LogChunk(
                    dag=name,
                    run_id="r0",
                    task="load",
                    attempt=1,
                    chunk=chunk,
                    at=START + chunk,
                    stream="stdout",
                    text=f"line {chunk}\n",
                )
            )
    writer.dead(
        DeadLetter(
            at=START,
            topic="triggers",
            partition=1,
            offset=7,
            key=b"k",
            value=b"\x00\xff",
            code="undecodable",
            reason="no JSON",
        )
    )


def failing_run(dag: str, run_id: str, at: int) -> Iterator[e.AnyEvent]:
    """Its first task is tried again after a loss, then fails for good."""
    where = {"dag": dag, "run_id": run_id, "task": "extract"}
    slot = {**where, "pool": "default"}
    yield e.RunCreated(dag=dag, run_id=run_id, version="v1", kind="api", at=at, actor="user:ann")
    yield e.RunStarted(dag=dag, run_id=run_id, at=at)
    yield e.TaskReady(**where, attempt=0, at=at)
    yield e.TaskQueued(**where, attempt=1, at=at, pool="default", pool_slots=1)
    yield e.TaskEnqueued(**slot, attempt=1, at=at, pool_slots=1, priority=5, logical_date=at)
    yield e.SlotGranted(**slot, attempt=1, at=at + 1, worker="w1")
    yield e.TaskLeased(**where, attempt=1, at=at + 1, worker="w1", mail_partition=0, expires_at=at + 30_000)
    yield e.LeaseExpired(
        **where, attempt=1, at=at + 30_001, worker="w1", message="silent for 30 s", retry_at=at + 31_000
    )
    yield e.SlotReleased(**slot, attempt=1, at=at + 30_001, reason="lease expired")
    yield e.TaskQueued(**where, attempt=2, at=at + 31_000, pool="default", pool_slots=1)
    yield e.TaskEnqueued(**slot, attempt=2, at=at + 31_000, pool_slots=1, priority=5, logical_date=at)
    yield e.SlotGranted(**slot, attempt=2, at=at + 31_001, worker="w1")
    yield e.TaskLeased(**where, attempt=2, at=at + 31_001, worker="w1", mail_partition=0, expires_at=at + 61_000)
    yield e.TaskFailed(
        **where,
        attempt=2,
        at=at + 32_000,
        worker="w1",
        started_at=at + 31_500,
        ended_at=at + 31_900,
        kind="exit_code",
        message="exited with status 3",
        exit_code=3,
        actor="worker:w1",
    )
    yield e.SlotReleased(**slot, attempt=2, at=at + 32_000, reason="failed")
    for task in ("load", "report"):
        yield e.TaskUpstreamFailed(
            dag=dag, run_id=run_id, task=task, attempt=0, at=at + 32_000, reason="extract failed"
        )
    yield e.RunFailed(dag=dag, run_id=run_id, at=at + 32_000, reason="report is upstream_failed")


def cancelled_run(dag: str, run_id: str, at: int) -> Iterator[e.AnyEvent]:
    """Cancelled while its first task runs."""
    where = {"dag": dag, "run_id": run_id, "task": "extract", "attempt": 1}
    slot = {**where, "pool": "default"}
    yield e.RunCreated(dag=dag, run_id=run_id, version="v1", kind="manual", at=at)
    yield e.RunStarted(dag=dag, run_id=run_id, at=at)
    yield e.TaskQueued(**where, at=at, pool="default", pool_slots=2)
    yield e.TaskEnqueued(**slot, at=at, pool_slots=2, priority=0, logical_date=at)
    yield e.SlotGranted(**slot, at=at + 1, worker="w1")
    yield e.TaskLeased(**where, at=at + 1, worker="w1", mail_partition=0, expires_at=at + 30_000)
    yield e.TaskStarted(**where, at=at + 3, worker="w1", started_at=at + 2, expires_at=at + 30_003)
    yield e.RunCancelRequested(dag=dag, run_id=run_id, reason="wrong day", at=at + 500, actor="user:ann")
    yield e.TaskCancelRequested(**where, worker="w1", reason="wrong day", at=at + 500)
    for task in ("load", "report"):
        yield e.TaskCancelled(dag=dag, run_id=run_id, task=task, attempt=0, reason="wrong day", at=at + 500)
    yield e.TaskCancelled(**where, worker="w1", reason="wrong day", at=at + 900)
    yield e.SlotReleased(**slot, at=at + 900, reason="cancelled")
    yield e.RunCancelled(dag=dag, run_id=run_id, reason="wrong day", at=at + 900)
