"""Commands of an operator about a run that is there: mark a task, clear tasks, repeat the run."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from tidewheel_services.cli.client import Client
from tidewheel_services.cli.faults import UNREACHABLE, CliError
from tidewheel_services.cli.mending import held_below
from tidewheel_services.cli.options import ApiUrl, Json, settings
from tidewheel_services.cli.output import write, write_json
from tidewheel_services.cli.runs import Dag, InputPairs, Inputs, Run, Timeout, Wait, given_inputs, tell_started

Task = Annotated[str, typer.Argument(help="The task's id; of an instance TASK[INDEX].", show_default=False)]
Reason = Annotated[str, typer.Option("--reason", help="Why, for the record.")]
_MARKS = ("success", "failed", "skipped")
_VERSIONS = ("latest", "same")


def mark(
    dag: Dag,
    run_id: Run,
    task: Task,
    as_: Annotated[str, typer.Argument(metavar="success|failed|skipped", help="How it ended.", show_default=False)],
    output: Annotated[
        str, typer.Option("--output", help="Of a success: its output, as JSON.", show_default=False)
    ] = "",
    downstream: Annotated[
        bool, typer.Option("--clear-downstream", help="Let what is downstream of it run again.")
    ] = False,
    reason: Reason = "",
    api: ApiUrl = "",
    as_json: Json = False,
) -> None:
    """Say by hand how a task of a run ended. A live attempt of it is ended first."""
    if as_ not in _MARKS:
        raise CliError(f"a task is marked {', '.join(_MARKS)}, not {as_!r}", UNREACHABLE)
    body: dict[str, object] = {"state": as_, "reason": reason, "downstream": downstream}
    if output:
        try:
            body["output"] = json.loads(output)
        except ValueError as error:
            raise CliError(f"--output is not JSON: {error}", UNREACHABLE) from None
    with Client(settings(api=api)) as client:
        answer = client.post("dags", dag, "runs", run_id, "tasks", task, "mark", body=body)
        if as_json:
            write_json(answer)
            return
        write(answer["message"] or f"{task}: marked {as_}")
        if as_ != "failed" and not downstream:
            for line in held_below(client, answer, as_):
                write(line)


def clear(
    dag: Dag,
    run_id: Run,
    tasks: Annotated[
        list[str] | None,
        typer.Argument(help="Ids of tasks, and instances TASK[INDEX]; none: all tasks.", show_default=False),
    ] = None,
    downstream: Annotated[
        bool, typer.Option("--downstream/--no-downstream", help="With all that is downstream of them.")
    ] = True,
    upstream: Annotated[bool, typer.Option("--upstream", help="With all that is upstream of them.")] = False,
    only_failed: Annotated[bool, typer.Option("--only-failed", help="Of these only what did not succeed.")] = False,
    version: Annotated[
        str,
        typer.Option("--version", metavar="same|latest", help="The definition that an ended run goes on with."),
    ] = "same",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing; show what would begin anew.")] = False,
    reason: Reason = "",
    api: ApiUrl = "",
    as_json: Json = False,
) -> None:
    """Let tasks of a run begin anew, with all that is downstream of them. A run that has ended is live again."""
    if version not in _VERSIONS:
        raise CliError(f"--version is {' or '.join(_VERSIONS)}, not {version!r}", UNREACHABLE)
    body: dict[str, object] = {
        "tasks": tasks or [],
        "downstream": downstream,
        "upstream": upstream,
        "only_failed": only_failed,
        "version": version,
        "preview": dry_run,
        "reason": reason,
    }
    with Client(settings(api=api)) as client:
        answer = client.post("dags", dag, "runs", run_id, "clear", body=body)
    if as_json:
        write_json(answer)
    else:
        _show_cleared(answer, dry_run)


def _show_cleared(answer: dict[str, Any], dry_run: bool) -> None:
    if answer["message"]:
        write(answer["message"])
        return
    reopens = ", and the run is live again" if answer["reopens"] else ""
    verb = "would begin anew" if dry_run else "begin anew"
    write(f"{answer['count']:,} tasks {verb} by version {answer['version'][:12]}{reopens}")
    ending = set(answer["ending"] or ())
    for name in answer["tasks"] or ():
        write(f"  {name}{' (its live attempt ends first)' if name in ending else ''}")


def rerun(
    dag: Dag,
    run_id: Run,
    version: Annotated[
        str, typer.Option("--version", metavar="latest|same", help="The definition of today, or the run's own.")
    ] = "latest",
    new_id: Annotated[
        str, typer.Option("--run-id", help="Names the new run; the same id again is the same run.", show_default=False)
    ] = "",
    pairs: InputPairs = None,
    inputs: Inputs = "",
    reason: Reason = "",
    wait: Wait = False,
    timeout: Timeout = None,
    api: ApiUrl = "",
    as_json: Json = False,
) -> None:
    """Start a new run with the inputs and interval of another; inputs that are given here differ."""
    if version not in _VERSIONS:
        raise CliError(f"--version is {' or '.join(_VERSIONS)}, not {version!r}", UNREACHABLE)
    body: dict[str, object] = {"version": version, "inputs": given_inputs(inputs, pairs or []), "reason": reason}
    if new_id:
        body["run_id"] = new_id
    with Client(settings(api=api)) as client:
        started = client.post("dags", dag, "runs", run_id, "rerun", body=body)
        tell_started(client, dag, started, wait=wait, timeout=timeout, as_json=as_json)
