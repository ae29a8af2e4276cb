"""Bugs to plant into what people do about runs: marks, clears, and runs that go on after their end."""

from __future__ import annotations

from typing import Any
from unittest import mock

from msgspec.structs import replace

from tidewheel.core import ended
from tidewheel.core.decide import reopen, task
from tidewheel.core.fold import operation
from tidewheel.testing.simulation.campaign import Plant


def decision_forgotten() -> Any:
    """What an attempt reports counts, though a person has cleared or marked its task meanwhile."""
    return mock.patch.object(task, "_ended_as_decided", lambda *_: False)


def cleared_counts_anew() -> Any:
    """A cleared task counts its attempts from one again."""
    anew = operation._anew
    return mock.patch.object(operation, "_anew", lambda state: replace(anew(state), attempt=0))


def upstreams_counted_once() -> Any:
    """What is downstream of a task that is cleared or marked still counts its old end."""
    return mock.patch.object(operation, "_count_upstreams", lambda *_: None)


def reopened_without_attempts() -> Any:
    """Of an ended run that goes on it is not known how often its tasks were tried."""
    packed = ended._packed

    def forgetful(run: Any) -> bytes:
        tasks = {name: replace(state, attempt=0) for name, state in run.tasks.items()}
        return packed(replace(run, tasks=run.tasks.update(tasks)))

    return mock.patch.object(ended, "_packed", forgetful)


def anything_recalled() -> Any:
    """Whatever somebody says that an old run came to is believed."""
    return mock.patch.object(reopen, "digest_of", lambda run, definition: mock.ANY)


PLANTS: tuple[Plant, ...] = (
    decision_forgotten,
    cleared_counts_anew,
    upstreams_counted_once,
    reopened_without_attempts,
    anything_recalled,
)
