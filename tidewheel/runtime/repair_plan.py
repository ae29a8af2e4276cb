"""What may be done about a damaged journal partition, and what not: the thinking behind `tidewheel journal repair`.

A shard goes on only behind the last event that the log proves. Records that were never part of its history (foreign,
doubled, of a deposed owner) can be declared void at no loss. Events that are missing or cannot be proved can only be
given up, which nobody but a person may decide. Where the log does not say which of two branches is the shard's, that
too is for a person.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

import msgspec

from tidewheel.log.interface import INPUTS, Log
from tidewheel.runtime.branches import Node, Partition, note_answer, parting, path
from tidewheel.runtime.claims import Claim, claims_of
from tidewheel.runtime.repairs import Repair, read_to_end, repairs_of

Verdict: TypeAlias = Literal["whole", "repairable", "gives_up", "unsure"]


class Stretch(msgspec.Struct, frozen=True, kw_only=True):
    """Records to be declared void, and why."""

    void_from: int
    void_to: int
    records: int
    why: str


class InputsAgain(msgspec.Struct, frozen=True, kw_only=True):
    """Inputs of the shard that nothing kept answers: they are to be sent again."""

    topic: str
    from_offset: int
    to_offset: int


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What to do about one journal partition."""

    topic: str
    partition: int
    verdict: Verdict
    #: One sentence for people.
    why: str
    #: What a scheduler says of it; empty if it proves itself.
    report: str = ""
    #: The partition's end when it was examined.
    end_offset: int = 0
    #: The event behind which the shard goes on.
    last_good_offset: int = -1
    shard_seq: int = 0
    chain: str = ""
    #: The highest term that any record names.
    writer: int = 0
    stretches: tuple[Stretch, ...] = ()
    #: Events of the shard that this gives up: unproven and missing ones, and those of branches that are not kept.
    unproven: int = 0
    elsewhere: int = 0
    known_shard_seq: int = 0
    inputs_again: tuple[InputsAgain, ...] = ()
    #: Offsets at which the branches end, where the log does not say which one is the shard's.
    branches: tuple[int, ...] = ()


def examine(source: Log, topic: str, partition: int, *, keep: int | None = None) -> Plan:
    """Read a journal partition and say what may be done about it. ``keep``: the branch with this offset is the shard's.

    Raises ``LogUnavailable``.
    """
    start, end = source.start_offset(topic, partition), source.end_offset(topic, partition)
    repairs = repairs_of(source, topic, partition, start)
    claim = _claim(source, topic, partition, repairs)
    found = Partition(topic, partition, repairs, claim, trimmed=start > 0)
    found.read(read_to_end(source, {(topic, partition): start}))
    basis = Plan(topic=topic, partition=partition, verdict="whole", why="it proves itself", end_offset=end)
    if 0 < start == end:
        return msgspec.structs.replace(basis, why="all of it was trimmed, and is in the snapshots")
    if found.fault is not None and found.fault.last_good_offset < 0 and start > 0:
        why = "it was trimmed, and the oldest record that is left is no event: nothing proves what follows it"
        return msgspec.structs.replace(basis, verdict="unsure", why=why, report=found.fault.report)
    leaves = found.leaves()
    chosen, why = _choose(found, leaves, keep)
    if chosen is not None and claim and claim[0] <= chosen.head.shard_seq and not found.holds_claim(chosen):
        chosen, why = None, f"a checkpoint names another event {claim[0]}: this is another journal"
    if chosen is None:
        ends = tuple(sorted(leaf.head.last for leaf in leaves))
        report = why if found.fault is None else found.fault.report
        return msgspec.structs.replace(basis, verdict="unsure", why=why, report=report, branches=ends)
    return _plan(source, basis, found, chosen, why)


