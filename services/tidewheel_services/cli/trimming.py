"""The command `journal trim`: delete old events that snapshots hold and everybody has read."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from tidewheel_services.cli.faults import CliError
from tidewheel_services.cli.options import Dsn, Json, LogUrl, settings
from tidewheel_services.cli.output import table, write, write_json

_DAY_MS = 86_400_000


def trim_journal(
    keep_days: Annotated[int, typer.Option("--keep-days", min=0, help="Nothing younger is deleted.")],
    yes: Annotated[bool, typer.Option("--yes", help="Delete. Without it, only show what would be.")] = False,
    without_read_model: Annotated[
        bool, typer.Option("--without-read-model", help="There is no read model that must have read it.")
    ] = False,
    log: LogUrl = "",
    postgres: Dsn = "",
    as_json: Json = False,
) -> None:
    """Delete events that the snapshots hold, that the read model has, and that are old. There is no way back."""
    import msgspec

    from tidewheel.log.opening import open_log
    from tidewheel.runtime.retention import SnapshotsDiffer, plan_trim, trim
    from tidewheel_services.process_log import log_to_stderr

    log_to_stderr()
    surroundings = settings(log=log, postgres=postgres)
    readers = {} if without_read_model else {"read model": _read_model(surroundings.postgres)}
    opened = open_log(surroundings.log)
    try:
        opened.check_topics()
        cuts = plan_trim(opened, time.time_ns() // 1_000_000 - keep_days * _DAY_MS, readers)
        if yes:
            trim(opened, cuts)
    except SnapshotsDiffer as error:
        raise CliError(str(error)) from error
    finally:
        opened.close()
    total = sum(cut.offsets for cut in cuts)
    if as_json:
        write_json({"trimmed": yes, "offsets": total, "partitions": [msgspec.structs.asdict(cut) for cut in cuts]})
        return
    rows = (
        (f"{cut.topic}/{cut.partition}", str(cut.start), str(cut.end), str(cut.offsets), cut.held_by) for cut in cuts
    )
    table(("journal", "begins at", "ends at", "deleted" if yes else "to delete", "the rest is held by"), rows, "")
    write(f"{total} offsets deleted" if yes else f"{total} offsets would be deleted; --yes does it")


def _read_model(dsn: str) -> dict[tuple[str, int], int]:
    """The oldest offset that the projector still reads, in each partition."""
    import psycopg

    query = "SELECT topic, partition, greatest(last_offset, 0) FROM tidewheel.projection_positions"
    try:
        with psycopg.connect(dsn, connect_timeout=5) as connection:
            return {(topic, partition): offset for topic, partition, offset in connection.execute(query)}
    except psycopg.Error as error:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise CliError(
            f"the read model cannot be asked how far it has read ({reason}): name it with --postgres, or say "
            "--without-read-model if there is none"
        ) from error
