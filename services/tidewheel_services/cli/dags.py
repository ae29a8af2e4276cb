"""Commands about DAGs: deploy, dags, pause, unpause."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tidewheel_services.cli.client import Client, Refused
from tidewheel_services.cli.faults import REFUSED, CliError, complain
from tidewheel_services.cli.options import After, ApiUrl, Files, Json, Limit, Project, load_given, passed_over, settings
from tidewheel_services.cli.output import plain, state, write, write_json, write_list
from tidewheel_services.cli.runs import Dag

Reason = Annotated[str, typer.Option("--reason", help="Why, for the record.")]


def deploy(
    files: Files,
    paused: Annotated[bool, typer.Option("--paused", help="A DAG that is new starts paused.")] = False,
    project: Project = None,
    api: ApiUrl = "",
    as_json: Json = False,
) -> None:
    """Make workflow files the current version of their DAGs. Nothing is deployed if any file has a mistake."""
    from tidewheel_services.cli.definitions import (
        as_document,
        counted,
        mistakes_of,
        show_mistakes,
        show_passed_over,
    )

    loaded = load_given(files, project)
    mistakes = mistakes_of(loaded)
    if mistakes:
        if as_json:
            write_json([as_document(mistake) for mistake in mistakes])
        else:
            show_mistakes(mistakes)
        raise CliError(f"nothing was deployed: {counted(len(mistakes), 'mistake')}")
    if not as_json:
        show_passed_over(passed_over(files))
    answers: list[Any] = []
    refused = 0
    with Client(settings(api=api)) as client:
        for one in loaded:
            body = {"definition": one.source, "source": one.file, "paused": paused}
            try:
                answer = client.post("dags", body=body)
            except Refused as error:
                refused += 1
                complain(f"{one.file}: {error}")
                continue
            answers.append(answer)
            if not as_json:
                write(f"{one.file}: {answer['dag']} is at version {answer['version'][:12]}")
    if as_json:
        write_json(answers)
    if refused:
        raise typer.Exit(REFUSED)


def dags(limit: Limit = 1000, after: After = None, api: ApiUrl = "", as_json: Json = False) -> None:
    """List DAGs with their schedule and newest run."""
    with Client(settings(api=api)) as client:
        listed = client.listed("dags", limit=limit, after=after)
    write_list(
        listed,
        as_json,
        ("dag", "is", "schedule", "version", "live runs", "newest run", "state"),
        lambda dag: (
            plain(dag["dag"]),
            "removed" if dag["removed"] else "paused" if dag["paused"] else "live",
            plain(_schedule(dag["schedule"])),
            dag["version"][:12],
            str(dag["live_runs"]),
            plain(dag["last_run_id"] or ""),
            state(dag["last_run_state"]) if dag["last_run_state"] else "",
        ),
        "no DAGs yet; deploy one with `tidewheel deploy FILE`",
    )


def pause(dag: Dag, reason: Reason = "", api: ApiUrl = "", as_json: Json = False) -> None:
    """No new scheduled runs, and triggered runs wait, until it is unpaused."""
    _switch(dag, "pause", reason, api, as_json)


def unpause(dag: Dag, reason: Reason = "", api: ApiUrl = "", as_json: Json = False) -> None:
    """Let it go on; its catch-up policy says what becomes of the slots that passed."""
    _switch(dag, "unpause", reason, api, as_json)


def _switch(dag: str, action: str, reason: str, api: str, as_json: bool) -> None:
    with Client(settings(api=api)) as client:
        answer = client.post("dags", dag, action, body={"reason": reason})
    if as_json:
        write_json(answer)
    else:
        write(answer["message"] or f"{dag}: {action}d")


def _schedule(schedule: dict[str, Any] | None) -> str:
    if not schedule:
        return "by trigger"
    if "every_ms" in schedule:
        from tidewheel.core.overdue import duration_text

        return f"every {duration_text(schedule['every_ms'])}"
    return f"{' | '.join(schedule['cron'])} {schedule.get('timezone', 'UTC')}"
