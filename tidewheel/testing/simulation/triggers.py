"""Judging the listeners: each record of a topic that a trigger takes asks for its run, and there is one for each key.

What the triggers of a DAG take, and since when, is read off its deployments; the expressions are those that simulated
workflows use, read anew.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeAlias

from tidewheel.core import events as e
from tidewheel.core.workflow import Trigger, Workflow
from tidewheel.log.interface import DEAD_LETTERS, TRIGGERS, Record
from tidewheel.testing.simulation.decoding import message_in
from tidewheel.testing.simulation.expressions import KEY, LARGE
from tidewheel.wire.faults import DecodeError
from tidewheel.wire.messages import DeadLetter, TriggerRun

if TYPE_CHECKING:
    from tidewheel.testing.simulation.world import TroubledWorld

#: Topics of others, and how many partitions each has.
FEED_TOPICS: Final = {"a": 2, "b": 1}
#: DAG and trigger.
TriggerName: TypeAlias = tuple[str, str]


class _Window:
    """A trigger from when it came to be until it went, or took another topic: what it was meanwhile."""

    def __init__(self, since: int, trigger: Trigger) -> None:
        self.since = since
        self.versions = [trigger]

    def takes(self, record: Record, slack_ms: int) -> bool:
        """Whether the record may be its own, by any of what it was."""
        return any(_takes(trigger, self.since - slack_ms, record) for trigger in self.versions)


class Triggers:
    """Reads deployments and creations; ``judge`` when no listener has anything left to read."""

    def __init__(self, world: TroubledWorld) -> None:
        self._world = world
        self._windows: dict[TriggerName, list[_Window]] = {}
        self._standing: set[TriggerName] = set()
        self._created: list[tuple[TriggerName, str]] = []
        #: How far the clock of a scheduler was off that took a deployment with triggers on a topic: since when one
        #: takes records is told by that clock, and whoever is new to a topic is told from others by the same.
        self._slack_ms = dict.fromkeys(FEED_TOPICS, 0)

    def deployed(self, event: e.DagDeployed, workflow: Workflow) -> None:
        """The DAG has these triggers from now on."""
        fresh = {(event.dag, trigger.id): trigger for trigger in workflow.triggers}
        for name, trigger in fresh.items():
            topic = trigger.kafka.topic
            self._slack_ms[topic] = max(self._slack_ms[topic], abs(event.at - self._world.now))
            windows = self._windows.setdefault(name, [])
            if name in self._standing and windows[-1].versions[-1].kafka.topic == trigger.kafka.topic:
                windows[-1].versions.append(trigger)
            else:
                windows.append(_Window(event.at, trigger))
        self.removed(event.dag)
        self._standing |= fresh.keys()

    def removed(self, dag: str) -> None:
        """It has none."""
        self._standing = {name for name in self._standing if name[0] != dag}

    def created(self, event: e.RunCreated) -> None:
        """There is a run."""
        if event.trigger:
            self._created.append(((event.dag, event.trigger), event.origin))

    def judge(self) -> Iterator[str]:
        """Everything that was published has been read."""
        records = {_place(record): record for topic in FEED_TOPICS for record in self._world.feed.records_of(topic)}
        asked, lettered = self._asked()
        answered = asked | lettered
        for name, origin in sorted(asked):
            slack_ms = self._slack_ms[records[origin].topic]
            if not any(window.takes(records[origin], slack_ms) for window in self._windows.get(name, ())):
                yield f"trigger {'/'.join(name)} asks for a run by {origin}, which is not its own"
        for name in sorted(self._standing):
            window = self._windows[name][-1]
            if any(trigger != window.versions[0] for trigger in window.versions):
                continue  # which of them judged a record is a matter of time
            for origin, record in records.items():
                taken = _takes(window.versions[0], window.since + self._slack_ms[record.topic], record)
                if taken and (name, origin) not in answered:
                    yield f"trigger {'/'.join(name)} never asked for a run by {origin}"
        for (name, key), count in Counter(self._key(name, records[origin]) for name, origin in self._created).items():
            if count > 1:
                yield f"trigger {'/'.join(name)} has {count} runs by {key}"

    def judge_runs(self) -> Iterator[str]:
        """Nothing is on its way any more: whatever was asked for has its run, or was refused."""
        records = {_place(record): record for topic in FEED_TOPICS for record in self._world.feed.records_of(topic)}
        made = {self._key(name, records[origin]) for name, origin in self._created}
        asked, _ = self._asked()
        refused = set(self._refused())
        for name, origin in sorted(asked - refused):
            if self._key(name, records[origin]) not in made:
                yield f"trigger {'/'.join(name)} has no run by {origin}"

    def _refused(self) -> Iterator[tuple[TriggerName, str]]:
        for partition in range(self._world.log.partitions):
            for record in self._world.log.records_of(DEAD_LETTERS, partition):
                letter = None if record is None or not record.value else message_in(record.value)
                if isinstance(letter, DeadLetter) and letter.topic == TRIGGERS and letter.value:
                    with suppress(DecodeError):
                        message = message_in(letter.value)
                        if isinstance(message, TriggerRun):
                            yield (message.dag, message.trigger), message.origin

    def _key(self, name: TriggerName, record: Record) -> tuple[TriggerName, str]:
        """The records with this are one run."""
        if self._windows[name][0].versions[0].kafka.dedupe_key == KEY:
            return name, (record.key or b"").decode()
        return name, _place(record)

    def _asked(self) -> tuple[set[tuple[TriggerName, str]], set[tuple[TriggerName, str]]]:
        """What listeners have asked for, and what they could not judge."""
        asked, lettered = set(), set()
        for partition in range(self._world.log.partitions):
            for record in self._world.log.records_of(TRIGGERS, partition):
                if record is None or not record.value or record.value[:1] == b"{":
                    continue
                with suppress(DecodeError):
                    message = message_in(record.value)
                    if isinstance(message, TriggerRun) and message.trigger:
                        asked.add(((message.dag, message.trigger), message.origin))
            for record in self._world.log.records_of(DEAD_LETTERS, partition):
                letter = None if record is None or not record.value else message_in(record.value)
                if isinstance(letter, DeadLetter) and letter.topic in FEED_TOPICS:
                    _, trigger, _, dag, *_ = letter.reason.split("'")
                    lettered.add(((dag, trigger), f"{letter.topic}/{letter.partition}/{letter.offset}"))
        return asked, lettered


def _place(record: Record) -> str:
    return f"{record.topic}/{record.partition}/{record.offset}"


def _takes(trigger: Trigger, since: int, record: Record) -> bool:
    """Whether the record is the trigger's, as its author would say."""
    if record.topic != trigger.kafka.topic or record.timestamp < since:
        return False
    if trigger.kafka.filter is None:
        return True
    assert trigger.kafka.filter == LARGE, trigger.kafka.filter
    return is_large(record)


def is_large(record: Record) -> bool:
    """What ``LARGE`` says of the record."""
    try:
        value = json.loads(record.value or b"null")
    except ValueError:
        return False
    return isinstance(value, dict) and value.get("n", 0) > 1
