"""Core tests that read like minutes of a meeting: given events, when a command, then events (or a refusal).

::

    given(*deployed, RunCreated(...)).when(ReportSuccess(...), at=9_000).then(TaskSucceeded(...), RunSucceeded(...))

``then`` compares whole events and shows a diff of the two lists; a type instead of an event stands for any event of
that type.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Any

import msgspec

from tidewheel.core.commands import Command
from tidewheel.core.decide import Decision, decide
from tidewheel.core.events import Event
from tidewheel.core.fold import fold
from tidewheel.core.rules import Rules
from tidewheel.core.snapshot import decode_snapshot, encode_snapshot
from tidewheel.core.state import Aggregate, Dag


@dataclass(frozen=True, slots=True)
class Given:
    """A state that events led to."""

    state: Any
    rules: Rules

    def when(self, command: Command, *, at: int) -> Outcome:
        """Decide ``command``, and prove on the way that deciding changed nothing and that the outcome survives a
        snapshot."""
        before = encode_snapshot(self.state)
        decision: Decision[Any] = decide(self.state, command, at, self.rules)
        assert encode_snapshot(self.state) == before, "decide changed the state it was given"
        folded = self.state
        for event in decision.events:
            folded = fold(folded, event)
        assert folded == decision.state, "folding the events again gives another state"
        assert_survives_snapshot(decision.state)
        return Outcome(decision, self.rules)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command came to."""

    decision: Decision[Any]
    rules: Rules

    def then(self, *expected: Event | type[Event]) -> Outcome:
        """These events and no others, in this order."""
        actual = self.decision.events
        wanted = [_show(item) for item in expected]
        found = [
            _show(type(event)) if index < len(expected) and isinstance(expected[index], type) else _show(event)
            for index, event in enumerate(actual)
        ]
        if wanted != found:
            diff = "\n".join(difflib.ndiff(wanted, found))
            raise AssertionError(f"other events than expected (- expected, + found):\n{diff}")
        return self

    def rejected(self, message: str) -> Outcome:
        """Refused, with ``message`` in the reason."""
        answer = self.decision.answer
        assert answer is not None and not answer.ok, f"expected a refusal, got {answer} and {self.decision.events}"
        assert message in answer.message, f"expected {message!r} in the refusal, found {answer.message!r}"
        return self

    def asks(self, *expected: Command) -> Outcome:
        """These commands to other aggregates, in this order."""
        assert list(expected) == self.decision.commands, f"other commands: {self.decision.commands}"
        return self

    def when(self, command: Command, *, at: int) -> Outcome:
        """Go on from here."""
        return Given(self.decision.state, self.rules).when(command, at=at)


def given(state: Aggregate, *events: Event, rules: Rules) -> Given:
    """``state`` with ``events`` folded into it."""
    for event in events:
        state = fold(state, event)
    return Given(state, rules)


def assert_survives_snapshot(state: Aggregate) -> None:
    """A snapshot holds all there is: decoded, it equals the state with every index."""
    kind = "dag" if isinstance(state, Dag) else "pool"
    restored = decode_snapshot(kind, encode_snapshot(state))
    for name in state.__struct_fields__:
        was, now = getattr(state, name), getattr(restored, name)
        assert was == now, f"{name} differs after a snapshot: {was!r} became {now!r}"


def _show(item: Event | type[Event]) -> str:
    if isinstance(item, type):
        return item.__name__
    fields = ", ".join(f"{name}={value!r}" for name, value in msgspec.structs.asdict(item).items())
    return f"{type(item).__name__}({fields})"
