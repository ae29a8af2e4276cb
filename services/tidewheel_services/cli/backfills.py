"""Commands about backfills: backfill, backfills, backfill-pause, backfill-resume, backfill-cancel."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import typer

from tidewheel_services.cli.client import Client
from tidewheel_services.cli.dags import Reason
from tidewheel_services.cli.faults import REFUSED, UNREACHABLE, CliError
from tidewheel_services.cli.options import After, ApiUrl, Json, Limit, settings
from tidewheel_services.cli.output import plain, state, table, write, write_json, write_list
from tidewheel_services.cli.runs import Dag

Backfill = Annotated[str, typer.Argument(help="The backfill's id, such as backfill-1.", show_default=False)]
_ENDED = ("finished", "cancelled")
#: Between two looks at one that is waited for; it grows to the second number.
_LOOK_S = (0.1, 2.0)
#: Slots that a dry run shows to people; with --json it names as many as --limit says.
_SHOWN = 20


def backfill(
    dag: Dag,
    begin: Annotated[
        str,
        typer.Option("--from", help="First slot: a date (in the schedule's zone) or a time.", show_default=False),
    ],
    end: Annotated[
        str, typer.Option("--to", help="Last slot, included; a date is that whole day.", show_default=False)
    ],
    order: Annotated[Literal["forward", "backward"], typer.Option("--order", help="Earliest or latest first.")] = (
        "forward"
    ),
    parallel: Annotated[
        int | None, typer.Option("--parallel", min=1, help="So many runs at a time; default: 1.", show_default=False)
    ] = None,
    sequential: Annotated[bool, typer.Option("--sequential", help="One run after the other: --parallel 1.")] = False,
    chunk: Annotated[
        int | None,
        typer.Option("--chunk", min=1, help="So many runs together, then the next ones.", show_default=False),
    ] = None,
    reprocess: Annotated[
        Literal["none", "failed", "all"], typer.Option("--reprocess", help="Which runs that are there begin anew.")
    ] = "none",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what it would do, and do nothing.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Until it is over; exit code 1 unless all succeeded.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="Slots that a dry run names.")] = 1000,
    api: ApiUrl = "",
    as_json: Json = False,
) -> None:
    """Run the slots of a schedule that have passed and have no run, or again, from first to last."""
    if sum((parallel is not None, sequential, chunk is not None)) > 1:
        raise CliError("give one of --parallel, --sequential and --chunk", UNREACHABLE)
    span: dict[str, object] = {"from": begin, "to": end, "order": order, "reprocess": reprocess}
    with Client(settings(api=api)) as client:
        if dry_run:
            preview = client.post("dags", dag, "backfills", "preview", body={**span, "limit": limit})
            if as_json:
                write_json(preview)
            else:
                _show_preview(preview)
            return
        how = {"mode": "parallel" if chunk is None else "chunked", "width": chunk or parallel or 1}
        started = client.post("dags", dag, "backfills", body={**span, **how})
        if not wait:
            if as_json:
                write_json(started)
            else:
                write(f"{started['backfill_id']}: {started['message']}")
            return
        if not as_json:
            write(f"{started['backfill_id']}: {started['message']}")
        row = _wait_for(client, dag, started["backfill_id"], started["position"])
    if as_json:
        write_json(row)
    else:
        write(f"{row['state']}: {_progress(row)}")
    if row["state"] != "finished" or row["failed"] or row["cancelled"]:
        raise typer.Exit(REFUSED)


def backfills(dag: Dag, limit: Limit = 20, after: After = None, api: ApiUrl = "", as_json: Json = False) -> None:
    """List a DAG's backfills with how far they have come, newest first."""
    with Client(settings(api=api)) as client:
        listed = client.listed("dags", dag, "backfills", limit=limit, after=after)
    write_list(
        listed,
        as_json,
        ("backfill", "state", "range", "how", "done", "of these"),
        lambda row: (
            plain(row["backfill_id"]),
            state(row["state"]),
            _span(row),
            _how(row),
            f"{_done(row)}/{row['slots']}",
            _progress(row),
        ),
        f"no backfills yet; start one with `tidewheel backfill {dag} --from DATE --to DATE`",
    )


