"""The journal checker: proves the engine's invariants from the journals' bytes, as an outside witness.

It shares with the engine only what defines the journal: the codec, the events, the workflow and the calendar. The rules
it judges by are its own (``runtime.witness``), so that a fault in ``decide`` or ``fold`` does not hide itself. What it
proves, numbered as in the design: 1 attempts grow by one and one is live; 2 nothing follows an attempt's end; 3 trigger
rules hold; 4 one run per logical date, every slot answered; 5 limits of pools and DAGs; 6 what has not ended waits for
something; 7 the partition proves itself; 8 (here) definitions can be read; 9 every end says why and for whom.

What a repair declared void is passed over, and the repair reported. An aggregate that misses an event is not judged any
further: whatever came after would only repeat the one fault. Memory grows with live runs, and with the ids of all.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from tidewheel.core.attempt import AttemptKey
from tidewheel.core.events import DagEvent, JournalRepaired, PoolEvent, Recorded
from tidewheel.log.interface import EVENTS, JOURNALS, POOL_EVENTS, Log, LogUnavailable, Reader, Record
from tidewheel.runtime.claims import Claim, claims_of
from tidewheel.runtime.recovery import bring_up_to_date
from tidewheel.runtime.repairs import Repair, in_force, is_repair, repair_in
from tidewheel.runtime.shard import Shard
from tidewheel.runtime.witness.child import disagreements
from tidewheel.runtime.witness.dag import DagWitness
from tidewheel.runtime.witness.findings import Findings, Place, Violation
from tidewheel.runtime.witness.pool import PoolWitness
from tidewheel.runtime.witness.proof import Proof

__all__ = ["Checker", "Report", "Violation", "check_log"]

#: Without a single record for so long, the log is called unavailable.
NO_PROGRESS_S = 60.0
#: How often ``check_log`` reads on when it seems to have stopped in the middle of a decision.
READ_ON_MAX = 50


class Report(msgspec.Struct, frozen=True):
    """What a check came to. ``violations`` holds the first ones; ``more`` counts those beyond."""

    ok: bool
    events: int
    violations: tuple[Violation, ...] = ()
    more: int = 0
    #: Journal partitions that begin behind their first event, and DAGs and pools whose beginning is gone with it: of
    #: these, numbers, chain and the fold from their snapshots are proved, the rules not judged.
    trimmed: int = 0
    unjudged: int = 0
    #: Repairs on record: what they declared void is no violation, nor is it hidden.
    repairs: tuple[Repair, ...] = ()


class _Aggregate:
    """A DAG or pool with its place in the journal."""

    __slots__ = ("partition", "proved", "seq", "witness")

    def __init__(self, witness: DagWitness | PoolWitness, partition: int) -> None:
        self.witness = witness
        self.partition = partition
        self.seq = 0
        #: No event of it is missing, so that its state can be judged.
        self.proved = True


class Checker:
    """Feed it the records of ``events`` and ``pool-events``, each partition from its start and in offset order.

    Partitions that are ``trimmed`` begin in the middle. ``repairs`` are those known to be in force; ``claims`` are
    events that the journals must hold.
    """

    def __init__(
        self,
        trimmed: Collection[tuple[str, int]] = (),
        repairs: Iterable[Repair] = (),
        claims: Mapping[tuple[str, int], Claim] | None = None,
    ) -> None:
        self._trimmed = frozenset(trimmed)
        self._unjudged: set[tuple[str, str]] = set()
        self._voids: dict[tuple[str, int], list[Repair]] = {}
        for repair in repairs:
            self._voids.setdefault((repair.topic, repair.partition), []).append(repair)
        self._claims = {place: claim for place, claim in (claims or {}).items() if not self._given_up(place, claim)}
        #: Repairs met, whether they prove themselves or not.
        self.repairs: list[Repair] = []
        self._findings = Findings()
        self._proofs: dict[tuple[str, int], Proof] = {}
        self._dags: dict[str, _Aggregate] = {}
        self._pools: dict[str, _Aggregate] = {}
        self._events = 0
        #: The latest instant of any event.
        self._now = 0

    def _given_up(self, place: tuple[str, int], claim: Claim) -> bool:
        return any(repair.event.known_shard_seq >= claim[0] for repair in self._voids.get(place, ()))

    def feed(self, topic: str, partition: int, offset: int, data: bytes) -> None:
        """The next record of a journal partition."""
        if any(repair.voids(offset) for repair in self._voids.get((topic, partition), ())):
            return
        self._findings.at = Place(topic, partition, offset)
        if is_repair(data) and (found := repair_in(Record(topic, partition, offset, None, data))):
            self.repairs.append(found)
        self._events += 1
        proof = self._proofs.get((topic, partition))
        if proof is None:
            place = (topic, partition)
            proof = Proof(self._findings, self._claims.get(place), trimmed=place in self._trimmed)
            self._proofs[place] = proof
        recorded = proof.follow(offset, data)
        if recorded is not None and not isinstance(recorded.event, JournalRepaired):
            self._judge(topic, partition, recorded)

    def finish(self, *, settled: bool = False, midway: bool = False) -> Report:
        """The report on what was fed so far; feeding may go on after it.

        ``settled`` says that nothing is on its way any more, neither between shards nor in steps: then DAGs and pools
        must agree on who waits and who holds slots. ``midway`` says that the last decision may not have been fed whole:
        then what waits is not asked for what.
        """
        kept, count = len(self._findings.violations), self._findings.count
        self._check_claims()
        now = sys.maxsize if settled else self._now
        whole = all(proof.complete for proof in self._proofs.values())
        for aggregate in () if midway else self._dags.values():
            if aggregate.proved and self._complete(EVENTS, aggregate) and isinstance(aggregate.witness, DagWitness):
                aggregate.witness.check_progress(now)
        if settled and whole and not self._unjudged:
            self._check_agreement()
        found = self._findings
        report = Report(
            ok=not found.count,
            events=self._events,
            violations=tuple(found.violations),
            more=found.count - len(found.violations),
            trimmed=len(self._trimmed),
            unjudged=len(self._unjudged),
            repairs=in_force(self.repairs),
        )
        # What is stuck now may go on with the next record: it is a finding of this report only.
        del found.violations[kept:]
        found.count = count
        return report

    def _check_claims(self) -> None:
        for (topic, partition), (shard_seq, _) in sorted(self._claims.items()):
            proof = self._proofs.get((topic, partition))
            if proof is None and (topic, partition) in self._trimmed:
                continue  # all of it is in the snapshots
            seen = 0 if proof is None else proof.shard_seq
            if seen < shard_seq:
                text = f"it ends with event {seen}, and a checkpoint names event {shard_seq}: the journal was cut"
                self._findings.add(7, text, at=Place(topic, partition, 0 if proof is None else proof.offset + 1))

    def _complete(self, topic: str, aggregate: _Aggregate) -> bool:
        return self._proofs[topic, aggregate.partition].complete

    def _judge(self, topic: str, partition: int, recorded: Recorded) -> None:
        event = recorded.event
        self._now = max(self._now, event.at)
        if isinstance(event, DagEvent) and topic == EVENTS:
            aggregate = self._dags.get(event.dag)
            if aggregate is None:
                aggregate = self._dags[event.dag] = _Aggregate(DagWitness(event.dag, self._findings), partition)
            name = f"DAG '{event.dag}'"
        elif isinstance(event, PoolEvent) and topic == POOL_EVENTS:
            aggregate = self._pools.get(event.pool)
            if aggregate is None:
                aggregate = self._pools[event.pool] = _Aggregate(PoolWitness(event.pool, self._findings), partition)
            name = f"pool '{event.pool}'"
        else:
            self._findings.add(7, f"a {type(event).__name__} does not belong into {topic}")
            return
        if not event.actor:
            self._findings.add(9, f"the {type(event).__name__} does not say by whom")
        if partition != aggregate.partition:
            self._findings.add(7, f"{name} is written to partition {aggregate.partition} and to {partition}")
        if aggregate.seq == 0 and recorded.seq > 1 and (topic, partition) in self._trimmed:
            self._unjudged.add((topic, name))
            aggregate.proved = False
        elif recorded.seq != aggregate.seq + 1:
            self._findings.add(7, f"expected event {aggregate.seq + 1} of {name}, found {recorded.seq}")
            aggregate.proved = False
        aggregate.seq = max(aggregate.seq, recorded.seq)
        if aggregate.proved:
            aggregate.witness.apply(event)  # type: ignore[arg-type]

    def _check_agreement(self) -> None:
        asked = {name: dag.witness.asked for name, dag in self._dags.items() if isinstance(dag.witness, DagWitness)}
        for text, place in disagreements(asked):
            self._findings.add(6, text, at=place)
        held: dict[AttemptKey, tuple[str, Place]] = {}
        waiting: dict[AttemptKey, str] = {}
        for name, pool in self._pools.items():
            assert isinstance(pool.witness, PoolWitness)
            held.update((key, (name, lease[2])) for key, lease in pool.witness.leases.items())
            waiting.update((key, name) for key in pool.witness.waiting)
        for dag in self._dags.values():
            assert isinstance(dag.witness, DagWitness)
            for key, pool_name, run in dag.witness.attempts_at_pools():
                at = held[key][0] if key in held else waiting.get(key)
                if at != pool_name:
                    text = f"{'/'.join(key[:3])} attempt {key[3]} is queued or live, but unknown to pool '{pool_name}'"
                    self._findings.add(6, text, at=run.last)
        for key, (name, place) in held.items():
            dag_of = self._dags.get(key[0])
            live = dag_of is not None and isinstance(dag_of.witness, DagWitness) and dag_of.witness.is_live(*key[1:])
            if not live:
                text = f"{'/'.join(key[:3])} attempt {key[3]} holds slots of pool '{name}' but is not live: they leak"
                self._findings.add(5, text, at=place)


def check_log(log: Log, progress: Callable[[int, int], None] | None = None, *, settled: bool = False) -> Report:
    """Check every journal partition of ``log`` up to its present end. ``progress(read, expected)`` is called now and
    then.

    On a log that is being written, the present end may lie within a decision; then it is read on, a little.
    A journal that was trimmed is proved from its oldest event on, and folded from its snapshots; raises
    ``JournalBroken`` if they do not reach it. Raises ``LogUnavailable`` if the log stops answering.
    """
    report, repairs = _check(log, (), progress, settled=settled)
    if not report.ok and repairs:
        # What is void lies before the event that says so: read again, knowing it.
        report, _ = _check(log, repairs, progress, settled=settled)
    return report


def _check(
    log: Log, repairs: Sequence[Repair], progress: Callable[[int, int], None] | None, *, settled: bool
) -> tuple[Report, Sequence[Repair]]:
    claims = claims_of(log, range(log.partitions))
    places = [(topic, partition) for topic in JOURNALS for partition in range(log.partitions)]
    ends = {place: log.end_offset(*place) for place in places}
    starts = dict(log.start_offsets(places))
    trimmed = {place for place, start in starts.items() if start > 0}
    checker = Checker(trimmed, repairs, claims)
    # What begins in the middle must go on from its snapshots.
    bring_up_to_date([Shard(number) for number in sorted({number for _, number in trimmed})], log, lambda: 0)
    expected = sum(ends[place] - starts[place] for place in places)
    reader = log.reader(starts)
    read = 0
    try:
        deadline = time.monotonic() + NO_PROGRESS_S
        behind = {place for place in places if starts[place] < ends[place]}
        while behind:
            count = _feed_some(checker, reader, 0.1)
            read += count
            if count:
                deadline = time.monotonic() + NO_PROGRESS_S
                if progress is not None:
                    progress(read, max(read, expected))
            elif time.monotonic() > deadline:
                topic, partition = min(behind)
                raise LogUnavailable(f"{topic}/{partition}: nothing to read for {NO_PROGRESS_S:.0f} s before its end")
            positions = reader.positions()
            behind = {place for place in behind if positions[place] < ends[place]}
        report = checker.finish(settled=settled)
        for _ in range(READ_ON_MAX):
            if report.ok or not _feed_some(checker, reader, 0.2):
                break
            report = checker.finish(settled=settled)
        return report, report.repairs
    finally:
        reader.close()


def _feed_some(checker: Checker, reader: Reader, timeout_s: float) -> int:
    records = reader.read(5_000, timeout_s)
    for record in records:
        checker.feed(record.topic, record.partition, record.offset, record.value or b"")
    return len(records)
