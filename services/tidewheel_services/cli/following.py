"""Commands that read what has happened: logs, events."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from tidewheel_services.cli.client import Client
from tidewheel_services.cli.faults import INTERRUPTED, UNREACHABLE, CliError
from tidewheel_services.cli.options import After, ApiUrl, Json, Limit, rfc3339, settings
from tidewheel_services.cli.output import plain, write, write_json, write_list
from tidewheel_services.cli.runs import Dag, RunOrNewest, newest_run

_TASK_ENDED = ("success", "failed", "skipped", "upstream_failed", "cancelled")
_LOOK_S = 0.5
_NAMES_MAX = 5
_INSTANTS = ("retry_at", "resume_at", "timeout_at")
_SHOWN = (
    "state",
    "tasks",
    "reason",
    "message",
    "worker",
    "kind",
    "exit_code",
    "retry_at",
    "waits_for",
    "resume_at",
    "timeout_at",
    "pool",
    "version",
)


def logs(
    dag: Dag,
    run_id: RunOrNewest = None,
    task: Annotated[
        str | None, typer.Argument(help="The task's id; needed if the run has several.", show_default=False)
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="As it is written, until the task has ended.")] = False,
    attempt: Annotated[
        int | None, typer.Option("--attempt", min=1, help="Default: the newest.", show_default=False)
    ] = None,
    api: ApiUrl = "",
    as_json: Json = False,
) -> None:
    """Print what a task wrote."""
    with Client(settings(api=api)) as client:
        run_id = run_id or newest_run(client, dag)
        task = task or _only_task(client, dag, run_id)
        if as_json:
            number = attempt or client.get("dags", dag, "runs", run_id, "tasks", task)["attempt"]
            write_json(list(_chunks(client, (dag, run_id, task), number, -1)))
            return
        try:
            _print_logs(client, (dag, run_id, task), attempt, follow)
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None


def events(
    dag: Dag,
    run_id: Annotated[str | None, typer.Argument(help="Only of this run.", show_default=False)] = None,
    only: Annotated[
        list[str] | None, typer.Option("--type", help="Only events of this type; may be repeated.", show_default=False)
    ] = None,
    newest: Annotated[bool, typer.Option("--newest-first", help="From the newest backwards.")] = False,
    limit: Limit = 1000,
    after: After = None,
    api: ApiUrl = "",
    as_json: Json = False,
) -> None:
    """List the journal of a DAG or a run: what happened, when, and by whom."""
    with Client(settings(api=api)) as client:
        path = ("dags", dag, "runs", run_id, "events") if run_id else ("dags", dag, "events")
        listed = client.listed(*path, limit=limit, after=after, type=only, newest_first=newest or None)
    write_list(
        listed,
        as_json,
        ("at", "position", "event", "run", "task", "actor", "what"),
        lambda event: (
            event["at"],
            f"{event['topic']}/{event['partition']}/{event['shard_seq']}",
            event["type"],
            plain("" if run_id else event["run_id"]),
            plain(event["task"] + (f" #{event['attempt']}" if event["attempt"] else "")),
            plain(event["actor"]),
            plain(_body(event["body"])),
        ),
        "no events",
    )


def _only_task(client: Client, dag: str, run_id: str) -> str:
    found = list(client.pages("dags", dag, "runs", run_id, "tasks", limit=1000))
    if len(found) == 1:
        return str(found[0]["task"])
    # Whose log is wanted most stands first.
    found.sort(key=lambda task: task["state"] != "failed")
    more = f" and {len(found) - _NAMES_MAX:,} more" if len(found) > _NAMES_MAX else ""
    named = ", ".join(f"{task['task']} ({task['state']})" for task in found[:_NAMES_MAX])
    raise CliError(f"say whose log, `tidewheel logs {shlex.join([dag, run_id])} TASK`: {named}{more}", UNREACHABLE)


def _print_logs(client: Client, where: tuple[str, str, str], attempt: int | None, follow: bool) -> None:
    """Print what is there; with ``follow`` go on, through further attempts too, until the task has ended."""
    dag, run_id, task = where
    number, last = attempt or 0, -1
    while True:
        seen = client.get("dags", dag, "runs", run_id, "tasks", task)
        current = attempt or seen["attempt"]
        if current != number:
            if number and follow:
                _emit(f"--- attempt {current} ---\n", sys.stderr)
            number, last = current, -1
        ended = seen["state"] in _TASK_ENDED or (attempt is not None and attempt < seen["attempt"])
        found = 0
        for chunk in _chunks(client, where, number, last) if number else ():
            last, found = chunk["chunk"], found + 1
            _emit(chunk["text"], sys.stderr if chunk["stream"] == "stderr" else sys.stdout)
        if not follow or (ended and not found):
            if number == 0:
                write(f"{task} has not run: it is {seen['state']}{': ' + seen['reason'] if seen['reason'] else ''}")
            return
        time.sleep(_LOOK_S)


def _chunks(client: Client, where: tuple[str, str, str], attempt: int, after: int) -> Iterator[Any]:
    dag, run_id, task = where
    while True:
        path = ("dags", dag, "runs", run_id, "tasks", task, "attempts", str(attempt), "logs")
        page = client.get(*path, after=after)
        yield from page["items"]
        if page["next"] is None:
            return
        after = page["next"]


def _emit(text: str, stream: Any) -> None:
    stream.write(text)
    stream.flush()


def _body(body: Any) -> str:
    if not isinstance(body, dict):
        return ""
    return ", ".join(f"{name}={_value(name, body[name])}" for name in _SHOWN if body.get(name) not in (None, ""))


def _value(name: str, value: Any) -> str:
    """Instants as people read them; of a list of tasks the first ones."""
    if name in _INSTANTS and isinstance(value, int):
        return rfc3339(value)
    if name == "tasks" and isinstance(value, str):
        names = json.loads(value)
        more = f" and {len(names) - _NAMES_MAX:,} more" if len(names) > _NAMES_MAX else ""
        return " ".join(names[:_NAMES_MAX]) + more
    return str(value)
