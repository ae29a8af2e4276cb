"""Bugs to plant into the engine while it runs, each a mistake that somebody could make: the judges must see them all.

``BUGS`` names each with what is broken. A bug is a context manager that replaces one function, and puts it back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import msgspec

from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core import readiness
from tidewheel.core import snapshot as snapshots
from tidewheel.core.backfill import Backfill
from tidewheel.core.calendar import due
from tidewheel.core.deadlines import armed_by
from tidewheel.core.decide import backfill as decide_backfill
from tidewheel.core.decide import checkpoint, lease, mapping, pool, task
from tidewheel.core.decide import dag as decide_dag
from tidewheel.core.decide.decision import Decision
from tidewheel.core.decide.queue import release
from tidewheel.core.fold import pool as fold_pool
from tidewheel.core.fold import run as fold_run
from tidewheel.core.mapping import Fan
from tidewheel.core.snapshot import encode_snapshot
from tidewheel.core.state import Dag
from tidewheel.log.group import Group
from tidewheel.log.interface import COMMANDS
from tidewheel.log.memory import MemoryOwner
from tidewheel.runtime import checkpoints, work
from tidewheel.runtime.answered import Answered
from tidewheel.runtime.scheduler import Scheduler
from tidewheel.runtime.seals import sealed
from tidewheel.runtime.shard import shard_of, target_of
from tidewheel.runtime.timers import Timers
from tidewheel.testing.simulation import bugs_backfill, bugs_flow, bugs_listener, bugs_operation, bugs_waits
from tidewheel.testing.simulation.campaign import Plant
from tidewheel.wire.codec import GENESIS, encode_event
from tidewheel.wire.messages import Snapshot


class Bug(NamedTuple):
    """What is broken, and how to break it."""

    what: str
    plant: Plant


@contextmanager
def _replaced(*places: tuple[object, str, object]) -> Iterator[None]:
    """Each named attribute replaced."""
    with ExitStack() as stack:
        for target, name, new in places:
            stack.enter_context(mock.patch.object(target, name, new))
        yield


def _recording(change: Callable[[Any], list[Any]]) -> Any:
    """Events pass through ``change`` on their way into a decision."""
    record = Decision.record

    def changed(self: Decision[Any], event: Any) -> None:
        for each in change(event):
            record(self, each)

    return _replaced((Decision, "record", changed))


# --- the log and the loop --------------------------------------------------------------------------------------------


def fence_off() -> Any:
    """A scheduler that lost its shards commits all the same."""
    return _replaced((Group, "holds", lambda *_: True))


def position_ahead() -> Any:
    """The committed position is one past what was read."""
    write = MemoryOwner._write

    def shifted(self: MemoryOwner, appends: Any) -> Any:
        last = write(self, appends)
        for shard in self._member.epochs:
            place = (COMMANDS, shard)
            self._log._committed[place] += 1
        return last

    return _replaced((MemoryOwner, "_write", shifted))


def old_position_believed() -> Any:
    """Whatever lies behind the group's position is decided, though the journal answers it."""
    return _replaced((Answered, "covers_command", lambda *_: False))


def checkpoint_without_answers() -> Any:
    """Snapshots and checkpoints do not say which inputs are answered."""

    def silent(message: Any) -> bytes:
        if isinstance(message, Snapshot):
            return sealed(msgspec.structs.replace(message, trigger=-1))
        return sealed(msgspec.structs.replace(message, events_command=-1, pool_events_command=-1))

    return _replaced((checkpoints, "sealed", silent))


def rewind_forgotten() -> Any:
    """After an abort the consumer goes on from where it was."""
    reset = MemoryOwner.reset

    def forgetful(self: MemoryOwner) -> None:
        positions = dict(self._positions)
        reset(self)
        self._positions.update({place: at for place, at in positions.items() if place[1] in self._member.epochs})

    return _replaced((MemoryOwner, "reset", forgetful))


def mail_before_commit() -> Any:
    """Leases go out before they are in the journal."""
    commit = Scheduler._commit

    def eager(self: Scheduler, batch: Any, made: Any, *more: Any) -> bool:
        self._send(made.mail)
        return commit(self, batch, made, *more)

    return _replaced((Scheduler, "_commit", eager))


