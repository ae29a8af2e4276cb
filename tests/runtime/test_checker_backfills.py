"""The checker on broken backfills: each rule, with the place where it breaks."""

from __future__ import annotations

from typing import Any

import pytest

from tests.runtime.test_checker import MINUTE, NOW, SLOTS, checked, created, deployed, found, scheduled
from tidewheel.core import events as e

RANGE: dict[str, Any] = {"dag": "d", "at": NOW, "backfill_id": "backfill-1"}
BACKFILL = e.BackfillStarted(**RANGE, first=NOW - 50 * MINUTE, last=NOW - 20 * MINUTE, slots=4)
FINISH = e.BackfillFinished(**RANGE)


def backfilled(slot: int, run_id: str = "", **more: Any) -> e.RunCreated:
    interval = {"interval_start": slot - 10 * MINUTE, "interval_end": slot, **more}
    name = run_id or f"scheduled__{slot}"
    return created(name, kind="backfill", logical_date=slot, backfill_id="backfill-1", **interval)


def passed(first: int, last: int, count: int, **more: Any) -> e.BackfillSlotsSkipped:
    return e.BackfillSlotsSkipped(**{**RANGE, "first": first, "last": last, "count": count, "reason": "x", **more})


MADE = [deployed(), BACKFILL, backfilled(NOW - 50 * MINUTE)]
CASES = [
    pytest.param([deployed(), backfilled(NOW)], 1, 4, "backfill-1 never was", id="4-no-backfill"),
    pytest.param([*MADE[:2], e.BackfillPaused(**RANGE), MADE[2]], 3, 4, "which is paused", id="4-made-while-paused"),
    pytest.param([*MADE, backfilled(NOW - 40 * MINUTE)], 3, 5, "beyond the width 1", id="5-width"),
    pytest.param([*MADE[:2], backfilled(NOW - 40 * MINUTE)], 2, 4, f"{NOW - 50 * MINUTE} is next", id="4-leaves-out"),
    pytest.param([*MADE[:2], backfilled(NOW)], 2, 4, "is next", id="4-beyond-its-range"),
    pytest.param(
        [*MADE[:2], backfilled(NOW - 50 * MINUTE, interval_start=0)], 2, 4, "does not cover", id="4-backfill-interval"
    ),
    pytest.param(
        [*MADE, passed(NOW - 40 * MINUTE, NOW - 20 * MINUTE, 3)],
        3,
        4,
        "not all of which have runs",
        id="4-not-answered",
    ),
    pytest.param(
        [*MADE, passed(NOW - 40 * MINUTE, NOW - 20 * MINUTE, 2, answered=False)], 3, 4, "counts 2", id="4-passed-count"
    ),
    pytest.param(
        [*MADE, passed(NOW - 40 * MINUTE, NOW - 15 * MINUTE, 3, answered=False)], 3, 4, "no slots", id="4-passed-ends"
    ),
    pytest.param([*MADE, FINISH], 3, 4, "before its end", id="4-finished-early"),
    pytest.param(
        [*MADE, passed(NOW - 40 * MINUTE, NOW - 20 * MINUTE, 3, answered=False), FINISH],
        4,
        6,
        "finished while 1 of its runs",
        id="6-finished-while-live",
    ),
    pytest.param([*MADE, BACKFILL], 3, 4, "started a second time", id="4-backfill-again"),
    pytest.param(
        [*MADE, e.BackfillStarted(**{**RANGE, "backfill_id": "b"}, first=NOW - 20 * MINUTE, last=NOW, slots=3)],
        3,
        4,
        "over slots of backfill-1",
        id="4-backfills-overlap",
    ),
    pytest.param([*MADE[:2], e.DagRemoved(dag="d", at=NOW)], 2, 4, "its DAG was removed", id="4-outlives-its-dag"),
    pytest.param(
        [
            *SLOTS,
            e.BackfillStarted(**RANGE, first=NOW, last=NOW, slots=1),
            backfilled(NOW, "x"),
        ],
        4,
        4,
        "the second one of logical date",
        id="4-backfill-of-a-slot-that-has-a-run",
    ),
    pytest.param([*MADE], 2, 6, "queued, though its backfill gave it room", id="6-backfill-run-not-started"),
]


def restarted(slot: int, **more: Any) -> e.RunRestarted:
    fields = {"run_id": f"scheduled__{slot}", "version": "v1", "logical_date": slot, "attempts": 0, **more}
    return e.RunRestarted(**{**RANGE, "interval_start": slot - 10 * MINUTE, "interval_end": slot, **fields})


AGAIN = [deployed(), scheduled(NOW), e.BackfillStarted(**RANGE, first=NOW, last=NOW, slots=1, reprocess="all")]
RUN: dict[str, Any] = {"dag": "d", "run_id": f"scheduled__{NOW}", "at": NOW, "reason": "x"}
UNRUN = [e.TaskCancelled(**RUN, task=task, attempt=0, worker="") for task in "abcdf"]
OVER = [deployed(), scheduled(NOW), e.RunCancelRequested(**RUN), *UNRUN, e.RunCancelled(**RUN)]
LEFT = e.BackfillStarted(**RANGE, first=NOW, last=NOW, slots=1, reprocess="none")
CASES += [
    pytest.param([*OVER, LEFT, restarted(NOW)], 10, 4, "leaves runs as they are", id="4-restarted-though-left"),
    pytest.param([*AGAIN, restarted(NOW)], 3, 2, "which lives", id="2-restarted-while-it-lives"),
    pytest.param([AGAIN[0], AGAIN[2], restarted(NOW)], 2, 2, "which never was", id="2-restarted-without-a-run"),
]


@pytest.mark.parametrize(("events", "offset", "invariant", "words"), CASES)
def test_a_broken_backfill_is_found_where_it_breaks(
    events: list[e.Event], offset: int, invariant: int, words: str
) -> None:
    first = checked(events).violations[0]
    assert (first.offset, first.invariant) == (offset, invariant), first
    assert words in first.message


def test_a_backfill_that_comes_to_every_slot_is_well() -> None:
    rest = passed(NOW - 40 * MINUTE, NOW - 20 * MINUTE, 3, answered=False)
    events = [*MADE, e.DagPaused(dag="d", at=NOW), rest, e.BackfillPaused(**RANGE), e.BackfillResumed(**RANGE)]
    assert found(checked(events)) == []
