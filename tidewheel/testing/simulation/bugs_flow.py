"""Bugs to plant where runs branch, and where one waits for another."""

from __future__ import annotations

from typing import Any
from unittest import mock

from tidewheel.core import readiness
from tidewheel.core.commands import ContinueRun
from tidewheel.core.deadlines import timers_of
from tidewheel.core.decide import flow, parent
from tidewheel.core.decide.decision import Decision
from tidewheel.core.state import RunState
from tidewheel.runtime import timers
from tidewheel.testing.simulation.campaign import Plant


def switch_ignored() -> Any:
    """Whom a switch leaves out runs all the same."""
    return mock.patch.object(readiness, "left_out", lambda *_: "")


def end_not_told() -> Any:
    """A task that waits for a run is not told of its end."""
    return mock.patch.object(flow, "tell_parent", lambda *_: None)


def failure_told_as_success() -> Any:
    """A task that waits for a run is told that it succeeded, whatever it did."""
    tell_parent = parent.tell_parent
    return mock.patch.object(flow, "tell_parent", lambda d, run, end, _: tell_parent(d, run, end, "success"))


def steps_forgotten() -> Any:
    """Nobody goes on with what of a run was too much for one decision."""
    return mock.patch.object(Decision, "leave", lambda *_: None)


def steps_lost_at_takeover() -> Any:
    """A new owner of a shard does not go on with what of a run was too much for one decision."""

    def fewer(*args: Any) -> Any:
        return (found for found in timers_of(*args) if not isinstance(found[1], ContinueRun))

    return mock.patch.object(timers, "timers_of", fewer)


def begins_between_steps() -> Any:
    """What of a run that is to end has not been told yet goes on."""
    return mock.patch.object(RunState, "stops", lambda *_: False)


PLANTS: tuple[Plant, ...] = (
    switch_ignored,
    end_not_told,
    failure_told_as_success,
    steps_forgotten,
    steps_lost_at_takeover,
    begins_between_steps,
)
