"""The world in trouble: who acts, how time passes, and what happens when a fault strikes.

One step is one action of one actor: a turn of a scheduler, a worker reading its mail, a turn of the projector,
something said or done that has come due, or one mishap. Time passes between steps, and only there. A process that is
paused within its turn stays on the stack: the steps of the others are played from there, and when they have been, it
goes on.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from tidewheel.core import commands as c
from tidewheel.core.mail import AssignTask
from tidewheel.log.interface import COMMANDS, Append, LogUnavailable
from tidewheel.log.memory import MemoryLog
from tidewheel.log.memory_feed import MemoryFeed
from tidewheel.testing.simulation.authors import DAGS, POOLS, write_workflow
from tidewheel.testing.simulation.decoding import message_in
from tidewheel.testing.simulation.expressions import PlainEvaluator
from tidewheel.testing.simulation.faults import OutsiderPoint, Point, ProjectorPoint, SchedulerPoint
from tidewheel.testing.simulation.following import Follower
from tidewheel.testing.simulation.interception import Crash
from tidewheel.testing.simulation.listening import SimulatedListener
from tidewheel.testing.simulation.outsiders import Make, Outsider
from tidewheel.testing.simulation.scheduler import SchedulerProcess
from tidewheel.testing.simulation.services import Services
from tidewheel.testing.simulation.triggers import FEED_TOPICS
from tidewheel.testing.simulation.waiting import Said
from tidewheel.testing.simulation.worker import TroubledWorker
from tidewheel.testing.world import AttemptPlace, Outcome, World

WORKERS = ("w1", "w2", "w3")
#: After so long without a poll the log gives a scheduler's shards to others.
SESSION_MS = 6_000
#: What passes between two steps.
_TICKS_MS = (0, 0, 0, 0, 0, 0, 1, 10, 100, 300, 700, 2_000)
_PAUSES_MS = (1_000, 8_000, 35_000, 70_000)
#: Steps that the others take while one process stands still, at most.
_PAUSE_STEPS_MAX = 60
#: Processes that stand still at once, at most.
_PAUSED_MAX = 2
#: How an attempt ends: mostly well.
_FAILURES: tuple[c.FailureKind | None, ...] = (*[None] * 12, "exception", "exception", "exit_code", "worker_lost")
_REPORTS = (c.ReportStarted, c.ReportHeartbeat, c.ReportCheckpoint, c.ReportSuccess, c.ReportFailure, c.ReportCancelled)


class ReadModel(Protocol):
    """A projector under simulation, with its store."""

    def act(self, at: Callable[[ProjectorPoint], None]) -> bool:
        """One turn; true if there was anything. ``at`` is called at each point where it can be hit."""

    def restart(self) -> None:
        """The process died: it comes back with an empty memory."""

    def open_waits(self, waits_for: str) -> Mapping[AttemptPlace, str]:
        """What tasks wait for, as its rows have it: the details of each wait."""

    def difference(self) -> str:
        """The first row that differs from what a rebuild gives; empty if none does."""


MakeReadModel = Callable[[MemoryLog], ReadModel]


class TroubledWorld(World):
    """``step`` plays one step; ``violations`` holds what the judges saw so far, each with its step."""

    def __init__(
        self, seed: int, *, faults: bool = True, read_model: MakeReadModel | None = None, waiter: Make | None = None
    ) -> None:
        super().__init__(PlainEvaluator(lambda: None), seed=seed, schedulers=0)
        rng = self.random
        self.log = MemoryLog(rng.choice([1, 2, 4, 5]), clock=lambda: self.now)
        # In some worlds little may wait, so that triggers and slots are put off, and runs go on in many small steps.
        self.rules = msgspec.structs.replace(
            self.rules,
            waiting_runs_max=rng.choice([2, 6, 1_000]),
            backlog_runs=rng.choice([2, 100]),
            step=rng.choice([1, 3, 200]),
        )
        self.checkpoint_events = rng.choice([3, 30, 200, 10_000])
        self.producer = self.log.producer()
        self.trouble = faults
        self.steps = 0
        self.faults: Counter[str] = Counter()
        self.violations: list[tuple[int, str]] = []
        self.follower = Follower(self)
        #: Every end that anybody ever reported as a success: attempt and worker.
        self.spoken: set[tuple[str, str, str, int, str]] = set()
        #: What anybody ever said of what tasks wait for.
        self.said = Said()
        self.versions = 0
        #: The text of each version of each DAG.
        self.definitions: dict[tuple[str, str], str] = {}
        #: Nothing new begins by itself any more.
        self.retired = False
        #: When the trouble ended.
        self.calm_at = 0
        self.mishap: Callable[[], None] = lambda: None
        self.sample: Callable[[], None] = lambda: None
        self.read_model = None if read_model is None else read_model(self.log)
        self.feed = MemoryFeed(clock=lambda: self.now, patient=False)
        for topic, partitions in FEED_TOPICS.items():
            self.feed.create(topic, partitions)
        self.services = Services(lambda: self.now)
        self.outsiders: dict[str, Outsider] = {}
        #: What makes each of them.
        self.makes: dict[str, Make] = {f"listener-{n}": SimulatedListener for n in range(rng.choice([1, 1, 2]))}
        self.waited_on = waiter is not None
        if waiter is not None:
            self.makes |= {f"waiter-{number}": waiter for number in range(rng.choice([1, 1, 2]))}
        self.names = [f"scheduler-{number}" for number in range(rng.randint(1, 3))]
        self._paused = 0
        self._steps_max = 0
        self._projector_armed: dict[ProjectorPoint, str] = {}
        for name in self.names:
            self.start_scheduler(name)
        for name in self.makes:
            self.start_outsider(name)
        for name in WORKERS:
            self.hire(name)
        for pool, slots in POOLS.items():
            self.send(c.ConfigurePool(pool=pool, slots=slots))
        for dag in DAGS:
            self.author(dag)

    # --- who is there --------------------------------------------------------------------------------------------

    @property
    def processes(self) -> list[SchedulerProcess]:
        """The schedulers that are alive."""
        return [process for process in self.schedulers.values() if isinstance(process, SchedulerProcess)]

    def start_scheduler(self, instance: str) -> None:
        """A process joins, or comes back with an empty memory; its clock may be off."""
        skew_ms = 0
        if self.trouble and self.random.random() < 0.3:
            skew_ms = self.random.choice([-5_000, -800, 800, 5_000])
            self.faults["clock_skew"] += 1
        self.schedulers[instance] = SchedulerProcess(self, instance, skew_ms)

    def died(self, process: SchedulerProcess) -> None:
        """The process is no more. Its session ends, and it is started again."""
        process.dead = True
        if self.schedulers.get(process.name) is process:
            del self.schedulers[process.name]
            self.after(self.random.choice([0, SESSION_MS]), lambda: self._session_ends(process.name))
            self.after(self.random.choice([0, 3_000, 20_000]), lambda: self.back(process.name))

    def kill_scheduler(self, instance: str) -> None:
        """kill -9; one that stands still dies when it would go on."""
        process = self.schedulers[instance]
        assert isinstance(process, SchedulerProcess)
        self.died(process)

    def back(self, name: str) -> None:
        """Start it unless it is there."""
        if name not in self.schedulers:
            self.start_scheduler(name)

    def _session_ends(self, name: str) -> None:
        if name not in self.schedulers:
            self.log.expel(name)

    def start_outsider(self, name: str) -> None:
        """A listener or a waiter joins, or comes back with an empty memory; nothing if it is there."""
        if name not in self.outsiders:
            self.outsiders[name] = Outsider(self, name, self.makes[name])

    def outsider_died(self, process: Outsider) -> None:
        """The process is no more. Its session ends, and it is started again."""
        process.dead = True
        if self.outsiders.get(process.name) is process:
            del self.outsiders[process.name]
            self.after(self.random.choice([0, SESSION_MS]), lambda: self._outsider_expires(process))
            self.after(self.random.choice([0, 3_000, 20_000]), lambda: self.start_outsider(process.name))

    def _outsider_expires(self, process: Outsider) -> None:
        if process.name not in self.outsiders:
            process.process.lose_session()

    def hire(self, name: str) -> None:
        """The worker starts, or starts again and knows nothing of what it had."""
        for worker in [worker for worker in self.workers if worker.name == name]:
            worker.alive = False
            self.workers.remove(worker)
        skew_ms = self.random.choice([0, 0, -3_000, 3_000]) if self.trouble else 0
        self.workers.append(TroubledWorker(self, name, dict(POOLS), self._behave, skew_ms))

    def author(self, dag: str) -> None:
        """Deploy a definition unlike the one before."""
        self.versions += 1
        workflow = write_workflow(self.random, dag, schedule=not self.retired)
        definition = msgspec.json.encode(workflow).decode()
        self.definitions[dag, f"v{self.versions}"] = definition
        self.send(c.DeployDag(actor="user:a", dag=dag, version=f"v{self.versions}", definition=definition))

    # --- what is said --------------------------------------------------------------------------------------------

    def send(self, command: c.Command) -> None:
        """Put a command on its topic. What workers say may come late, twice or never."""
        if isinstance(command, c.ReportSuccess):
            self.spoken.add((command.dag, command.run_id, command.task, command.attempt, command.worker))
        self.said.note(command)
        if not self.trouble or not isinstance(command, (*_REPORTS, c.JoinPool)):
            super().send(command)
            return
        fate = self.random.random()
        if fate < 0.03:
            self.faults["report_lost"] += 1
        elif fate < 0.06:
            self.faults["report_late"] += 1
            self.after(self.random.choice([50, 2_000, 31_000, 70_000]), lambda: World.send(self, command))
        else:
            super().send(command)
            if fate > 0.95:
                self.faults["report_doubled"] += 1
                self.after(self.random.choice([0, 900, 40_000]), lambda: World.send(self, command))

    def post(self, record: Append) -> None:
        """A listener or a waiter appends this."""
        if record.topic == COMMANDS and record.value is not None:
            said = message_in(record.value)
            assert isinstance(said, c.ReportWait), said
            self.said.note(said)
            self.follower.waits.judge_report(said)
        self.producer.send(record)

    def mail_fate(self) -> tuple[int, ...]:
        """After which delays a message is read: none, one or two."""
        fate = self.random.random()
        if not self.trouble or fate > 0.06:
            return (0,)
        if fate < 0.02:
            self.faults["mail_lost"] += 1
            return ()
        delay_ms = self.random.choice([100, 5_000, 40_000])
        if fate < 0.04:
            self.faults["mail_late"] += 1
            return (delay_ms,)
        self.faults["mail_doubled"] += 1
        return (0, delay_ms)

    def _behave(self, work: AssignTask) -> Outcome:
        """How an attempt goes."""
        rng = self.random
        if not self.trouble:
            return Outcome(output={"n": work.attempt})
        takes = rng.choice([0, 0, 0, 300, 300, 4_000, 45_000])
        kind: c.FailureKind | None = rng.choice(_FAILURES)
        silent = rng.random() < 0.05
        checkpoint = rng.choice([None, {"by": work.attempt}])
        return Outcome(takes, {"n": work.attempt}, fails=kind, exit_code=3, silent=silent, checkpoint=checkpoint)

    # --- steps ---------------------------------------------------------------------------------------------------

    def play(self, steps: int) -> None:
        """Play so many steps, or until a judge has seen enough."""
        self._steps_max = self.steps + steps
        while self.steps < self._steps_max and not self.violations:
            self.step()

    def step(self) -> None:
        """One action of one actor, after a little time."""
        rng = self.random
        self.steps += 1
        self.now += rng.choice(_TICKS_MS)
        if self._later and self._later[0][0] <= self.now:
            heapq.heappop(self._later)[2]()
            return
        lot = rng.random()
        if lot < 0.52:
            idle = [process for process in self.processes if not process.busy]
            if idle:
                rng.choice(idle).step(0)
        elif lot < 0.79:
            rng.choice(self.workers).act()
        elif lot < 0.83:
            self._act_outside()
        elif lot < 0.9:
            self._project()
        else:
            self.mishap()
        if rng.random() < 0.025:
            self.sample()

    def _act_outside(self) -> None:
        idle = [process for process in self.outsiders.values() if not process.busy]
        if idle:
            self.random.choice(idle).step()

    def _project(self) -> bool:
        read_model = self.read_model
        if read_model is None:
            return False
        try:
            return read_model.act(self._at_projector)
        except Crash:
            read_model.restart()
        except LogUnavailable:
            pass
        return True

    def settle(self, rounds_max: int = 100_000) -> None:
        """Let everybody act, one after the other, until nothing happens at this instant.

        In seed 18878 that takes 80 sub-workflows that each start a chain of 16 runs, one at a time, a record a turn.
        """
        quiet = 0
        for _ in range(rounds_max):
            acted = False
            while self._later and self._later[0][0] <= self.now:
                heapq.heappop(self._later)[2]()
                acted = True
            for process in self.processes:
                acted |= process.step(0)
            for worker in self.workers:
                acted |= worker.act()
            if not acted:
                # Beside the engine they have their turn when it has done all that it could.
                acted |= self._project()
                for outsider in list(self.outsiders.values()):
                    acted |= outsider.step()
            # A first quiet round may only have moved shards between schedulers.
            quiet = 0 if acted else quiet + 1
            if quiet == 2:
                return
        self.violate("the engine does not come to rest")

    def violate(self, what: str) -> None:
        """A judge has seen that the promise is broken."""
        self.violations.append((self.steps, what))

    # --- faults that strike within a turn ------------------------------------------------------------------------

    def arm_projector(self, point: ProjectorPoint, fault: str) -> None:
        """Let the projector's next turn that comes to this point be hit."""
        self._projector_armed[point] = fault

    def _at_projector(self, point: ProjectorPoint) -> None:
        fault = self._projector_armed.pop(point, None)
        if fault is not None:
            self._strike(fault, point)

    def hit(self, process: SchedulerProcess, point: SchedulerPoint, fault: str) -> None:
        """What was armed happens now."""
        if fault == "pause":
            self._pause(point, lambda: self._lose_session(process))
        else:
            self._strike(fault, point)

    def hit_outsider(self, process: Outsider, point: OutsiderPoint, fault: str) -> None:
        """The same of a listener or a waiter."""
        if fault == "pause":
            self._pause(point, process.process.lose_session)
        else:
            self._strike(fault, point)

    def _lose_session(self, process: SchedulerProcess) -> None:
        if self.schedulers.get(process.name) is process:
            self.log.expel(process.name)

    def _strike(self, fault: str, point: Point) -> None:
        self.faults[f"{fault}:{point}"] += 1
        if fault == "crash":
            raise Crash
        raise LogUnavailable("injected: the log is away")

    def _pause(self, point: Point, lose_session: Callable[[], None]) -> None:
        """A process stands still while the others go on. Past its session, what it held is others'."""
        if self._paused >= _PAUSED_MAX:
            return
        self.faults[f"pause:{point}"] += 1
        self._paused += 1
        ends = self.now + self.random.choice(_PAUSES_MS)
        lost = self.now + SESSION_MS
        last = min(self._steps_max, self.steps + _PAUSE_STEPS_MAX)
        while self.now < ends and self.steps < last and not self.violations:
            self.step()
            if self.now >= lost:
                lost = ends + SESSION_MS
                lose_session()
        self._paused -= 1

    def disarm(self) -> None:
        """No fault waits any more."""
        self._projector_armed.clear()
        self.log.forgive()
        for process in self.processes:
            process.armed.clear()
        for outsider in self.outsiders.values():
            outsider.armed.clear()
