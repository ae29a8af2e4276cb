"""How a run ends whose upstreams ended in different ways: by the rules alone, never stuck."""

from __future__ import annotations

import pytest

from tests.core.mapped import begun, fail, succeed
from tests.core.scenes import task
from tidewheel.core import events as e
from tidewheel.core.workflow import TriggerRule
from tidewheel.testing.playbook import Outcome


def end_of(outcome: Outcome, name: str) -> str:
    """How the run ended, of which ``name`` is the leaf; first it is run, if it was to."""
    queued = [event.task for event in outcome.decision.events if isinstance(event, e.TaskQueued)]
    if name in queued:
        outcome = succeed(outcome, name)
    assert not outcome.decision.state.runs, "it ended"
    return type(outcome.decision.events[-1]).__name__ + (" after it ran" if name in queued else "")


@pytest.mark.parametrize(
    ("rule", "end"),
    [
        ("all_success", "RunFailed"),
        ("all_failed", "RunSucceeded"),
        ("all_done", "RunSucceeded after it ran"),
        ("one_success", "RunFailed"),
        ("one_failed", "RunSucceeded after it ran"),
        ("none_failed", "RunFailed"),
        ("none_failed_min_one_success", "RunFailed"),
        ("none_skipped", "RunSucceeded"),
    ],
)
def test_c042_a_skipped_and_a_failed_upstream_end_the_run_by_the_rule(rule: TriggerRule, end: str) -> None:
    """``c`` needs ``a``, which is skipped, and ``b``, which is upstream_failed. A skipped leaf is a success."""
    tasks = (task("x"), task("a", if_="false"), task("b", "x"), task("c", "a", "b", trigger_rule=rule))
    assert end_of(fail(begun(*tasks), "x"), "c") == end


def test_c043_one_success_of_which_there_is_none_is_no_skip() -> None:
    outcome = fail(begun(task("a"), task("b"), task("c", "a", "b", trigger_rule="one_success")), "a").then(e.TaskFailed)
    fail(outcome, "b").then(e.TaskFailed, e.TaskUpstreamFailed, e.RunFailed)
