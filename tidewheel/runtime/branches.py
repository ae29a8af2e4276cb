"""What a journal partition proves, however it was damaged: the tree of events that follow one another.

Each event names its predecessor by its chain, so every record either follows one that is proved, or proves nothing.
Where two follow the same one, history forked. An owner reads the whole journal before it takes a higher term; so where
branches begin under different terms, the one of the higher term is the shard's, and the other was written by somebody
who had lost it. Under one term nothing tells them apart, unless a checkpoint names one of them.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator

import msgspec

from tidewheel.core.events import Recorded
from tidewheel.log.interface import Record
from tidewheel.runtime.claims import Claim
from tidewheel.runtime.journal import JournalBroken, JournalFault, broken, follow, prove
from tidewheel.runtime.repairs import Repair
from tidewheel.runtime.shard import JournalHead
from tidewheel.wire.catalog import versions
from tidewheel.wire.codec import DecodeError, chain_matches, decode_event

#: How far back before the fault a fork may begin. One owner's open transactions hold far less.
FORK_EVENTS_MAX = 20_000
_INPUT = re.compile(r"((?:commands|triggers)/[0-9]+)/([0-9]+)")


class Node:
    """An event that follows a proved one."""

    __slots__ = ("cause", "children", "head", "parent")

    def __init__(self, head: JournalHead, cause: str, parent: Node | None) -> None:
        self.head = head
        self.cause = cause
        self.parent = parent
        self.children = 0


class Stray(msgspec.Struct, frozen=True):
    """A record that follows nothing proved. ``shard_seq``: as it says; None: it is no event."""

    offset: int
    shard_seq: int | None
    why: str
    #: It is, or was before it was damaged, an event of Tidewheel's, and nothing proves that it is not this journal's.
    ours: bool


class Partition:
    """Reads one partition, and says what its branches are. ``answered``: the last input of each kind that was
    answered before the tree begins."""

    def __init__(
        self, topic: str, partition: int, repairs: Iterable[Repair], claim: Claim | None, *, trimmed: bool = False
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.claim = claim
        self._claim_met = False
        self._first_seq = 0
        #: The oldest event kept is believed; what it follows is gone.
        self._trimmed = trimmed
        self.fault: JournalFault | None = None
        self.strays: list[Stray] = []
        self.writer = 0
        self.answered: dict[str, int] = {}
        self._repairs = tuple(repairs)
        root = Node(JournalHead(), "", None)
        self._tip = root
        self._recent: deque[Node] = deque([root])
        #: The tree from a while before the fault on.
        self._nodes: list[Node] = []
        self._by_seq: dict[int, list[Node]] = {}

    def read(self, records: Iterable[Record]) -> None:
        """Every record from the partition's start to its end."""
        for record in records:
            if any(repair.voids(record.offset) for repair in self._repairs):
                continue
            if self._trimmed:
                self._trimmed = False
                self._believe(record)
            elif self.fault is None:
                try:
                    recorded = prove(self._tip.head, record)
                except JournalBroken as error:
                    self.fault = error.fault
                    for node in self._recent:
                        self._add(node)
                    self._place(record)
                else:
                    self._go_on(record, recorded)
            else:
                self._place(record)
        if self.fault is None:
            for node in self._recent:
                self._add(node)

    def leaves(self) -> list[Node]:
        """The ends of all branches."""
        return [node for node in self._nodes if not node.children]

    def at(self, offset: int) -> Node | None:
        """The event at this offset, if it follows a proved one."""
        return next((node for node in self._nodes if node.head.last == offset), None)

    def holds_claim(self, leaf: Node) -> bool:
        """Whether the branch that ends in ``leaf`` holds the event that the checkpoint names."""
        if self.claim is None or self.claim[0] < self._first_seq:
            return True
        return self._claim_met or any(node.head[1:3] == self.claim for node in path(leaf))

    def off(self, leaf: Node) -> list[Node]:
        """The events of all other branches."""
        kept = set(map(id, path(leaf)))
        return [node for node in self._nodes if id(node) not in kept]

    def _believe(self, record: Record) -> None:
        try:
            recorded = decode_event(record.value or b"")
        except DecodeError as error:
            self.fault = broken(
                self._tip.head, record.topic, record.partition, record.offset, "not_an_event", str(error)
            ).fault
            return
        self._tip = Node(follow(self._tip.head, record, recorded), recorded.cause, None)
        self._recent = deque([self._tip])
        self.writer = recorded.writer
        self._first_seq = recorded.shard_seq

    def _go_on(self, record: Record, recorded: Recorded) -> None:
        node = Node(follow(self._tip.head, record, recorded), recorded.cause, self._tip)
        self._tip.children += 1
        self._tip = node
        self.writer = max(self.writer, recorded.writer)
        self._recent.append(node)
        if len(self._recent) > FORK_EVENTS_MAX:
            gone = self._recent.popleft()
            note_answer(self.answered, gone.cause)
            self._claim_met |= gone.head[1:3] == self.claim
            self._recent[0].parent = None

    def _add(self, node: Node) -> None:
        self._nodes.append(node)
        self._by_seq.setdefault(node.head.shard_seq, []).append(node)

    def _place(self, record: Record) -> None:
        value = record.value or b""
        try:
            recorded = decode_event(value)
        except DecodeError as error:
            ours = value[:2] == b"\xc3\x01" and value[2:10] in versions()
            self.strays.append(Stray(record.offset, None, f"it is no event ({error.code}: {error.reason})", ours))
            return
        self.writer = max(self.writer, recorded.writer)
        for twin in self._by_seq.get(recorded.shard_seq, ()):
            if twin.head.chain == recorded.chain:
                why = f"it repeats the event at offset {twin.head.last}"
                self.strays.append(Stray(record.offset, recorded.shard_seq, why, ours=False))
                return
        for parent in self._by_seq.get(recorded.shard_seq - 1, ()):
            if recorded.writer >= parent.head.writer and chain_matches(parent.head.chain, value):
                parent.children += 1
                self._add(Node(follow(parent.head, record, recorded), recorded.cause, parent))
                return
        why = f"event {recorded.shard_seq} of writer {recorded.writer} follows nothing that is proved"
        self.strays.append(Stray(record.offset, recorded.shard_seq, why, ours=True))


def path(leaf: Node) -> Iterator[Node]:
    """The branch that ends here, from its end back."""
    node: Node | None = leaf
    while node is not None:
        yield node
        node = node.parent


def parting(one: Node, other: Node) -> tuple[Node, Node] | None:
    """The first events of two branches that they do not share; None if the one ends within the other."""
    shared = {id(node) for node in path(one)}
    below: Node | None = None
    for node in path(other):
        if id(node) in shared:
            mine = _child_towards(node, one)
            return None if below is None or mine is None else (mine, below)
        below = node
    return None


def _child_towards(ancestor: Node, leaf: Node) -> Node | None:
    below: Node | None = None
    for node in path(leaf):
        if node is ancestor:
            return below
        below = node
    return None


def note_answer(answered: dict[str, int], cause: str) -> None:
    """Keep the last offset of each input that ``cause`` names."""
    match = _INPUT.fullmatch(cause)
    if match is not None:
        answered[match[1]] = max(answered.get(match[1], -1), int(match[2]))
