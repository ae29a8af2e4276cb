"""Trigger rules, against the plain words of the rule and against any order of arrival."""

from __future__ import annotations

import itertools
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.scenes import definition, task, workflow
from tidewheel.core.graph import Tally, define, judge
from tidewheel.core.transitions import TaskPhase
from tidewheel.core.workflow import TriggerRule

RULES = get_args(TriggerRule)
ENDS: list[TaskPhase] = ["success", "failed", "skipped", "upstream_failed", "cancelled"]


def tally(*ends: TaskPhase) -> Tally:
    found = Tally()
    for end in ends:
        found = found.plus(end)
    return found


@pytest.mark.parametrize(
    ("rule", "ends", "verdict"),
    [
        ("all_success", ("success", "success"), "run"),
        ("all_success", ("success", "skipped"), "skip"),
        ("all_success", ("skipped", "failed"), "upstream_failed"),
        ("all_failed", ("failed", "upstream_failed"), "run"),
        ("all_failed", ("failed", "success"), "skip"),
        ("all_done", ("failed", "skipped"), "run"),
        ("one_success", ("failed", "failed"), "upstream_failed"),  # C043
        ("one_success", ("skipped", "skipped"), "skip"),
        ("one_success", ("failed", "success"), "run"),
        ("one_failed", ("success", "failed"), "run"),
        ("one_failed", ("success", "success"), "skip"),
        ("none_failed", ("success", "skipped"), "run"),
        ("none_failed", ("upstream_failed", "success"), "upstream_failed"),
        ("none_failed_min_one_success", ("skipped", "skipped"), "skip"),
        ("none_failed_min_one_success", ("skipped", "success"), "run"),
        ("none_failed_min_one_success", ("failed", "success"), "upstream_failed"),
        ("none_skipped", ("failed", "success"), "run"),
        ("none_skipped", ("failed", "skipped"), "skip"),
        ("always", (), "run"),
    ],
)
def test_the_rules_say_what_they_are_called(rule: TriggerRule, ends: tuple[TaskPhase, ...], verdict: str) -> None:
    assert judge(rule, tally(*ends), 2) == verdict


@pytest.mark.parametrize("rule", RULES)
def test_without_upstreams_every_rule_holds(rule: TriggerRule) -> None:
    assert judge(rule, Tally(), 0) == "run"


@given(st.sampled_from(RULES), st.lists(st.sampled_from(ENDS), min_size=1, max_size=6))
def test_a_verdict_never_changes_with_what_comes_later_or_in_which_order(
    rule: TriggerRule, ends: list[TaskPhase]
) -> None:
    final = judge(rule, tally(*ends), len(ends))
    assert final != "wait"
    for order in itertools.islice(itertools.permutations(ends), 30):
        for seen in range(len(ends)):
            assert judge(rule, tally(*order[:seen]), len(ends)) in ("wait", final)


@pytest.mark.parametrize("rule", ["one_success", "one_failed"])
def test_one_rules_fire_as_soon_as_they_hold(rule: TriggerRule) -> None:
    assert judge(rule, tally("success" if rule == "one_success" else "failed"), 5) == "run"


def test_a_definition_knows_who_comes_after_whom() -> None:
    found = define("v", definition(workflow(task("a"), task("b", "a"), task("c", "a", "b", trigger_rule="always"))))
    assert found.children == {"a": ("b", "c"), "b": ("c",), "c": ()}
    assert found.leaves == ("c",)
    assert found.starters == ("a", "c")


def test_actions_with_expressions_are_not_fixed() -> None:
    found = define("v", definition(workflow(task("a"), task("b", env={"X": "${{ run.id }}"}))))
    assert set(found.fixed_actions) == {"a"}


def test_a_definition_that_needs_what_is_not_there_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="'b' needs 'x'"):
        define("v", definition(workflow(task("b", "x"))))
