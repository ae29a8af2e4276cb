"""Switches: which branch is taken, who is left out, and that order never matters."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.core.mapped import CEL, begun, fail, kinds, succeed
from tests.core.scenes import NOW, definition, task, workflow
from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.state import Dag
from tidewheel.core.switch import Taken, leaves_out, switches_by_task
from tidewheel.core.workflow import Branch, Switch, Task
from tidewheel.testing.playbook import Outcome, given


def switch(name: str, *branches: tuple[str | None, list[str]], needs: tuple[str, ...] = (), **more: Any) -> Task:
    """A switch; a branch without a condition is its ``else``."""
    made = tuple(Branch(if_=condition, then=tuple(then)) for condition, then in branches)
    return Task(id=name, action=Switch(branches=made), needs=needs, **more)


def ends(outcome: Outcome) -> dict[str, str]:
    """How each task of the run stands."""
    run = outcome.decision.state.runs["r"]
    return {name: state.phase for name, state in run.tasks.items()}


def deploy(*tasks: Task) -> Outcome:
    return given(Dag(dag="d"), rules=CEL).when(
        c.DeployDag(dag="d", version="v1", definition=definition(workflow(*tasks))), at=NOW
    )


def test_the_first_branch_that_fits_goes_on_and_the_others_are_skipped() -> None:
    route = switch("route", ("tasks.a.output < 5", ["low"]), ("true", ["high"]), (None, ["none"]), needs=("a",))
    outcome = begun(task("a"), route, task("low", "route"), task("high", "route"), task("none", "route"))
    outcome = succeed(outcome, "a", 7)
    assert kinds(outcome) == [
        ("TaskSucceeded", "a"),
        ("TaskSucceeded", "route"),
        ("TaskSkipped", "low"),
        ("TaskQueued", "high"),
        ("TaskSkipped", "none"),
    ]
    decided = outcome.decision.events[1]
    assert json.loads(decided.output) == {"branch": 1, "then": ["high"]}
    assert (decided.attempt, decided.worker) == (0, "")
    assert outcome.decision.events[2].reason == "switch route took branch 1 (high)"


def test_it_takes_no_slot_and_asks_no_pool() -> None:
    outcome = begun(switch("route", ("true", [])))
    assert outcome.decision.commands == []
    assert kinds(outcome)[-2:] == [("TaskSucceeded", "route"), ("RunSucceeded", "")]


def test_no_branch_skips_all_that_are_named() -> None:
    outcome = begun(switch("route", ("false", ["a"]), ("false", ["b"])), task("a", "route"), task("b", "route"))
    assert kinds(outcome)[-3:] == [("TaskSkipped", "a"), ("TaskSkipped", "b"), ("RunSucceeded", "")]
    assert outcome.decision.events[-2].reason == "switch route took no branch"


def test_what_is_named_in_two_branches_or_lies_below_the_taken_one_is_not_left_out() -> None:
    route = switch("route", ("true", ["a", "both"]), ("true", ["b", "both", "below"]))
    outcome = begun(route, task("a", "route"), task("b", "route"), task("both", "route"), task("below", "route", "a"))
    assert ends(outcome) == {"route": "success", "a": "queued", "b": "skipped", "both": "queued", "below": "scheduled"}
    assert kinds(succeed(outcome, "a"))[-1] == ("TaskQueued", "below")


def test_tasks_that_need_it_and_are_not_named_follow_their_rule() -> None:
    outcome = begun(switch("route", ("false", ["a"])), task("a", "route"), task("always", "route"))
    assert ends(outcome)["always"] == "queued"


@pytest.mark.parametrize("rule", ["one_success", "always", "one_failed", "all_done"])
def test_a_named_task_waits_for_the_switch_whatever_its_rule(rule: str) -> None:
    route = switch("route", ("tasks.a.output == 1", ["x"]), needs=("a",))
    for output, end in ((1, "queued"), (2, "skipped")):
        outcome = begun(task("a"), task("b"), task("w"), route, task("x", "route", "b", trigger_rule=rule))
        outcome = succeed(outcome, "b") if rule != "one_failed" else fail(outcome, "b")
        assert "x" not in ends(outcome) or ends(outcome)["x"] == "scheduled"
        assert ends(succeed(outcome, "a", output))["x"] == end


def test_each_of_two_switches_may_leave_a_task_out() -> None:
    for first, second, end in ((1, 1, "queued"), (1, 0, "skipped"), (0, 1, "skipped"), (0, 0, "skipped")):
        one = switch("one", (f"{first} == 1", ["x"]), needs=("a",))
        two = switch("two", (f"{second} == 1", ["x"]), needs=("b",))
        for order in (("a", "b"), ("b", "a")):
            outcome = begun(task("a"), task("b"), task("w"), one, two, task("x", "one", "two"))
            for name in order:
                outcome = succeed(outcome, name)
            assert ends(outcome)["x"] == end


def test_a_condition_that_does_not_evaluate_fails_the_switch_with_the_message() -> None:
    route = switch("route", ("tasks.a.output.ratio < 1", ["x"]), (None, []), needs=("a",))
    outcome = succeed(begun(task("a"), route, task("x", "route")), "a", {})
    failed = outcome.decision.events[1]
    assert isinstance(failed, e.TaskFailed)
    assert failed.kind == "expression"
    assert failed.message.startswith("if of branch 0: ")
    assert kinds(outcome)[2:] == [("TaskUpstreamFailed", "x"), ("RunFailed", "")]


def test_a_switch_that_did_not_decide_leaves_the_trigger_rules_to_speak() -> None:
    skipped = switch("route", ("true", ["x"]), if_="false")
    outcome = begun(skipped, task("x", "route"), task("y", "route", trigger_rule="all_done"))
    assert ends(outcome) == {"route": "skipped", "x": "skipped", "y": "queued"}


def test_a_mapped_task_is_left_out_as_a_whole() -> None:
    outcome = begun(switch("route", ("false", ["m"])), task("m", "route", for_each=[1, 2]), task("z"))
    assert ends(outcome)["m"] == "skipped"
    assert not any(isinstance(event, e.TaskExpanded) for event in outcome.decision.events)


def test_a_word_that_names_no_branch_leaves_out_nothing() -> None:
    tasks = {one.id: one for one in (switch("s", ("true", ["x"])), task("x", "s"))}
    assert not leaves_out(tasks, None, "x")
    assert not leaves_out(tasks, '"by hand"', "x")
    assert leaves_out(tasks, '{"branch":null,"then":[]}', "x")
    assert Taken(None).then == ()


def test_naming_is_looked_up_by_task() -> None:
    flow = workflow(
        switch("s", ("true", ["x", "y"]), (None, ["x"])),
        switch("r", ("true", ["x"])),
        task("x", "s", "r"),
        task("y", "s"),
    )
    assert switches_by_task(flow) == {"x": ("s", "r"), "y": ("s",)}


def test_a_definition_that_could_not_be_kept_is_refused() -> None:
    deploy(switch("s", ("true", ["x"])), task("x")).rejected("names 'x' in a branch, which does not need it")
    deploy(switch("s", ("true", ["gone"]))).rejected("names 'gone' in a branch, which does not need it")
    deploy(switch("s", ("true", []), for_each=[1])).rejected("decides once")
