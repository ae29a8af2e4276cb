"""One thing that goes wrong, in a process, a machine, a worker or on the log; or that people do."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import msgspec

from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.log.interface import COMMANDS, SNAPSHOTS, TRIGGERS, Append
from tidewheel.log.memory import Fault
from tidewheel.testing.simulation.authors import DAGS, POOLS
from tidewheel.testing.simulation.faults import (
    LISTENER_POINTS,
    PROJECTOR_POINTS,
    SCHEDULER_POINTS,
    WAITER_POINTS,
    SchedulerPoint,
)
from tidewheel.testing.simulation.people import People
from tidewheel.testing.simulation.worker import TroubledWorker
from tidewheel.testing.simulation.world import WORKERS, TroubledWorld
from tidewheel.wire.codec import encode, encode_event

#: Where a log that is away shows: what has landed is never answered by that.
_AWAY_AT: tuple[SchedulerPoint, ...] = ("poll", "recover", "commit", "mail", "checkpoint", "reset")
_COMMIT_FAULTS = {
    Fault.ABORT: "commit_aborted",
    Fault.DOUBT_LOST: "commit_doubt_lost",
    Fault.DOUBT_LANDED: "commit_doubt_landed",
}


class Mishaps:
    """Everything that happens to ``world`` from outside; without ``faults`` only what people do."""

    def __init__(self, world: TroubledWorld, *, faults: bool) -> None:
        self._world = world
        self._rng = world.random
        weights = People(world).deeds
        if faults:
            weights |= {
                self._hit_scheduler: 8,
                self._hit_projector: 2,
                self._hit_outsider: 4,
                self._lose_session: 1,
                self._lose_position: 2,
                self._kill_scheduler: 1,
                self._break_commit: 3,
                self._step_clock: 1,
                self._sleep: 1,
                self._damage_snapshot: 1,
                self._poison: 2,
                self._misplace: 1,
                self._repeat: 1,
                self._lie: 2,
                self._resize: 1,
                self._lose_worker: 1,
                self._pause_worker: 2,
            }
        self._what, self._weights = list(weights), list(weights.values())

    def __call__(self) -> None:
        """One of them."""
        self._rng.choices(self._what, self._weights)[0]()

    # --- schedulers, outsiders and projector --------------------------------------------------------------------------

    def _hit_scheduler(self) -> None:
        processes = self._world.processes
        if not processes:
            return
        process = self._rng.choice(processes)
        lot = self._rng.random()
        if lot < 0.2:
            process.armed[self._rng.choice(_AWAY_AT)] = "log_away"
        else:
            process.armed[self._rng.choice(SCHEDULER_POINTS)] = "crash" if lot < 0.6 else "pause"

    def _hit_outsider(self) -> None:
        outsiders = list(self._world.outsiders.values())
        if outsiders:
            fault = self._rng.choice(["crash", "crash", "pause", "log_away"])
            hit = self._rng.choice(outsiders)
            points = LISTENER_POINTS if hit.name.startswith("listener") else WAITER_POINTS
            hit.armed[self._rng.choice(points)] = fault

    def _hit_projector(self) -> None:
        self._world.arm_projector(self._rng.choice(PROJECTOR_POINTS), self._rng.choice(["crash", "log_away"]))

    def _lose_session(self) -> None:
        if self._world.processes:
            self._world.faults["session_lost"] += 1
            self._world.log.expel(self._rng.choice(self._world.processes).name)

    def _lose_position(self) -> None:
        """The only broker died hard, and all its clients lost it for a while."""
        world, rng = self._world, self._rng
        if world.log.lose_commits(rng.randrange(world.log.partitions), rng.choice([1, 3, 20, 100])):
            world.faults["position_lost"] += 1
            for process in world.processes:
                world.log.expel(process.name)

    def _kill_scheduler(self) -> None:
        name = self._rng.choice(self._world.names)
        if name in self._world.schedulers:
            self._world.faults["scheduler_killed"] += 1
            self._world.kill_scheduler(name)
        else:
            self._world.start_scheduler(name)

    def _break_commit(self) -> None:
        fault = self._rng.choice(list(Fault))
        self._world.faults[_COMMIT_FAULTS[fault]] += 1
        self._world.log.inject(fault)

    def _step_clock(self) -> None:
        if self._world.processes:
            self._world.faults["clock_step"] += 1
            step_ms = self._rng.choice([1_000, 14_000, 31_000, 200_000, -1_000, -15_000, -60_000])
            self._rng.choice(self._world.processes).skew_ms += step_ms

    def _sleep(self) -> None:
        self._world.faults["sleep"] += 1
        self._world.now += self._rng.choice([7_000, 31_000, 70_000, 200_000])

    # --- what lies on the log ------------------------------------------------------------------------------------

    def _damage_snapshot(self) -> None:
        world, rng = self._world, self._rng
        partition = rng.randrange(world.log.partitions)
        records = world.log.records_of(SNAPSHOTS, partition)
        there = [record.offset for record in records[-40:] if record is not None and record.value]
        if not there:
            return
        offset = rng.choice(there)
        record = records[offset]
        assert record is not None and record.value is not None
        if rng.random() < 0.5:
            world.faults["snapshot_missing"] += 1
            records[offset] = None
        else:
            world.faults["snapshot_corrupt"] += 1
            records[offset] = msgspec.structs.replace(record, value=_damaged(rng, record.value))

    def _poison(self) -> None:
        rng = self._rng
        dag = rng.choice(DAGS)
        if rng.random() < 0.5:
            self._world.faults["poison_command"] += 1
            self._append(COMMANDS, dag, self._poisoned_command(dag))
        else:
            self._world.faults["poison_trigger"] += 1
            values: list[bytes | None] = [
                b"",
                None,
                b"\xc3\x01" + rng.randbytes(30),
                b'{"dag": "alpha", "dag": "beta"}',
                b'{"dag": 7}',
                b'{"dag": "nobody"}',
                b'{"dag": "alpha", "run_id": "scheduled__2026-01-05T00:00:00Z"}',
                b'{"dag": "alpha", "inputs": ' + b"[" * 200 + b"]" * 200 + b"}",
            ]
            self._append(TRIGGERS, dag, rng.choice(values))

    def _poisoned_command(self, dag: str) -> bytes | None:
        rng = self._rng
        start = encode(c.StartRun(dag=dag))
        place: dict[str, Any] = {"dag": dag, "run_id": "r1", "task": "t0", "attempt": 2**31 - 1, "worker": "w1"}
        event = e.DagRemoved(dag=dag, at=0, reason="")
        removed = encode_event(event, seq=1, shard_seq=1, writer=1, cause="x", previous=b"")
        values: list[bytes | None] = [
            None,
            b"",
            rng.randbytes(60),
            start[:-2],
            start + b"\0",
            removed[0],
            encode(c.ConfigurePool(pool=dag, slots=-3)),
            encode(c.JoinPool(pool=dag, worker="w1", slots=0, mail_partition=2**31 - 1)),
            encode(c.DeployDag(dag=dag, version="bad", definition='{"id": 7}')),
            encode(c.ReportSuccess(**place, started_at=-1, ended_at=-5, output="{")),
            encode(c.StartRun(dag=dag, inputs="[")),
        ]
        return rng.choice(values)

    def _misplace(self) -> None:
        self._world.faults["wrong_partition"] += 1
        dag = self._rng.choice(DAGS)
        partition = self._rng.randrange(self._world.log.partitions)
        if self._rng.random() < 0.5:
            self._append(COMMANDS, dag, encode(c.StartRun(dag=dag, run_id=f"r{self._rng.randint(0, 25)}")), partition)
        else:
            self._append(TRIGGERS, dag, json.dumps({"dag": dag}).encode(), partition)

    def _repeat(self) -> None:
        partition = self._rng.randrange(self._world.log.partitions)
        records = self._world.log.records_of(COMMANDS, partition)
        record = self._rng.choice(records) if records else None
        if record is not None:
            self._world.faults["record_repeated"] += 1
            self._world.producer.send(Append(COMMANDS, record.key or b"", record.value, partition=partition))

    def _append(self, topic: str, key: str, value: bytes | None, partition: int | None = None) -> None:
        self._world.producer.send(Append(topic, key.encode(), value, partition=partition))

    # --- workers -------------------------------------------------------------------------------------------------

    def _lie(self) -> None:
        """A report of an attempt that is none of the sender's, or long over."""
        self._world.faults["report_foreign"] += 1
        rng = self._rng
        dag, run_id, task, attempt = rng.choice(self._world.started[-30:] or [("alpha", "r0", "t0", 1)])
        place: dict[str, Any] = {"dag": dag, "run_id": run_id, "task": task, "worker": rng.choice(WORKERS)}
        place["attempt"] = max(0, attempt + rng.randint(-1, 1))
        now = self._world.now
        lies: list[c.Command] = [
            c.ReportSuccess(**place, started_at=now, ended_at=now, output='{"n": 7}'),
            c.ReportFailure(**place, started_at=now, ended_at=now, kind="exception"),
            c.ReportCancelled(**place, started_at=now, ended_at=now),
            c.ReportHeartbeat(**place, beat=3),
            c.ReportCheckpoint(**place, checkpoint='"forged"'),
        ]
        self._world.send(rng.choice(lies))

    def _resize(self) -> None:
        self._world.faults["pool_resized"] += 1
        self._world.send(
            c.ConfigurePool(pool=self._rng.choice(list(POOLS)), slots=self._rng.choice([None, 1, 2, 3, 8]))
        )

    def _lose_worker(self) -> None:
        world, rng = self._world, self._rng
        worker = rng.choice(world.workers)
        world.faults["worker_killed"] += 1
        if rng.random() < 0.3:
            for pool in POOLS:
                world.send(c.LeavePool(pool=pool, worker=worker.name))
        worker.alive = False
        world.after(rng.choice([0, 5_000, 90_000]), lambda: world.hire(worker.name))

    def _pause_worker(self) -> None:
        worker = self._rng.choice(self._world.workers)
        assert isinstance(worker, TroubledWorker)
        self._world.faults["worker_paused"] += 1
        worker.paused_until = self._world.now + self._rng.choice([2_000, 20_000, 40_000, 100_000])


def _damaged(rng: Random, value: bytes) -> bytes:
    at = rng.randrange(len(value))
    if rng.random() < 0.3:
        return value[:at]
    return value[:at] + bytes([value[at] ^ (1 << rng.randrange(8))]) + value[at + 1 :]
