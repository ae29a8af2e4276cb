"""The JSON Schema that editors use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tidewheel.definition.load import load_text
from tidewheel.definition.schema import workflow_schema, workflow_schema_text

STORED = Path(__file__).parents[2] / "schemas" / "workflow.schema.json"


def problems(text: str) -> list[str]:
    validator = jsonschema.Draft202012Validator(workflow_schema())
    return [error.message for error in validator.iter_errors(yaml.load(text, Loader=yaml.BaseLoader))]


def test_the_stored_schema_is_the_one_that_parses() -> None:
    assert STORED.read_text(encoding="utf-8") == workflow_schema_text(), "write it anew: tidewheel schema"


def test_it_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(workflow_schema())
    assert json.loads(workflow_schema_text()) == workflow_schema()


def test_every_property_has_a_description() -> None:
    def walk(schema: Any) -> None:
        if isinstance(schema, dict):
            for value in schema.get("properties", {}).values():
                assert value["description"]
            for value in schema.values():
                walk(value)
        elif isinstance(schema, list):
            for value in schema:
                walk(value)

    walk(workflow_schema())


@pytest.mark.parametrize(
    "text",
    [
        'id: a\nschedule: "0 6 * * *"\ntasks: [{id: t, run: x}]\n',
        "id: a\nx-mine: 1\nschedule: {every: 1h30m}\n"
        "tasks: [{id: t, python: 'm:f', with: {a: [1]}, needs: [], env: {A: '1'}}]\n",
        "id: a\ntasks: [{id: t, http: {url: 'https://a.b', headers: {X: y}}}, {id: u, run: x, needs: t}]\n",
        "id: a\ntasks: [{id: t, kubernetes: {image: i, command: [a], memory: 2g, job: {spec: {x: [1]}}}}]\n",
        "id: a\ntasks: [{id: t, celery: {app: 'a.b:c', task: x.y, args: [1, {a: 2}], kwargs: {b: true}}}]\n",
        "id: a\ntasks: [{id: t, container: {image: i, command: [a, 1], memory: 2g, pull: never}}]\n",
    ],
)
def test_what_loads_is_valid(text: str) -> None:
    assert load_text(text, "f").mistakes == ()
    assert problems(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "id: a\n",
        "id: A\ntasks: [{id: t, run: x}]\n",
        "id: a\nshedule: x\ntasks: [{id: t, run: x}]\n",
        "id: a\ntasks: []\n",
        "id: a\ntasks: [{id: t}]\n",
        "id: a\ntasks: [{id: t, run: x, python: 'm:f'}]\n",
        "id: a\ntasks: [{id: t, run: x, timeout: '30'}]\n",
        "id: a\ntasks: [{id: t, run: x, trigger_rule: never}]\n",
        "id: a\ntasks: [{id: t, container: {image: i, command: a b}}]\n",
        "id: a\ntasks: [{id: t, container: {image: i, cpus: none}}]\n",
        "id: a\ntasks: [{id: t, container: {command: [a]}}]\n",
        "id: a\ntasks: [{id: t, kubernetes: {image: i, workdir: /x}}]\n",
        "id: a\ntasks: [{id: t, celery: {app: jobs, task: x}}]\n",
        "id: a\ntasks: [{id: t, celery: {app: 'jobs:app'}}]\n",
        "id: a\nschedule: {every: 5m, cron: x}\ntasks: [{id: t, run: x}]\n",
        "id: a\ninputs: {a-b: {type: string}}\ntasks: [{id: t, run: x}]\n",
        "id: a\ntasks: [{id: t, run: x, for_each: 1, switch: []}]\n",
    ],
)
def test_what_it_refuses_the_loader_refuses_too(text: str) -> None:
    assert problems(text)
    assert load_text(text, "f").mistakes
