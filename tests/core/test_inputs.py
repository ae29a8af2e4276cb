"""Inputs of a run: defaults, types, and every mistake."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tidewheel.core.assignment import Text
from tidewheel.core.expressions import ExpressionError, Scope
from tidewheel.core.inputs import check_inputs
from tidewheel.core.workflow import Input, InputType, Run, Schedule, Task, Workflow


class Lookup:
    """An evaluator whose expressions are keys of a mapping."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def condition(self, source: str, scope: Scope) -> bool:
        raise ExpressionError("not asked for")

    def render(self, value: Any, scope: Scope) -> Any:
        if isinstance(value, str) and value.startswith("${{"):
            name = value.strip("${} ")
            if name not in self._values:
                raise ExpressionError(f"{value}: no such name")
            return self._values[name]
        return value

    def render_text(self, value: str, scope: Scope) -> Text:
        raise ExpressionError("not asked for")


SCOPE = Scope(inputs={}, run={}, task=lambda name: {})


def check(
    given: Mapping[str, Any], values: Mapping[str, Any] | None = None, zone: str = "UTC", **inputs: Input
) -> tuple[dict[str, Any], list[str]]:
    schedule = Schedule(cron=("0 0 * * *",), timezone=zone)
    workflow = Workflow(id="a", tasks=(Task(id="t", action=Run(command="x")),), inputs=inputs, schedule=schedule)
    return check_inputs(workflow, given, Lookup(values or {}), SCOPE)


@pytest.mark.parametrize(
    ("kind", "value", "accepted"),
    [
        ("string", "", ""),
        ("integer", 3, 3),
        ("integer", 3.0, 3),
        ("integer", -(2**63), -(2**63)),
        ("number", 3, 3.0),
        ("number", 0.5, 0.5),
        ("boolean", False, False),
        ("date", "2024-02-29", "2024-02-29"),
        ("datetime", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
        ("datetime", "2026-01-01t00:00:00.123456+05:30", "2026-01-01t00:00:00.123456+05:30"),
        ("array", [1, "a"], [1, "a"]),
        ("object", {"a": {}}, {"a": {}}),
    ],
)
def test_values_of_the_type_pass(kind: InputType, value: Any, accepted: Any) -> None:
    result, mistakes = check({"x": value}, x=Input(type=kind))
    assert (result, mistakes) == ({"x": accepted}, [])
    assert type(result["x"]) is type(accepted)


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        ("string", 3, "expected a text, got 3"),
        ("string", None, "got null"),
        ("integer", True, "expected a whole number, got true"),
        ("integer", "3", "expected a whole number, got '3'"),
        ("integer", 3.5, "got 3.5"),
        ("integer", 2**63, "does not fit into 64 bits"),
        ("integer", float("inf"), "expected a whole number"),
        ("number", True, "expected a number, got true"),
        ("number", float("nan"), "no finite number"),
        ("number", 10**400, "no finite number"),
        ("boolean", 1, "expected true or false, got 1"),
        ("boolean", "true", "got 'true'"),
        ("date", "2026-02-30", "expected a date like 2026-01-31"),
        ("date", "2026-1-1", "expected a date"),
        ("date", "20260101", "expected a date"),
        ("date", "2026-01-01T00:00:00Z", "expected a date"),
        ("date", "2026-01-01\n", "expected a date"),
        ("date", "٢٠٢٦-01-01", "expected a date"),
        ("datetime", "2026-01-01", "expected an RFC 3339 time"),
        ("datetime", "2026-01-01T00:00:00", "expected an RFC 3339 time"),
        ("datetime", "2026-01-01T25:00:00Z", "expected an RFC 3339 time"),
        ("datetime", "2026-W01-1T00:00:00Z", "expected an RFC 3339 time"),
        ("array", {"a": 1}, "expected a list"),
        ("array", "ab", "expected a list"),
        ("object", [1], "expected a mapping"),
        ("object", {"deep": [[[[[[[[1]]]]]]]]}.items(), "expected a mapping"),
    ],
)
def test_values_of_another_type_are_named(kind: InputType, value: Any, words: str) -> None:
    result, (mistake,) = check({"x": value}, x=Input(type=kind))
    assert result == {}
    assert mistake.startswith("input 'x': ")
    assert words in mistake
    assert len(mistake) < 250


def test_every_mistake_is_reported_at_once() -> None:
    result, mistakes = check(
        {"dya": 1, "n": "x", "fine": "f"},
        day=Input(type="date"),
        n=Input(type="integer"),
        fine=Input(type="string"),
        broken=Input(type="string", default="${{ nope }}", required=False),
    )
    assert result == {"fine": "f"}
    assert mistakes == [
        "unknown input 'dya'; did you mean 'day'?",
        "input 'day' is required: give a date like 2026-01-31",
        "input 'n': expected a whole number, got 'x'",
        "input 'broken': its default failed: ${{ nope }}: no such name",
    ]


def test_a_workflow_without_inputs_says_so() -> None:
    assert check({"x": 1})[1] == ["unknown input 'x': this workflow declares no inputs"]


def test_a_long_value_is_cut_in_the_message() -> None:
    _, (mistake,) = check({"x": "y" * 100_000}, x=Input(type="integer"))
    assert len(mistake) < 200


def test_enums() -> None:
    region = Input(type="string", enum=("eu", "us"))
    assert check({"x": "eu"}, x=region) == ({"x": "eu"}, [])
    assert check({"x": "e"}, x=region)[1] == ["input 'x': 'e' is none of 'eu', 'us'"]
    assert check({"x": 1}, x=Input(type="number", enum=(1.0, 2.5))) == ({"x": 1.0}, [])


def test_defaults_fill_in() -> None:
    inputs = {
        "plain": Input(type="number", default=1.0, required=False),
        "null": Input(type="string", default=None, required=False),
        "computed": Input(type="string", default="${{ run.id }}", required=False),
    }
    assert check({}, {"run.id": "r1"}, **inputs) == ({"plain": 1.0, "null": None, "computed": "r1"}, [])
    assert check({"null": None, "plain": 2, "computed": "mine"}, **inputs)[0] == {
        "null": None,
        "plain": 2.0,
        "computed": "mine",
    }


@pytest.mark.parametrize(
    ("start", "zone", "day"),
    [
        ("2026-01-01T00:00:00Z", "UTC", "2026-01-01"),
        ("2025-12-31T15:00:00Z", "Asia/Tokyo", "2026-01-01"),
        ("2026-01-01T05:00:00Z", "America/New_York", "2026-01-01"),
        ("2026-01-01", "Asia/Tokyo", "2026-01-01"),
    ],
)
def test_a_computed_date_is_the_date_in_the_schedules_zone(start: str, zone: str, day: str) -> None:
    day_input = Input(type="date", default="${{ run.interval.start }}", required=False)
    assert check({}, {"run.interval.start": start}, zone, x=day_input) == ({"x": day}, [])


def test_a_default_that_does_not_fit_is_a_mistake() -> None:
    day_input = Input(type="date", default="${{ run.interval.start }}", required=False)
    assert check({}, {"run.interval.start": None}, x=day_input)[1] == [
        "input 'x': expected a date like 2026-01-31, got null"
    ]
