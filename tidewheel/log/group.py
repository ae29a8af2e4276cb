"""Who owns which shard among the owners of one process; what Kafka's group coordinator does for the embedded logs.

Shards are dealt out in ranges over the members' sorted names. A shard moves in two steps, as in Kafka: its owner gives
it up when it next polls, then the member that is due takes it. So a member is never fenced by a mere newcomer, only by
being expelled or replaced. Callers hold their own lock.
"""

from __future__ import annotations

from collections.abc import Mapping


class Member:
    """One owner's place in the group."""

    def __init__(self, instance: str) -> None:
        self.instance = instance
        #: The shards held, each with the epoch under which it was taken.
        self.epochs: dict[int, int] = {}
        #: Set for good when another owner took this one's name.
        self.replaced = False


class Group:
    """The members and their shards."""

    def __init__(self, shards: int) -> None:
        self._shards = shards
        self._members: dict[str, Member] = {}
        self._holders: dict[int, Member] = {}
        self._last_epoch = 0

    def members(self) -> list[str]:
        """The members' names."""
        return sorted(self._members)

    def join(self, member: Member) -> None:
        """Take a place; a member of the same name loses its own for good and its shards pass over at once."""
        older = self._members.get(member.instance)
        if older is member:
            return
        if older is not None:
            older.replaced = True
            self._drop(older)
        self._members[member.instance] = member

    def leave(self, member: Member) -> None:
        """Give up the place and every shard."""
        if self._members.get(member.instance) is member:
            del self._members[member.instance]
        self._drop(member)

    def expel(self, instance: str) -> None:
        """Treat a member as dead: its shards are free, its open batch is void. It rejoins when it next polls."""
        member = self._members.pop(instance, None)
        if member is not None:
            self._drop(member)

    def settle(self, member: Member) -> bool:
        """Rejoin if need be, give up shards due to others, take those that are free. Tells whether anything changed."""
        before = dict(member.epochs)
        if member.instance not in self._members:
            self.join(member)
        due = self._due(member)
        for shard in [held for held in member.epochs if held not in due]:
            del member.epochs[shard]
            del self._holders[shard]
        for shard in due:
            if shard not in self._holders:
                self._holders[shard] = member
                member.epochs[shard] = self._next_epoch()
        return member.epochs != before

    def renew(self, member: Member) -> None:
        """Give every shard held a new epoch: what was read under the old one is no longer valid."""
        for shard in member.epochs:
            member.epochs[shard] = self._next_epoch()

    def holds(self, member: Member, shards: Mapping[int, int]) -> bool:
        """Whether the member still holds each shard under the epoch given."""
        return all(member.epochs.get(shard) == epoch for shard, epoch in shards.items())

    def epoch_of(self, shard: int) -> int | None:
        """Under which the shard is held; None if nobody holds it."""
        holder = self._holders.get(shard)
        return None if holder is None else holder.epochs[shard]

    def _due(self, member: Member) -> range:
        names = sorted(self._members)
        place = names.index(member.instance)
        each, extra = divmod(self._shards, len(names))
        first = place * each + min(place, extra)
        return range(first, first + each + (1 if place < extra else 0))

    def _drop(self, member: Member) -> None:
        for shard in member.epochs:
            del self._holders[shard]
        member.epochs = {}

    def _next_epoch(self) -> int:
        self._last_epoch += 1
        return self._last_epoch
