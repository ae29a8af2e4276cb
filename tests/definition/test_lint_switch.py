"""Switches in workflow files: what they become, and every mistake at its place."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tidewheel.core.workflow import Branch, Switch
from tidewheel.definition.load import Loaded

Expect = Callable[..., Loaded]


def flow(switch: str, *more: str) -> str:
    """A workflow with a switch over ``x`` and ``y``."""
    named = ["{id: x, needs: [s], run: x}", "{id: y, needs: [s, x], run: y}"]
    return "id: a\ntasks:\n" + "".join(f"  - {one}\n" for one in (f"{{id: s, {switch}}}", *named, *more))


def test_branches_are_read_in_order(expect: Expect) -> None:
    text = flow("switch: [{if: run.id == 'a', then: x}, {if: '${{ true }}', then: [y, x]}, {else: []}]")
    workflow = expect(text).workflow
    assert workflow is not None
    assert workflow.tasks[0].action == Switch(
        branches=(Branch(if_="run.id == 'a'", then=("x",)), Branch(if_="true", then=("y", "x")), Branch())
    )


def test_defaults_for_workers_are_none_of_a_switch(expect: Expect) -> None:
    text = flow("switch: [{if: 'true', then: [x]}]")
    plain, with_defaults = expect(text).workflow, expect(f"defaults: {{retries: 3, pool: big}}\n{text}").workflow
    assert plain is not None
    assert with_defaults is not None
    assert with_defaults.tasks[0] == plain.tasks[0]
    assert with_defaults.tasks[1].pool == "big"


@pytest.mark.parametrize(
    ("marked", "code", "words"),
    [
        (flow("switch: §[]"), "bad_value", "at least one item"),
        (flow("switch: [§{if: 'true'}]"), "missing_key", "'then' is missing"),
        (flow("switch: [§{then: [x]}, {if: 'true', then: []}]"), "missing_key", "'if' is missing"),
        (flow("switch: [{§if: 'true', else: [x]}]"), "conflict", "or 'else' alone: remove 'if'"),
        (flow("switch: [{§else: [x]}, {if: 'true', then: [y]}]"), "conflict", "'else' is the last branch"),
        (flow("switch: §[{else: [x]}]"), "missing_key", "at least one branch with an 'if'"),
        (flow("switch: [{if: 'true', then: [§z]}]"), "unknown_task", "there is no task 'z'"),
        (flow("switch: [{if: 'true', then: [§xx]}]"), "unknown_task", "did you mean 'x'?"),
        (flow("switch: [{if: 'true', then: [§u]}]", "{id: u, run: x}"), "not_downstream", "add 's' to its 'needs'"),
        (flow("switch: [{if: 'true', then: [§v]}]", "{id: v, needs: x, run: x}"), "not_downstream", "must wait"),
        (flow("switch: [{if: 'true', then: [§s]}]"), "not_downstream", "'s' must wait"),
        (flow("switch: [{if: 'true', then: [x, §x]}]"), "duplicate_need", "named twice"),
        (flow("switch: [{if: §1 + 1, then: [x]}]"), "not_boolean", "of the type int"),
        (flow("switch: [{if: '§inputs.n', then: [x]}]"), "unknown_name", "there is no input 'n'"),
        (flow("switch: [{if: §tasks.x.output.n > 1, then: [x]}]"), "not_upstream", "'x' is not upstream of 's'"),
        (flow("switch: [{if: 'a ${{ true }}', then: [x]}]").replace("'a", "§'a"), "bad_expression", "nothing around"),
        (flow("switch: [{if: 'true', then: [x], §esle: [y]}]"), "unknown_key", "did you mean 'else'?"),
        (flow("switch: [{if: 'true', then: [x]}], §for_each: [1]"), "conflict", "decided at once, by the engine"),
        (flow("switch: [{if: 'true', then: [x]}], §pool: big"), "conflict", "'pool' says nothing here"),
        (flow("switch: [{if: 'true', then: [x]}], §run: x"), "conflict", "'switch' is already there"),
    ],
)
def test_mistakes(marked: str, code: str, words: str, message: Callable[..., str]) -> None:
    assert words in message(marked, code)