def abort_adopted() -> Any:
    """Memory takes over what could not be committed."""
    commit = Scheduler._commit

    def adopting(self: Scheduler, batch: Any, made: Any, *more: Any) -> bool:
        committed = commit(self, batch, made, *more)
        if not committed:
            for key, state in made._states.items():
                self._owned[shard_of(key.name, self._log.partitions)].aggregates[key] = state
        return committed

    return _replaced((Scheduler, "_commit", adopting))


def no_grace() -> Any:
    """Whoever takes a shard over expires leases at once."""
    take = Scheduler._take

    def harsh(self: Scheduler, shard: Any, epoch: int) -> None:
        take(self, shard, epoch)
        shard.grace_until = 0

    return _replaced((Scheduler, "_take", harsh))


def writer_goes_back() -> Any:
    """A new owner writes under an older term than the one before."""
    take = Scheduler._take

    def older(self: Scheduler, shard: Any, epoch: int) -> None:
        take(self, shard, epoch)
        shard.writer -= 2 * (shard.writer > 3)

    return _replaced((Scheduler, "_take", older))


def command_for_others_lost() -> Any:
    """What an aggregate on another shard is asked is not sent."""
    decide = work.Work._decide

    def deaf(self: work.Work, command: Any, cause: str, record: Any) -> None:
        if shard_of(target_of(command).name, self._partitions) in self._shards:
            decide(self, command, cause, record)

    return _replaced((work.Work, "_decide", deaf))


def misplaced_dropped() -> Any:
    """A record keyed wrongly is passed over."""
    return _replaced((work.Work, "forward", lambda *_: None))


def refusal_in_silence() -> Any:
    """What is refused leaves no trace."""
    return _replaced((work.Work, "reject", lambda *_: None))


# --- the journal -----------------------------------------------------------------------------------------------------


def double_emit() -> Any:
    """A success is written twice."""
    record = Decision.record

    def twice(self: Decision[Any], event: Any) -> None:
        record(self, event)
        if isinstance(event, e.TaskSucceeded):
            self.events.append(event)

    return _replaced((Decision, "record", twice))


def cause_lost() -> Any:
    """Events do not say what they answer."""
    handle = work.Work.handle
    return _replaced((work.Work, "handle", lambda self, command, cause, *more: handle(self, command, "", *more)))


def number_skipped() -> Any:
    """Now and then a number of the shard is left out."""
    encode = encode_event

    def skipping(event: Any, *, shard_seq: int, **more: Any) -> Any:
        return encode(event, shard_seq=shard_seq + (shard_seq >= 40), **more)

    return _replaced((work, "encode_event", skipping))


def chain_begun_anew() -> Any:
    """Each owner begins a chain of its own."""
    encode = encode_event

    def anew(event: Any, *, previous: bytes, writer: int, shard_seq: int, **more: Any) -> Any:
        previous = GENESIS if shard_seq % 50 == 0 else previous
        return encode(event, previous=previous, writer=writer, shard_seq=shard_seq, **more)

    return _replaced((work, "encode_event", anew))


def snapshot_without_last_change() -> Any:
    """A snapshot holds the state before the last run that began."""
    encode = encode_snapshot

    def stale(state: Any) -> bytes:
        if isinstance(state, Dag) and state.runs:
            last = max(state.runs.values(), key=lambda run: run.order)
            state = msgspec.structs.replace(state, runs=state.runs.delete(last.run_id))
        return encode(state)

    return _replaced((checkpoints, "encode_snapshot", stale))


# --- attempts and their reports --------------------------------------------------------------------------------------


def attempt_reused() -> Any:
    """Another try has the number of the one before."""
    ask = Decision.ask

    def same(message: Any) -> Any:
        return msgspec.structs.replace(message, attempt=max(1, message.attempt - 1))

    def asking(self: Decision[Any], command: Any) -> None:
        ask(self, same(command) if isinstance(command, c.EnqueueTask) else command)

    recording = _recording(lambda event: [same(event) if isinstance(event, e.TaskQueued) else event])

    @contextmanager
    def both() -> Iterator[None]:
        with recording, _replaced((Decision, "ask", asking)):
            yield

    return both()


def stale_report_accepted() -> Any:
    """Any report of a live task counts, whichever attempt it is of."""
    return _lenient_holder(lambda command, state: msgspec.structs.replace(command, attempt=state.attempt))


