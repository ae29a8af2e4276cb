"""Triggers in a workflow file: what is read, and what is refused with its place."""

from __future__ import annotations

import pytest

from tidewheel.core.workflow import Records, Trigger
from tidewheel.definition.load import load_text

HEAD = """\
id: orders
inputs:
  day: {type: date}
  limit: {type: integer, default: 10}
tasks: [{id: load, run: ./load}]
triggers:
"""


def mistakes(text: str) -> list[tuple[int, str, str]]:
    loaded = load_text(HEAD + text, "orders.yaml")
    return [(mistake.line - HEAD.count("\n"), mistake.code, mistake.message) for mistake in loaded.mistakes]


def test_a_trigger_is_read_with_its_expressions() -> None:
    loaded = load_text(
        HEAD
        + """\
  - id: late_file
    kafka:
      topic: landing.files
      filter: ${{ event.value.kind == "orders" && event.partition < 3 }}
      dedupe_key: file-${{ event.value.file_id }}
      inputs: {day: "${{ event.value.day }}", limit: 3}
""",
        "orders.yaml",
    )
    assert loaded.mistakes == ()
    assert loaded.workflow is not None
    assert loaded.workflow.triggers == (
        Trigger(
            id="late_file",
            kafka=Records(
                topic="landing.files",
                filter='event.value.kind == "orders" && event.partition < 3',
                dedupe_key="file-${{ event.value.file_id }}",
                inputs={"day": "${{ event.value.day }}", "limit": 3},
            ),
        ),
    )


def test_triggers_that_are_not_there_do_not_change_the_version() -> None:
    without = load_text("id: a\ntasks: [{id: b, run: c}]\n", "a.yaml")
    with_none = load_text("id: a\ntriggers: []\ntasks: [{id: b, run: c}]\n", "a.yaml")
    assert without.version == with_none.version


@pytest.mark.parametrize(
    ("text", "line", "code", "part"),
    [
        ("  - {id: a, kafka: {inputs: {day: '2026-01-01'}}}", 1, "missing_key", "topic"),
        ("  - {id: a, kafka: {topic: a b, inputs: {day: '2026-01-01'}}}", 1, "wrong_type", "name of a Kafka topic"),
        ("  - {id: a, kafka: {topic: '..', inputs: {day: '2026-01-01'}}}", 1, "bad_value", "no topic in Kafka"),
        ("  - {id: a, kafka: {topic: t}}", 1, "missing_key", "input 'day' has no default"),
        ("  - {id: a, kafka: {topic: t, inputs: {day: soon}}}", 1, "bad_value", "a date like"),
        ("  - {id: a, kafka: {topic: t, inputs: {dya: x, day: '2026-01-01'}}}", 1, "unknown_name", "mean 'day'"),
        (
            "  - {id: a, kafka: {topic: t, inputs: {day: '2026-01-01', limit: '${{ event.topic }}'}}}",
            1,
            "bad_value",
            "of the type string",
        ),
        ("  - {id: a, kafka: {topic: t, filter: event.offset, inputs: {day: x}}}", 1, "not_boolean", "a 'filter' must"),
        ("  - {id: a, kafka: {topic: t, filter: event.vlaue == 1}}", 1, "unknown_name", "did you mean 'value'"),
        ("  - {id: a, kafka: {topic: t, filter: run.id == 'x'}}", 1, "name_not_available", "sees event"),
        ("  - {id: a, kafka: {topic: t, filter: event.topic > 3}}", 1, "type_mismatch", "does not go with"),
        ("  - {id: a, kafka: {topic: t, dedupe_key: one}}", 1, "bad_value", "this one key"),
        (
            "  - {id: a, kafka: {topic: t, dedupe_key: '${{ secrets.x }}'}}",
            1,
            "secret_not_allowed",
            "secrets may stand only",
        ),
        ("  - {id: a, http: {}}", 1, "unknown_key", "http"),
    ],
)
def test_a_mistake_is_told_where_it_is(text: str, line: int, code: str, part: str) -> None:
    found = mistakes(text)
    assert any(one[0] == line and one[1] == code and part in one[2] for one in found), found


def test_two_triggers_of_one_id_are_refused() -> None:
    one = "  - {id: a, kafka: {topic: t, inputs: {day: '2026-01-01'}}}\n"
    assert [(line, code) for line, code, _ in mistakes(one + one)] == [(2, "duplicate_id")]


def test_an_event_is_nothing_that_tasks_know() -> None:
    loaded = load_text('id: a\ntasks: [{id: b, run: c, env: {X: "${{ event.key }}"}}]\n', "a.yaml")
    assert [mistake.code for mistake in loaded.mistakes] == ["unknown_name"]
