"""A whole engine in one thread under virtual time: schedulers on a memory log, simulated workers, a clock that only
moves when told.

The same seed and code give the same world. ``settle`` lets everybody act until nothing happens any more at this
instant, ``advance`` moves the clock (settling at every instant at which something is due), ``check`` lets the journal
prove itself.
"""

from __future__ import annotations

import contextlib
import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Protocol, TypeAlias

import msgspec

from tidewheel.core import commands as c
from tidewheel.core.events import AnyEvent, Recorded
from tidewheel.core.expressions import Evaluator
from tidewheel.core.mail import AssignTask, Reply, StopAttempt
from tidewheel.core.rules import Rules
from tidewheel.core.workflow import Workflow
from tidewheel.log.interface import COMMANDS, JOURNALS, MAIL, Append
from tidewheel.log.memory import MemoryLog
from tidewheel.log.partition import partition_of
from tidewheel.runtime.checker import Report, check_log
from tidewheel.runtime.scheduler import Scheduler, Status
from tidewheel.wire.codec import DecodeError, decode, decode_event, encode

#: Monday, 2026-01-05 00:00 UTC.
START_MS = 1_767_571_200_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a simulated attempt comes to: after ``takes_ms``, a success with ``output``, or a failure of kind ``fails``.

    ``silent``: the worker never reports anything, not even the start. Halfway it saves ``checkpoint``, unless that is
    None.
    """

    takes_ms: int = 0
    output: Any = None
    fails: c.FailureKind | None = None
    exit_code: int | None = None
    silent: bool = False
    checkpoint: Any = None


Behaviour = Callable[[AssignTask], Outcome]
#: dag, run_id, task, attempt
AttemptPlace: TypeAlias = tuple[str, str, str, int]


def succeed(assignment: AssignTask) -> Outcome:
    """Every attempt succeeds at once."""
    return Outcome()


class Turning(Protocol):
    """A scheduler, or what stands for one."""

    @property
    def status(self) -> Status:
        """What it tells of itself."""

    def step(self, timeout_s: float) -> bool:
        """One turn; true if anything was committed."""


@dataclass
class SimulatedWorker:
    """A worker that does what ``behaviour`` says. It renews what it runs, and obeys its mail."""

    world: World
    name: str
    pools: dict[str, int]
    behaviour: Behaviour
    alive: bool = True
    running: dict[AttemptPlace, AssignTask] = field(default_factory=dict)
    seen: set[AttemptPlace] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.partition = partition_of(self.name.encode(), self.world.log.partitions)
        start = self.world.log.end_offset(MAIL, self.partition)
        self.reader = self.world.log.reader({(MAIL, self.partition): start})
        self.join()

    def clock(self) -> int:
        """What it takes for now."""
        return self.world.now

    def join(self) -> None:
        """Offer the slots, and again every third of a worker's term."""
        if not self.alive:
            return
        for pool, slots in self.pools.items():
            self.world.send(
                c.JoinPool(
                    actor=f"worker:{self.name}",
                    pool=pool,
                    worker=self.name,
                    slots=slots,
                    mail_partition=self.partition,
                )
            )
        self.world.after(self.world.rules.worker_term_ms // 3, self.join)

    def act(self) -> bool:
        """Read the mail; true if there was any."""
        if not self.alive:
            return False
        records = self.reader.read(1_000, 0)
        for record in records:
            assert record.value is not None
            message = decode(record.value, self.partition)
            if getattr(message, "receiver", None) != self.name:
                continue
            if isinstance(message, AssignTask):
                self._begin(message)
            elif isinstance(message, StopAttempt):
                self._stop(message)
        return bool(records)

    def _begin(self, assignment: AssignTask) -> None:
        key = (assignment.dag, assignment.run_id, assignment.task, assignment.attempt)
        if key in self.seen:
            return
        self.seen.add(key)
        outcome = self.behaviour(assignment)
        self.world.started.append(key)
        if outcome.silent:
            return
        self.running[key] = assignment
        begun = self.clock()
        if outcome.takes_ms:
            self.world.send(c.ReportStarted(**self._place(key), started_at=begun))
            self._beat(key, 1)
        if outcome.checkpoint is not None:
            self.world.after(outcome.takes_ms // 2, lambda: self._save(key, outcome.checkpoint))
        self.world.after(outcome.takes_ms, lambda: self._end(key, begun, outcome))

    def _save(self, key: AttemptPlace, checkpoint: Any) -> None:
        if self.alive and key in self.running:
            text = msgspec.json.encode(checkpoint).decode()
            self.world.send(c.ReportCheckpoint(**self._place(key), checkpoint=text))

    def _beat(self, key: AttemptPlace, beat: int) -> None:
        self.world.after(self.world.rules.lease_ms // 3, lambda: self._send_beat(key, beat))

    def _send_beat(self, key: AttemptPlace, beat: int) -> None:
        if self.alive and key in self.running:
            self.world.send(c.ReportHeartbeat(**self._place(key), beat=beat))
            self._beat(key, beat + 1)

    def _end(self, key: AttemptPlace, begun: int, outcome: Outcome) -> None:
        if not self.alive or self.running.pop(key, None) is None:
            return
        times: dict[str, Any] = {"started_at": begun, "ended_at": self.clock()}
        if outcome.fails is not None:
            failure: dict[str, Any] = {"kind": outcome.fails, "message": "it failed", "exit_code": outcome.exit_code}
            self.world.send(c.ReportFailure(**self._place(key), **times, **failure))
        else:
            output = None if outcome.output is None else msgspec.json.encode(outcome.output).decode()
            self.world.send(c.ReportSuccess(**self._place(key), **times, output=output))

    def _stop(self, message: StopAttempt) -> None:
        key = (message.dag, message.run_id, message.task, message.attempt)
        if self.running.pop(key, None) is not None and message.cancel:
            now = self.clock()
            self.world.send(c.ReportCancelled(**self._place(key), started_at=now, ended_at=now))

    def _place(self, key: AttemptPlace) -> dict[str, Any]:
        dag, run_id, task, attempt = key
        actor = f"worker:{self.name}"
        return {"actor": actor, "worker": self.name, "dag": dag, "run_id": run_id, "task": task, "attempt": attempt}


class World:
    """The engine and everything around it."""

    def __init__(
        self,
        evaluator: Evaluator,
        *,
        seed: int = 0,
        partitions: int = 4,
        schedulers: int = 1,
        checkpoint_events: int = 500,
        markers: bool = True,
        rules: Rules | None = None,
    ) -> None:
        self.random = random.Random(seed)
        self.now = START_MS
        self.rules = rules or Rules(evaluator=evaluator)
        self.log = MemoryLog(partitions, clock=lambda: self.now, markers=markers)
        self.checkpoint_events = checkpoint_events
        self.schedulers: dict[str, Turning] = {}
        self.workers: list[SimulatedWorker] = []
        #: Every attempt a worker began, in order.
        self.started: list[AttemptPlace] = []
        self.producer = self.log.producer()
        self._replies = self.log.reader({(MAIL, 0): 0})
        self._later: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()
        self._requests = count(1)
        for number in range(schedulers):
            self.start_scheduler(f"scheduler-{number}")

    def start_scheduler(self, instance: str) -> None:
        """A new process joins, or an old one comes back with an empty memory."""
        self.schedulers[instance] = Scheduler(
            self.log,
            instance,
            self.rules.evaluator,
            clock=lambda: self.now,
            rules=self.rules,
            checkpoint_events=self.checkpoint_events,
        )

    def kill_scheduler(self, instance: str) -> None:
        """kill -9: it says nothing any more, and after its session time-out (at once here) others have its shards."""
        del self.schedulers[instance]
        self.log.expel(instance)

    def add_worker(
        self, name: str = "w1", slots: int = 4, behaviour: Behaviour = succeed, pool: str = "default"
    ) -> SimulatedWorker:
        """A worker joins."""
        worker = SimulatedWorker(self, name, {pool: slots}, behaviour)
        self.workers.append(worker)
        return worker

    def send(self, command: c.Command) -> None:
        """Put a command on its topic."""
        key = (getattr(command, "dag", "") or getattr(command, "pool", "")).encode()
        self.producer.send(Append(COMMANDS, key, encode(command)))

    def ask(self, command: c.Request) -> Reply:
        """Send a request, let the engine settle, give the reply."""
        request_id = str(next(self._requests))
        self.send(msgspec.structs.replace(command, receiver="world", reply_partition=0, request_id=request_id))
        self.settle()
        for record in self._replies.read(100_000, 0):
            assert record.value is not None
            message = decode(record.value, 0)
            if isinstance(message, Reply) and message.receiver == "world" and message.request_id == request_id:
                return message
        raise AssertionError(f"no reply to {command}")

    def deploy(self, workflow: Workflow, version: str = "v1") -> Reply:
        """Make ``workflow`` current."""
        definition = msgspec.json.encode(workflow).decode()
        return self.ask(c.DeployDag(actor="user:test", dag=workflow.id, version=version, definition=definition))

    def after(self, delay_ms: int, act: Callable[[], None]) -> None:
        """Let something outside the engine happen later."""
        heapq.heappush(self._later, (self.now + delay_ms, next(self._order), act))

    def settle(self, rounds_max: int = 10_000) -> None:
        """Let everybody act, in random order, until nothing happens at this instant."""
        quiet = 0
        for _ in range(rounds_max):
            acted = False
            while self._later and self._later[0][0] <= self.now:
                heapq.heappop(self._later)[2]()
                acted = True
            actors: list[Callable[[], bool]] = [lambda s=s: s.step(0) for s in self.schedulers.values()]  # type: ignore[misc]
            actors += [worker.act for worker in self.workers]
            self.random.shuffle(actors)
            for act in actors:
                acted |= act()
            # A first quiet round may only have moved shards between schedulers.
            quiet = 0 if acted else quiet + 1
            if quiet == 3:
                return
        raise AssertionError("the engine does not come to rest")

    def advance(self, ms: int, step_ms: int = 1_000) -> None:
        """Move the clock by ``ms``, settling every ``step_ms`` and whenever something outside is due."""
        end = self.now + ms
        self.settle()
        while self.now < end:
            due = self._later[0][0] if self._later else end
            self.now = min(end, max(self.now + 1, min(due, self.now + step_ms)))
            self.settle()

    def journal(self) -> list[Recorded]:
        """Every event of every shard, DAGs before pools, in journal order within a shard; what is none is left out."""
        found = []
        for topic in JOURNALS:
            for partition in range(self.log.partitions):
                for record in self.log.reader({(topic, partition): 0}).read(1_000_000, 0):
                    with contextlib.suppress(DecodeError):
                        found.append(decode_event(record.value or b""))
        return found

    def events(self, *kinds: type[AnyEvent]) -> list[AnyEvent]:
        """The events of these types (all without any), as ``journal`` orders them."""
        return [recorded.event for recorded in self.journal() if not kinds or isinstance(recorded.event, kinds)]

    def write_foreign(self, topic: str, partition: int, *values: bytes | None) -> None:
        """Somebody who is not the shard's owner writes into its journal."""
        for value in values:
            self.producer.send(Append(topic, b"foreign", value, partition=partition))

    def check(self) -> Report:
        """Let the journal checker judge, and the owners themselves; fails on any violation."""
        for scheduler in self.schedulers.values():
            assert not scheduler.status.stopped, [stopped.fault.report for stopped in scheduler.status.stopped]
        report = check_log(self.log)
        assert report.ok, report.violations[:5]
        return report