def foreign_report_accepted() -> Any:
    """A report counts, whichever worker it comes from."""
    return _lenient_holder(lambda command, state: msgspec.structs.replace(command, worker=state.worker))


def _lenient_holder(forgive: Callable[[Any, Any], Any]) -> Any:
    holder = task.holder

    def lenient(d: Any, command: Any) -> Any:
        run = d.state.runs.get(command.run_id)
        if run is not None and command.task in d.state.definitions[run.version].tasks:
            state = run.task(command.task)
            if state.live:
                return holder(d, forgive(command, state))
        return holder(d, command)

    return _replaced((task, "holder", lenient), (checkpoint, "holder", lenient))


def checkpoint_forgotten() -> Any:
    """The next attempt is not told what the one before has left for it."""
    assignment = lease._assignment

    def forgetful(*args: Any) -> Any:
        return msgspec.structs.replace(assignment(*args), checkpoint=None)

    return _replaced((lease, "_assignment", forgetful))


def back_off_ignored() -> Any:
    """What failed is tried again at once."""
    next_try = task.next_try

    def at_once(d: Any, *more: Any, **of: Any) -> int | None:
        return None if next_try(d, *more, **of) is None else d.now

    return _replaced((task, "next_try", at_once), (lease, "next_try", at_once))


def budget_ignored() -> Any:
    """What failed is tried again without end."""

    def for_ever(d: Any, run_id: str, *_: Any, **of: Any) -> int | None:
        return None if d.state.runs[run_id].cancel_requested else d.now + 60_000

    return _replaced((task, "next_try", for_ever), (lease, "next_try", for_ever))


def cancelled_goes_on() -> Any:
    """A cancelled run tries again what fails."""
    next_try = task.next_try

    def on(d: Any, run_id: str, name: str, *more: Any, **of: Any) -> int | None:
        run = d.state.runs[run_id]
        wanted = msgspec.structs.replace(run.task(name), cancel_requested=False)
        run = msgspec.structs.replace(run, stop=None, tasks=run.tasks.set(name, wanted))
        state = msgspec.structs.replace(d.state, runs=d.state.runs.set(run_id, run))
        decision: Any = SimpleNamespace(state=state, now=d.now, rules=d.rules)
        return next_try(decision, run_id, name, *more, **of)

    return _replaced((task, "next_try", on), (lease, "next_try", on))


def downstream_early() -> Any:
    """A task does not wait for its upstreams."""
    return _replaced((readiness, "judge", lambda *_: "run"))


def join_early() -> Any:
    """A mapped task ends with the first of its instances."""
    return _replaced((Fan, "all_ended", property(lambda fan: sum(fan.ended) > 0 or fan.items == 0)))


def instances_in_a_crowd() -> Any:
    """Instances begin beyond their task's max_parallel."""
    return _replaced((Fan, "room", lambda fan, _: fan.items - fan.begun))


def instances_forgotten() -> Any:
    """Nobody lets the next instance begin when one ends."""
    return _replaced((mapping, "_begin_next", lambda *_: None))


def overlap_ignored() -> Any:
    """A slot's run does not care for those before it."""
    return _replaced((decide_dag, "unfinished_scheduled", lambda _: []))


# --- timers ----------------------------------------------------------------------------------------------------------


def lease_timer_lost() -> Any:
    """Nobody is woken when a lease runs out."""
    return _unarmed(e.TaskLeased)


def retry_timer_lost() -> Any:
    """Nobody is woken when a back-off is over."""
    return _unarmed(e.TaskFailed, e.LeaseExpired)


def schedule_timer_lost() -> Any:
    """Nobody is woken for the slots of a schedule that is new, or goes on."""
    return _unarmed(
        e.DagDeployed, e.DagUnpaused, e.RunCreated, e.RunStarted, e.RunSucceeded, e.RunFailed, e.RunCancelled
    )


def deadline_timer_lost() -> Any:
    """Nobody is woken when a deadline of a run passes."""
    return _replaced((work, "deadline_armed_by", lambda *_: None))


def _unarmed(*kinds: type[e.Event]) -> Any:
    def armed(event: e.Event, *more: Any) -> Any:
        return None if isinstance(event, kinds) else armed_by(event, *more)

    return _replaced((work, "armed_by", armed))


