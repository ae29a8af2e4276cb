"""The command `why`: why a run, a task or a DAG is not going on, or failed, as the API says it; others use it too."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from tidewheel_services.cli.client import Client
from tidewheel_services.cli.mending import steps
from tidewheel_services.cli.options import ApiUrl, Json, settings
from tidewheel_services.cli.output import write, write_json
from tidewheel_services.cli.runs import Dag

_NAMED_MAX = 3


def why(
    dag: Dag,
    run_id: Annotated[
        str | None, typer.Argument(help="The run's id; none: why the DAG has no further run.", show_default=False)
    ] = None,
    task: Annotated[str | None, typer.Argument(help="Only of this task.", show_default=False)] = None,
    api: ApiUrl = "",
    as_json: Json = False,
) -> None:
    """Say why a run or a task does not go on or failed, and what to do; or when a DAG runs next."""
    with Client(settings(api=api)) as client:
        where = ("dags", dag) if run_id is None else ("dags", dag, "runs", run_id)
        found = client.get(*where, "why", task=task)
    if as_json:
        write_json(found)
        return
    for line in (*reasons(found), *steps(found, task)):
        write(line)
    if not found["reasons"]:
        write(f"{run_id} {_without_reason(found['state'])}")


def explain(client: Client, run: Mapping[str, Any], *, failures: bool) -> Iterator[str]:
    """A line for each reason why a run does not go on, and for each thing to do should it have failed; with
    ``failures`` also for what failed."""
    if run["state"] in ("queued", "running", "failed"):
        found = client.get("dags", run["dag"], "runs", run["run_id"], "why")
        if run["state"] != "failed":
            yield from reasons(found)
        elif failures:
            yield from reasons({**found, "reasons": [reason for reason in found["reasons"] if reason["tasks"]]})
        yield from steps(found)


def reasons(found: Mapping[str, Any]) -> Iterator[str]:
    """A line for each reason of an answer of the API."""
    for reason in found["reasons"]:
        yield f"{_subject(reason, found['run_id'])}{reason['message']}"
    if found["more"]:
        where = f"{found['dag']} {shlex.quote(found['run_id'])}"
        yield f"… and more tasks of {found['more']:,} kinds; `tidewheel why {where} TASK` says why one waits"


def _subject(reason: Mapping[str, Any], run_id: str) -> str:
    tasks, count = reason["tasks"], reason["count"]
    if not tasks:
        return "" if not run_id or reason["code"] in _GENERAL else "the run: "
    if count == 1:
        return f"{tasks[0]}: "
    more = ", …" if count > _NAMED_MAX else ""
    return f"{count:,} tasks ({', '.join(tasks[:_NAMED_MAX])}{more}): "


def _without_reason(state: str) -> str:
    if state in ("success", "failed", "cancelled"):
        return f"has ended: {state}"
    return f"waits for nothing: it is {state}, and what is left of it is at work"


#: Reasons that are not the run's own.
_GENERAL = frozenset({"log_unavailable", "no_scheduler", "shard_silent", "shard_stopped", "read_model_behind"})
