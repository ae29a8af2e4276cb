"""YAML of other tools is not taken for workflows, and a workflow with mistakes never for something else."""

from __future__ import annotations

import pytest

from tidewheel.definition.meant import is_meant


@pytest.mark.parametrize(
    "text",
    [
        "id: a\n",
        "tasks: []\n",
        "description: >\n  many\n  lines\ninputs: {day: {type: date}}\n'tasks':\n- {id: a}\n",
        '{"schedule": [1, {"x": 2}], "id": "a"}',
        "---\n# first of all\nidd: a\ntasks:\n",
        "\ufeffid: a\n",
        "x: &a {b: 1}\ny: *a\ntasks: []\n",
        # What cannot be parsed.
        'description: "never closed\nid: a\ntasks: []\n',
        "description: [\n'tasks':\n  - run: x\n",
        "name: x\n\tid: a\ntasks: []\n",
        "id: a\n- b\n",
    ],
)
def test_what_is_meant_as_a_workflow(text: str) -> None:
    assert is_meant(text.encode())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing yet\n",
        "- {id: a}\n- {tasks: []}\n",
        "id\n",
        "version: '3'\nservices:\n  db:\n    image: postgres\n",
        "spec:\n  id: a\n  tasks: []\n",
        "name: id\nkind: tasks\n",
        "? [id, tasks]\n: id\n",
        "apiVersion: v1\nkind: A\n---\nid: a\ntasks: []\n",
        "{{ if .Values.on }}\nkind: Job\nspec:\n  id: a\n{{ end }}\n",
        "a: !Ref b\n",
        "\x00\x01",
    ],
)
def test_what_is_not(text: str) -> None:
    assert not is_meant(text.encode())


def test_bytes_that_are_no_text_are_judged_by_the_rest() -> None:
    assert is_meant(b"id: caf\xe9\n") and not is_meant(b"name: caf\xe9\n")