def timer_early() -> Any:
    """Timers wake somebody before they are due, and then no more."""
    really_due = Timers._really_due

    def early(self: Timers, *more: Any) -> int | None:
        when = really_due(self, *more)
        return None if when is None else when - 300

    return _replaced((Timers, "_really_due", early))


# --- runs and pools --------------------------------------------------------------------------------------------------


def run_ids_forgotten() -> Any:
    """An ended run's id is free again."""
    return _replaced((fold_run, "REMEMBERED_RUNS", 0))


def slot_run_again() -> Any:
    """A backfill does not see that a slot has a run."""
    return _replaced((decide_backfill, "answered_stretch", lambda *_, **__: None))


def backfill_too_wide() -> Any:
    """A backfill makes all its runs at once."""
    return _replaced((Backfill, "may_create", lambda self, live: not self.paused and not self.exhausted))


def slot_skipped() -> Any:
    """The first of the schedule's slots that are due is passed over."""

    def fewer(*args: Any, **more: Any) -> Any:
        owed = due(*args, **more)
        return msgspec.structs.replace(owed, run=owed.run[1:]) if len(owed.run) > 1 else owed

    return _replaced((decide_dag, "due", fewer))


def slot_leaked() -> Any:
    """A failed attempt keeps its slots."""

    def keeping(d: Any, pool_: str, run_id: str, name: str, attempt: int, reason: str, **more: Any) -> None:
        if reason == "success":
            release(d, pool_, run_id, name, attempt, reason, **more)

    return _replaced((task, "release", keeping))


def limit_ignored() -> Any:
    """A pool gives out more slots than it has."""
    place = pool._place

    def generous(state: Any, item: Any) -> str | None:
        return place(msgspec.structs.replace(state, slots=None), item)

    return _replaced((pool, "_place", generous))


def share_ignored() -> Any:
    """A DAG may hold more of a pool than its share."""
    return _replaced((fold_pool, "share_needs", lambda *_: 0), (snapshots, "share_needs", lambda *_: 0))


def priority_ignored() -> Any:
    """Among DAGs, priority does not count."""
    return _other_heads(lambda place: (0, *place[1:]))


def fairness_ignored() -> Any:
    """Among DAGs, it does not count who has how much already."""
    return _other_heads(lambda place: (place[0], 0, *place[2:]))


def kept_for_nobody() -> Any:
    """Who gives back what is kept for a wide attempt comes before it by that."""
    return _replaced((fold_pool, "_next_if_wide", lambda _: None))


def _other_heads(change: Callable[[Any], Any]) -> Any:
    head_place = fold_pool.head_place

    def other(*args: Any) -> Any:
        return change(head_place(*args))

    return _replaced((fold_pool, "head_place", other), (snapshots, "head_place", other))


_PLANTS: tuple[Plant, ...] = (
    fence_off,
    position_ahead,
    old_position_believed,
    checkpoint_without_answers,
    rewind_forgotten,
    mail_before_commit,
    abort_adopted,
    no_grace,
    writer_goes_back,
    command_for_others_lost,
    misplaced_dropped,
    refusal_in_silence,
    double_emit,
    cause_lost,
    number_skipped,
    chain_begun_anew,
    snapshot_without_last_change,
    attempt_reused,
    stale_report_accepted,
    foreign_report_accepted,
    checkpoint_forgotten,
    back_off_ignored,
    budget_ignored,
    cancelled_goes_on,
    downstream_early,
    join_early,
    instances_in_a_crowd,
    instances_forgotten,
    overlap_ignored,
    lease_timer_lost,
    retry_timer_lost,
    schedule_timer_lost,
    deadline_timer_lost,
    timer_early,
    run_ids_forgotten,
    slot_run_again,
    backfill_too_wide,
    slot_skipped,
    slot_leaked,
    limit_ignored,
    share_ignored,
    priority_ignored,
    fairness_ignored,
    kept_for_nobody,
    *bugs_flow.PLANTS,
    *bugs_operation.PLANTS,
    *bugs_waits.PLANTS,
    *bugs_backfill.PLANTS,
    *bugs_listener.PLANTS,
)
BUGS: Mapping[str, Bug] = {plant.__name__: Bug((plant.__doc__ or "").strip(), plant) for plant in _PLANTS}
