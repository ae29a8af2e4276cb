"""The action that a worker is given."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.core.scenes import PlainEvaluator, task
from tidewheel.core.action import encode_action, fixed_action, render_action
from tidewheel.core.assignment import ContainerSpec, HttpSpec, PythonSpec, RunSpec, Text
from tidewheel.core.expressions import ExpressionError, Scope
from tidewheel.core.workflow import Action, Celery, Container, Http, Kubernetes, Python, Run, Switch, Task

EMPTY = Scope(inputs={}, run={}, task=lambda name: {})


class Marking(PlainEvaluator):
    """Marks whatever it was asked to evaluate."""

    def render(self, value: Any, scope: Scope) -> Any:
        return f"<{value}>"

    def render_text(self, value: str, scope: Scope) -> Text:
        return (f"[{value}]",)


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


@pytest.mark.parametrize(
    "action",
    [
        Run(command="echo $A"),
        Python(callable="m:f", with_={"x": [1, None]}),
        Http(method="PUT", url="u", headers={"H": "h"}, json={"j": 1}, body="b", expect=(204,)),
        Container(image="i", command=("a", "b"), volumes=("v",), cpus=2.0, pull="never"),
        Celery(app="m:app", task="t", args=(1,), kwargs={"k": 2}),
        Kubernetes(image="i", command=("c",)),
    ],
)
def test_an_action_without_expressions_is_rendered_once_for_all_runs(action: Action) -> None:
    written = Task(id="t", action=action, env={"B": "2"})
    assert fixed_action(written, {"A": "1", "B": "0"}) == encode_action(
        render_action(written, {"A": "1", "B": "0"}, EMPTY, PlainEvaluator())
    )
    assert fixed_action(written, {"A": "${{ run.id }}"}) is None
    assert fixed_action(msgspec.structs.replace(written, env={"B": "${{ run.id }}"}), {}) is None


def test_what_no_worker_runs_has_no_action() -> None:
    assert fixed_action(Task(id="t", action=Switch(branches=())), {}) is None
