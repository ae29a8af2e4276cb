"""A worker to embed: takes leases from its mail, runs them in threads, reports. See the package for how to use it."""

from __future__ import annotations

import os
import secrets as random_source
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import TypeVar, assert_never

import msgspec
import structlog

from tidewheel.core.assignment import ActionSpec, PythonSpec
from tidewheel.core.attempt import attempt_key
from tidewheel.core.commands import LeavePool, ReportCancelled, ReportFailure, ReportSuccess
from tidewheel.core.mail import (
    AnyMail,
    AssignTask,
    LeaseRenewed,
    NameClaim,
    Reply,
    StopAttempt,
    WorkerUnknown,
    WorkerWelcome,
)
from tidewheel.log.interface import Log
from tidewheel.log.partition import partition_of
from tidewheel.task.call import Function
from tidewheel.task.outcome import Failed, Outcome, outcome_of_exception
from tidewheel.worker.attempt import Attempt, StopReason
from tidewheel.worker.executor import Executor
from tidewheel.worker.functions import Functions
from tidewheel.worker.membership import Membership
from tidewheel.worker.naming import NameTaken, Naming, Verdict
from tidewheel.worker.outbox import Outbox
from tidewheel.worker.postbox import Postbox
from tidewheel.worker.reports import cancelled_unseen, closing_report, wall_ms
from tidewheel.worker.roster import Roster
from tidewheel.worker.secrets import KnownSecrets, Secrets
from tidewheel.worker.slots import SlotThreads
from tidewheel.worker.tasklog import TaskLog
from tidewheel.worker.watch import Watch

#: A cancelled function that has not returned by then loses its lease, so that its run can end.
UNKILLABLE_GRACE_S = 10.0
#: Killing and the last reports may take this much longer than the drain.
CLOSE_S = 10.0
#: How late a stop is noticed.
LOOK_S = 0.2

#: Kinds of reports, as the figures name them.
_ENDS = {ReportSuccess: "success", ReportFailure: "failure", ReportCancelled: "cancelled"}

F = TypeVar("F", bound=Function)

_log = structlog.get_logger(__name__)
_decode_action = msgspec.json.Decoder(ActionSpec).decode


