"""Which slots have a run, against a plain set of them."""

from __future__ import annotations

from itertools import islice, pairwise
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidewheel.core import coverage
from tidewheel.core.calendar import next_slot, previous_slot, slots_between
from tidewheel.core.coverage import (
    Coverage,
    Outcome,
    Span,
    answered_stretch,
    era_of,
    has_run,
    span_of,
    with_outcome,
    with_run,
)
from tidewheel.core.workflow import Schedule

HOUR = 3_600_000
HOURLY = Schedule(every_ms=HOUR)
EVERY_SIX = Schedule(cron=("0 */6 * * *",))
START = 1_767_571_200_000
ANY = get_args(Outcome)
SLOTS = list(islice(slots_between(HOURLY, START, START + 1_000 * HOUR), 40))

ALL = (SLOTS[0], SLOTS[-1])


def with_slots(found: Coverage, schedule: Schedule, *slots: int) -> Coverage:
    for slot in slots:
        found = with_run(found, schedule, previous_slot(schedule, slot), slot)
    return found


@settings(max_examples=200)
@given(st.lists(st.integers(0, 39), unique=True), st.lists(st.integers(0, 6), unique=True))
def test_it_knows_each_slot_that_has_a_run_and_no_other(hourly: list[int], six: list[int]) -> None:
    """Two schedules, whose slots fall together now and then."""
    others = [slot for slot in SLOTS if slot % (6 * HOUR) == 0]
    ran = [SLOTS[at] for at in hourly]
    ran_six = [slot for at in six if at < len(others) and (slot := others[at]) not in ran]
    found = with_slots(with_slots((), EVERY_SIX, *ran_six), HOURLY, *ran)
    assert [slot for slot in SLOTS if has_run(found, HOURLY, slot)] == sorted({*ran, *ran_six})
    assert [slot for slot in others if has_run(found, EVERY_SIX, slot)] == sorted({*ran, *ran_six} & set(others))
    for slot in SLOTS:
        for backward in (False, True):
            far = answered_stretch(found, HOURLY, slot, ALL, ANY, backward=backward)
            assert far == _far_end(slot, {*ran, *ran_six}, backward)


def _far_end(slot: int, ran: set[int], backward: bool) -> int | None:
    step, far = -HOUR if backward else HOUR, None
    while slot in ran:
        far, slot = slot, slot + step
    return far


def test_neighbours_make_one_span_whatever_the_order() -> None:
    for order in (SLOTS, SLOTS[::-1], SLOTS[::2] + SLOTS[1::2]):
        era = era_of(with_slots((), HOURLY, *order), HOURLY)
        assert era is not None
        assert list(era.spans) == [Span(START, SLOTS[-1])]


def test_too_many_gaps_close_the_oldest_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coverage, "SPANS_MAX", 3)
    found = with_slots((), HOURLY, *SLOTS[:12:2])
    assert all(has_run(found, HOURLY, slot) for slot in SLOTS[:5]), "what is forgotten counts as answered"
    assert coverage.is_forgotten(found, SLOTS[3]) and not coverage.is_forgotten(found, SLOTS[5])
    assert not has_run(found, HOURLY, SLOTS[5]) and has_run(found, HOURLY, SLOTS[6])
    assert answered_stretch(found, HOURLY, SLOTS[0], ALL, ("failed",), backward=False) == SLOTS[4]
    assert answered_stretch(found, HOURLY, SLOTS[4], ALL, ("failed",), backward=True) == SLOTS[0]


def test_too_many_schedules_forget_the_one_longest_at_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coverage, "ERAS_MAX", 2)
    found = with_slots(with_slots((), HOURLY, SLOTS[5]), EVERY_SIX, START)
    assert len(found) == 2
    found = with_slots(found, Schedule(cron=("30 * * * *",)), START + HOUR // 2)
    assert len(found) == 2 and era_of(found, HOURLY) is None
    assert has_run(found, HOURLY, SLOTS[4]) and not has_run(found, HOURLY, SLOTS[6])


def test_a_hundred_thousand_slots_are_passed_in_one_look() -> None:
    last = START + 100_000 * HOUR
    found = with_run((), HOURLY, START, last)  # as if they had all run
    assert answered_stretch(found, HOURLY, SLOTS[0], (SLOTS[0], last), ANY, backward=False) == last
    assert answered_stretch(found, HOURLY, last, (SLOTS[0], last), ANY, backward=True) == next_slot(HOURLY, START)


@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from(ANY), st.integers(0, 2)), max_size=40))
def test_it_knows_how_each_run_ended(ends: list[tuple[int, Outcome, int]]) -> None:
    found = with_slots((), HOURLY, *SLOTS[:10])
    said: dict[int, tuple[Outcome, int]] = dict.fromkeys(range(10), ("live", 0))
    for at, outcome, attempts in ends:
        found = with_outcome(found, HOURLY, SLOTS[at] - HOUR, SLOTS[at], outcome, attempts)
        said[at] = (outcome, attempts)
    for at, slot in enumerate(SLOTS[:10]):
        span = span_of(found, HOURLY, slot)
        assert span is not None
        assert (span.outcome, span.attempts) == said[at]
        far = answered_stretch(found, HOURLY, slot, ALL, ("success", "live"), backward=False)
        well = [other for other in range(at, 10) if said[other][0] in ("success", "live")]
        assert (far is not None) == (at in well)
    era = era_of(found, HOURLY)
    assert era is not None
    assert all(not right.continues(left) for left, right in pairwise(era.spans)), "neighbours that are alike are one"


def test_a_run_is_told_of_in_the_schedule_that_made_it() -> None:
    """Its definition may name other slots by the time it ends."""
    found = with_slots(with_slots((), HOURLY, SLOTS[3]), EVERY_SIX, START)
    found = with_outcome(found, HOURLY, SLOTS[3] - HOUR, SLOTS[3], "failed", 4)
    assert span_of(found, HOURLY, SLOTS[3]) == Span(SLOTS[3] - HOUR, SLOTS[3], "failed", 4)
    assert with_outcome(found, HOURLY, SLOTS[9] - HOUR, SLOTS[9], "failed", 4) == found


@pytest.mark.parametrize("schedule", [EVERY_SIX, None])
def test_a_run_that_goes_on_under_another_schedule_takes_no_slots_of_the_first_one(schedule: Schedule | None) -> None:
    slot = START + 6 * HOUR
    found = with_slots((), HOURLY, slot - 3 * HOUR, slot - HOUR, slot)
    again = with_outcome(found, schedule, slot - 6 * HOUR, slot, "failed", 2)
    assert [one for one in SLOTS if has_run(again, HOURLY, one)] == [slot - 3 * HOUR, slot - HOUR, slot]
    assert span_of(again, HOURLY, slot) == Span(slot - HOUR, slot, "failed", 2)
    assert span_of(again, HOURLY, slot - HOUR) == span_of(found, HOURLY, slot - HOUR)._replace(last=slot - HOUR)  # type: ignore[union-attr]
