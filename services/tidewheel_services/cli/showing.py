"""The command `show`: a run with its tasks, its timeline and what it waits for; or one task, with its output."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, groupby
from typing import Annotated, Any

import typer

from tidewheel_services.cli.client import Client
from tidewheel_services.cli.options import ApiUrl, Json, settings
from tidewheel_services.cli.output import write, write_json
from tidewheel_services.cli.runs import Dag, RunOrNewest, newest_run

_ENDED = ("success", "failed", "cancelled")
#: Runs that a run asked for, and what people did about it, as many as are shown.
_CHILDREN_MAX = 50
_DECISIONS_MAX = 10
_DECISIONS = ("RunReopened", "RunRestarted", "TasksCleared", "TaskMarked", "RunCancelRequested")
#: Tasks that one line names, and characters of one output in a list.
_NAMES_MAX = 5
_OUTPUT_CHARS = 300


def show(
    dag: Dag,
    run_id: RunOrNewest = None,
    task: Annotated[
        str | None,
        typer.Argument(help="Only this task, with its output; an instance is TASK[INDEX].", show_default=False),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=100_000, help="Of a task with for_each: how many outputs to list.")
    ] = 100,
    api: ApiUrl = "",
    as_json: Json = False,
) -> None:
    """Show a run: its tasks, their attempts, a timeline, what it waits for. Or one of its tasks, with its output."""
    with Client(settings(api=api)) as client:
        run_id = run_id or newest_run(client, dag)
        if task is not None:
            _show_task(client, (dag, run_id, task), limit, as_json)
            return
        shown = details(client, dag, run_id)
        if as_json:
            write_json(shown)
        else:
            show_details(client, shown)


def details(client: Client, dag: str, run_id: str) -> dict[str, Any]:
    """A run with all its tasks and attempts, the newest runs it asked for, and the newest of what people decided about
    it, as ``show --json`` writes it."""
    where = ("dags", dag, "runs", run_id)
    events = client.pages(*where, "events", limit=_DECISIONS_MAX, type=_DECISIONS, newest_first=True)
    return {
        "run": client.get(*where),
        "tasks": list(client.pages(*where, "tasks", limit=sys.maxsize)),
        "attempts": list(client.pages(*where, "attempts", limit=sys.maxsize)),
        "children": list(client.pages(*where, "children", limit=_CHILDREN_MAX)),
        "decisions": list(events),
    }


def show_details(client: Client, shown: dict[str, Any]) -> None:
    """Table, timeline and reasons, for people."""
    from tidewheel_services.cli.deadlines import upcoming
    from tidewheel_services.cli.timeline import draw
    from tidewheel_services.cli.waiting import explain

    run = shown["run"]
    draw(run, shown["tasks"], shown["attempts"])
    told = (history(run, shown["decisions"]), relatives(run, shown["children"]), explain(client, run, failures=False))
    for line in chain.from_iterable(told):
        write(line)
    if run["state"] not in _ENDED:
        version = client.get("dags", run["dag"], "versions", run["version"])
        for line in upcoming(run, version["definition"]):
            write(line)


def history(run: Mapping[str, Any], decisions: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """What people, and backfills, decided about the run, the latest first: who, when and why."""
    if run["rerun_of"]:
        yield f"repeats run {run['rerun_of']}"
    if run["reopened"]:
        times = "once" if run["reopened"] == 1 else f"{run['reopened']:,} times"
        yield f"had ended and went on {times}"
    for (at, actor, reason, _), parts in groupby(decisions, key=_decision):
        because = f": {reason}" if reason else ""
        yield f"{at}  {actor} {_decided(list(parts))}{because}"


def _decision(event: Mapping[str, Any]) -> tuple[str, ...]:
    """What events of one decision have in common: a clear may be told by several."""
    own = event["type"] + (event["task"] if event["type"] == "TaskMarked" else "")
    return (event["at"], event["actor"], event["body"].get("reason", ""), own)


def _decided(parts: list[Mapping[str, Any]]) -> str:
    event = parts[-1]  # the latest stands first
    body = event["body"]
    match event["type"]:
        case "RunReopened":
            return f"let the run go on by version {body['version'][:12]}"
        case "RunRestarted":
            return f"let it begin anew for backfill {body['backfill_id']}"
        case "RunCancelRequested":
            return "cancelled the run"
        case "TaskMarked":
            return f"marked {event['task']} {body['state']}"
    lists = [part["body"].get(kind, "[]") for kind in ("tasks", "ending") for part in reversed(parts)]
    names = [name for one in lists for name in json.loads(one)]
    more = f" and {len(names) - _NAMES_MAX:,} more" if len(names) > _NAMES_MAX else ""
    return f"cleared {', '.join(names[:_NAMES_MAX])}{more}"


def relatives(run: Mapping[str, Any], children: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """The run that asked for this one, and those that it asked for itself."""
    if (parent := run["parent"]) is not None:
        waits = "waits for it" if run["kind"] == "workflow" else "asked for it"
        yield f"{parent['task']} of {parent['dag']} {parent['run_id']} {waits}"
    for child in children:
        yield f"{child['parent']['task']} asked for {child['dag']} {child['run_id']}: {child['state']}"


def _show_task(client: Client, where: tuple[str, str, str], limit: int, as_json: bool) -> None:
    dag, run_id, name = where
    path = ("dags", dag, "runs", run_id, "tasks", name)
    task = client.get(*path)
    attempts = list(client.pages(*path, "attempts", limit=sys.maxsize))
    outputs = None
    if task["outputs"] is not None:
        outputs = client.listed(*path, "outputs", limit=limit)
    if as_json:
        if outputs is not None:
            task |= {"output": [row["output"] for row in outputs.items], "outputs_next": outputs.after}
        write_json({"task": task, "attempts": attempts})
        return
    for line in _task_lines(task, attempts):
        write(line)
    if task["state"] not in (*_ENDED, "skipped", "upstream_failed"):
        from tidewheel_services.cli.waiting import reasons

        for line in reasons(client.get("dags", dag, "runs", run_id, "why", task=name)):
            write(line)
    if outputs is None:
        write(f"output: {json.dumps(task['output'], ensure_ascii=False, indent=2)}")
        return
    write(f"output: a list of {task['outputs']:,}, one for each item")
    for row in outputs.items:
        unlike = "" if row["state"] == "success" else f"  ({row['state']})"
        write(f"  [{row['index']}] {_short(row['output'])}{unlike}")
    if outputs.after is not None:
        write(f"  … and {task['outputs'] - len(outputs.items):,} more; --limit says how many to list")


def _task_lines(task: Mapping[str, Any], attempts: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    because = f": {task['reason']}" if task["reason"] else ""
    yield f"{task['task']}  {task['state']}{because}"
    if task["instance"] is not None:
        yield f"item: {_short(task['item'])}"
    for attempt in attempts:
        times = " to ".join(attempt[end] for end in ("started_at", "ended_at") if attempt[end])
        worker = f" on {attempt['worker']}" if attempt["worker"] else ""
        said = f": {attempt['message'] or attempt['kind']}" if attempt["message"] or attempt["kind"] else ""
        yield f"attempt {attempt['attempt']}: {attempt['state']}{worker} {times}{said}".rstrip()
    if task["checkpoint_at"] is not None:
        from tidewheel_services.cli.timeline import checkpoint

        yield f"{checkpoint(task)}, for the next attempt"


def _short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _OUTPUT_CHARS else f"{text[:_OUTPUT_CHARS]}… ({len(text):,} characters)"