def backfill_pause(
    dag: Dag, backfill_id: Backfill, reason: Reason = "", api: ApiUrl = "", as_json: Json = False
) -> None:
    """It makes no more runs until it is resumed; those it made go on."""
    _change(dag, backfill_id, "pause", {"reason": reason}, "paused", api, as_json)


def backfill_resume(
    dag: Dag, backfill_id: Backfill, reason: Reason = "", api: ApiUrl = "", as_json: Json = False
) -> None:
    """Let it go on where it was."""
    _change(dag, backfill_id, "resume", {"reason": reason}, "resumed", api, as_json)


def backfill_cancel(
    dag: Dag,
    backfill_id: Backfill,
    running: Annotated[bool, typer.Option("--running", help="Cancel its runs that have begun, too.")] = False,
    reason: Reason = "",
    api: ApiUrl = "",
    as_json: Json = False,
) -> None:
    """End it: it makes no more runs, and those of its runs that wait are cancelled."""
    _change(dag, backfill_id, "cancel", {"reason": reason, "running": running}, "cancelled", api, as_json)


def _change(
    dag: str, backfill_id: str, action: str, body: Mapping[str, object], done: str, api: str, as_json: bool
) -> None:
    with Client(settings(api=api)) as client:
        answer = client.post("dags", dag, "backfills", backfill_id, action, body=body)
    if as_json:
        write_json(answer)
    else:
        write(answer["message"] or f"{backfill_id}: {done}")


def _wait_for(client: Client, dag: str, backfill_id: str, position: str) -> dict[str, Any]:
    pause = _LOOK_S[0]
    while True:
        row: dict[str, Any] = client.get("dags", dag, "backfills", backfill_id, position=position)
        if row["state"] in _ENDED and not row["live"]:
            return row
        time.sleep(pause)
        pause = min(pause * 1.3, _LOOK_S[1])


def _show_preview(preview: Mapping[str, Any]) -> None:
    items = preview["items"][:_SHOWN]
    rows = ((item["slot"], plain(item["run_id"]), _action(item)) for item in items)
    table(("slot", "run", "would be"), rows, "")
    if preview["slots"] > len(items):
        write(f"… and {preview['slots'] - len(items):,} more slots")
    counts = f"{preview['creates']:,} would run, {preview['passes']:,} have a run already"
    if preview["restarts"]:
        counts = f"{preview['restarts']:,} would run again, {counts}"
    write(f"{preview['slots']:,} slots from {preview['first']} to {preview['last']}: {counts}. Nothing was started.")


def _action(item: Mapping[str, Any]) -> str:
    words = {"create": "run", "restart": "run again", "pass": "passed"}
    return words[item["action"]] + (f": its run is {item['state']}" if item["state"] else "")


def _span(row: Mapping[str, Any]) -> str:
    return " to ".join(row[end].replace(".000Z", "Z") for end in ("first", "last"))


def _how(row: Mapping[str, Any]) -> str:
    if row["mode"] == "chunked":
        text = f"chunks of {row['width']}"
    else:
        text = "sequential" if row["width"] == 1 else f"{row['width']} at a time"
    return text if row["order"] == "forward" else f"{text}, backward"


def _done(row: Mapping[str, Any]) -> int:
    done: int = row["skipped"] + row["succeeded"] + row["failed"] + row["cancelled"]
    return done


def _progress(row: Mapping[str, Any]) -> str:
    named = ("succeeded", "failed", "cancelled", "skipped", "live")
    parts = [f"{row[name]:,} {'running' if name == 'live' else name}" for name in named if row[name]]
    left = row["slots"] - row["skipped"] - row["runs"]
    if left and row["state"] not in _ENDED:
        parts.append(f"{left:,} to come")
    return ", ".join(parts) or "nothing yet"
