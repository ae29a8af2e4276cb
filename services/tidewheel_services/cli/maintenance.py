"""Commands that keep the log and the read model in order: topics, dead-letters, verify, projection."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from tidewheel_services.cli.client import Client
from tidewheel_services.cli.faults import REFUSED
from tidewheel_services.cli.options import After, ApiUrl, Dsn, Json, Limit, LogUrl, rfc3339, settings
from tidewheel_services.cli.output import plain, table, write, write_json, write_list

if TYPE_CHECKING:
    from tidewheel.log.interface import Log

_KEY_SHOWN_MAX = 40


def create_topics(
    log: LogUrl = "",
    repair: Annotated[
        bool, typer.Option("--repair", help="Put right the settings of topics that are there already.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Create the log's topics that are missing, and check the settings of all."""
    from tidewheel.log.opening import open_log

    surroundings = settings(log=log)
    opened = open_log(surroundings.log)
    try:
        created = sorted(opened.create_topics(repair=repair))
        partitions = opened.partitions
    finally:
        opened.close()
    if as_json:
        write_json({"created": created, "partitions": partitions})
    elif created:
        write(f"created {', '.join(created)}, {partitions} partitions each")
    else:
        write(f"every topic was there already, {partitions} partitions each")


def check_topics(log: LogUrl = "", as_json: Json = False) -> None:
    """Compare the topics' settings with what the engine needs. Exit code 1 if one is missing or set wrongly."""
    import msgspec

    from tidewheel.log.opening import open_log

    opened = open_log(settings(log=log).log)
    try:
        found = opened.inspect_topics()
        partitions = opened.partitions
    finally:
        opened.close()
    wrong = [setting for setting in found if setting.verdict == "wrong"]
    if as_json:
        write_json({"ok": not wrong, "partitions": partitions, "settings": [msgspec.to_builtins(s) for s in found]})
    elif not found:
        write(f"the log is there, {partitions} partitions; its topics have nothing to set")
    else:
        rows = ((s.topic, s.name, s.found, s.wanted, s.verdict) for s in found)
        table(("topic", "setting", "found", "wanted", "verdict"), rows, "")
        for setting in found:
            if setting.fix:
                write(f"{setting.topic} {setting.name}: {setting.fix}")
        write(f"topics: {'FAILED' if wrong else 'ok'} ({partitions} partitions each)")
    if wrong:
        raise typer.Exit(REFUSED)


def dead_letters(limit: Limit = 100, after: After = None, api: ApiUrl = "", as_json: Json = False) -> None:
    """List records that could not be read or applied, newest first: where each lies, and why it was set aside."""
    with Client(settings(api=api)) as client:
        listed = client.listed("dead-letters", limit=limit, after=after)
    write_list(
        listed,
        as_json,
        ("at", "record", "key", "bytes", "code", "why"),
        lambda letter: (
            letter["at"],
            f"{letter['source_topic']}/{letter['source_partition']}/{letter['source_offset']}",
            plain((letter["key"] or "")[:_KEY_SHOWN_MAX]),
            "none" if letter["value_bytes"] is None else str(letter["value_bytes"]),
            plain(letter["code"]),
            plain(letter["reason"]),
        ),
        "no dead letters",
    )


def verify(
    log: LogUrl = "",
    settled: Annotated[
        bool, typer.Option("--settled", help="Nothing is writing: also prove that no decision lies half done.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Prove the journal from its bytes: nothing lost, doubled, altered or out of order. Exit code 1 if not."""
    import msgspec

    from tidewheel.runtime.checker import check_log

    with _checked_log(settings(log=log).log) as opened:
        report = check_log(opened, settled=settled)
    if as_json:
        violations = [msgspec.structs.asdict(violation) for violation in report.violations]
        repairs = [msgspec.to_builtins(repair) for repair in report.repairs]
        write_json({**msgspec.structs.asdict(report), "violations": violations, "repairs": repairs})
        if not report.ok:
            raise typer.Exit(REFUSED)
        return
    for repair in report.repairs:
        event = repair.event
        what = f"offsets {event.void_from} to {event.void_to - 1} are void" if event.records else "its end was lost"
        write(
            f"{repair.topic}/{repair.partition} offset {repair.offset}: repaired by {event.actor} at "
            f"{rfc3339(event.at)}: {what}, {event.lost} events given up: {event.reason}"
        )
    if report.trimmed:
        write(
            f"{report.trimmed} journal partitions were trimmed: proved from their oldest event on and folded from "
            f"their snapshots; {report.unjudged} DAGs and pools began before it, their rules are not judged"
        )
    if report.ok:
        write(f"verify: ok ({report.events} events)")
    else:
        for violation in report.violations[:20]:
            place = f"{violation.topic}/{violation.partition} offset {violation.offset}"
            write(f"{place}: invariant {violation.invariant}: {violation.message}")
        write(f"verify: FAILED ({report.events} events, {len(report.violations) + report.more} violations)")
    if not report.ok:
        raise typer.Exit(REFUSED)


def rebuild_projection(log: LogUrl = "", postgres: Dsn = "", as_json: Json = False) -> None:
    """Make the read model anew from the journal, beside the one in use, and put it in its place."""
    from tidewheel_projections.rebuild import rebuild

    surroundings = settings(log=log, postgres=postgres)
    with _checked_log(surroundings.log) as opened:
        applied = rebuild(surroundings.postgres, opened)
    if as_json:
        write_json({"records": applied})
    else:
        write(f"rebuilt from {applied} records")


def verify_projection(log: LogUrl = "", postgres: Dsn = "", as_json: Json = False) -> None:
    """Prove that the read model is what the journal says, row by row. Exit code 1 if it is not."""
    import msgspec

    from tidewheel_projections.rebuild import verify

    surroundings = settings(log=log, postgres=postgres)
    with _checked_log(surroundings.log) as opened:
        differences = verify(surroundings.postgres, opened)
    if as_json:
        found = [msgspec.structs.asdict(difference) for difference in differences]
        write_json({"ok": not differences, "differences": found})
    elif not differences:
        write("projection verify: ok")
    else:
        for difference in differences[:20]:
            write(f"{difference.table} {difference.key} is {difference.kind}")
            write(f"  found:    {difference.found}\n  expected: {difference.expected}")
        write(f"projection verify: FAILED ({len(differences)} rows or more); `tidewheel projection rebuild` mends it")
    if differences:
        raise typer.Exit(REFUSED)


@contextmanager
def _checked_log(url: str) -> Iterator[Log]:
    """The log at ``url``, its topics there and in order: what reads them else complains of something else."""
    from tidewheel.log.opening import open_log

    opened = open_log(url)
    try:
        opened.check_topics()
        yield opened
    finally:
        opened.close()
