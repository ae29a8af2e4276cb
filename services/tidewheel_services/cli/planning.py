"""The command `plan`: when a schedule fires next, and what going on would do with the slots that passed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from tidewheel_services.cli.client import Client, Refused
from tidewheel_services.cli.definitions import counted, mistakes_of, show_mistakes
from tidewheel_services.cli.faults import UNREACHABLE, CliError
from tidewheel_services.cli.options import ApiUrl, Json, Project, instant, load_given, rfc3339, settings
from tidewheel_services.cli.output import table, write, write_json

if TYPE_CHECKING:
    from tidewheel.core.calendar import Forecast
    from tidewheel.core.workflow import Schedule

_COUNT_MAX = 10_000
#: The API is a help here: one that hangs must not hold up what can be said without it.
_API_S_MAX = 3.0


class Outlook(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the DAG where it is deployed, and what would become of the slots that passed.

    ``state``: ``new``, ``live``, ``paused``, ``removed``; ``unknown``: no API could be asked.
    """

    state: str
    where: str
    #: Slots after this instant are open.
    cursor: int
    #: It has no place in this schedule yet.
    fresh: bool = False
    #: None: another schedule is deployed, and says what becomes of its own.
    forecast: Forecast | None = None


def plan(
    file: Annotated[Path | None, typer.Argument(help="A workflow file.", show_default=False)] = None,
    cron: Annotated[str, typer.Option("--cron", help="A cron expression instead of a file.", show_default=False)] = "",
    timezone: Annotated[str, typer.Option("--timezone", help="IANA name; with --cron.")] = "UTC",
    after: Annotated[str, typer.Option("--after", help="ISO 8601; default: now.", show_default=False)] = "",
    count: Annotated[int, typer.Option("--count", min=1, max=_COUNT_MAX, help="How many.")] = 10,
    paused_since: Annotated[
        str,
        typer.Option(
            "--paused-since",
            help="ISO 8601: show what unpausing would run as if it had been paused then.",
            show_default=False,
        ),
    ] = "",
    until: Annotated[
        str,
        typer.Option(
            "--until", help="ISO 8601: as if it were deployed or unpaused then; default: now.", show_default=False
        ),
    ] = "",
    catchup: Annotated[
        bool, typer.Option("--catchup", help="With --json: write an object with what deploying or unpausing would run.")
    ] = False,
    only: Annotated[str, typer.Option("--dag", help="Of a Python file: which of its DAGs.", show_default=False)] = "",
    project: Project = None,
    api: ApiUrl = "",
    as_json: Json = False,
) -> None:
    """Preview a schedule: its next slots, when their runs start, and what deploying or unpausing it now would run."""
    from tidewheel.core.calendar import plan as planned

    if (file is None) == (not cron):
        raise CliError("give either a workflow FILE or --cron EXPRESSION", UNREACHABLE)
    if file is None and (paused_since or until or catchup):
        raise CliError("--paused-since, --until and --catchup need a workflow FILE", UNREACHABLE)
    now = time.time_ns() // 1_000_000
    after_ms = instant(after, "--after") if after else now
    dag, schedule = (
        _schedule_of_file(file, only, project) if file is not None else ("", _schedule_of_cron(cron, timezone))
    )
    since = instant(paused_since, "--paused-since") if paused_since else None
    going_on = instant(until, "--until") if until else now
    # Bare --json is a contract: the slots, from the file alone.
    wanted = file is not None and (catchup or not as_json)
    try:
        slots = planned(schedule, dag, after_ms, count)
        outlook = _outlook(schedule, dag, going_on, since, settings(api=api).api) if wanted else None
    except ValueError as error:
        raise CliError(str(error)) from error
    if as_json:
        listed = [{"slot": rfc3339(slot), "fires_at": rfc3339(fires)} for slot, fires in slots]
        write_json(listed if outlook is None else {"slots": listed, **_as_document(outlook)})
        return
    rows = [(rfc3339(slot), _local(slot, schedule.timezone), rfc3339(fires)) for slot, fires in slots]
    table(("slot", schedule.timezone, "fires at"), rows, "nothing is planned")
    if outlook is not None:
        write(_told(outlook, dag, until or "now"))


def _outlook(schedule: Schedule, dag: str, now: int, since: int | None, api: str) -> Outlook:
    from tidewheel.core.calendar import begins_at, forecast, same_slots
    from tidewheel.core.workflow import Schedule as Known

    if since is not None:
        return Outlook(state="paused", where="", cursor=since, forecast=forecast(schedule, dag, since, now))
    found, state = _deployed(dag, api)
    before = None
    if found is not None:
        state = "removed" if found["removed"] else "paused" if found["paused"] else "live"
        before = msgspec.convert(found["schedule"], Known) if found["schedule"] else None
    if found is not None and before is not None and found["slot_cursor"] is not None:
        if not same_slots(before, schedule):
            return Outlook(state=state, where=api, cursor=now)
        cursor = instant(found["slot_cursor"], "slot_cursor")
        return Outlook(state=state, where=api, cursor=cursor, forecast=forecast(schedule, dag, cursor, now))
    cursor = begins_at(schedule, now)
    return Outlook(state=state, where=api, fresh=True, cursor=cursor, forecast=forecast(schedule, dag, cursor, now))


