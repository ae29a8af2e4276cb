"""Which names an expression mentions."""

from __future__ import annotations

import pytest

from tidewheel.definition.references import references, sole_reference


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("inputs.day", ["inputs.day"]),
        ("inputs['day'].x + run.id", ["inputs.day.x", "run.id"]),
        ("tasks.load.output.files[0].path", ["tasks.load.output.files"]),
        ("tasks . load . output", ["tasks.load.output"]),
        ("inputs.day.startsWith('inputs.x')", ["inputs.day"]),
        ("inputs[run.id]", ["inputs", "run.id"]),
        ("a.inputs.b", []),
        (".inputs.b", ["inputs.b"]),
        ("f(x).tasks", []),
        ("'tasks.a' + \"tasks.b\" + r'tasks.c'", []),
        ("env.HOST", ["env.HOST"]),
        ("size(tasks)", ["tasks"]),
        ("run(1)", []),
        ("my_inputs.day + inputs_2.x", []),
        ("{'a': inputs.b}.a", ["inputs.b"]),
        ("1.0 + inputs.x", ["inputs.x"]),
    ],
)
def test_names(source: str, names: list[str]) -> None:
    found = references(source)
    assert [str(reference) for reference in found] == names
    assert all(source.startswith(reference.root, reference.offset) for reference in found)


@pytest.mark.parametrize(
    ("source", "sole"), [("inputs.day", True), ("inputs", True), ("inputs.a.b", True), ("inputs.a[0]", False),
                         ("inputs.a + 1", False), ("(inputs.a)", False), ("", False), ("x", False)]
)  # fmt: skip
def test_expressions_that_are_a_name(source: str, sole: bool) -> None:
    assert (sole_reference(source) is not None) == sole
