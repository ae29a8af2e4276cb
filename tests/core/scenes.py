"""Small DAGs and histories that the core tests start from."""

from __future__ import annotations

from typing import Any

import msgspec

from tidewheel.core import events as e
from tidewheel.core.assignment import Text
from tidewheel.core.expressions import ExpressionError, Scope
from tidewheel.core.rules import Rules
from tidewheel.core.state import Dag, Pool
from tidewheel.core.workflow import Run, Task, Workflow
from tidewheel.testing.playbook import Given, given

NOW = 1_767_571_200_000


class PlainEvaluator:
    """Knows the conditions ``true`` and ``false``; anything else does not evaluate. Text stays as it is."""

    def condition(self, source: str, scope: Scope) -> bool:
        if source not in ("true", "false"):
            raise ExpressionError(f"{source}: no such name")
        return source == "true"

    def render(self, value: Any, scope: Scope) -> Any:
        return value

    def render_text(self, value: str, scope: Scope) -> Text:
        if "boom" in value:
            raise ExpressionError(f"{value}: no such name")
        return (value,)


RULES = Rules(evaluator=PlainEvaluator())


def task(id_: str, *needs: str, **more: Any) -> Task:
    """A shell task."""
    return Task(id=id_, action=Run(command="true"), needs=needs, **more)


def workflow(*tasks: Task, **more: Any) -> Workflow:
    """A DAG called ``d``."""
    return Workflow(id="d", tasks=tasks, **more)


def definition(of: Workflow) -> str:
    """Its canonical text."""
    return msgspec.json.encode(of).decode()


def deployed(of: Workflow, version: str = "v1", **more: Any) -> e.DagDeployed:
    """It became current."""
    return e.DagDeployed(dag="d", at=NOW, version=version, definition=definition(of), **more)


def created(run_id: str = "r", version: str = "v1", **more: Any) -> e.RunCreated:
    """A manual run was created."""
    return e.RunCreated(dag="d", run_id=run_id, at=NOW, version=version, kind="manual", **more)


def started(run_id: str = "r") -> e.RunStarted:
    """And may run."""
    return e.RunStarted(dag="d", run_id=run_id, at=NOW)


def queued(name: str, attempt: int = 1, run_id: str = "r") -> e.TaskQueued:
    """An attempt waits in its pool."""
    return e.TaskQueued(dag="d", run_id=run_id, task=name, attempt=attempt, at=NOW, pool="default", pool_slots=1)


def leased(name: str, attempt: int = 1, run_id: str = "r", worker: str = "w1") -> e.TaskLeased:
    """An attempt is leased until NOW + 30 s."""
    return e.TaskLeased(
        dag="d",
        run_id=run_id,
        task=name,
        attempt=attempt,
        at=NOW,
        worker=worker,
        mail_partition=0,
        expires_at=NOW + 30_000,
    )


def succeeded(
    name: str, attempt: int = 1, run_id: str = "r", output: str | None = None, at: int = NOW
) -> e.TaskSucceeded:
    """It ended well."""
    return e.TaskSucceeded(
        dag="d",
        run_id=run_id,
        task=name,
        attempt=attempt,
        at=at,
        actor="worker:w1",
        worker="w1",
        started_at=NOW,
        ended_at=NOW,
        output=output,
    )


def in_run(of: Workflow, *events: e.Event) -> Given:
    """A started run ``r`` of the DAG, and what happened in it."""
    return given(Dag(dag="d"), deployed(of), created(), started(), *events, rules=RULES)


def pool(*events: e.Event) -> Given:
    """The pool ``default`` and what happened in it."""
    return given(Pool(pool="default"), *events, rules=RULES)


def joined(worker: str = "w1", slots: int = 1, expires_at: int = NOW + 60_000) -> e.WorkerJoined:
    """A worker serves the pool."""
    return e.WorkerJoined(pool="default", at=NOW, worker=worker, slots=slots, mail_partition=0, expires_at=expires_at)


def enqueued(dag: str, name: str = "t", **more: Any) -> e.TaskEnqueued:
    """An attempt waits."""
    fields: dict[str, Any] = {"attempt": 1, "pool_slots": 1, "priority": 0, "logical_date": 0, "run_id": "r", **more}
    return e.TaskEnqueued(pool="default", at=NOW, dag=dag, task=name, **fields)


def granted(dag: str, name: str = "t", worker: str = "w1", run_id: str = "r") -> e.SlotGranted:
    """It holds slots."""
    return e.SlotGranted(pool="default", at=NOW, dag=dag, run_id=run_id, task=name, attempt=1, worker=worker)
