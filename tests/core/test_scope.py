"""What expressions see."""

from __future__ import annotations

import pytest

from tests.core.scenes import RULES, created, deployed, leased, queued, started, succeeded, task, workflow
from tidewheel.core.scope import rfc3339, scope_of
from tidewheel.core.state import Dag
from tidewheel.testing.playbook import given

JAN_1 = 1_767_225_600_000


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (JAN_1, "2026-01-01T00:00:00Z"),
        (JAN_1 + 7, "2026-01-01T00:00:00.007Z"),
        (0, "1970-01-01T00:00:00Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (None, None),
    ],
)
def test_times_are_rfc_3339(at: int | None, text: str | None) -> None:
    assert rfc3339(at) == text


def test_expressions_see_inputs_run_upstreams_and_environment() -> None:
    definition = workflow(task("a"), task("b", "a", env={"LEVEL": "task"}), env={"LEVEL": "dag", "REGION": "eu"})
    run = created(inputs='{"day":"2026-01-01"}', logical_date=JAN_1, interval_start=JAN_1 - 1000, interval_end=JAN_1)
    history = (run, started(), queued("a"), leased("a"), succeeded("a", output='{"rows":[1,2]}'))
    state = given(Dag(dag="d"), deployed(definition), *history, rules=RULES).state
    scope = scope_of(state, state.runs["r"], "b", attempt=2)
    assert scope.inputs == {"day": "2026-01-01"}
    assert scope.run == {
        "id": "r",
        "kind": "manual",
        "logical_date": "2026-01-01T00:00:00Z",
        "interval": {"start": "2025-12-31T23:59:59Z", "end": "2026-01-01T00:00:00Z"},
        "attempt": 2,
    }
    assert scope.env == {"LEVEL": "task", "REGION": "eu"}
    assert scope.task("a") == {"state": "success", "output": {"rows": [1, 2]}}
    assert scope.task("b")["output"] is None
