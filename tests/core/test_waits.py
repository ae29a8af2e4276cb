"""What a wait is: its end, its words, and the times that expressions give it."""

from __future__ import annotations

from zoneinfo import ZoneInfo

import pytest

from tidewheel.core.explain import explain_wait
from tidewheel.core.expressions import ExpressionError
from tidewheel.core.waits import Wait, instant_ms

BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("1970-01-01T00:00:01Z", 1_000),
        ("1970-01-01t01:00:01.5+01:00", 1_500),
        ("1970-01-02T00:00:00", 82_800_000),
        ("1970-01-02T00:00", 82_800_000),
        ("1970-01-02", 82_800_000),
    ],
)
def test_times_without_an_offset_are_on_the_clock_of_the_schedule(text: str, at: int) -> None:
    assert instant_ms(text, BERLIN) == at


@pytest.mark.parametrize("value", [None, 3, "", "soon", "2026-02-30", "2026-01-01T24:10Z", "20260101", ["2026-01-01"]])
def test_nothing_else_is_a_time(value: object) -> None:
    with pytest.raises(ExpressionError, match="time"):
        instant_ms(value, BERLIN)


def test_a_wait_wakes_at_the_first_of_its_ends() -> None:
    assert Wait("time", resume_at=5, timeout_at=3).wakes_at == 3
    assert Wait("time", resume_at=2, timeout_at=3).wakes_at == 2
    assert Wait("run", timeout_at=3).wakes_at == 3
    assert Wait("run").wakes_at is None


def test_a_wait_is_explained() -> None:
    assert explain_wait(Wait("time", resume_at=0)) == "waits until 1970-01-01T00:00:00Z"
    late = explain_wait(Wait("time", resume_at=5_000, timeout_at=1_000))
    approval = Wait("approval", timeout_at=0, detail='{"roles":["boss","clerk"]}')
    assert explain_wait(approval) == "waits for an approval by boss or clerk, until 1970-01-01T00:00:00Z at most"
    assert explain_wait(Wait("approval", detail='{"roles":[]}')) == "waits for an approval"
    assert late == "waits for its time, until 1970-01-01T00:00:01Z at most"
