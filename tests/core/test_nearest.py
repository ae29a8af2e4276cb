"""Suggestions for a mistyped name."""

from __future__ import annotations

import pytest

from tidewheel.core.nearest import did_you_mean


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("shedule", "; did you mean 'schedule'?"),
        ("Schedule", "; did you mean 'schedule'?"),
        ("taskS", "; did you mean 'Tasks'?"),
        ("colour", ""),
        ("", ""),
    ],
)
def test_a_near_name_is_suggested_and_a_far_one_not(name: str, suggestion: str) -> None:
    assert did_you_mean(name, ["schedule", "Tasks", "id"]) == suggestion


def test_the_nearest_of_several_is_suggested() -> None:
    assert did_you_mean("retrie", ["retry", "retries", "infra_retries"]) == "; did you mean 'retries'?"


def test_a_name_too_long_for_a_typing_mistake_is_not_compared() -> None:
    assert did_you_mean("a" * 100, ["a" * 99]) == f"; did you mean '{'a' * 99}'?"
    assert did_you_mean("a" * 101, ["a" * 100]) == ""


def test_without_names_there_is_nothing_to_suggest() -> None:
    assert did_you_mean("schedule", []) == ""
