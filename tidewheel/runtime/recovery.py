"""Bringing a shard up to date: from its snapshots, or from where this process last left it, on to the journals' ends.

One path serves a first start, a takeover, a shard that comes back, an aborted commit and one whose outcome is in
doubt: read what the journal says beyond what is folded, and fold it. Each event must follow the one before by number
and by chain; the first that does not stops the shard there, and that shard only, unless a repair is on record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import structlog

from tidewheel.core.events import DagEvent, JournalRepaired
from tidewheel.core.fold import fold
from tidewheel.core.snapshot import empty
from tidewheel.log.interface import INPUTS, JOURNALS, SNAPSHOTS, Log, Record
from tidewheel.runtime.journal import JournalBroken, JournalFault, broken, follow, prove
from tidewheel.runtime.repairs import Repair, in_force, read_to_end, repairs_of
from tidewheel.runtime.shard import CHECKPOINT_SOON, KIND_OF, AggregateKey, JournalHead, Shard
from tidewheel.runtime.snapshots import restore

__all__ = ["JournalBroken", "bring_each_up_to_date", "bring_up_to_date", "still_broken"]

log = structlog.get_logger()

#: By topic and partition: the repairs known there.
Repairs = dict[tuple[str, int], tuple[Repair, ...]]
#: By topic and partition: an event that the journal must hold, since a checkpoint says so.
Claims = dict[tuple[str, int], JournalHead]


def bring_up_to_date(shards: Sequence[Shard], source: Log, clock: Callable[[], int], *, snapshots: bool = True) -> int:
    """Fold everything the journals hold beyond the shards' heads, all at once; gives the number of events folded.

    Without ``snapshots`` a shard that is empty is folded from the journals' beginning. Raises ``JournalBroken``, or
    ``LogUnavailable`` if the log stops answering.
    """
    folded, faults = bring_each_up_to_date(shards, source, clock, snapshots=snapshots)
    for fault in faults.values():
        raise JournalBroken(fault)
    return folded


def bring_each_up_to_date(
    shards: Sequence[Shard], source: Log, clock: Callable[[], int], *, snapshots: bool = True
) -> tuple[int, dict[int, JournalFault]]:
    """The same; gives the fault of each shard whose journal does not prove itself, which is then empty again."""
    begun = clock()
    fresh = [shard for shard in shards if all(head.shard_seq == 0 for head in shard.heads.values())]
    if snapshots:
        _restore(fresh, source)
    by_number = {shard.number: shard for shard in shards}
    claims = {place: head for shard in fresh for place, head in _claims(shard, {}).items()}
    folded, faults = _fold_on(by_number, source, {}, claims)
    for shard in fresh:
        if _misled(shard, faults.get(shard.number)):
            folded += _fold_whole(shard, source, claims, faults)
    for number in list(faults):
        more, fault = _fold_repaired(by_number[number], source, faults[number])
        folded += more
        if fault is None:
            del faults[number]
        else:
            faults[number] = fault
            by_number[number].forget()
    _doubt_answers(shards, source)
    if folded:
        log.info(
            "shards are up to date",
            shards=sorted(by_number.keys() - faults.keys()),
            events=folded,
            took_ms=clock() - begun,
        )
    return folded, faults


def _doubt_answers(shards: Sequence[Shard], source: Log) -> None:
    """Believe no answers to inputs that are not there: the log may have lost them, or be another one."""
    told = [shard for shard in shards if shard.answered.commands or shard.answered.triggers]
    ends = source.end_offsets([(topic, shard.number) for shard in told for topic in INPUTS]) if told else {}
    for shard in told:
        shard.answered.believe({topic: ends[topic, shard.number] for topic in INPUTS})


def _misled(shard: Shard, fault: JournalFault | None) -> bool:
    """Whether a snapshot that the shard was folded on from is missing or too old.

    It shows where its next event does not follow; or, if it has none, where the aggregates' numbers do not come to what
    the checkpoint says.
    """
    if shard.seqs_expected is None:
        return False
    return fault.kind == "does_not_follow" if fault is not None else shard.seqs != shard.seqs_expected


def _fold_whole(shard: Shard, source: Log, claims: Claims, faults: dict[int, JournalFault]) -> int:
    """Fold the journals from their beginning."""
    log.warning("snapshots do not come to what their checkpoint says; the journal is read instead", shard=shard.number)
    shard.forget()
    faults.pop(shard.number, None)
    mine = {place: claim for place, claim in claims.items() if place[1] == shard.number}
    folded, found = _fold_on({shard.number: shard}, source, {}, mine)
    faults.update(found)
    return folded


def _restore(shards: Sequence[Shard], source: Log) -> None:
    found: dict[int, list[Record]] = {}
    for record in read_to_end(source, {(SNAPSHOTS, shard.number): 0 for shard in shards}):
        found.setdefault(record.partition, []).append(record)
    for shard in shards:
        restore(shard, found.pop(shard.number, []))


def _fold_repaired(shard: Shard, source: Log, fault: JournalFault) -> tuple[int, JournalFault | None]:
    """Look for repairs that answer ``fault``, and fold the shard anew knowing them; each may show the next fault."""
    known: Repairs = {}
    folded = 0
    while True:
        place = (fault.topic, fault.partition)
        # A repair lies behind the fault it answers. But where a checkpoint does not fit, the journal may have been cut,
        # repaired and written on since.
        start = 0 if fault.last_good_offset < 0 or fault.kind == "cut" else fault.offset
        found = {repair.offset: repair for repair in (*known.get(place, ()), *repairs_of(source, *place, start))}
        if len(found) == len(known.get(place, ())):
            return folded, fault
        known[place] = in_force(found.values())
        for snapshots in (True, False):
            shard.forget()
            _restore([shard], source)
            claims = _claims(shard, known)
            if not (snapshots and _are_sound(shard, known)):
                shard.forget()
            more, faults = _fold_on({shard.number: shard}, source, known, claims)
            folded += more
            if not faults and not _misled(shard, None):
                # Until there is one behind the repair, each start reads the journal from further back.
                shard.events_since_checkpoint = CHECKPOINT_SOON
                log.info("a repaired journal proves itself", shard=shard.number, repairs=sum(map(len, known.values())))
                return folded, None
        fault = faults[shard.number]


def _are_sound(shard: Shard, known: Repairs) -> bool:
    """Whether the snapshots still hold: none of them covers anything void."""
    return not any(
        repair.event.lost or repair.event.void_from < shard.heads[topic].offset
        for (topic, _), repairs in known.items()
        for repair in repairs
    )


def _claims(shard: Shard, known: Repairs) -> Claims:
    """What its checkpoint and the claim beside it say that the journals hold, as far as no repair gave it up."""
    claims = {}
    for topic, head in shard.heads.items():
        claim = max(head, shard.claims.get(topic, head), key=lambda head: head.shard_seq)
        given_up = max((repair.event.known_shard_seq for repair in known.get((topic, shard.number), ())), default=0)
        if claim.shard_seq > given_up:
            claims[topic, shard.number] = claim
    return claims


def _fold_on(
    shards: Mapping[int, Shard], source: Log, repairs: Repairs, claims: Claims
) -> tuple[int, dict[int, JournalFault]]:
    """Fold from the shards' heads to the ends of now; gives the number of events and each shard's first fault."""
    faults: dict[int, JournalFault] = {}
    folded = 0
    starts = {(topic, number): shard.heads[topic].offset for number, shard in shards.items() for topic in JOURNALS}
    ends = source.end_offsets(starts) if starts else {}
    for place, start in starts.items():
        if start > ends[place]:
            faults.setdefault(place[1], _fault_of_cut(shards[place[1]].heads[place[0]], place, ends[place]))
    faults = _faults_of_trimming(shards, starts, source) | faults
    for record in read_to_end(source, {place: start for place, start in starts.items() if place[1] not in faults}):
        if record.partition in faults:
            continue
        shard, place = shards[record.partition], (record.topic, record.partition)
        if any(repair.voids(record.offset) for repair in repairs.get(place, ())):
            shard.heads[record.topic] = shard.heads[record.topic]._replace(offset=record.offset + 1)
            continue
        try:
            _follow(shard, record, claims.get(place))
        except JournalBroken as error:
            faults[record.partition] = error.fault
        folded += 1
    for (topic, number), claim in claims.items():
        if number not in faults and shards[number].heads[topic].shard_seq < claim.shard_seq:
            faults[number] = _fault_of_cut(claim, (topic, number), ends[topic, number])
    return folded, faults


def _faults_of_trimming(
    shards: Mapping[int, Shard], starts: Mapping[tuple[str, int], int], source: Log
) -> dict[int, JournalFault]:
    """Events are gone that no usable snapshot holds."""
    faults: dict[int, JournalFault] = {}
    for (topic, number), begins in (source.start_offsets(starts) if starts else {}).items():
        covered = starts[topic, number]
        if begins > covered:
            detail = (
                "the journal begins here, and the snapshots that can be used hold it only up to offset "
                f"{covered}: what lies between was deleted; put the partition back from a copy, or run the release "
                "that wrote its newest snapshots (docs/upgrading.md)"
            )
            faults[number] = broken(shards[number].heads[topic], topic, number, begins, "trimmed", detail).fault
    return faults


def _fault_of_cut(head: JournalHead, place: tuple[str, int], end: int) -> JournalFault:
    detail = f"the journal ends at offset {end}, and event {head.shard_seq} is known to have been written behind it"
    return broken(head, *place, end, "cut", detail).fault


def _follow(shard: Shard, record: Record, claim: JournalHead | None) -> None:
    """Fold one journal record, which must be the one that comes next, and the one that a checkpoint claims."""
    head = shard.heads[record.topic]
    recorded = prove(head, record)
    if claim is not None and recorded.shard_seq == claim.shard_seq and recorded.chain != claim.chain:
        detail = "a checkpoint names another event of this number"
        raise broken(head, record.topic, record.partition, record.offset, "fork", detail, found=recorded)
    event = recorded.event
    if not isinstance(event, JournalRepaired):
        place = (record.topic, record.partition, record.offset)
        kind = KIND_OF[record.topic]
        if isinstance(event, DagEvent) != (kind == "dag"):
            detail = f"a {type(event).__name__} does not belong into {record.topic}"
            raise broken(head, *place, "not_an_event", detail, found=recorded)
        key = AggregateKey(kind, event.dag if isinstance(event, DagEvent) else event.pool)
        state = shard.aggregates.get(key) or empty(*key)
        if shard.seqs_expected is not None:
            shard.seqs_expected += 1
        if recorded.seq > state.seq:
            if recorded.seq != state.seq + 1:
                detail = f"expected event {state.seq + 1} of {kind} '{key.name}', found {recorded.seq}"
                raise broken(head, *place, "does_not_follow", detail, found=recorded)
            try:
                shard.aggregates[key] = fold(state, event)
            except (AssertionError, KeyError, ValueError) as error:
                detail = f"{type(event).__name__} can not follow: {error!r}"
                raise broken(head, *place, "does_not_follow", detail, found=recorded) from error
            shard.dirty.add(key)
            shard.events_since_checkpoint += 1
        shard.answered.note(record.topic, event, recorded.cause)
    shard.heads[record.topic] = follow(head, record, recorded)
    shard.writer = max(shard.writer, recorded.writer)


def still_broken(source: Log, fault: JournalFault) -> JournalFault | None:
    """What is wrong with a journal behind the last record that was proved before ``fault``; None: nothing any more.

    A checkpoint may lie behind the fault, so bringing the shard up to date need not meet it.
    """
    place = (fault.topic, fault.partition)
    head = JournalHead(
        fault.last_good_offset + 1,
        fault.expected_shard_seq - 1,
        bytes.fromhex(fault.expected_chain),
        fault.expected_writer,
        fault.last_good_offset,
    )
    if fault.kind == "cut":
        repairs = repairs_of(source, *place)
        if any(repair.event.known_shard_seq >= head.shard_seq for repair in repairs):
            return None
        # The journal's own last event must be there again.
        found = read_to_end(source, {place: head.last}) if source.end_offset(*place) > head.last else iter(())
        first = next(found, None)
        return None if first and first.value and first.value.endswith(head.chain) else fault
    repairs = repairs_of(source, *place, fault.offset)
    try:
        for record in read_to_end(source, {place: head.offset}):
            if not any(repair.voids(record.offset) for repair in repairs):
                head = follow(head, record, prove(head, record))
    except JournalBroken as error:
        return error.fault
    return None
