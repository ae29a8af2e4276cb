"""The actions ``trigger`` and ``workflow``: what may be written, what it means, and what files say of each other."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tidewheel.core.workflow import Retry, SubWorkflow, Task, TriggerDag
from tidewheel.definition.links import check_links
from tidewheel.definition.load import Loaded, load_text

Expect = Callable[..., Loaded]


def flow(keys: str, more: str = "") -> str:
    return f"id: a\n{more}tasks:\n  - {{id: t, {keys}}}\n"


def test_a_trigger_and_a_sub_workflow_with_their_inputs(expect: Expect) -> None:
    inputs = {"day": "${{ run.id }}", "n": 3}
    loaded = expect(flow("trigger: b, inputs: {day: '${{ run.id }}', n: 3}"))
    assert loaded.workflow is not None
    assert loaded.workflow.tasks == (Task(id="t", action=TriggerDag(dag="b", inputs=inputs)),)
    loaded = expect(flow("workflow: b, timeout: 1m, retry: {max: 2}", "defaults: {retries: 9, timeout: 1s, pool: p}\n"))
    assert loaded.workflow is not None
    task = Task(id="t", action=SubWorkflow(dag="b"), timeout_ms=60_000, retry=Retry(max=2))
    assert loaded.workflow.tasks == (task,)


@pytest.mark.parametrize(
    ("marked", "code", "words"),
    [
        (flow("workflow: §a"), "self_workflow", "'a' would wait for itself"),
        (flow("trigger: §B"), "wrong_type", "expected the id of a DAG"),
        (flow("workflow: §'${{ run.id }}'"), "expression_not_allowed", "fixed when the workflow is deployed"),
        (flow("workflow: b, §pool: x"), "conflict", "'pool' does not go with 'workflow': it takes no slot"),
        (flow("trigger: b, §env: {}"), "conflict", "hand values over by 'inputs'"),
        (flow("trigger: b, §with: {}"), "conflict", "arguments of a python callable"),
        (flow("trigger: b, §total_timeout: 1m"), "conflict", "'timeout' bounds each of its runs"),
        (flow("trigger: b, retry: {§only_on: {exit_codes: [1]}}"), "conflict", "exit codes"),
        (flow("trigger: b, §workflow: c"), "conflict", "a task has one action"),
        (flow("run: x, §inputs: {}"), "conflict", "'inputs' are for the run"),
        (flow("trigger: b, inputs: {x: '${{ §inputs.day }}'}"), "unknown_name", "there is no input 'day'"),
        (flow("trigger: b, inputs: {x: '${{ §secrets.key }}'}"), "secret_not_allowed", "only where a worker reads"),
        (flow("trigger: b, inputs: {x: '${{ §tasks.u.output }}'}"), "unknown_task", "there is no task 'u'"),
    ],
)
def test_mistakes(marked: str, code: str, words: str, message: Callable[..., str]) -> None:
    assert words in message(marked, code)


def test_a_workflow_may_trigger_itself(expect: Expect) -> None:
    expect(flow("trigger: a"))


# --- several files ---------------------------------------------------------------------------------------------------

TARGET = "id: report\ninputs: {day: {type: date}, n: {type: integer, default: 1}}\ntasks: [{id: t, run: x}]\n"


def told(*texts: str) -> list[str]:
    """The warnings between workflows, each with its place."""
    found = check_links([load_text(text, f"f{number}") for number, text in enumerate(texts)])
    return [f"{one.file}:{one.line} {one.code}: {one.message}" for one in found]


def test_what_fits_is_not_told() -> None:
    assert told(flow("workflow: report, inputs: {day: 2026-01-31, n: '${{ 1 + 1 }}'}"), TARGET) == []


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (
            "trigger: reprot",
            "unknown_workflow: task 't' asks for 'reprot', which is not among these files; did you",
        ),
        ("trigger: report, inputs: {day: 2026-01-31, m: 1}", "unknown_input: task 't' gives 'report' the input 'm'"),
        ("trigger: report, inputs: {n: 1}", "missing_input: task 't' gives 'report' no input 'day', which it requires"),
        ("trigger: report, inputs: {day: 31}", "bad_input: task 't' gives 'report' the input 'day': expected a date"),
    ],
)
def test_what_does_not_fit_is_told(action: str, words: str) -> None:
    (line,) = told(flow(action), TARGET)
    assert line.startswith("f0:1 ")
    assert words in line


def test_circles_of_those_that_wait_are_told_once() -> None:
    def waits(name: str, *others: str) -> str:
        tasks = [f"{{id: t{number}, workflow: {other}}}" for number, other in enumerate(others)]
        return f"id: {name}\ntasks: [{', '.join(tasks)}]\n"

    others = (waits("b", "c", "d"), waits("c", "a"), waits("d", "e"), "id: e\ntasks: [{id: t, run: x}]\n")
    (line,) = told(waits("a", "b"), *others)
    assert "workflow_cycle: these workflows wait for each other: a -> b -> c -> a;" in line


def test_one_file_alone_is_not_judged() -> None:
    assert told(flow("trigger: nowhere")) == []
