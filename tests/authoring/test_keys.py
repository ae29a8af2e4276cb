"""The names that editors offer are the keys of the language, all of them and no others."""

from __future__ import annotations

from typing import Any

import pytest

from tidewheel.authoring import keys
from tidewheel.definition.language import ACTIONS, METHODS, WORKFLOW
from tidewheel.definition.shapes import Either, ListOf, MapOf, Record


def record(shape: Any) -> Record:
    match shape:
        case Record():
            return shape
        case ListOf(item=inner) | MapOf(value=inner) | Either(other=inner):
            return record(inner)
    raise AssertionError(shape)


TASK = record(WORKFLOW.keys["tasks"].shape)
RETRY = record(TASK.keys["retry"].shape)


@pytest.mark.parametrize(
    ("names", "known", "said_otherwise"),
    [
        (keys.DagKeys, WORKFLOW, {"id", "tasks"}),
        (keys.TaskKeys, TASK, {"id", "with", "inputs", *ACTIONS}),
        (keys.Shared, record(WORKFLOW.keys["defaults"].shape), set()),
        (keys.Schedule, record(WORKFLOW.keys["schedule"].shape), set()),
        (keys.Input, record(WORKFLOW.keys["inputs"].shape), set()),
        (keys.Concurrency, record(WORKFLOW.keys["concurrency"].shape), set()),
        (keys.Deadline, record(WORKFLOW.keys["deadlines"].shape), set()),
        (keys.Notify, record(WORKFLOW.keys["notify"].shape), set()),
        (keys.Retry, RETRY, set()),
        (keys.OnlyOn, record(RETRY.keys["only_on"].shape), set()),
    ],
)
def test_every_key_has_its_name(names: Any, known: Record, said_otherwise: set[str]) -> None:
    assert {name.removesuffix("_") for name in names.__annotations__} == set(known.keys) - said_otherwise


def test_every_method_has_its_name() -> None:
    assert keys.Method.__args__ == METHODS  # type: ignore[attr-defined]
