"""Commands about runs: trigger, runs, cancel."""

from __future__ import annotations

import json
import time
from typing import Annotated, Any, Literal

import typer

from tidewheel_services.cli.client import Client
from tidewheel_services.cli.faults import REFUSED, UNREACHABLE, CliError
from tidewheel_services.cli.options import After, ApiUrl, Json, Limit, settings
from tidewheel_services.cli.output import plain, state, took, write, write_json, write_list

Dag = Annotated[str, typer.Argument(help="The DAG's id.", show_default=False)]
Run = Annotated[str, typer.Argument(help="The run's id.", show_default=False)]
RunOrNewest = Annotated[str | None, typer.Argument(help="The run's id. Default: the newest.", show_default=False)]
InputPairs = Annotated[
    list[str] | None,
    typer.Option("--input", "-i", help="NAME=VALUE; VALUE is JSON if it can be, else text.", show_default=False),
]
Inputs = Annotated[str, typer.Option("--inputs", help="Inputs as a JSON object.", show_default=False)]
Wait = Annotated[bool, typer.Option("--wait", help="Until it ends; exit code 1 unless it succeeds.")]
Timeout = Annotated[float | None, typer.Option("--timeout", min=0, help="Longest wait in seconds.", show_default=False)]
State = Literal["queued", "running", "success", "failed", "cancelled"]
_ENDED = ("success", "failed", "cancelled")
#: Runs that a run asked for, as many as are shown.
_CHILDREN_MAX = 50
#: Between two looks at a run that is waited for; it grows, since long runs need no quick answer.
_LOOK_S = (0.05, 1.0)


def trigger(
    dag: Dag,
    run_id: Annotated[
        str, typer.Option("--run-id", help="The same id again is the same run.", show_default=False)
    ] = "",
    pairs: InputPairs = None,
    inputs: Inputs = "",
    reason: Annotated[str, typer.Option("--reason", help="Why, for the record.")] = "",
    wait: Wait = False,
    timeout: Timeout = None,
    api: ApiUrl = "",
    as_json: Json = False,
) -> None:
    """Start a run."""
    body: dict[str, object] = {"inputs": given_inputs(inputs, pairs or []), "reason": reason}
    if run_id:
        body["run_id"] = run_id
    with Client(settings(api=api)) as client:
        started = client.post("dags", dag, "runs", body=body)
        tell_started(client, dag, started, wait=wait, timeout=timeout, as_json=as_json)


def tell_started(
    client: Client, dag: str, started: dict[str, Any], *, wait: bool, timeout: float | None, as_json: bool
) -> None:
    """Say which run there is now; with ``wait`` also how it ended, once it has, and exit with 1 unless it succeeded."""
    if not wait:
        if as_json:
            write_json(started)
        else:
            write(f"{started['run_id']}{'' if started['created'] else ' (existed already; nothing was started)'}")
        return
    if not as_json:
        write(f"{started['run_id']} {'started' if started['created'] else 'existed already'}")
    run = wait_for(client, dag, started["run_id"], started["position"], timeout)
    if as_json:
        write_json(run)
    else:
        from tidewheel_services.cli.waiting import explain

        write(f"{run['state']}{': ' + run['reason'] if run['reason'] else ''}")
        for line in explain(client, run, failures=True):
            write(line)
    if run["state"] != "success":
        raise typer.Exit(REFUSED)


def runs(
    dag: Annotated[str | None, typer.Argument(help="Only of this DAG.", show_default=False)] = None,
    only: Annotated[State | None, typer.Option("--state", help="Only in this state.", show_default=False)] = None,
    limit: Limit = 20,
    after: After = None,
    api: ApiUrl = "",
    as_json: Json = False,
) -> None:
    """List runs, newest first."""
    with Client(settings(api=api)) as client:
        path = ("dags", dag, "runs") if dag else ("runs",)
        listed = client.listed(*path, limit=limit, after=after, state=only)
    write_list(
        listed,
        as_json,
        ("dag", "run", "state", "kind", "created", "took", "tasks"),
        lambda run: (
            plain(run["dag"]),
            plain(run["run_id"]),
            state(run["state"]),
            run["kind"],
            run["created_at"],
            took(seconds_between(run["started_at"], run["ended_at"])),
            ", ".join(f"{count} {name}" for name, count in run["counts"].items()),
        ),
        "no runs yet; start one with `tidewheel trigger DAG`",
    )


def cancel(
    dag: Dag,
    run_id: Run,
    reason: Annotated[str, typer.Option("--reason", help="Why, for the record.")] = "",
    api: ApiUrl = "",
    as_json: Json = False,
) -> None:
    """Cancel a run: waiting tasks at once, running ones as soon as their worker has ended them."""
    with Client(settings(api=api)) as client:
        answer = client.post("dags", dag, "runs", run_id, "cancel", body={"reason": reason})
    if as_json:
        write_json(answer)
    else:
        write(answer["message"] or "cancel requested")


def newest_run(client: Client, dag: str) -> str:
    """The id of the DAG's newest run. Raises ``CliError``."""
    for run in client.pages("dags", dag, "runs", limit=1):
        return str(run["run_id"])
    raise CliError(f"DAG '{dag}' has no run yet; start one with `tidewheel trigger {dag}`")


def wait_for(client: Client, dag: str, run_id: str, position: str, timeout: float | None) -> dict[str, Any]:
    """The run once it has ended."""
    deadline = None if timeout is None else time.monotonic() + timeout
    pause = _LOOK_S[0]
    while True:
        run: dict[str, Any] = client.get("dags", dag, "runs", run_id, position=position)
        if run["state"] in _ENDED:
            return run
        if deadline is not None and time.monotonic() > deadline:
            raise CliError(
                f"run {run_id} has not ended after {timeout:g} s; it is {run['state']}, and goes on", UNREACHABLE
            )
        time.sleep(pause)
        pause = min(pause * 1.3, _LOOK_S[1])


def seconds_between(start: str | None, end: str | None) -> float | None:
    """Between two instants of the API."""
    if start is None or end is None:
        return None
    from datetime import datetime

    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()


def given_inputs(document: str, pairs: list[str]) -> dict[str, Any]:
    """The inputs that the options give. Raises ``CliError``."""
    values: dict[str, Any] = {}
    if document:
        try:
            parsed = json.loads(document)
        except ValueError as error:
            raise CliError(f"--inputs is not JSON: {error}", UNREACHABLE) from None
        if not isinstance(parsed, dict):
            raise CliError(
                f'--inputs must be a JSON object, such as {{"day": "2026-01-31"}}, not {document!r}', UNREACHABLE
            )
        values.update(parsed)
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise CliError(f"--input {pair!r}: write NAME=VALUE", UNREACHABLE)
        try:
            values[name] = json.loads(text)
        except ValueError:
            values[name] = text
    return values
