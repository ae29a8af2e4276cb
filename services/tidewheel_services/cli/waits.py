"""Commands about tasks that wait without a worker: waits, approve."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from tidewheel_services.cli.client import Client
from tidewheel_services.cli.options import After, ApiUrl, Json, Limit, settings
from tidewheel_services.cli.output import plain, write, write_json, write_list
from tidewheel_services.cli.runs import Dag, Run

#: What a task may wait for, as the events say it: given here so that `--help` and completion cost no import of them.
For = Literal["time", "kafka", "http", "run", "approval", "trigger", "workflow"]
Task = Annotated[str, typer.Argument(help="The task's id.", show_default=False)]


def waits(
    dag: Annotated[str | None, typer.Argument(help="Only of this DAG.", show_default=False)] = None,
    waits_for: Annotated[
        For | None, typer.Option("--for", help="Only those that wait for this.", show_default=False)
    ] = None,
    limit: Limit = 50,
    after: After = None,
    api: ApiUrl = "",
    as_json: Json = False,
) -> None:
    """List tasks that wait for a time, an approval or something else."""
    with Client(settings(api=api)) as client:
        listed = client.listed("waits", limit=limit, after=after, dag=dag, waits_for=waits_for)
    write_list(
        listed,
        as_json,
        ("dag", "run", "task", "since", "why"),
        lambda one: (
            plain(one["dag"]),
            plain(one["run_id"]),
            plain(one["task"]),
            one["started_at"],
            plain(one["reason"]),
        ),
        "no task waits",
    )


def approve(
    dag: Dag,
    run_id: Run,
    task: Task,
    reject: Annotated[bool, typer.Option("--reject", help="Say no: the task fails.")] = False,
    by: Annotated[
        str, typer.Option("--by", help="Who decides; without it the user of this machine.", show_default=False)
    ] = "",
    role: Annotated[str, typer.Option("--role", help="In which role, for the record.", show_default=False)] = "",
    reason: Annotated[str, typer.Option("--reason", help="Why, for the record.")] = "",
    api: ApiUrl = "",
    as_json: Json = False,
) -> None:
    """Say yes (or no) to a task that waits for an approval."""
    body: dict[str, object] = {"approve": not reject, "reason": reason, "role": role}
    with Client(settings(api=api), actor=by) as client:
        answer = client.post("dags", dag, "runs", run_id, "tasks", task, "approval", body=body)
    if as_json:
        write_json(answer)
    else:
        write("approved" if answer["approved"] else "rejected")
