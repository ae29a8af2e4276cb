"""What must hold: in the middle of trouble, when it is over, and when everything has come to rest.

Each gives the first thing that is wrong, or nothing. They read the log, and compare memory with it; how the engine came
to what it decided they do not ask.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from tidewheel.core import commands as c
from tidewheel.core.calendar import fires_at, next_slot
from tidewheel.core.overdue import next_deadline
from tidewheel.core.snapshot import decode_snapshot, encode_snapshot
from tidewheel.core.state import Aggregate, Dag, Pool
from tidewheel.log.interface import COMMANDS, DEAD_LETTERS, INPUTS, TRIGGERS, Record
from tidewheel.runtime.checker import check_log
from tidewheel.runtime.recovery import JournalBroken, bring_up_to_date
from tidewheel.runtime.shard import AggregateKey, Shard, shard_of
from tidewheel.testing.simulation.authors import DAGS, POOLS
from tidewheel.testing.simulation.decoding import message_in
from tidewheel.wire.faults import DecodeError
from tidewheel.wire.messages import DeadLetter
from tidewheel.wire.triggers import decode_trigger

if TYPE_CHECKING:
    from tidewheel.testing.simulation.scheduler import SchedulerProcess
    from tidewheel.testing.simulation.world import TroubledWorld

#: A slot may be answered so late, in calm weather.
PUNCTUAL_MS = 5_000


class Restarts:
    """Restarts from the log, compared with who was there all the time."""

    def __init__(self, world: TroubledWorld) -> None:
        self._world = world
        #: Each shard as its journals alone give it, followed since the beginning.
        self._from_journal = [Shard(number) for number in range(world.log.partitions)]
        #: What was compared already.
        self._compared: dict[AggregateKey, Aggregate] = {}

    def judge(self, *, snapshots: bool) -> Iterator[str]:
        """Each shard in memory is what the journal gives; with ``snapshots`` also what a restart makes of those."""
        try:
            bring_up_to_date(self._from_journal, self._world.log, lambda: 0, snapshots=False)
            for process, shard in self._current():
                alone = self._from_journal[shard.number]
                yield from self._compare(process, shard, alone)
                if snapshots:
                    restarted = Shard(shard.number)
                    bring_up_to_date([restarted], self._world.log, lambda: 0)
                    if _ends(restarted) != _ends(alone) or restarted.aggregates != alone.aggregates:
                        yield f"a restart from the snapshots of shard {shard.number} is not what its journal says"
                    elif restarted.answered != alone.answered:
                        yield f"a restart from the snapshots of shard {shard.number} takes other inputs for answered"
        except JournalBroken as error:
            yield f"a restart finds the journal broken: {error}"

    def _current(self) -> Iterator[tuple[SchedulerProcess, Shard]]:
        """Shards whose owner has seen everything there is."""
        for process in self._world.processes:
            if process.settled:
                for shard in process.shards.values():
                    if shard.epoch == self._world.log.epoch_of(shard.number):
                        yield process, shard

    def _compare(self, process: SchedulerProcess, shard: Shard, alone: Shard) -> Iterator[str]:
        if _ends(shard) != _ends(alone):
            yield f"{process.name} believes that shard {shard.number} ends at {_ends(shard)}, not at {_ends(alone)}"
        if shard.aggregates.keys() != alone.aggregates.keys():
            yield f"{process.name} knows other aggregates of shard {shard.number} than the journal"
        if shard.answered != alone.answered:
            yield f"{process.name} takes other inputs of shard {shard.number} for answered than its journal"
        for key, state in alone.aggregates.items():
            mine = shard.aggregates.get(key)
            if mine is not None and self._compared.get(key) is mine:
                continue
            if mine != state:
                yield f"{process.name} has another {key.kind} '{key.name}' in memory than the journal"
            elif decode_snapshot(key.kind, encode_snapshot(state)) != state:
                yield f"a snapshot of {key.kind} '{key.name}' does not give the same state"
            else:
                self._compared[key] = state if mine is None else mine


def judge_journal(world: TroubledWorld) -> Iterator[str]:
    """The journal proves itself."""
    report = check_log(world.log, settled=True)
    for violation in report.violations[:3]:
        place = f"{violation.topic}/{violation.partition} offset {violation.offset}"
        yield f"invariant {violation.invariant} at {place}: {violation.message}"


def judge_inputs(world: TroubledWorld) -> Iterator[str]:
    """Every trigger and every request for a run was answered by exactly one run, or by a recorded refusal."""
    follower = world.follower
    for run, count in follower.created.items():
        if count != 1:
            yield f"run {'/'.join(run)} was created {count} times"
    letters = [letter for letter in _messages(world, DEAD_LETTERS) if isinstance(letter, DeadLetter)]
    refused = {(letter.topic, letter.partition, letter.offset) for letter in letters}
    refused_runs = set(_runs_in(letters))
    for letter in letters:
        if letter.code == "failed":
            yield f"a command could not be decided: {letter.reason}"
    for partition in range(world.log.partitions):
        for topic in INPUTS:
            yield from _unread(world, topic, partition)
            for record in world.log.records_of(topic, partition):
                if record is None or (topic, partition, record.offset) in refused:
                    continue
                command = _asked_run(record)
                if command is None or (topic == COMMANDS and shard_of(command.dag, world.log.partitions) != partition):
                    continue
                if command.request_id and not command.run_id:
                    continue  # answered by mail: judged where it is created
                named = (command.dag, command.run_id)
                runs = follower.created.get(named, 0) if command.run_id else _runs_of(world, record)
                if runs != 1 and named not in refused_runs:
                    yield f"{topic}/{partition} offset {record.offset} asked for a run; there are {runs}"


def judge_rest(world: TroubledWorld) -> Iterator[str]:
    """Everything has ended: no run is left, no slot is held, nobody waits, every slot of a schedule is answered."""
    found: dict[AggregateKey, Aggregate] = {}
    shards = 0
    for process in world.processes:
        shards += len(process.shards)
        for shard in process.shards.values():
            found |= shard.aggregates
    if shards != world.log.partitions:
        yield f"{shards} of {world.log.partitions} shards have an owner"
    for key, state in found.items():
        if isinstance(state, Dag) and state.runs:
            yield f"runs of {state.dag} never end: {', '.join(sorted(state.runs)[:3])}"
        if isinstance(state, Dag) and state.backfills:
            yield f"{state.backfills[0].backfill_id} of {state.dag} has outlived its schedule"
        if isinstance(state, Pool):
            held = (len(state.leases), len(state.waiting), state.used, len(state.held), len(state.live))
            if any(held) or state.heads or state.queues:
                yield f"pool {key.name} still has leases, waiting, used, held, live: {held}"
    for pool in POOLS:
        if AggregateKey("pool", pool) not in found:
            yield f"pool {pool} is gone"
    for dag in DAGS:
        if AggregateKey("dag", dag) not in found:
            yield f"DAG {dag} is gone"


def judge_punctuality(world: TroubledWorld) -> Iterator[str]:
    """Calm has come: each schedule that is not held up has answered every slot that is due, no backfill could go on and
    does not, no task waits for what has come, and each run says what it has missed."""
    yield from world.follower.overdue()
    for process in world.processes:
        late_by = world.now + process.skew_ms - PUNCTUAL_MS
        for shard in process.shards.values():
            for state in shard.aggregates.values():
                if not isinstance(state, Dag) or not state.version:
                    continue
                for backfill in state.backfills:
                    if backfill.is_due(state.live_of.get(backfill.backfill_id, 0)):
                        yield f"{backfill.backfill_id} of {state.dag} could go on, and nothing has woken for it"
                slot = _slot_due(state, world.rules.backlog_runs)
                if slot is not None and slot < late_by:
                    yield f"a slot of {state.dag} is {world.now - slot} ms late, and nothing has woken for it"
                for run in state.runs.values():
                    passed = next_deadline(state, run)
                    if passed is not None and passed < late_by:
                        yield f"a deadline of {state.dag}/{run.run_id} passed {world.now - passed} ms ago in silence"


def _slot_due(state: Dag, backlog_runs: int) -> int | None:
    """When the next slot of a schedule that is not held up fires."""
    schedule = state.definition.workflow.schedule
    if state.paused or state.removed or schedule is None or state.cursor is None:
        return None
    if len(state.queued_runs) >= backlog_runs:
        return None
    slot = next_slot(schedule, state.cursor)
    return None if slot is None else fires_at(schedule, state.dag, slot)


def _ends(shard: Shard) -> dict[str, tuple[int, int, str]]:
    """Where the journals end: next offset, last number, chain."""
    return {topic: (head.offset, head.shard_seq, head.chain.hex()) for topic, head in shard.heads.items()}


def _runs_of(world: TroubledWorld, record: Record) -> int:
    return world.follower.caused.get(f"{record.topic}/{record.partition}/{record.offset}", 0)


def _asked_run(record: Record) -> c.StartRun | None:
    if record.value is None:
        return None
    try:
        if record.topic == TRIGGERS:
            place = {"partition": record.partition, "offset": record.offset, "timestamp": record.timestamp}
            return decode_trigger(record.value, topic=record.topic, **place)
        message = message_in(record.value)
    except DecodeError:
        return None
    return message if isinstance(message, c.StartRun) else None


def _runs_in(letters: Iterable[DeadLetter]) -> Iterator[tuple[str, str]]:
    """The runs that were refused after they had been forwarded."""
    for letter in letters:
        if letter.topic in INPUTS:
            command = _asked_run(Record(letter.topic, letter.partition, letter.offset, letter.key, letter.value))
            if command is not None and command.run_id:
                yield (command.dag, command.run_id)


def _unread(world: TroubledWorld, topic: str, partition: int) -> Iterator[str]:
    committed = world.log.committed(partition)[topic] or 0
    left = [record for record in world.log.records_of(topic, partition)[committed:] if record is not None]
    if left:
        yield f"{len(left)} records of {topic}/{partition} were never read, the first at offset {left[0].offset}"


def _messages(world: TroubledWorld, topic: str) -> Iterator[object]:
    for partition in range(world.log.partitions):
        for record in world.log.records_of(topic, partition):
            if record is not None and record.value is not None:
                yield message_in(record.value)
