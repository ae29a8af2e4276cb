"""Watching the journal while it is written: what can only be judged at that moment, and by whom it was written.

It knows the promise, not the engine: mail speaks only of what is committed, a result comes from who was given the
attempt and said so, nobody is expired who was not listened to, a back-off is waited out, and the pool's order holds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, get_args

import msgspec

from tidewheel.core import events as e
from tidewheel.core.events import Recorded
from tidewheel.core.mail import AssignTask, Reply
from tidewheel.core.mapping import written_task
from tidewheel.core.workflow import Task, WorkerAction, Workflow
from tidewheel.log.interface import JOURNALS, Append
from tidewheel.testing.simulation.backfilling import OpenBackfills
from tidewheel.testing.simulation.decoding import event_in, message_in
from tidewheel.testing.simulation.order import PoolOrder
from tidewheel.testing.simulation.triggers import Triggers
from tidewheel.testing.simulation.waiting import OpenWaits

if TYPE_CHECKING:
    from tidewheel.testing.simulation.scheduler import SchedulerProcess
    from tidewheel.testing.simulation.world import TroubledWorld
    from tidewheel.testing.world import AttemptPlace

_TASK_ENDED = (
    e.TaskSucceeded,
    e.TaskFailed,
    e.TaskCancelled,
    e.TaskSkipped,
    e.TaskUpstreamFailed,
    e.LeaseExpired,
)
_RUN_ENDED = (e.RunSucceeded, e.RunFailed, e.RunCancelled)


class Follower:
    """Reads each journal partition as it grows."""

    def __init__(self, world: TroubledWorld) -> None:
        self._world = world
        places = [(topic, partition) for topic in JOURNALS for partition in range(world.log.partitions)]
        self._read = dict.fromkeys(places, 0)
        #: The last ``shard_seq`` of each partition.
        self.shard_seq = dict.fromkeys(places, 0)
        self._chains = dict.fromkeys(places, b"")
        self.events = 0
        self.leased: set[AttemptPlace] = set()
        #: How often each run was created, and which input each creation answers.
        self.created: dict[tuple[str, str], int] = {}
        self.caused: dict[str, int] = {}
        #: The attempt and worker of each task that were leased last.
        self._holders: dict[tuple[str, str, str], tuple[int, str]] = {}
        #: What attempts have left for the next one of their task.
        self._checkpoints: dict[tuple[str, str, str], str] = {}
        #: What each leased attempt may be given: what was left for it, or what it has left itself since, as a new owner
        #: sends leases again; and mail comes late.
        self._given: dict[AttemptPlace, list[str | None]] = {}
        self._ended: dict[tuple[str, str, str], int] = {}
        self._workflows: dict[tuple[str, str], dict[str, Task]] = {}
        #: The tasks of each run, as its version defines them.
        self._tasks: dict[tuple[str, str], dict[str, Task]] = {}
        self._ended_runs: set[tuple[str, str]] = set()
        #: Of runs that were restarted, the attempt from which their tasks count.
        self._counts_from: dict[tuple[str, str], int] = {}
        self._retry_at: dict[tuple[str, str, str], int] = {}
        #: The last attempt of each task, and how many of them came before it was cleared.
        self._begun: dict[tuple[str, str, str], int] = {}
        self._spent: dict[tuple[str, str, str], int] = {}
        self._pools: dict[str, PoolOrder] = {}
        self.triggers = Triggers(world)
        self.waits = OpenWaits(world)
        self._backfills = OpenBackfills(world)

    def overdue(self) -> Iterator[str]:
        """What should have gone on by now, if nothing has been wrong for a while."""
        yield from self.waits.overdue()
        yield from self._backfills.overdue()

    def follow(self, writer: SchedulerProcess, places: Iterable[tuple[str, int]]) -> None:
        """Judge what ``writer`` has just written there."""
        for place in places:
            position = self._read[place]
            records = self._world.log.records_of(*place)
            if len(records) > position:
                self._read[place] = len(records)
                for record in records[position:]:
                    if record is not None and record.value is not None:
                        self._judge(place, event_in(record.value), writer)
        self.waits.judge()

    def digest(self) -> str:
        """A hash over the ends of all journals, which are chained."""
        return hashlib.sha256(repr(sorted(self._chains.items())).encode()).hexdigest()

    def judge_mail(self, mail: Append) -> None:
        """Mail speaks only of what is committed."""
        assert mail.value is not None
        message = message_in(mail.value)
        if isinstance(message, AssignTask):
            key = (message.dag, message.run_id, message.task, message.attempt)
            if key not in self.leased:
                self._world.violate(f"mail assigns {_named(key)} before the journal has its lease")
            elif message.checkpoint not in self._given[key]:
                left = self._given[key][0]
                self._world.violate(f"{_named(key)} is given {message.checkpoint}, but {left} was left for it")
        elif isinstance(message, Reply) and message.position:
            topic, partition, shard_seq = message.position.split("/")
            if int(shard_seq) > self.shard_seq[topic, int(partition)]:
                self._world.violate(f"a reply speaks of {message.position} before it is committed")

    def _judge(self, place: tuple[str, int], recorded: Recorded, writer: SchedulerProcess) -> None:
        self.events += 1
        self.shard_seq[place] = max(self.shard_seq[place], recorded.shard_seq)
        self._chains[place] = recorded.chain
        event = recorded.event
        match event:
            case e.DagDeployed():
                workflow = msgspec.json.decode(event.definition, type=Workflow)
                self._workflows[event.dag, event.version] = {task.id: task for task in workflow.tasks}
                self.triggers.deployed(event, workflow)
            case e.DagRemoved():
                self.triggers.removed(event.dag)
            case e.RunCreated():
                self.triggers.created(event)
                run = (event.dag, event.run_id)
                self._tasks[run] = self._defined(event)
                self.created[run] = self.created.get(run, 0) + 1
                self.caused[recorded.cause] = self.caused.get(recorded.cause, 0) + 1
            case e.RunRestarted():
                self._restart(event)
            case e.TaskQueued() | e.TaskReady():
                self._judge_back_off(event)
            case e.TaskDeferred():
                self._begun[event.dag, event.run_id, event.task] = event.attempt
            case e.TaskLeased():
                key = (event.dag, event.run_id, event.task, event.attempt)
                self.leased.add(key)
                self._given[key] = [self._checkpoints.get(key[:3])]
                self._holders[event.dag, event.run_id, event.task] = (event.attempt, event.worker)
            case e.TaskCheckpointed():
                self._checkpoint(event)
            case e.LeaseExpired():
                self._judge_expiry(event, place[1], writer)
            case e.PoolEvent():
                pool = self._pools.setdefault(event.pool, PoolOrder(event.pool))
                for fault in pool.apply(event):
                    self._world.violate(fault)
            case e.RunReopened():
                self._reopen(event)
            case e.TasksCleared():
                for name in msgspec.json.decode(event.tasks, type=list[str]):
                    self._begin_anew(event, name)
            case _ if isinstance(event, _RUN_ENDED):
                self._ended_runs.add((event.dag, event.run_id))
        self.waits.apply(event)
        self._backfills.apply(event)
        if isinstance(event, e.TaskEvent):
            self._judge_result(event)
        if isinstance(event, e.TaskCancelled) and event.then == "scheduled":
            self._begin_anew(event, event.task)

    def _defined(self, event: e.RunCreated | e.RunRestarted | e.RunReopened) -> dict[str, Task]:
        """The tasks of the version by which a run goes on."""
        tasks = self._workflows.get((event.dag, event.version))
        if tasks is None:
            self._world.violate(f"{event.dag}/{event.run_id} goes by version {event.version}, which was never deployed")
        return tasks or {}

    def _checkpoint(self, event: e.TaskCheckpointed) -> None:
        key = (event.dag, event.run_id, event.task, event.attempt)
        self._checkpoints[key[:3]] = event.checkpoint
        if key not in self._given:
            self._world.violate(f"{_named(key)} leaves a checkpoint, and was never leased")
        self._given.setdefault(key, []).append(event.checkpoint)

    def _restart(self, event: e.RunRestarted) -> None:
        """The run begins anew: what its tasks had come to is undone, and their budgets are whole again."""
        run = (event.dag, event.run_id)
        self._ended_runs.discard(run)
        self._tasks[run] = self._defined(event)
        self._counts_from[run] = event.attempts
        for known in (self._ended, self._retry_at, self._checkpoints):
            for task in [task for task in known if task[:2] == run]:
                del known[task]

    def _judge_back_off(self, event: e.TaskQueued | e.TaskReady) -> None:
        task = (event.dag, event.run_id, event.task)
        retry_at = self._retry_at.pop(task, 0)
        if event.at < retry_at:
            early = retry_at - event.at
            self._world.violate(f"{_named((*task, event.attempt))} begins {early} ms before its back-off is over")
        defined = self._tasks[event.dag, event.run_id][written_task(event.task)]
        budget = 1 + defined.retry.max + defined.infra_retries
        if isinstance(event, e.TaskQueued):
            self._begun[task] = event.attempt
        spent = max(self._spent.get(task, 0), self._counts_from.get((event.dag, event.run_id), 0))
        if event.attempt > spent + budget:
            self._world.violate(f"{_named((*task, event.attempt))} is more than the task's budgets allow")

    def _reopen(self, event: e.RunReopened) -> None:
        """Tasks that its version does not have are gone; should they come back, they begin anew."""
        run = (event.dag, event.run_id)
        self._ended_runs.discard(run)
        before, self._tasks[run] = self._tasks[run], self._defined(event)
        if before is not self._tasks[run]:
            for name in before:
                self._begin_anew(event, name)

    def _begin_anew(self, event: e.RunEvent, name: str) -> None:
        """The task was cleared, its instances and the mapped task of an instance with it: budgets begin anew."""
        written = written_task(name)
        for task in [key for key in self._begun if key[:2] == (event.dag, event.run_id)]:
            if task[2] in (name, written) or written_task(task[2]) == name:
                self._spent[task] = self._begun[task]
        for known in (self._ended, self._retry_at, self._checkpoints):
            for task in [key for key in known if key[:2] == (event.dag, event.run_id)]:
                if task[2] in (name, written) or written_task(task[2]) == name:
                    del known[task]

    def _judge_expiry(self, event: e.LeaseExpired, shard: int, writer: SchedulerProcess) -> None:
        taken = writer.taken.get(shard)
        if taken is not None and event.at < taken + self._world.rules.lease_ms:
            key = (event.dag, event.run_id, event.task, event.attempt)
            self._world.violate(
                f"the lease of {_named(key)} is called expired {event.at - taken} ms after {writer.name} took the shard"
            )

    def _judge_result(self, event: e.TaskEvent) -> None:
        task = (event.dag, event.run_id, event.task)
        key = (*task, event.attempt)
        if isinstance(event, e.ReportRefused):
            return
        if (event.dag, event.run_id) in self._ended_runs:
            self._world.violate(f"{type(event).__name__} of {_named(key)} follows its run's end")
        if task in self._ended and not isinstance(event, e.TaskMarked):
            self._world.violate(f"{type(event).__name__} of {_named(key)} follows the task's result")
        worker = getattr(event, "worker", "")
        if worker and self._holders.get(task) != (event.attempt, worker):
            self._world.violate(f"{type(event).__name__} of {_named(key)} is {worker}'s, which does not hold it")
        retry_at = getattr(event, "retry_at", None)
        if retry_at is not None:
            self._retry_at[task] = retry_at
            retry = self._tasks[event.dag, event.run_id][written_task(event.task)].retry
            own = isinstance(event, e.TaskFailed) and event.kind != "worker_lost"
            if own and retry_at - event.at < retry.delay_ms * 3 // 4:
                self._world.violate(f"{_named(key)} is to be tried again after {retry_at - event.at} ms")
        elif isinstance(event, _TASK_ENDED) or (isinstance(event, e.TaskMarked) and not event.ending):
            self._ended[task] = event.attempt
            self._checkpoints.pop(task, None)
        if (
            isinstance(event, e.TaskSucceeded)
            and self._by_a_worker(event)
            and (*key, event.worker) not in self._world.spoken
        ):
            self._world.violate(f"{_named(key)} is a success of {event.worker}, which never said so")

    def _by_a_worker(self, event: e.TaskSucceeded) -> bool:
        """Whether it is a worker's word: not for mapped tasks, and what the engine does itself."""
        tasks = self._tasks.get((event.dag, event.run_id), {})
        task = tasks.get(written_task(event.task))
        mapped = event.task in tasks and tasks[event.task].for_each is not None
        return not mapped and (task is None or isinstance(task.action, get_args(WorkerAction)))


def _named(key: AttemptPlace) -> str:
    return f"{key[0]}/{key[1]}/{key[2]} attempt {key[3]}"
