"""Bugs to plant into backfills and into how much of a pool a DAG may hold."""

from __future__ import annotations

from typing import Any
from unittest import mock

from tidewheel.core.decide import backfill as decide_backfill
from tidewheel.core.decide import dag as decide_dag
from tidewheel.core.fold import pool as fold_pool
from tidewheel.core.fold import run as fold_run
from tidewheel.core.shares import capacity_needed
from tidewheel.testing.simulation.campaign import Plant


def backfilled_slot_again() -> Any:
    """The schedule does not see that a backfill has made a slot's run."""
    return mock.patch.object(decide_dag, "has_run", lambda *_: False)


def cancelled_backfill_goes_on() -> Any:
    """What waits of a backfill that is cancelled is not cancelled with it."""
    return mock.patch.object(decide_backfill, "cancel_run", lambda *_, **__: None)


def backfill_room_lost() -> Any:
    """The end of a backfill's run does not give its room to the next."""
    counted = fold_run.counted
    return mock.patch.object(
        fold_run, "counted", lambda state, run, change: counted(state, run, change) if change > 0 else state
    )


def wide_task_overshoots() -> Any:
    """Whether a DAG keeps its share is reckoned as if its next task took one slot."""
    return mock.patch.object(fold_pool, "capacity_needed", lambda share, live, _: capacity_needed(share, live, 1))


def share_of_the_past() -> Any:
    """A DAG's share is that of the pool as it was before it shrank or grew."""
    return mock.patch.object(fold_pool, "_resized", lambda state, _: state)


PLANTS: tuple[Plant, ...] = (
    backfilled_slot_again,
    cancelled_backfill_goes_on,
    backfill_room_lost,
    wide_task_overshoots,
    share_of_the_past,
)