def _plan(source: Log, basis: Plan, found: Partition, kept: Node, why: str) -> Plan:
    head = kept.head
    lost = [stray for stray in found.strays if stray.ours and (stray.shard_seq or head.shard_seq + 1) > head.shard_seq]
    lost = [stray for stray in lost if stray.offset > head.last]
    known = max([stray.shard_seq or head.shard_seq + 1 for stray in lost], default=head.shard_seq)
    cut = ""
    claim = found.claim
    if claim is not None and claim[0] > head.shard_seq:
        known = max(known, claim[0])
        cut = f"a checkpoint names event {claim[0]}, and event {head.shard_seq} is the last one proved"
    unproven = known - head.shard_seq
    if found.fault is None and not cut:
        return basis
    others = found.off(kept)
    verdict: Verdict = "gives_up" if unproven else "repairable"
    sentences = [why, cut, f"{unproven} events cannot be proved or are missing" if unproven else ""]
    given_up = bool(unproven or others)
    return msgspec.structs.replace(
        basis,
        verdict=verdict,
        why="; ".join(sentence for sentence in sentences if sentence),
        report=found.fault.report if found.fault is not None else f"{basis.topic}/{basis.partition}: cut: {cut}",
        last_good_offset=head.last,
        shard_seq=head.shard_seq,
        chain=head.chain.hex(),
        writer=max(found.writer, head.writer),
        stretches=_stretches(found, kept, others),
        unproven=unproven,
        elsewhere=len(others),
        known_shard_seq=max([known, *(node.head.shard_seq for node in others)]) if given_up else 0,
        inputs_again=_inputs_again(source, found, kept) if given_up else (),
    )


def _choose(found: Partition, leaves: list[Node], keep: int | None) -> tuple[Node | None, str]:
    """The branch that is the shard's, and why."""
    if keep is not None:
        node = found.at(keep)
        mine = [leaf for leaf in leaves if node is not None and any(one is node for one in path(leaf))]
        if len(mine) == 1:
            return mine[0], f"the branch with offset {keep} was chosen by hand"
        return None, f"offset {keep} does not tell the branches apart"
    if len(leaves) == 1:
        return leaves[0], "" if found.fault is None else "everything else follows nothing that is proved"
    if found.claim is not None:
        named = [leaf for leaf in leaves if found.holds_claim(leaf)]
        if len(named) == 1:
            return named[0], f"a checkpoint names event {found.claim[0]} of this branch only"
    best = max(leaves, key=lambda leaf: leaf.head.writer)
    if all(_outranks(best, leaf) for leaf in leaves if leaf is not best):
        return best, f"this branch was begun by writer {best.head.writer}, the other by one that had lost the shard"
    return None, "history forks, and nothing tells which branch is the shard's: choose one by its offset"


def _outranks(one: Node, other: Node) -> bool:
    """Whether ``one``'s branch was begun under a higher term than any of ``other``'s."""
    parted = parting(one, other)
    return parted is not None and parted[0].head.writer > other.head.writer


def _stretches(found: Partition, kept: Node, others: Iterable[Node]) -> tuple[Stretch, ...]:
    """The void records, in runs that no kept event interrupts."""
    void = {stray.offset: stray.why for stray in found.strays}
    void.update((node.head.last, f"event {node.head.shard_seq} of a branch that is not kept") for node in others)
    kept_offsets = {node.head.last for node in path(kept)}
    runs: list[list[int]] = []
    open_run = False
    for offset in sorted(void.keys() | kept_offsets):
        if offset in kept_offsets:
            open_run = False
        elif open_run:
            runs[-1].append(offset)
        else:
            runs.append([offset])
            open_run = True
    return tuple(
        Stretch(void_from=run[0], void_to=run[-1] + 1, records=len(run), why=_why([void[offset] for offset in run]))
        for run in runs
    )


def _why(reasons: list[str]) -> str:
    more = f", and {len(reasons) - 1} more records" if len(reasons) > 1 else ""
    return f"{reasons[0]}{more}"


def _inputs_again(source: Log, found: Partition, kept: Node) -> tuple[InputsAgain, ...]:
    """The inputs behind the last one that the kept history answers, up to the owners' committed positions."""
    answered = dict(found.answered)
    for node in path(kept):
        note_answer(answered, node.cause)
    committed = source.committed(found.partition)
    again = []
    for topic in INPUTS:
        first = answered.get(f"{topic}/{found.partition}", -1) + 1
        first = max(first, source.start_offset(topic, found.partition))
        behind = committed.get(topic) or 0
        if first < behind:
            again.append(InputsAgain(topic=topic, from_offset=first, to_offset=behind))
    return tuple(again)


def _claim(source: Log, topic: str, partition: int, repairs: Iterable[Repair]) -> Claim | None:
    """The event that the shard's checkpoint names as the last one of this journal, unless a repair gave it up."""
    claim = claims_of(source, [partition]).get((topic, partition))
    given_up = max((repair.event.known_shard_seq for repair in repairs), default=0)
    return claim if claim is not None and claim[0] > given_up else None
