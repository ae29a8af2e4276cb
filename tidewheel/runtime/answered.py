"""The last inputs that a shard's journals answer, known from the causes of their events.

The group's position says where to read on. It is committed with the events, but it is kept apart from them (Kafka:
``__consumer_offsets``), and a broker that dies hard can bring it back older than the journals. Inputs are answered in
their order: so whatever lies at or before the last one that an event names as its cause is done, and is passed over
when it is read again. Commands are in the order of their partition. Triggers are in the order of each DAG's, for those
of a flooded DAG wait while others go on (``runtime.backlog``).

An input that caused no event leaves no mark. The few behind the last one that did are decided again: a stale beat, a
refused request, a record that was no command. That is a second answer by mail or a second dead letter, and no event.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import structlog

from tidewheel.core.events import RunCreated
from tidewheel.log.interface import COMMANDS, TRIGGERS

log = structlog.get_logger()


@dataclass(slots=True)
class Answered:
    """Of shard ``shard``. Offsets are those of its own partition of each input; what it does not know is absent."""

    shard: int
    #: On ``commands``, by journal topic.
    commands: dict[str, int] = field(default_factory=dict)
    #: On ``triggers``, by DAG.
    triggers: dict[str, int] = field(default_factory=dict)
    #: How the causes that count begin.
    _commands: str = field(init=False, repr=False, compare=False)
    _triggers: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._commands = f"{COMMANDS}/{self.shard}/"
        self._triggers = f"{TRIGGERS}/{self.shard}/"

    def note(self, journal: str, event: object, cause: str) -> None:
        """The next event of ``journal`` has this cause.

        The last word counts and not the highest: inputs that were lost or laid out anew have other offsets.
        """
        # Anything else is a timer, slots given out, a repair, an input of the log before this one, or one of another
        # shard, which is in that one's order.
        if cause.startswith(self._commands):
            offset = cause[len(self._commands) :]
            if offset.isdecimal():
                self.commands[journal] = int(offset)
        elif cause.startswith(self._triggers) and isinstance(event, RunCreated) and event.kind == "kafka":
            # Only this is a trigger's answer by its own DAG; what follows from it for others says nothing of theirs.
            offset = cause[len(self._triggers) :]
            if offset.isdecimal():
                self.triggers[event.dag] = int(offset)

    def covers_command(self, offset: int) -> bool:
        """Whether this one of ``commands`` was answered before, or left behind by those that were."""
        return offset <= max(self.commands.values(), default=-1)

    def covers_trigger(self, dag: str, offset: int) -> bool:
        """Whether this one of ``triggers``, which is for ``dag``, was."""
        return offset <= self.triggers.get(dag, -1)

    def believe(self, ends: Mapping[str, int]) -> None:
        """Forget what an input topic that ends there cannot hold: what lies on those offsets one day is something else.

        Inputs that are answered twice are refused, those that are passed over are lost.
        """
        lost = [offset for offset in self.commands.values() if offset >= ends[COMMANDS]]
        lost += [offset for offset in self.triggers.values() if offset >= ends[TRIGGERS]]
        if not lost:
            return
        log.error(
            "the journal answers inputs that are not on their topics any more; did the log lose its end?",
            shard=self.shard,
            commands_end=ends[COMMANDS],
            triggers_end=ends[TRIGGERS],
            answered=max(lost),
        )
        self.commands = {journal: offset for journal, offset in self.commands.items() if offset < ends[COMMANDS]}
        self.triggers = {dag: offset for dag, offset in self.triggers.items() if offset < ends[TRIGGERS]}
