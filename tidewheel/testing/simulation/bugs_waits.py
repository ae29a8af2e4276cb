"""Bugs to plant where a task waits for something else than a worker: a time, a person, somebody's report, a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from msgspec.structs import replace

from tidewheel.core import events as e
from tidewheel.core.deadlines import armed_by
from tidewheel.core.decide import cancel, child, clear, condition, flow, wait
from tidewheel.core.decide.defer import defer
from tidewheel.core.fold import task as fold_task
from tidewheel.core.state import TaskState
from tidewheel.core.transitions import TASK_ENDED
from tidewheel.core.waits import Wait
from tidewheel.runtime import work
from tidewheel.testing.simulation.campaign import Plant

# --- waits -----------------------------------------------------------------------------------------------------------


def earlier_answer_counts() -> Any:
    """What is said to an earlier wait of a task answers the one of now."""
    return mock.patch.object(TaskState, "waiting", lambda self, _: self.wait if self.phase == "deferred" else None)


@contextmanager
def decided_twice() -> Iterator[None]:
    """An approval that has been decided can be decided again."""
    with_task = fold_task._with_task

    def keeping(state: Any, run: Any, event: Any, before: Any, after: Any) -> Any:
        if after.phase in TASK_ENDED and before.wait is not None:
            after = replace(after, wait=before.wait)
        return with_task(state, run, event, before, after)

    def ever(self: TaskState, attempt: int) -> Any:
        return self.wait if self.attempt == attempt else None

    with mock.patch.object(fold_task, "_with_task", keeping), mock.patch.object(TaskState, "waiting", ever):
        yield


def wait_timer_lost() -> Any:
    """Nobody is woken when the time comes that a task waits for, or the time is over that it has."""

    def armed(event: e.Event, *more: Any) -> Any:
        return None if isinstance(event, e.TaskDeferred) else armed_by(event, *more)

    return mock.patch.object(work, "armed_by", armed)


def wait_without_end() -> Any:
    """A wait that has a time-out begins without it."""

    def endless(*args: Any, timeout_at: int | None = None, **more: Any) -> None:
        defer(*args, **more)

    return mock.patch.object(condition, "defer", endless)


def time_out_always_fails() -> Any:
    """A wait that is over time fails, though it is to be skipped then."""
    time_out = wait._time_out

    def failing(d: Any, run_id: str, name: str, waited: Any) -> None:
        task = d.state.definitions[d.state.runs[run_id].version].task(name)
        if getattr(task.action, "on_timeout", "") == "skip":
            wait.fail_wait(d, run_id, name, "wait_timeout", "it waited for too long")
        else:
            time_out(d, run_id, name, waited)

    return mock.patch.object(wait, "_time_out", failing)


def fault_taken_for_answer() -> Any:
    """A report that what a task waits for will never come ends the wait as if it had."""

    def cheerful(d: Any, run_id: str, name: str, *_: Any, actor: str = "scheduler") -> None:
        wait.end_wait(d, run_id, name, actor=actor)

    return mock.patch.object(wait, "fail_wait", cheerful)


# --- who waits for a run ---------------------------------------------------------------------------------------------


def watchers_forgotten() -> Any:
    """Tasks that wait for a run of another DAG are not told when it ends."""
    return mock.patch.object(flow, "tell_end", lambda *_: None)


def any_end_wanted() -> Any:
    """A task that waits for a run to succeed goes on however it ends."""
    return mock.patch.object(wait, "_unwanted", lambda *_: "")


def cancel_stays() -> Any:
    """The cancel of a task does not travel to the run that it waits for."""
    return _both(mock.patch.object(cancel, "recall", _nobody), mock.patch.object(clear, "recall", _nobody))


def left_behind() -> Any:
    """The run of a task that has timed out, or waits no more when it is told, goes on for nobody."""
    return mock.patch.object(child, "recall", _nobody)


def launch_forgotten() -> Any:
    """A task that was told to ask for its run later never does."""

    def wakes_at(self: Wait) -> int | None:
        return min((at for at in (self.resume_at, self.timeout_at) if at is not None), default=None)

    return mock.patch.object(Wait, "wakes_at", property(wakes_at))


def later_not_heard() -> Any:
    """Being told to ask for its run later, a task takes for the run's being there."""
    return mock.patch.object(child, "_put_off", _nobody)


def cancelled_child_again() -> Any:
    """Of a run that somebody cancelled, the task that waited for it asks for another."""
    fail = child._fail
    return mock.patch.object(child, "_fail", lambda *args, again: fail(*args, again=True))


def _nobody(*_: Any) -> None:
    """Nothing is said."""


@contextmanager
def _both(one: Any, other: Any) -> Iterator[None]:
    with one, other:
        yield


PLANTS: tuple[Plant, ...] = (
    earlier_answer_counts,
    decided_twice,
    wait_timer_lost,
    wait_without_end,
    time_out_always_fails,
    fault_taken_for_answer,
    watchers_forgotten,
    any_end_wanted,
    cancel_stays,
    left_behind,
    launch_forgotten,
    later_not_heard,
    cancelled_child_again,
)