def _deployed(dag: str, api: str) -> tuple[dict[str, Any] | None, str]:
    """The DAG as the API shows it; else why there is none: ``new`` or ``unknown``."""
    try:
        with Client(settings(api=api), timeout_s=_API_S_MAX) as client:
            found: dict[str, Any] = client.get("dags", dag)
            return found, ""
    except Refused as error:
        return None, "new" if error.kind == "not_found" else "unknown"
    except CliError:
        return None, "unknown"


def _told(outlook: Outlook, dag: str, when: str) -> str:
    where = f"{dag} is {outlook.state} on {outlook.where}"
    owed = outlook.forecast
    if owed is None:
        rest = "this one counts from then on; what the old one owes still runs"
        return f"{where}, with another schedule. Deployed {when}, {rest}."
    would = _would(owed)
    if outlook.fresh:
        match outlook.state:
            case "unknown":
                silent = f"No API at {outlook.where} could say whether it is deployed."
                return f"Deployed {when} as a new DAG, it {would}. ({silent})"
            case "new":
                return f"{dag} is not deployed on {outlook.where}. Deployed {when}, it {would}."
            case _:
                return f"{where}, without a schedule. Deployed {when}, it {would}."
    if outlook.state == "live":
        return f"{where}. Deployed {when}, it keeps its place: no slot is run twice or left out."
    since = rfc3339(outlook.cursor)
    place = f"{where}; its slots after {since} are open." if outlook.where else f"Paused since {since}."
    action = "Deployed again" if outlook.state == "removed" else "Unpaused"
    return f"{place} {action} {when}, it {would}."


def _would(owed: Forecast) -> str:
    skips = f"skips {counted(owed.skipped, 'slot')} ({owed.reason})" if owed.skipped else ""
    if owed.first is None or owed.last is None:
        return skips or "runs nothing of the times that passed"
    span = rfc3339(owed.first) if owed.runs == 1 else f"{rfc3339(owed.first)} to {rfc3339(owed.last)}"
    runs = f"runs {counted(owed.runs, 'slot')} that passed ({span})"
    return f"{runs} and {skips}" if skips else runs


def _as_document(outlook: Outlook) -> dict[str, object]:
    owed = outlook.forecast
    document: dict[str, object] = {"state": outlook.state, "cursor": rfc3339(outlook.cursor), "catchup": None}
    if owed is not None and (outlook.fresh or outlook.state != "live"):
        document["catchup"] = {
            "runs": owed.runs,
            "first": None if owed.first is None else rfc3339(owed.first),
            "last": None if owed.last is None else rfc3339(owed.last),
            "skipped": owed.skipped,
            "reason": owed.reason,
        }
    return document


def _schedule_of_file(file: Path, dag: str, project: Path | None) -> tuple[str, Schedule]:
    found = load_given([file], project)
    if mistakes := mistakes_of(found):
        show_mistakes(mistakes)
        raise CliError(f"{file} has mistakes; nothing can be planned")
    named = [one for one in found if one.workflow is not None and dag in ("", one.workflow.id)]
    if len(named) != 1:
        ids = ", ".join(sorted(one.workflow.id for one in found if one.workflow is not None))
        raise CliError(f"{file} defines {ids}: say with --dag which of them to plan", UNREACHABLE)
    loaded = named[0]
    assert loaded.workflow is not None
    if loaded.workflow.schedule is None:
        raise CliError(f"{file}: DAG '{loaded.workflow.id}' has no schedule; it runs only when it is triggered")
    return loaded.workflow.id, loaded.workflow.schedule


def _schedule_of_cron(cron: str, timezone: str) -> Schedule:
    from tidewheel.core.calendar import check_cron, check_zone
    from tidewheel.core.workflow import Schedule

    for option, complaint in (("--cron", check_cron(cron)), ("--timezone", check_zone(timezone))):
        if complaint is not None:
            raise CliError(f"{option}: {complaint}")
    return Schedule(cron=(cron,), timezone=timezone)


def _local(ms: int, timezone: str) -> str:
    from datetime import datetime

    from tidewheel.core.zones import zone_of

    moment = datetime.fromtimestamp(ms / 1000, zone_of(timezone))
    return f"{moment:%a %Y-%m-%d %H:%M:%S %z}"
