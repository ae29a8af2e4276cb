"""The command `reshard`: move to another number of partitions."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

import typer

from tidewheel_services.cli.faults import UNREACHABLE, CliError
from tidewheel_services.cli.options import Json, LogUrl, settings
from tidewheel_services.cli.output import write, write_json


def reshard(
    partitions: Annotated[int, typer.Option("--partitions", min=1, max=10_000, help="How many there shall be.")],
    log: LogUrl = "",
    to: Annotated[
        str,
        typer.Option(
            "--to", help="The new log's URL; default: beside the old one, the number in its name.", show_default=False
        ),
    ] = "",
    as_json: Json = False,
) -> None:
    """Write a new log with another number of partitions. Everything must be stopped; the old log stays as it is."""
    import msgspec

    from tidewheel.log.opening import open_log
    from tidewheel.runtime.reshard import ReshardRefused
    from tidewheel.runtime.reshard import reshard as move
    from tidewheel_services.process_log import log_to_stderr

    log_to_stderr()
    source = settings(log=log).log
    target = to or resharded_url(source, partitions)
    if target == source:
        raise CliError(f"{target} is the log itself: give another with --to", UNREACHABLE)
    old = open_log(source)
    try:
        old.check_topics()
        new = open_log(target)
        try:
            if new.partitions != partitions:
                raise CliError(f"{target} has {new.partitions} partitions, not {partitions}", UNREACHABLE)
            new.create_topics()
            told = move(old, new)
        except ReshardRefused as error:
            raise CliError(str(error)) from error
        finally:
            new.close()
    finally:
        old.close()
    if as_json:
        write_json({"log": target, "partitions": partitions, **msgspec.structs.asdict(told)})
        return
    write(f"{told.aggregates} DAGs and pools are equal in both logs ({told.events} events, {told.written} written now)")
    write(f"{told.requests} unread requests carried; {told.others} task log chunks and dead letters copied")
    write(f"now set TIDEWHEEL_LOG='{target}' everywhere and run `tidewheel projection rebuild`")


def resharded_url(url: str, partitions: int) -> str:
    """Beside the old log: `tidewheel.` becomes `tidewheel-64.`, `/path/log.db` becomes `/path/log-64.db`."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    query["partitions"] = str(partitions)
    path = parts.path
    if parts.scheme == "kafka":
        from tidewheel.log.kafka.log import DEFAULT_PREFIX

        prefix = query.get("prefix", DEFAULT_PREFIX)
        query["prefix"] = f"{prefix.removesuffix('.')}-{partitions}."
    elif parts.scheme == "sqlite":
        file = PurePosixPath(unquote(path))
        path = quote(str(file.with_name(f"{file.stem}-{partitions}{file.suffix}")))
    else:
        raise CliError(f"the log {url} lives in one process; there is nothing to move", UNREACHABLE)
    return f"{parts.scheme}://{parts.netloc}{path}?{urlencode(query)}"
