"""Evaluating CEL: results in plain JSON types, failures as ``ExpressionError``, and the library's traps."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidewheel.core.assignment import Secret
from tidewheel.core.expressions import Evaluator, ExpressionError, Scope
from tidewheel.definition.expressions import CelEvaluator

CEL = CelEvaluator()

OUTPUT = {"files": [{"path": "/a"}, {"path": "/b"}], "ratio": 0.9, "nothing": None, "n": 3}


def scope(inputs: Mapping[str, Any] | None = None) -> Scope:
    def task(name: str) -> Mapping[str, Any]:
        if name != "load":
            raise KeyError(name)
        return {"state": "success", "output": OUTPUT}

    return Scope(
        inputs={"day": "2026-01-01", "n": 3, "ratio": 2.0, "none": None} if inputs is None else inputs,
        run={
            "id": "r1",
            "kind": "manual",
            "logical_date": None,
            "interval": {"start": "2026-01-01T00:00:00Z", "end": None},
            "attempt": 1,
        },
        task=task,
        env={"HOST": "db"},
    )


def evaluate(source: str, inputs: Mapping[str, Any] | None = None) -> Any:
    return CEL.render(f"${{{{ {source} }}}}", scope(inputs))


def test_it_is_an_evaluator() -> None:
    evaluator: Evaluator = CelEvaluator()
    assert evaluator.condition("true", scope()) is True


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("inputs.day", "2026-01-01"),
        ("inputs", {"day": "2026-01-01", "n": 3, "ratio": 2.0, "none": None}),
        ("inputs.n", 3),
        ("inputs.n + 1", 4),
        ("inputs.ratio", 2.0),
        ("inputs.ratio + 0.5", 2.5),
        ("inputs.none", None),
        ("inputs.none == null", True),
        ("null", None),
        ("[null, 1, 1.0, 'x', true]", [None, 1, 1.0, "x", True]),
        ("{'a': null, 'b': [{}]}", {"a": None, "b": [{}]}),
        ("{1: 'a', false: 'b'}", {"1": "a", "false": "b"}),
        ("tasks.load.output.files[1].path", "/b"),
        ("tasks.load.output.files", OUTPUT["files"]),
        ("tasks.load.output", OUTPUT),
        ("tasks['load'].state", "success"),
        ("tasks.load", {"state": "success", "output": OUTPUT}),
        ("tasks.load.output.files.map(f, f.path)", ["/a", "/b"]),
        ("size(tasks.load.output.files) + tasks.load.output.n", 5),
        ("has(tasks.load.output.nope)", False),
        ("has(tasks.load.output.nothing)", True),
        ("has(inputs.nope)", False),
        ("run.interval.start", "2026-01-01T00:00:00Z"),
        ("run.logical_date", None),
        ("env.HOST", "db"),
        ("inputs.n < 3.5", True),
        ("timestamp(run.interval.start)", "2026-01-01T00:00:00Z"),
        ("timestamp(run.interval.start) + duration('90m')", "2026-01-01T01:30:00Z"),
        ("timestamp('2026-01-01T00:00:00.25+02:00')", "2025-12-31T22:00:00.250000Z"),
        ("[timestamp('2026-01-01T00:00:00Z')]", ["2026-01-01T00:00:00Z"]),
        ("duration('1h1.5s')", "3601.5s"),
        ("duration('100s')", "100s"),
        ("b'abc'", "YWJj"),
        ("18446744073709551615u", 18446744073709551615),
        ("-9223372036854775808", -9223372036854775808),
        ("'}} ${{' + \"'\"", "}} ${{'"),
        ("{'a': {'b': 1}}.a.b", 1),
        (r"r'\d' + r'''}}'''", r"\d}}"),
        ("'é😀'.size()", 2),
    ],
)
def test_results_are_plain_json(source: str, value: Any) -> None:
    result = evaluate(source)
    assert result == value
    assert repr(result) == repr(value) or isinstance(value, dict)  # 1 is not 1.0 and not true


@pytest.mark.parametrize(
    ("source", "cause"),
    [
        ("inputs.nope", "inputs has no field 'nope'"),
        ("inputs.n.deeper", "inputs.n is a number, it has no field 'deeper'"),
        ("inputs.n.deeper > 3", "inputs.n is a number, it has no field 'deeper'"),
        ("size(inputs.n.a.b) + 1", "inputs.n is a number, it has no field 'a'"),
        ("[1].exists(x, x.a > inputs.n)", "SELECT"),
        ("inputs.none.deeper", "inputs.none is null"),
        ("inputs.nope + 1", 'Key not found in map : "nope"'),
        ("tasks.nope.output", "there is no task 'nope'"),
        ("tasks.nope.output + 1", "there is no task 'nope'"),
        ("tasks", "followed by the id of one task"),
        ("size(tasks)", "followed by the id of one task"),
        ("tasks.load.output.nothing.x", "is null"),
        ("1 / 0", "divide by zero"),
        ("9223372036854775807 + 1", "integer overflow"),
        ("1.0 / 0.0", "JSON cannot hold"),
        ("0.0 / 0.0", "JSON cannot hold"),
        ("[1.0 / 0.0]", "JSON cannot hold"),
        ("type(1)", "JSON cannot hold"),
        ("{1: 1, '1': 2}", "twice"),
        ("inputs.n + 'a'", "No matching overloads"),
        ("inputs.day.matches('(')", "invalid regular expression"),
        ("inputs.list[5]", 'Key not found in map : "list"'),
        ("nope", "nope"),
        ("1 +", "Syntax error"),
        ("secrets.key + 'x'", "a secret may stand only alone"),
        ("secrets.key", "a secret may stand only alone"),
        ("(" * 4_000 + "1" + ")" * 4_000, "recursion"),
        ("1" + "+1" * 6_000, "longer than 10000 characters"),
        ("[1,2,3].map(a, [1,2,3].map(b, nope))", "nope"),
        ("'" + "x" * 300 + "' + 1", "No matching overloads"),
    ],
)
def test_every_failure_names_the_expression_and_the_cause(source: str, cause: str) -> None:
    with pytest.raises(ExpressionError) as raised:
        evaluate(source)
    text = str(raised.value)
    assert cause in text
    assert text.startswith(f"${{{{ {source[:200]}")
    assert len(text) < 600


def test_loops_end_by_their_budget() -> None:
    with pytest.raises(ExpressionError, match="budget"):
        evaluate("inputs.l.map(a, inputs.l.map(b, inputs.l.map(c, 1)))", {"l": list(range(500))})


def test_deep_values_are_refused_instead_of_overflowing_the_stack() -> None:
    deep: list[Any] = []
    for _ in range(50_000):
        deep = [deep]
    with pytest.raises(ExpressionError, match="nested more than"):
        evaluate("size(inputs.deep)", {"deep": deep})


@pytest.mark.parametrize("value", ["admin\0x", {"admin\0x": 1}, [["\0"]]])
def test_texts_that_the_library_would_cut_off_are_refused(value: Any) -> None:
    """It would take ``"admin\\0x" == "admin"`` for true."""
    with pytest.raises(ExpressionError, match=r"U\+0000"):
        evaluate("inputs.x == 'admin'", {"x": value})


@pytest.mark.parametrize("value", [object(), 10**30, "\ud800", {1, 2}])
def test_foreign_values_are_an_error_of_ours(value: Any) -> None:
    with pytest.raises(ExpressionError):
        evaluate("[inputs.x]", {"x": value})


@pytest.mark.parametrize("source", ["inputs.n", "'true'", "null", "[true]", "1"])
def test_a_condition_must_be_a_boolean(source: str) -> None:
    with pytest.raises(ExpressionError, match="a condition must be true or false"):
        CEL.condition(source, scope())


def test_conditions() -> None:
    assert CEL.condition('run.kind != "backfill" && tasks.load.state == "success"', scope()) is True
    assert CEL.condition("inputs.n > 3", scope()) is False


def test_render_goes_through_a_json_value_and_keeps_types() -> None:
    value = {
        "n": "${{ inputs.n }}",
        "text": "n is ${{ inputs.n }}.",
        "list": ["${{ tasks.load.output.files }}", 1, None],
        "same": {"deep": ["x", 2.5, True]},
        "space": "  ${{ inputs.n }}\n",
        "${{ key }}": 1,
    }
    assert CEL.render(value, scope()) == {
        "n": 3,
        "text": "n is 3.",
        "list": [OUTPUT["files"], 1, None],
        "same": {"deep": ["x", 2.5, True]},
        "space": 3,
        "${{ key }}": 1,
    }


@pytest.mark.parametrize(
    ("text", "rendered"),
    [
        ("plain", ("plain",)),
        ("", ()),
        ("${{ inputs.n }}", ("3",)),
        ("a ${{ inputs.n }} b ${{ inputs.ratio }} c", ("a 3 b 2.0 c",)),
        ("${{ inputs.none }}", ()),
        ("<${{ inputs.none }}>", ("<>",)),
        ("${{ inputs.n == 3 }}", ("true",)),
        ("${{ tasks.load.output.files }}", ('[{"path":"/a"},{"path":"/b"}]',)),
        ("${{ 'é' }}", ("é",)),
        ("${{ secrets.key }}", (Secret("key"),)),
        ("Bearer ${{ secrets.key }}", ("Bearer ", Secret("key"))),
        (
            "${{ inputs.day }}:${{ secrets.a }}${{ secrets.b }}!${{ run.id }}",
            ("2026-01-01:", Secret("a"), Secret("b"), "!r1"),
        ),
    ],
)
def test_texts_join_values_and_keep_secrets_apart(text: str, rendered: tuple[str | Secret, ...]) -> None:
    assert CEL.render_text(text, scope()) == rendered


def test_a_value_that_looks_like_a_secret_stays_text() -> None:
    inputs = {"evil": "${{ secrets.key }}"}
    assert CEL.render_text("${{ inputs.evil }}", scope(inputs)) == ("${{ secrets.key }}",)
    assert CEL.render("${{ inputs.evil }}", scope(inputs)) == "${{ secrets.key }}"


@pytest.mark.parametrize("text", ["${{ inputs.n", "${{ }}", "${{ 'open }}", "x ${{ {1: 2 }}"])
def test_broken_templates_are_an_error_of_ours(text: str) -> None:
    with pytest.raises(ExpressionError):
        CEL.render(text, scope())
    with pytest.raises(ExpressionError):
        CEL.render_text(text, scope())


def test_only_tasks_that_are_mentioned_are_asked_for() -> None:
    asked: list[str] = []

    def task(name: str) -> Mapping[str, Any]:
        asked.append(name)
        return {"state": "success", "output": 1}

    names = Scope(inputs={}, run={}, task=task)
    assert CEL.condition("'tasks.c' != '' && tasks.a.output == tasks['b'].output", names) is True
    assert asked == ["a", "b"]


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
JSON = st.recursive(
    st.one_of(
        *(st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), TEXTS),
        st.floats(allow_nan=False, allow_infinity=False),
    ),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(JSON)
def test_a_value_passes_through_cel_as_it_is(value: Any) -> None:
    """And the shortcut for bare names gives what CEL gives."""
    through_cel = evaluate("[inputs.x][0]", {"x": value})
    assert through_cel == value
    assert evaluate("inputs.x", {"x": value}) == through_cel
    assert evaluate("inputs", {"x": value}) == {"x": value}


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="inputs.run[]{}()'\"\\ +-*/%<>=!&|?:,0123456789abrx\n\0é", max_size=60) | st.text(max_size=40))
def test_nonsense_never_raises_anything_else(source: str) -> None:
    for use in (lambda: CEL.condition(source, scope()), lambda: CEL.render_text(f"${{{{ {source}", scope())):
        try:
            use()
        except ExpressionError:
            continue


NULLS = """
import gc
import sys
from tidewheel.core.expressions import Scope
from tidewheel.definition.expressions import CelEvaluator
cel = CelEvaluator()
scope = Scope(inputs={"x": None, "l": [None] * 10, "m": {"a": None}}, run={}, task=lambda name: {})
for source in ("[inputs.x]", "inputs.l.map(x, x)", "null", "{'a': inputs.m.a}", "inputs.m == null ? 1 : null"):
    cel.render("${{ " + source + " }}", scope)
gc.collect()
before = sys.getrefcount(None)
for _ in range(2000):
    for source in ("[inputs.x]", "inputs.l.map(x, x)", "null", "{'a': inputs.m.a}", "inputs.m == null ? 1 : null"):
        cel.render("${{ " + source + " }}", scope)
gc.collect()
assert abs(sys.getrefcount(None) - before) < 1000, sys.getrefcount(None) - before
"""


def test_nulls_do_not_wear_out_pythons_none() -> None:
    """cel-expr-python 0.1.3 takes a reference from None for each null fetched; on Python 3.11 that ends the process."""
    done = subprocess.run([sys.executable, "-c", NULLS], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_several_threads_may_evaluate() -> None:
    wrong: list[Any] = []

    def work(number: int) -> None:
        for turn in range(300):
            result = CEL.render(f"${{{{ [inputs.n + {number}, {turn % 7}] }}}}", scope())
            if result != [3 + number, turn % 7]:
                wrong.append(result)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
