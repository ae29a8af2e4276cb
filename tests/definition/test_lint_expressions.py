"""Expressions at deploy time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tidewheel.definition.load import Loaded

Expect = Callable[..., Loaded]
Message = Callable[..., str]

HEAD = """id: a
env: {HOST: db, URL: "http://${{ run.id }}"}
inputs:
  day: {type: date, default: "${{ run.interval.start }}"}
  count: {type: integer}
  ratio: {type: number, default: 0.5}
  name: {type: string, default: null}
  names: {type: array, default: []}
  where: {type: object, default: {}}
  sure: {type: boolean, default: false}
tasks:
  - {id: first, run: x}
  - {id: second, run: x, needs: first}
  - {id: aside, run: x}
"""


def value(expression: str) -> str:
    return f"{HEAD}  - {{id: t, needs: second, python: 'm:f', with: {{v: \"${{{{ {expression} }}}}\"}}}}\n"


def condition(expression: str) -> str:
    return f"{HEAD}  - id: t\n    needs: second\n    run: x\n    if: {expression}\n"


@pytest.mark.parametrize(
    "expression",
    [
        "inputs.count + 1",
        "inputs.day + 'T00:00:00Z'",
        "inputs['day']",
        "inputs",
        "inputs.ratio < 1",
        "inputs.count >= 0.5 && inputs.ratio != 1",
        "inputs.name == null ? 'none' : inputs.name",
        "inputs.names.map(n, n + 'x')",
        "inputs.where.a.b",
        "run.id + run.kind + string(run.attempt)",
        "run.logical_date == null",
        "run.interval.end",
        "tasks.first.output.files[0].path",
        "tasks['second'].state == 'success'",
        "has(tasks.first.output.x)",
        "env.HOST",
        "timestamp(run.interval.start) + duration('24h')",
        "size(tasks.first.output) > 0",
        "{'a': {'b': 1}}",
        "'}}' + '${{'",
    ],
)
def test_expressions_that_are_fine(expect: Expect, expression: str) -> None:
    expect(value(expression))


@pytest.mark.parametrize(
    ("expression", "code", "words"),
    [
        ("§inputs.dya", "unknown_name", "there is no input 'dya'; did you mean 'day'?"),
        ("1 + §inputs['conut']", "unknown_name", "did you mean 'count'?"),
        ("§run.idd", "unknown_name", "there is no field 'run.idd'; did you mean 'id'?"),
        ("§run.interval.begin", "unknown_name", "known are start, end"),
        ("§tasks.frist.output", "unknown_task", "there is no task 'frist'; did you mean 'first'?"),
        ("§tasks.first.result", "unknown_name", "there is no field 'tasks.first.result'; known are state, output"),
        ("§tasks.aside.output", "not_upstream", "'aside' is not upstream of 't'"),
        ("§tasks.t.output", "not_upstream", "cannot see itself"),
        ("size(§tasks)", "bad_expression", "followed by the id of one task"),
        ("§env.HOTS", "unknown_name", "there is no environment variable 'HOTS'; did you mean 'HOST'?"),
        ("§env.URL", "name_not_available", "holds an expression itself"),
        ("§secrets.key", "secret_not_allowed", "in env and http headers"),
        ("input§.day", "unknown_name", "did you mean 'inputs'?"),
        ("§foo", "unknown_name", "unknown name 'foo'"),
        ("inputs.count §+ 1.0", "type_mismatch", "does not mix whole and decimal numbers"),
        ("inputs.count §+ 'a'", "type_mismatch", "'+' does not go with (int, string)"),
        ("inputs.sure §> 1", "type_mismatch", "does not go with (bool, int)"),
        ("tasks.first.state §== 1", "type_mismatch", "does not go with (string, int)"),
        ("inputs.day §&& true", "type_mismatch", "does not go with (string, bool)"),
        ("1 +§", "bad_expression", "ends too early"),
        ("1 §1", "bad_expression", "extraneous input"),
        ("nope§(1)", "unknown_name", "unknown name 'nope'"),
    ],
)
def test_mistakes_are_found_where_they_are(message: Message, expression: str, code: str, words: str) -> None:
    assert words in message(value(expression), code)


def test_two_mistakes_in_one_text(expect: Expect) -> None:
    expect(
        HEAD + "  - {id: t, run: x, env: {A: 'on ${{ §inputs.dya }} and ${{ §foo }}', B: x}}\n",
        *("unknown_name", "unknown_name"),
    )


@pytest.mark.parametrize(
    ("written", "code", "words"),
    [
        ("${{ §inputs.count }}", "not_boolean", "this is of the type int"),
        ("§${{ inputs.sure }} yes", "bad_expression", "an 'if' is one expression"),
        ("§${{ inputs.sure }}${{ inputs.sure }}", "bad_expression", "an 'if' is one expression"),
        ("§${{ inputs.sure", "bad_expression", "'${{' without its '}}'"),
        ("§${{ }}", "bad_expression", "an empty expression"),
        ("§inputs.names.size()", "not_boolean", "int"),
        ("'§always'", "unknown_name", "unknown name 'always'"),
    ],
)
def test_conditions(message: Message, written: str, code: str, words: str) -> None:
    assert words in message(condition(written), code)


@pytest.mark.parametrize(
    ("written", "source"),
    [
        ("${{ inputs.sure }}", "inputs.sure"),
        ("inputs.count > 3", "inputs.count > 3"),
        ("true", "true"),
        ("tasks.first.output.ok", "tasks.first.output.ok"),
        ("\"${{ tasks.first.state == 'success' }}\"", "tasks.first.state == 'success'"),
        ("|\n      ${{ inputs.sure &&\n      inputs.count > 1 }}", "inputs.sure &&\ninputs.count > 1"),
    ],
)
def test_conditions_that_are_fine(expect: Expect, written: str, source: str) -> None:
    workflow = expect(condition(written)).workflow
    assert workflow is not None
    assert workflow.tasks[-1].if_ == source


@pytest.mark.parametrize(
    ("marked", "code", "words"),
    [
        ("env: {A: '${{ §tasks.t.output }}'}\n", "name_not_available", "an expression at this place sees inputs, run"),
        ("env: {A: '${{ §env.B }}', B: x}\n", "name_not_available", "sees inputs, run"),
        ("inputs: {d: {type: date, default: '${{ §inputs.e }}'}}\n", "name_not_available", "sees run"),
        ("inputs: {d: {type: date, default: §'${{ 1 + 1 }}'}}\n", "bad_default", "is of the type int"),
        ("inputs: {d: {type: integer, default: §'n ${{ run.id }}'}}\n", "bad_default", "is of the type string"),
        ("inputs: {d: {type: string, default: '${{ §secrets.x }}'}}\n", "secret_not_allowed", "where a worker reads"),
    ],
)
def test_each_place_has_its_names(message: Message, marked: str, code: str, words: str) -> None:
    assert words in message(f"id: a\n{marked}tasks: [{{id: t, run: x}}]\n", code)


def test_secrets_stand_where_a_worker_reads(expect: Expect) -> None:
    expect(
        "id: a\nenv: {A: '${{ secrets.a }}'}\ntasks:\n"
        "  - {id: t, run: x, env: {B: 'x ${{ secrets.b }} y ${{ secrets.c }}'}}\n"
        "  - {id: u, http: {url: 'https://a.b', headers: {Authorization: 'Bearer ${{ secrets.d }}'}}}\n"
    )


@pytest.mark.parametrize(
    "keys",
    [
        "run: x, env: {A: \"${{ 'x' + §secrets.b }}\"}",
        "http: {url: 'https://a.b/${{ §secrets.b }}'}",
        "http: {url: 'https://a.b', json: {deep: ['${{ §secrets.b }}']}}",
        "http: {url: 'https://a.b', body: '${{ §secrets.b }}'}",
        "python: 'm:f', with: {key: '${{ §secrets.b }}'}",
        "run: x, if: §secrets.b == 'x'",
    ],
)
def test_secrets_stand_nowhere_else(message: Message, keys: str) -> None:
    message(f"id: a\ntasks: [{{id: t, {keys}}}]\n", "secret_not_allowed")


def test_the_item_of_a_for_each_is_known_in_its_task_and_nowhere_else(expect: Expect) -> None:
    mapped = "  - {id: t, run: x, for_each: [1], as: file, env: {A: '${{ file.path }}', B: '${{ size(file) + 1 }}'}}\n"
    expect(f"id: a\ntasks:\n{mapped}")
    expect(f"id: a\ntasks:\n{mapped}  - {{id: u, run: x, env: {{A: '${{{{ size(§file) }}}}'}}}}\n", "unknown_name")
