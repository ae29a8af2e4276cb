"""What expressions see, and the action that a worker is given."""

from __future__ import annotations

from typing import Any

import pytest
from scenes import RULES, PlainEvaluator, created, deployed, leased, queued, started, succeeded, task, workflow

from tidewheel.core.assignment import ContainerSpec, HttpSpec, PythonSpec, RunSpec, Text
from tidewheel.core.expressions import ExpressionError, Scope
from tidewheel.core.scope import render_action, rfc3339, scope_of
from tidewheel.core.state import Dag
from tidewheel.core.workflow import Container, Http, Python, Run, Task
from tidewheel.testing.playbook import given

JAN_1 = 1_767_225_600_000
EMPTY = Scope(inputs={}, run={}, task=lambda name: {})


class Marking(PlainEvaluator):
    """Marks whatever it was asked to evaluate."""

    def render(self, value: Any, scope: Scope) -> Any:
        return f"<{value}>"

    def render_text(self, value: str, scope: Scope) -> Text:
        return (f"[{value}]",)


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (JAN_1, "2026-01-01T00:00:00Z"),
        (JAN_1 + 7, "2026-01-01T00:00:00.007Z"),
        (0, "1970-01-01T00:00:00Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (None, None),
    ],
)
def test_times_are_rfc_3339(at: int | None, text: str | None) -> None:
    assert rfc3339(at) == text


def test_expressions_see_inputs_run_upstreams_and_environment() -> None:
    definition = workflow(task("a"), task("b", "a", env={"LEVEL": "task"}), env={"LEVEL": "dag", "REGION": "eu"})
    run = created(inputs='{"day":"2026-01-01"}', logical_date=JAN_1, interval_start=JAN_1 - 1000, interval_end=JAN_1)
    history = (run, started(), queued("a"), leased("a"), succeeded("a", output='{"rows":[1,2]}'))
    state = given(Dag(dag="d"), deployed(definition), *history, rules=RULES).state
    scope = scope_of(state, state.runs["r"], "b", attempt=2)
    assert scope.inputs == {"day": "2026-01-01"}
    assert scope.run == {
        "id": "r",
        "kind": "manual",
        "logical_date": "2026-01-01T00:00:00Z",
        "interval": {"start": "2025-12-31T23:59:59Z", "end": "2026-01-01T00:00:00Z"},
        "attempt": 2,
    }
    assert scope.env == {"LEVEL": "task", "REGION": "eu"}
    assert scope.task("a") == {"state": "success", "output": {"rows": [1, 2]}}
    assert scope.task("b")["output"] is None


def test_each_kind_of_action_is_rendered_where_it_may_hold_expressions() -> None:
    def rendered(action: Run | Python | Http) -> Any:
        return render_action(Task(id="t", action=action, env={"B": "2"}), {"A": "1", "B": "0"}, EMPTY, Marking())

    env: dict[str, Text] = {"A": ("[1]",), "B": ("[2]",)}
    assert rendered(Run(command="echo $A")) == RunSpec(command="echo $A", env=env), "a shell reads its environment"
    python = rendered(Python(callable="m:f", with_={"x": 1}))
    assert python == PythonSpec(callable="m:f", kwargs="<{'x': 1}>", env=env)  # type: ignore[arg-type]
    http = rendered(Http(method="PUT", url="u", headers={"H": "h"}, json={"j": 1}, expect=(204,)))
    assert http == HttpSpec(method="PUT", url="[u]", headers={"H": ("[h]",)}, json="<{'j': 1}>", expect=(204,))
    assert rendered(Http(method="PUT", url="u", body="text")).body == "[text]"


def test_a_container_s_words_are_rendered_each_for_itself() -> None:
    action = Container(image="i", command=("a", "b"), entrypoint=("e",), volumes=("v",), memory="1g", cpus=2.0)
    spec = render_action(Task(id="t", action=action, env={"B": "2"}), {}, EMPTY, Marking())
    assert spec == ContainerSpec(
        image="[i]", command=("[a]", "[b]"), entrypoint=("[e]",), volumes=("[v]",), memory="1g", cpus=2.0,
        env={"B": ("[2]",)},
    )  # fmt: skip


def test_an_expression_that_fails_is_said_so() -> None:
    with pytest.raises(ExpressionError, match="boom: no such name"):
        render_action(task("t", env={"A": "boom"}), {}, EMPTY, PlainEvaluator())
