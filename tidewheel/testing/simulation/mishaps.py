"""One thing that goes wrong, or that somebody does: an author, an operator, a stranger, a worker, a machine."""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.mapping import written_task
from tidewheel.core.state import Dag
from tidewheel.log.interface import COMMANDS, SNAPSHOTS, TRIGGERS, Append
from tidewheel.log.memory import Fault
from tidewheel.testing.simulation.authors import DAGS, POOLS
from tidewheel.testing.simulation.faults import PROJECTOR_POINTS, SCHEDULER_POINTS, SchedulerPoint
from tidewheel.testing.simulation.recalling import told_of
from tidewheel.testing.simulation.worker import TroubledWorker
from tidewheel.testing.simulation.world import WORKERS, TroubledWorld
from tidewheel.testing.world import START_MS
from tidewheel.wire.codec import encode, encode_event

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tidewheel.runtime.shard import Shard

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
        self._requests = 0
        weights = {self._operate: 6, self._operate_run: 5, self._trigger: 4, self._backfill: 2}
        if faults:
            weights |= {
                self._hit_scheduler: 8,
                self._hit_projector: 2,
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

    # --- people --------------------------------------------------------------------------------------------------

    def _operate(self) -> None:
        world, rng = self._world, self._rng
        dag = rng.choice(DAGS)
        match rng.randint(0, 11):
            case 0 | 1:
                world.send(c.StartRun(dag=dag, run_id=f"r{rng.randint(0, 25)}"))
            case 2 | 3:
                world.send(self._request(c.StartRun(dag=dag)))
            case 4 | 5:
                live = sorted(run for process in world.processes for run in live_runs(process.shards.values(), dag))
                world.send(c.CancelRun(dag=dag, run_id=rng.choice(live) if live else "r1", reason="wrong"))
            case 6:
                world.send(self._request(c.PauseDag(dag=dag)))
                world.after(rng.choice([0, 4_000, 60_000]), lambda: world.send(c.UnpauseDag(dag=dag)))
            case 7 | 8:
                world.author(dag)
            case 9 | 10:
                self._answer()
            case _:
                world.send(c.RemoveDag(dag=dag))
                world.after(rng.choice([0, 30_000]), lambda: world.author(dag))

    def _operate_run(self) -> None:
        dag = self._rng.choice(DAGS)
        if self._rng.random() < 0.4:
            self._mark(dag)
        else:
            self._clear(dag)

    def _mark(self, dag: str) -> None:
        """Somebody says how a task ended, mostly one that has begun."""
        rng = self._rng
        run_id, task = self._some_task(dag)
        state: c.Mark = rng.choice(["success", "failed", "skipped"])
        said: dict[str, Any] = {"dag": dag, "run_id": run_id, "actor": "user:ann", **told_of(self._world, dag, run_id)}
        output = rng.choice([None, '{"n": 3}']) if state == "success" else None
        self._world.send(c.MarkTask(**said, task=task, state=state, output=output, downstream=rng.random() < 0.3))

    def _clear(self, dag: str) -> None:
        """Somebody lets tasks begin anew."""
        rng = self._rng
        run_id, task = self._some_task(dag)
        tasks = rng.choice([[], [task], [task], [task, f"t{rng.randint(0, 6)}"]])
        choices: dict[str, Any] = {
            name: rng.random() < 0.4 for name in ("downstream", "upstream", "only_failed", "latest")
        }
        said: dict[str, Any] = {"dag": dag, "run_id": run_id, "actor": "user:ann", **told_of(self._world, dag, run_id)}
        self._world.send(c.ClearTasks(**said, **choices, tasks=json.dumps(tasks), preview=rng.random() < 0.1))

    def _some_task(self, dag: str) -> tuple[str, str]:
        """A task of a run, mostly one that has begun."""
        rng = self._rng
        begun = [place for place in self._world.started[-60:] if place[0] == dag]
        _, run_id, task, _ = rng.choice(begun or [(dag, f"r{rng.randint(0, 25)}", f"t{rng.randint(0, 6)}", 1)])
        if rng.random() < 0.3:
            task = rng.choice([written_task(task), f"t{rng.randint(0, 6)}", f"{written_task(task)}[1]"])
        return run_id, task

    def _answer(self) -> None:
        """Tasks that wait are answered: rightly, or by mistake, or too late."""
        world, rng = self._world, self._rng
        shards = [shard for process in world.processes for shard in process.shards.values()]
        waiting = sorted(waiting_tasks(shards))
        for dag, run_id, task, attempt, waits_for in rng.sample(waiting, min(3, len(waiting))):
            place: dict[str, Any] = {"dag": dag, "run_id": run_id, "task": task}
            if (waits_for == "approval") == (rng.random() < 0.9):
                said: dict[str, Any] = {"approve": rng.random() < 0.7, "role": rng.choice(["", "boss", "clerk"])}
                attempt = rng.choice([0, attempt, attempt + 1])
                world.send(c.DecideApproval(actor="user:b", **place, attempt=attempt, **said))
            else:
                answer = {"output": "1"} if rng.random() < 0.7 else {"fault": "no such address"}
                attempt = rng.choice([attempt, attempt, attempt + 1])
                world.send(c.ReportWait(actor="waiter", **place, attempt=attempt, **answer))

    def _backfill(self) -> None:
        """Runs for slots that have passed, the world's beginning before them all; or one of these is held or ended."""
        world, rng = self._world, self._rng
        dag = rng.choice(DAGS)
        match rng.randint(0, 5):
            case 0 | 1 | 2:
                since = START_MS - rng.choice([0, 400_000, 2_000_000])
                until = rng.choice([world.now, since + rng.choice([0, 300_000, 900_000]), world.now + 60_000])
                command = c.StartBackfill(
                    dag=dag,
                    since=since,
                    until=until,
                    order=rng.choice(("forward", "backward")),
                    mode=rng.choice(("parallel", "chunked")),
                    width=rng.choice([1, 2, 5]),
                    reprocess=rng.choice(("none", "none", "failed", "all")),
                )
                world.send(self._request(command))
            case 3:
                name = f"backfill-{rng.randint(1, 4)}"
                world.send(self._request(c.PauseBackfill(dag=dag, backfill_id=name)))
                resume = self._request(c.ResumeBackfill(dag=dag, backfill_id=name))
                world.after(rng.choice([0, 4_000, 60_000]), lambda: world.send(resume))
            case 4:
                name = f"backfill-{rng.randint(1, 4)}"
                world.send(self._request(c.CancelBackfill(dag=dag, backfill_id=name, running=rng.random() < 0.3)))
            case _:
                # The same two times: it is one backfill, or the slots have runs by then.
                command = c.StartBackfill(dag=dag, since=START_MS - 600_000, until=START_MS, width=3)
                world.send(self._request(command))
                world.after(rng.choice([0, 30_000]), lambda: world.send(self._request(command)))

    def _request(self, command: c.Request) -> c.Request:
        """The same command, with somebody waiting for the answer."""
        self._requests += 1
        return msgspec.structs.replace(command, request_id=str(self._requests), receiver="api")

    def _trigger(self) -> None:
        rng = self._rng
        document: dict[str, Any] = {"dag": rng.choice(DAGS)}
        match rng.randint(0, 4):
            case 0:
                document["id"] = f"order-{rng.randint(0, 40)}"
            case 1:
                document["run_id"] = f"r{rng.randint(0, 25)}"
            case 2:
                document["inputs"] = {"n": rng.randint(0, 9)}
        self._append(TRIGGERS, document["dag"], json.dumps(document).encode())

    # --- schedulers and projector --------------------------------------------------------------------------------

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


def live_runs(shards: Iterable[Shard], dag: str) -> list[str]:
    """Runs of the DAG in these shards' memory, sorted so that the same seed gives the same world."""
    return sorted(
        run_id
        for shard in shards
        for state in shard.aggregates.values()
        if isinstance(state, Dag) and state.dag == dag
        for run_id in state.runs
    )


def waiting_tasks(shards: Iterable[Shard]) -> Iterator[tuple[str, str, str, int, str]]:
    """DAG, run, task and attempt of what waits without a worker, and what for."""
    for shard in shards:
        for state in shard.aggregates.values():
            if isinstance(state, Dag):
                for run in state.runs.values():
                    for name, task in run.tasks.items():
                        if task.wait is not None:
                            yield state.dag, run.run_id, name, task.attempt, task.wait.waits_for


def _damaged(rng: Random, value: bytes) -> bytes:
    at = rng.randrange(len(value))
    if rng.random() < 0.3:
        return value[:at]
    return value[:at] + bytes([value[at] ^ (1 << rng.randrange(8))]) + value[at + 1 :]
