"""What is not there: told with the name that was probably meant."""

from __future__ import annotations

from tidewheel.core.nearest import did_you_mean
from tidewheel_projections import reads, views
from tidewheel_services.api.problems import Problem

#: Names compared with the wrong one; more would cost more than the hint is worth.
_CANDIDATES = 1000
_NEAR = """
SELECT dag FROM tidewheel.dags
WHERE NOT removed AND abs(length(dag) - length(%(dag)s)) <= 3
  AND (left(dag, 2) = left(%(dag)s, 2) OR right(dag, 3) = right(%(dag)s, 3))
LIMIT %(limit)s
"""


def missing(detail: str) -> Problem:
    """A 404."""
    return Problem("not_found", detail)


def known_dag(connection: reads.Connection, dag: str) -> views.DagRow:
    """The DAG. Raises ``Problem``."""
    found = reads.get_dag(connection, dag)
    if found is None:
        raise missing(f"no DAG '{dag[:200]}' is deployed{near_dag(connection, dag)}")
    return found


def known_run(connection: reads.Connection, dag: str, run_id: str) -> views.RunDetail:
    """The run. Raises ``Problem``."""
    found = reads.get_run(connection, dag, run_id)
    if found is None:
        known_dag(connection, dag)
        raise missing(f"DAG '{dag}' has no run '{run_id[:250]}'")
    return found


def known_backfill(connection: reads.Connection, dag: str, backfill_id: str) -> views.BackfillRow:
    """The backfill. Raises ``Problem``."""
    found = reads.get_backfill(connection, dag, backfill_id)
    if found is None:
        known_dag(connection, dag)
        raise missing(f"DAG '{dag}' has no backfill '{backfill_id[:200]}'")
    return found


def known_task(connection: reads.Connection, dag: str, run_id: str, task: str) -> views.TaskDetail:
    """The task of a run. Raises ``Problem``."""
    found = reads.get_task(connection, dag, run_id, task)
    if found is None:
        known_run(connection, dag, run_id)
        tasks = reads.list_tasks(connection, dag, run_id, limit=_CANDIDATES).items
        hint = did_you_mean(task, [row.task for row in tasks])
        raise missing(f"run '{run_id}' of DAG '{dag}' has no task '{task[:200]}'{hint}")
    return found


def known_pool(connection: reads.Connection, pool: str) -> views.PoolRow:
    """The pool. Raises ``Problem``."""
    found = reads.get_pool(connection, pool)
    if found is None:
        names = [row.pool for row in reads.list_pools(connection, limit=_CANDIDATES).items]
        raise missing(f"no pool '{pool[:200]}' was ever used or configured{did_you_mean(pool, names)}")
    return found


def nearest_to_unknown_dag(connection: reads.Connection, dag: str) -> str:
    """As ``near_dag`` of a DAG that is not there; nothing of one that is."""
    return "" if reads.get_dag(connection, dag) is not None else near_dag(connection, dag)


def near_dag(connection: reads.Connection, dag: str) -> str:
    """``; did you mean 'x'?``, or nothing."""
    if len(dag) > 200:
        return ""
    rows = connection.execute(_NEAR, {"dag": dag, "limit": _CANDIDATES}).fetchall()
    return did_you_mean(dag, [row[0] for row in rows])