class WorkerBroken(Exception):
    """A part of the worker has ended that it cannot do without; the log says of what."""


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker tells of itself."""

    worker: str
    #: Pools and the slots offered to each.
    pools: dict[str, int]
    running: int
    #: Every pool has it on its list.
    joined: bool
    #: Attempts that came here, and those that ended: by kind of report.
    taken: int
    ended: dict[str, int]


class _Nothing:
    """Runs an attempt whose end is known before it begins."""

    killable = True

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome

    def run(self, attempt: Attempt, action: ActionSpec) -> Outcome:
        return self._outcome

    def close(self) -> None:
        pass


class Worker:
    """Serves ``pools`` (name to slots) of ``log``'s engine by ``functions`` and ``executors`` (by kind of action)."""

    def __init__(
        self,
        log: Log,
        pools: Mapping[str, int],
        functions: Mapping[str, Function] | None = None,
        *,
        name: str | None = None,
        secrets: Secrets | Mapping[str, str] | None = None,
        executors: Mapping[str, Executor] | None = None,
        unkillable_grace_s: float = UNKILLABLE_GRACE_S,
    ) -> None:
        if not pools or any(slots < 1 for slots in pools.values()):
            raise ValueError(f"a worker needs at least one pool, each with at least one slot, not {dict(pools)}")
        host = socket.gethostname()
        self.name = name or f"{host}-{os.getpid()}-{random_source.token_hex(3)}"
        self.pools = dict(pools)
        self._host = host
        self._engine = log
        self._secrets: Secrets = KnownSecrets(secrets) if secrets is None or isinstance(secrets, Mapping) else secrets
        self._mail_partition = partition_of(self.name.encode(), log.partitions)
        self._outbox = Outbox(log.producer())
        self._naming = Naming(self.name, self._mail_partition, host)
        self._watch = Watch(self.name, self._outbox, self._end, unkillable_grace_s)
        self._functions = Functions(self._secrets)
        self._executors = dict(executors or {})
        self._roster = Roster()
        self._slots = SlotThreads(sum(pools.values()), self._work)
        self._stuck: set[Attempt] = set()
        self._leaving = False
        #: Set when this worker must not go on: another one had its name first.
        self._outcast = threading.Event()
        #: What is mailed to this name is for another worker.
        self._replaced = False
        self._taken = 0
        self._ended = {"success": 0, "failure": 0, "cancelled": 0}
        self._postbox: Postbox | None = None
        for function_name, function in (functions or {}).items():
            self._functions.register(function_name, function)

    def function(self, name: str) -> Callable[[F], F]:
        """Decorate a function to run it for ``python: <name>``."""

        def register(function: F) -> F:
            self._functions.register(name, function)
            return function

        return register

    @property
    def status(self) -> Status:
        """A snapshot of its figures; safe to read from any thread."""
        return Status(
            worker=self.name,
            pools=dict(self.pools),
            running=len(self._roster.running),
            joined=self._watch.welcome,
            taken=self._taken,
            ended=dict(self._ended),
        )

    @property
    def running(self) -> int:
        """How many attempts are here and not ended."""
        return len(self._roster.running)

    def start(self) -> None:
        """Join the pools and begin to work; returns at once."""
        if self._postbox is not None:
            raise RuntimeError(f"worker '{self.name}' was started before; make a new one")
        # The mail is open before any pool hears of this worker.
        self._postbox = Postbox(self._engine, self._mail_partition, self.name, self._receive)
        self._postbox.start()
        self._outbox.start()
        self._outbox.put_claim(self._naming.claim(time.monotonic()))
        now = time.monotonic()
        self._watch.start(
            Membership(pool, slots, self.name, self._mail_partition, self._host, now)
            for pool, slots in self.pools.items()
        )
        _log.info("worker started", worker=self.name, pools=self.pools, mail_partition=self._mail_partition)

    def stop(self, drain_s: float = 30.0) -> None:
        """Leave the pools, let what runs finish for ``drain_s``, give up the rest; returns when all is reported."""
        if self._postbox is None:
            return
        self._leaving = True
        self._watch.leave()
        if not self._outcast.is_set():
            for pool in self.pools:
                self._outbox.put_word(
                    LeavePool(actor=f"worker:{self.name}", pool=pool, worker=self.name, reason="shutting down")
                )
        self._wait_idle(drain_s)
        for attempt in list(self._roster.running.values()):
            self._end(attempt, StopReason.GIVE_UP)
        self._wait_idle(CLOSE_S)
        self._postbox.close()
        self._watch.close()
        self._slots.close()
        for executor in self._executors.values():
            executor.close()
        self._outbox.close(CLOSE_S)
        _log.info("worker stopped", worker=self.name)

    def run(self, stop_event: threading.Event, drain_s: float = 30.0) -> None:
        """Work until ``stop_event`` is set, then drain.

        Raises ``NameTaken`` if another worker has this one's name, and ``WorkerBroken`` if it can work no longer.
        """
        self.start()
        try:
            while not stop_event.wait(LOOK_S) and not self._outcast.is_set():
                self._check_threads()
        finally:
            self.stop(drain_s)
        if self._outcast.is_set():
            raise NameTaken(self._naming.told)

    def _check_threads(self) -> None:
        """Half dead it would hold its slots and do nothing with them: end instead, and be started anew."""
        for part, does in ((self._postbox, "reads its mail"), (self._outbox, "sends"), (self._watch, "renews leases")):
            if part is not None and not part.alive:
                raise WorkerBroken(f"worker '{self.name}' ends: its thread that {does} has ended by a fault")

    def _wait_idle(self, limit_s: float) -> None:
        deadline = time.monotonic() + limit_s
        while self._roster.running and time.monotonic() < deadline:
            time.sleep(0.01)

    # --- mail ---------------------------------------------------------------------------------------------------

    def _receive(self, mail: AnyMail) -> None:
        match mail:
            case AssignTask():
                self._assign(mail)
            case LeaseRenewed():
                attempt = self._roster.running.get(attempt_key(mail))
                if attempt is not None:
                    attempt.renew(mail.beat, mail.lease_ms)
            case StopAttempt():
                self._stop_attempt(mail)
            case WorkerWelcome():
                self._watch.change(lambda membership, now: membership.welcomed(mail.term_ms, now), mail.pool)
            case WorkerUnknown():
                self._watch.change(Membership.forgotten, mail.pool)
            case NameClaim():
                self._hear(mail)
            case Reply():
                pass
            case _:
                assert_never(mail)

    def _hear(self, claim: NameClaim) -> None:
        """Another worker may have this one's name."""
        verdict = self._naming.hear(claim, time.monotonic())
        if verdict is Verdict.GO:
            _log.error("this worker ends: its name is taken", worker=self.name, why=self._naming.told)
            self._leaving = self._replaced = True
            self._watch.leave()
            for attempt in list(self._roster.running.values()):
                # The other one has it too, and goes on.
                self._end(attempt, StopReason.DISCARD)
            self._outbox.put_claim(self._naming.answer(claim))
            self._outcast.set()
        elif verdict is not None and self._leaving:
            self._replaced = True
        elif verdict is Verdict.WENT:
            for pool in self.pools:
                # It offered its own slots under this name.
                self._watch.change(Membership.forgotten, pool)
        elif verdict is not None:
            _log.error("two workers have one name: both run what is mailed to it", why=self._naming.told)
            if verdict is Verdict.ANSWER:
                self._outbox.put_claim(self._naming.answer(claim))

    def _assign(self, mail: AssignTask) -> None:
        key = attempt_key(mail)
        if not self._roster.first_sight(key):
            return
        action, executor = self._route(mail)
        attempt = Attempt(mail, action, executor, time.monotonic(), self._open_log, self._watch.nudge)
        self._roster.add(attempt)
        self._taken += 1
        if self._leaving:
            self._end(attempt, StopReason.DISCARD if self._replaced else StopReason.GIVE_UP)
            return
        self._watch.add(attempt)
        self._slots.submit(attempt)

    def _route(self, mail: AssignTask) -> tuple[ActionSpec, Executor]:
        """The action and who runs it."""
        try:
            action: ActionSpec = _decode_action(mail.action)
        except msgspec.DecodeError as error:
            refused = Failed("setup", f"the worker cannot read the action: {error}; is it older than the scheduler?")
            return PythonSpec(callable=""), _Nothing(refused)
        kind = action.__struct_config__.tag
        if isinstance(action, PythonSpec) and action.callable in self._functions:
            return action, self._functions
        executor = self._executors.get(str(kind))
        if executor is not None:
            return action, executor
        if isinstance(action, PythonSpec):
            return action, _Nothing(self._functions.unknown(action.callable))
        known = ", ".join(sorted(self._executors)) or "none but registered functions"
        return action, _Nothing(
            Failed(
                "setup",
                f"worker '{self.name}' runs no '{kind}' actions (it runs: {known}); use a pool whose workers do",
            )
        )

    def _stop_attempt(self, mail: StopAttempt) -> None:
        key = attempt_key(mail)
        attempt = self._roster.running.get(key)
        if attempt is not None:
            self._end(attempt, StopReason.CANCEL if mail.cancel else StopReason.DISCARD)
        elif self._roster.first_sight(key) and mail.cancel:
            self._outbox.put(cancelled_unseen(self.name, mail))

    # --- one attempt --------------------------------------------------------------------------------------------

    def _open_log(self, mail: AssignTask) -> TaskLog:
        return TaskLog(self._outbox, self._secrets.masker, attempt_key(mail))

    def _work(self, attempt: Attempt) -> None:
        """Run the attempt in this thread and report its end, if it was not decided before."""
        outcome: Outcome | None = None
        if attempt.begin(time.monotonic(), wall_ms()):
            try:
                outcome = attempt.executor.run(attempt, attempt.action)
            except BaseException as error:  # exiting included: this thread is to run others
                _log.exception("an executor failed", worker=self.name, attempt=attempt.key)
                outcome = Failed("worker_lost", f"the worker failed: {outcome_of_exception(error).message}")
            attempt.returned = True
            attempt.detach()
            try:
                attempt.close_log()
            except Exception:
                _log.exception("the end of a task's log is lost", worker=self.name, attempt=attempt.key)
        if self._roster.settle(attempt):
            self._report(attempt, outcome)
        elif attempt in self._stuck:
            self._stuck.discard(attempt)
            self._resize(attempt.assignment.pool)

    def _end(self, attempt: Attempt, reason: StopReason) -> None:
        """End an attempt from outside its thread."""
        if not attempt.stop(reason, time.monotonic()) or not self._roster.settle(attempt):
            return
        if attempt.begun:
            self._stuck.add(attempt)
            if attempt.returned:
                # Just now, and perhaps before its thread could find it here.
                self._stuck.discard(attempt)
            else:
                self._resize(attempt.assignment.pool)
            if attempt.stopped is StopReason.CANCEL:
                # It ignored its cancellation and still runs, so it is not "cancelled": its lease runs out unrenewed.
                return
        self._report(attempt, None)

    def _report(self, attempt: Attempt, outcome: Outcome | None) -> None:
        report = closing_report(self.name, attempt, outcome, self._secrets.masker)
        if report is None:
            return
        if not isinstance(report, ReportSuccess):
            # Before the end: afterwards nobody would be allowed to say it.
            attempt.hand_over(lambda checkpoint: self._outbox.put_checkpoint(attempt, checkpoint))
        self._ended[_ENDS[type(report)]] += 1
        self._outbox.put(report)

    def _resize(self, pool: str) -> None:
        """Offer the pool only slots that are not held by functions that ignore their end."""
        stuck = sum(1 for attempt in list(self._stuck) if attempt.assignment.pool == pool)
        slots = self.pools.get(pool, 0) - stuck
        if not self._leaving:
            self._watch.change(lambda membership, now: membership.resize(max(slots, 0), now), pool)
