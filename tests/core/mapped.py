"""A run of mapped tasks, driven by hand."""

from __future__ import annotations

import json
from typing import Any

from tests.core.scenes import NOW, definition, workflow
from tidewheel.core import commands as c
from tidewheel.core.rules import Rules
from tidewheel.core.state import Dag
from tidewheel.core.workflow import Task
from tidewheel.definition.expressions import CelEvaluator
from tidewheel.testing.playbook import Outcome, given

CEL = Rules(evaluator=CelEvaluator())
WHERE: dict[str, Any] = {"dag": "d", "run_id": "r"}


def begun(*tasks: Task, rules: Rules = CEL, **more: Any) -> Outcome:
    """The DAG is deployed, and its run ``r`` has started."""
    deploy = c.DeployDag(dag="d", version="v1", definition=definition(workflow(*tasks, **more)))
    return given(Dag(dag="d"), rules=rules).when(deploy, at=NOW).when(c.StartRun(dag="d", run_id="r"), at=NOW)


def lease(outcome: Outcome, name: str, attempt: int = 1) -> Outcome:
    """A worker gets the attempt."""
    grant = c.GrantSlot(**WHERE, task=name, attempt=attempt, pool="default", worker="w", mail_partition=0)
    return outcome.when(grant, at=NOW)


def succeed(outcome: Outcome, name: str, output: Any = None, attempt: int = 1) -> Outcome:
    """It runs it well."""
    text = None if output is None else json.dumps(output)
    report = {**WHERE, "task": name, "attempt": attempt, "worker": "w", "started_at": NOW, "ended_at": NOW}
    return lease(outcome, name, attempt).when(c.ReportSuccess(**report, output=text), at=NOW)


def fail(outcome: Outcome, name: str) -> Outcome:
    """It runs it badly."""
    report = {**WHERE, "task": name, "attempt": 1, "worker": "w", "started_at": NOW, "ended_at": NOW}
    return lease(outcome, name).when(c.ReportFailure(**report, kind="exception", message="no"), at=NOW)


def kinds(outcome: Outcome) -> list[tuple[str, str]]:
    """The events and the tasks they are about."""
    return [(type(event).__name__, getattr(event, "task", "")) for event in outcome.decision.events]
