"""Commands about capacity: pools, workers."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from tidewheel_services.cli.client import Client
from tidewheel_services.cli.options import ApiUrl, Json, settings
from tidewheel_services.cli.output import plain, state, table, write, write_json

_NO_WORKERS = "no workers; start one with `tidewheel worker --pool default=8`"


def pools(
    name: Annotated[str | None, typer.Argument(help="Only this pool.", show_default=False)] = None,
    slots: Annotated[
        int | None, typer.Option("--slots", min=0, help="Set the pool's slot limit.", show_default=False)
    ] = None,
    unlimited: Annotated[bool, typer.Option("--unlimited", help="Let its workers' slots be the only limit.")] = False,
    dags: Annotated[bool, typer.Option("--dags", help="List the DAGs that hold slots of the pool or wait.")] = False,
    api: ApiUrl = "",
    as_json: Json = False,
) -> None:
    """List pools with what they hold and what waits, or set a pool's limit."""
    if slots is not None or unlimited:
        if name is None or (slots is not None and unlimited):
            raise typer.BadParameter("name one pool and give either --slots N or --unlimited")
        with Client(settings(api=api)) as client:
            answer = client.put("pools", name, body={"slots": slots})
        if as_json:
            write_json(answer)
        else:
            write(answer["message"] or _limited(name, slots))
        return
    if dags:
        if name is None:
            raise typer.BadParameter("name the pool whose DAGs to list")
        _dags(name, api, as_json)
        return
    with Client(settings(api=api)) as client:
        found = [client.get("pools", name)] if name else list(client.pages("pools", limit=sys.maxsize))
    if as_json:
        write_json(found[0] if name else found)
        return
    rows = (
        (
            plain(pool["pool"]),
            str(pool["worker_slots"] if pool["slots"] is None else pool["slots"]),
            str(pool["used"]),
            str(pool["waiting"]),
            str(pool["workers"]),
            plain(pool["description"]),
        )
        for pool in found
    )
    table(
        ("pool", "slots", "used", "waiting", "workers", "description"),
        rows,
        "no pools yet; a worker or a task makes one",
    )


def _limited(pool: str, slots: int | None) -> str:
    if slots is None:
        return f"pool {pool}: as many slots as its workers have"
    if slots == 0:
        return f"pool {pool}: no slots; what runs goes on, and nothing starts until it has more"
    return f"pool {pool}: {slots} slot{'' if slots == 1 else 's'} at most"


def _dags(pool: str, api: str, as_json: bool) -> None:
    with Client(settings(api=api)) as client:
        found = list(client.pages("pools", pool, "dags", limit=sys.maxsize))
    if as_json:
        write_json(found)
        return
    rows = (
        (
            plain(row["dag"]),
            str(row["used"]),
            str(row["waiting"]),
            "" if row["share_slots"] is None else f"{row['share_slots']} ({row['max_pool_share']}%)",
        )
        for row in found
    )
    table(("dag", "used", "waiting", "at most"), rows, f"no DAG holds slots of pool {pool} or waits for some")


def workers(
    pool: Annotated[str | None, typer.Option("--pool", help="Only of this pool.", show_default=False)] = None,
    everyone: Annotated[bool, typer.Option("--all", help="Also those that left.")] = False,
    api: ApiUrl = "",
    as_json: Json = False,
) -> None:
    """List workers: where they run, their slots, whether they are heard."""
    with Client(settings(api=api)) as client:
        found = [
            worker
            for worker in client.pages("workers", limit=sys.maxsize, pool=pool)
            if everyone or worker["state"] != "left"
        ]
    if as_json:
        write_json(found)
        return
    rows = (
        (
            plain(worker["worker"]),
            plain(worker["pool"]),
            state(worker["state"]),
            str(worker["slots"]),
            str(worker["used"]),
            plain(worker["host"]),
            worker["renewed_at"],
            plain(worker["reason"]),
        )
        for worker in found
    )
    table(("worker", "pool", "state", "slots", "used", "host", "last heard", "why"), rows, _NO_WORKERS)
