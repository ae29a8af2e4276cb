"""Bugs to plant into what people do about runs: marks, clears, and runs that go on after their end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from msgspec.structs import replace

from tidewheel.core import ended
from tidewheel.core import events as e
from tidewheel.core import fold as folds
from tidewheel.core.decide import reopen, task
from tidewheel.core.decide.queue import release
from tidewheel.core.fold import operation
from tidewheel.core.fold import run as fold_run
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


def instances_counted_anew() -> Any:
    """The instances of a mapped task that is cleared count their attempts from one again."""
    with_tasks = operation._with_tasks

    def forgetful(state: Any, run: Any, after: Any) -> Any:
        changed = with_tasks(state, run, after)
        one = replace(changed.runs[run.run_id], attempts=run.attempts)
        return replace(changed, runs=changed.runs.set(run.run_id, one))

    return mock.patch.object(operation, "_with_tasks", forgetful)


def stopped_keeps_slots() -> Any:
    """An attempt that was told to end keeps its slots when it has."""

    def keeping(d: Any, pool: str, run_id: str, name: str, attempt: int, reason: str, **more: Any) -> None:
        if reason != "cancelled":
            release(d, pool, run_id, name, attempt, reason, **more)

    return mock.patch.object(task, "release", keeping)


@contextmanager
def reopened_is_late() -> Iterator[None]:
    """A run that had ended and goes on misses its deadlines once more."""
    restored = ended.restored

    def anew(*args: Any, **more: Any) -> Any:
        return replace(restored(*args, **more), missed=())

    with mock.patch.object(fold_run, "restored", anew), mock.patch.object(reopen, "restored", anew):
        yield


def deadline_fires_twice() -> Any:
    """Of a run's deadlines only the last one that it missed is remembered, so the one before fires again."""
    missed = fold_run.fold_deadline_missed

    def last_only(state: Any, event: e.DeadlineMissed) -> Any:
        changed = missed(state, event)
        one = replace(changed.runs[event.run_id], missed=(event.deadline,))
        return replace(changed, runs=changed.runs.set(event.run_id, one))

    return mock.patch.dict(folds.FOLDS, {e.DeadlineMissed: last_only})


PLANTS: tuple[Plant, ...] = (
    decision_forgotten,
    cleared_counts_anew,
    upstreams_counted_once,
    reopened_without_attempts,
    anything_recalled,
    instances_counted_anew,
    stopped_keeps_slots,
    reopened_is_late,
    deadline_fires_twice,
)
