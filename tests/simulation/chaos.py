"""A season of trouble for a whole engine, from one seed: authors, operators, workers and schedulers all misbehave."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, get_args

import msgspec

from tidewheel.core import commands as c
from tidewheel.core.mail import AssignTask
from tidewheel.core.workflow import Concurrency, Retry, Run, Schedule, Task, TriggerRule, Workflow
from tidewheel.definition.expressions import CelEvaluator
from tidewheel.log.interface import COMMANDS, Append, LogUnavailable
from tidewheel.log.memory import Fault
from tidewheel.testing.world import Outcome, SimulatedWorker, World

EVALUATOR = CelEvaluator()
DAGS = ("alpha", "beta", "gamma", "delta")
#: Slots that each pool ends with, and that every worker offers to it: a task of width 3 never fits into ``small``.
POOLS = {"default": 4, "small": 2}
_WORKERS = ("w1", "w2", "w3")
_REPORTS = (c.ReportStarted, c.ReportHeartbeat, c.ReportSuccess, c.ReportFailure, c.ReportCancelled)


class Chaos(World):
    """A world in which ``trouble`` happens: messages are late, lost or doubled, and ``mishap`` does one more thing."""

    def __init__(self, seed: int) -> None:
        self.trouble = True
        self.versions = 0
        #: What schedulers next ask of the log, so many times, finds it away.
        self.away = 0
        self._in_turn = False
        rng = random.Random(seed)
        super().__init__(
            EVALUATOR,
            seed=seed,
            partitions=rng.choice([1, 2, 4, 5]),
            schedulers=rng.randint(1, 3),
            checkpoint_events=rng.choice([1, 20, 200, 10_000]),
        )
        self._names = list(self.schedulers)
        self.log.reader = self._unless_away(self.log.reader)  # type: ignore[method-assign]
        for name in _WORKERS:
            self.hire(name)
        for pool, slots in POOLS.items():
            self.send(c.ConfigurePool(pool=pool, slots=slots))
        for dag in DAGS:
            self.author(dag)
        self.settle()

    def start_scheduler(self, instance: str) -> None:
        """It waits for a log that is away, as its loop does."""
        super().start_scheduler(instance)
        scheduler: Any = self.schedulers[instance]
        scheduler._owner.reset = self._unless_away(scheduler._owner.reset)
        scheduler._producer.send = self._unless_away(scheduler._producer.send)
        step = scheduler.step

        def patient(timeout_s: float) -> bool:
            self._in_turn = True
            try:
                return bool(step(timeout_s))
            except LogUnavailable:
                return True
            finally:
                self._in_turn = False

        scheduler.step = patient

    def _unless_away(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def perhaps(*args: Any) -> Any:
            if self.away and self._in_turn:
                self.away -= 1
                raise LogUnavailable("injected: the log is away")
            return call(*args)

        return perhaps

    # --- who misbehaves ------------------------------------------------------------------------------------------

    def send(self, command: c.Command) -> None:
        """What workers say may come late, twice or never."""
        if not self.trouble or not isinstance(command, (*_REPORTS, c.JoinPool)):
            super().send(command)
            return
        fate = self.random.random()
        if fate < 0.06:
            self.after(self.random.choice([50, 2_000, 31_000, 70_000]), lambda: World.send(self, command))
        elif fate > 0.03:
            super().send(command)
            if fate > 0.95:
                self.after(self.random.choice([0, 900, 40_000]), lambda: World.send(self, command))

    def behave(self, work: AssignTask) -> Outcome:
        """How an attempt goes."""
        if not self.trouble:
            return Outcome(takes_ms=self.random.choice([0, 0, 700]), output={"n": work.attempt})
        takes = self.random.choice([0, 0, 0, 300, 300, 4_000, 45_000])
        kind: Any = self.random.choices([None, "exception", "exit_code", "worker_lost"], [12, 2, 2, 1])[0]
        silent = self.random.random() < 0.1
        return Outcome(takes_ms=takes, output={"n": work.attempt}, fails=kind, exit_code=3, silent=silent)

    def hire(self, name: str) -> None:
        """The worker starts, or starts again and knows nothing of what it had."""
        for worker in [worker for worker in self.workers if worker.name == name]:
            worker.alive = False
            self.workers.remove(worker)
        self.workers.append(SimulatedWorker(self, name, dict(POOLS), self.behave))

    def author(self, dag: str, *, schedule: bool = True) -> None:
        """Deploy a definition unlike the one before."""
        self.versions += 1
        definition = msgspec.json.encode(self._workflow(dag, schedule=schedule)).decode()
        self.send(c.DeployDag(actor="user:a", dag=dag, version=f"v{self.versions}", definition=definition))

    def _workflow(self, dag: str, *, schedule: bool) -> Workflow:
        rng = self.random
        tasks: list[Task] = []
        for number in range(rng.randint(1, 7)):
            needs = rng.sample([task.id for task in tasks], min(len(tasks), rng.randint(0, 3)))
            pool = rng.choice(["default", "default", "small"])
            tasks.append(
                Task(
                    id=f"t{number}",
                    action=Run(command="true"),
                    needs=tuple(needs),
                    trigger_rule=rng.choice(("all_success", "all_done", *get_args(TriggerRule))),
                    if_=rng.choice([None, None, None, None, "1 > 2", "tasks.t0.output.n > 1"]) if needs else None,
                    env={"N": "${{ tasks.t0.output.n }}"} if needs and rng.random() < 0.3 else {},
                    retry=Retry(max=rng.randint(0, 2), delay_ms=rng.choice([0, 400, 20_000])),
                    infra_retries=rng.randint(0, 3),
                    pool=pool,
                    pool_slots=rng.choice([1, 1, 1, 2, 3]),
                )
            )
        every = Schedule(every_ms=rng.choice([15_000, 40_000]), catchup=rng.choice(["none", "latest", "all"]))
        return Workflow(
            id=dag,
            tasks=tuple(tasks),
            schedule=every if schedule and self.trouble and rng.random() < 0.6 else None,
            concurrency=Concurrency(max_runs=rng.randint(1, 4), max_tasks=rng.choice([None, 1, 2, 5])),
            priority=rng.choice([0, 0, 5]),
        )

    # --- what happens to them ------------------------------------------------------------------------------------

    def mishap(self) -> None:
        """One thing that an author, an operator, a worker or a machine does."""
        weights = {self._operate: 8, self._lose_worker: 2, self._lose_scheduler: 2, self._break_commit: 3}
        weights |= {self._repeat: 2, self._lie: 1, self._resize: 1, self._clock: 1, self._vanish: 2}
        self.random.choices(list(weights), list(weights.values()))[0]()

    def _operate(self) -> None:
        dag = self.random.choice(DAGS)
        run_id = f"r{self.random.randint(0, 25)}"
        live = [run_id for scheduler in self.schedulers.values() for run_id in live_runs(scheduler, dag)]
        some: list[c.Command] = [
            c.StartRun(dag=dag, run_id=run_id),
            c.StartRun(dag=dag, run_id=run_id),
            c.StartRun(dag=dag),
            c.StartRun(dag=dag),
            c.StartRun(dag=dag),
            c.CancelRun(dag=dag, run_id=self.random.choice(live) if live else run_id, reason="wrong"),
            c.CancelRun(dag=dag, run_id=self.random.choice(live) if live else run_id, reason="wrong"),
            c.PauseDag(dag=dag),
            c.UnpauseDag(dag=dag),
            c.UnpauseDag(dag=dag),
        ]
        choice = self.random.randint(0, len(some) + 1)
        if choice < len(some):
            self.send(some[choice])
        elif choice == len(some):
            self.author(dag)
        else:
            self.send(c.RemoveDag(dag=dag))
            self.after(self.random.choice([0, 30_000]), lambda: self.author(dag))

    def _lose_worker(self) -> None:
        worker = self.random.choice(self.workers)
        if self.random.random() < 0.3:
            for pool in POOLS:
                self.send(c.LeavePool(pool=pool, worker=worker.name))
        worker.alive = False
        self.after(self.random.choice([0, 5_000, 90_000]), lambda: self.hire(worker.name))

    def _lose_scheduler(self) -> None:
        name = self.random.choice(self._names)
        if name not in self.schedulers:
            self.start_scheduler(name)
        elif self.random.random() < 0.4:
            self.log.expel(name)  # its session ran out, but it goes on
        else:
            self.kill_scheduler(name)
            self.after(self.random.choice([0, 3_000, 20_000]), lambda: self._back(name))

    def _back(self, name: str) -> None:
        if name not in self.schedulers:
            self.start_scheduler(name)

    def _break_commit(self) -> None:
        for _ in range(self.random.randint(1, 3)):
            self.log.inject(self.random.choice(list(Fault)))

    def _vanish(self) -> None:
        self.away += self.random.randint(1, 3)

    def _repeat(self) -> None:
        """Some record of the commands comes again, however old."""
        partition = self.random.randrange(self.log.partitions)
        end = self.log.end_offset(COMMANDS, partition)
        if end:
            reader = self.log.reader({(COMMANDS, partition): self.random.randrange(end)})
            for record in reader.read(1, 0):
                self._producer.send(Append(COMMANDS, record.key or b"", record.value, partition=partition))

    def _lie(self) -> None:
        """A report of an attempt that is none of the sender's."""
        dag, run_id, task, attempt = self.random.choice(self.started or [("alpha", "r0", "t0", 1)])
        place: dict[str, Any] = {"dag": dag, "run_id": run_id, "task": task, "worker": self.random.choice(_WORKERS)}
        place["attempt"] = max(0, attempt + self.random.randint(-1, 1))
        self.send(c.ReportSuccess(**place, started_at=self.now, ended_at=self.now, output='{"n": 7}'))

    def _resize(self) -> None:
        pool = self.random.choice(list(POOLS))
        self.send(c.ConfigurePool(pool=pool, slots=self.random.choice([None, 1, 2, 3, 8])))

    def _clock(self) -> None:
        """The clock jumps, with nobody acting in between: a machine that slept, a time server that corrects."""
        self.now += self.random.choice([1_000, 31_000, 200_000, -1_000, -15_000])

    # --- time ----------------------------------------------------------------------------------------------------

    def nudge(self) -> None:
        """A few of the actors act once, and whatever they say to each other stays under way."""
        for _ in range(self.random.randint(0, 5)):
            actors: list[Any] = [*self.schedulers.values(), *self.workers]
            actor = self.random.choice(actors) if actors else None
            if isinstance(actor, SimulatedWorker):
                actor.act()
            elif actor is not None:
                actor.step(0)

    def calm(self) -> None:
        """The trouble is over: everybody is there, nothing is paused, nothing new begins."""
        self.trouble = False
        self.log._faults.clear()
        self.away = 0
        for name in self._names:
            self._back(name)
        for name in _WORKERS:
            self.hire(name)
        for pool, slots in POOLS.items():
            self.send(c.ConfigurePool(pool=pool, slots=slots))
        for dag in DAGS:
            self.author(dag, schedule=False)
            self.send(c.UnpauseDag(dag=dag))
        self.settle()


def live_runs(scheduler: Any, dag: str) -> list[str]:
    """Runs of the DAG in this scheduler's memory, sorted so that the same seed gives the same world."""
    found = [
        run_id
        for shard in scheduler._owned.values()
        for key, state in shard.aggregates.items()
        if key.kind == "dag" and key.name == dag
        for run_id in state.runs
    ]
    return sorted(found)
