"""Why a run or a task is not going on, as far as the read model knows."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tidewheel.core.mapping import written_task
from tidewheel_services.cli.client import Client, Refused

_LINES_MAX = 20


def explain_waiting(client: Client, run: Mapping[str, Any], tasks: Iterable[Mapping[str, Any]]) -> list[str]:
    """A line for each task that waits, saying for what."""
    if run["state"] not in ("queued", "running"):
        return []
    tasks = list(tasks)
    if run["state"] == "queued":
        return [_queued_run(client, run)]
    lines = list(_waiting_tasks(client, run, tasks))
    if len(lines) > _LINES_MAX:
        lines = [*lines[:_LINES_MAX], f"… and {len(lines) - _LINES_MAX} more tasks wait"]
    return lines


def _queued_run(client: Client, run: Mapping[str, Any]) -> str:
    dag = client.get("dags", run["dag"])
    if dag["paused"]:
        return f"the run waits: DAG {run['dag']} is paused; `tidewheel unpause {run['dag']}` lets it go on"
    limit = _definition(client, run).get("concurrency", {}).get("max_runs", 16)
    return f"the run waits: {dag['live_runs']} runs of the DAG are queued or running, and at most {limit} run at once"


def _waiting_tasks(client: Client, run: Mapping[str, Any], tasks: list[Mapping[str, Any]]) -> Iterator[str]:
    written = {task["id"]: task for task in _definition(client, run).get("tasks", [])}
    needs = {name: task.get("needs", []) for name, task in written.items()}
    turns = Counter(written_task(task["task"]) for task in tasks if _waits_for_turn(task))
    for name, count in turns.items():
        limit = written.get(name, {}).get("max_parallel")
        why = "their turn" if limit is None else f"one of the {limit:,} before them to end (max_parallel)"
        yield f"{count:,} instances of {name} wait for {why}"
    states = {task["task"]: task["state"] for task in tasks}
    pools: dict[tuple[str, int], str] = {}
    for task in tasks:
        name = task["task"]
        if _waits_for_turn(task):
            continue
        if task["state"] == "scheduled":
            open_needs = [need for need in needs.get(name, []) if states.get(need) not in ("success", "skipped")]
            if open_needs:
                yield f"{name} waits for {', '.join(f'{need} ({states.get(need)})' for need in open_needs[:5])}"
            else:
                yield f"{name} waits for the DAG's limit of running tasks (max_tasks)"
        elif task["state"] == "queued":
            pool, slots = place = task["pool"], task["pool_slots"]
            if place not in pools:
                pools[place] = _pool(client, pool) + _share(client, pool, run["dag"], slots)
            yield f"{name} waits in {pools[place]}"
        elif task["state"] == "deferred" and task.get("waits_for"):
            yield f"{name} {task['reason']}{_how_to_approve(task)}"
        elif task["state"] == "retrying":
            yield f"{name} is tried again at {task['retry_at']}: {task['reason']}"


def _how_to_approve(task: Mapping[str, Any]) -> str:
    if task["waits_for"] != "approval":
        return ""
    return f"; `tidewheel approve {task['dag']} {shlex.quote(task['run_id'])} {shlex.quote(task['task'])}` gives it"


def _waits_for_turn(task: Mapping[str, Any]) -> bool:
    """Whether it is an instance that has not begun; one held back by ``max_tasks`` has."""
    return task["instance"] is not None and task["state"] == "scheduled" and not task["reason"]


def _pool(client: Client, name: str) -> str:
    try:
        pool = client.get("pools", name)
    except Refused:
        return f"pool {name}, which no worker serves; start one with `tidewheel worker --pool {name}=8`"
    if not pool["workers"]:
        return f"pool {name}, which no living worker serves; start one with `tidewheel worker --pool {name}=8`"
    slots = pool["worker_slots"] if pool["slots"] is None else pool["slots"]
    return f"pool {name}: {pool['used']} of {slots} slots are in use, {pool['waiting']} wait"


def _share(client: Client, pool: str, dag: str, slots: int) -> str:
    """That ``slots`` more would exceed the DAG's share of the pool, if they would."""
    try:
        found = client.get("pools", pool, "dags", dag=dag)["items"]
    except Refused:
        return ""
    for row in found:
        if row["share_slots"] is not None and row["used"] and row["used"] + slots > row["share_slots"]:
            most = f"{row['share_slots']} ({row['max_pool_share']}%, max_pool_share)"
            return f"; DAG {dag} holds {row['used']} and may hold {most}"
    return ""


def _definition(client: Client, run: Mapping[str, Any]) -> dict[str, Any]:
    version = client.get("dags", run["dag"], "versions", run["version"])
    definition: dict[str, Any] = version["definition"]
    return definition
