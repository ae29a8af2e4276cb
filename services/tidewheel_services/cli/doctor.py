"""The command `doctor`: looks at everything Tidewheel needs, and says for each fault what to do."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import typer

from tidewheel_services.cli.faults import REFUSED, CliError, near_dev
from tidewheel_services.cli.options import ApiUrl, Dsn, Json, LogUrl, settings
from tidewheel_services.cli.output import console, plain, write_json
from tidewheel_services.config import Settings

_WAIT_S = 5
_COLOURS = {"ok": "green", "optional": "yellow", "missing": "red"}


class Finding(NamedTuple):
    """``optional``: not there, and only some need it."""

    check: str
    result: Literal["ok", "optional", "missing"]
    found: str
    fix: str = ""


def doctor(log: LogUrl = "", postgres: Dsn = "", api: ApiUrl = "", as_json: Json = False) -> None:
    """Check Python, Java, Docker, the log, Postgres and the API. Exit code 1 if something needed is missing."""
    surroundings = settings(log=log, postgres=postgres, api=api)
    checks: tuple[Callable[[Settings], Finding], ...] = (
        _python,
        _java,
        _docker,
        _log,
        _triggers,
        _postgres,
        _listeners,
        _api,
        _journal,
        _targets,
    )
    findings = [check(surroundings) for check in checks]
    if as_json:
        write_json([finding._asdict() for finding in findings])
    else:
        terminal = console()
        for finding in findings:
            mark = f"[{_COLOURS[finding.result]}]{finding.result:>8}[/]"
            terminal.print(f"{mark}  [bold]{finding.check}[/]: {plain(finding.found)}", soft_wrap=True)
            if finding.fix:
                terminal.print(f"{'':>10}fix: {plain(finding.fix)}", soft_wrap=True)
    if any(finding.result == "missing" for finding in findings):
        raise typer.Exit(REFUSED)


def _python(_: Settings) -> Finding:
    version = ".".join(str(part) for part in sys.version_info[:3])
    return Finding("Python", "ok", f"{version} ({sys.executable})")


def _java(_: Settings) -> Finding:
    fix = "only for a local Kafka without Docker: install Java 17 or newer, and Maven"
    java = shutil.which("java")
    if java is None:
        return Finding("Java", "optional", "not found", fix)
    shown = _output([java, "-version"])
    version = shown.split('"')[1] if shown.count('"') >= 2 else ""
    major = version.split(".")[0]
    if not major.isdigit() or int(major) < 17:
        return Finding("Java", "optional", f"version {version or 'unknown'} ({java})", fix)
    if shutil.which("mvn") is None:
        return Finding("Java", "optional", f"{version} ({java}), but no Maven", fix)
    return Finding("Java", "ok", f"{version} ({java}), with Maven")


def _docker(_: Settings) -> Finding:
    if shutil.which("docker") is None:
        return Finding("Docker", "optional", "not found", "only for `docker compose up`: install Docker")
    version = _output(["docker", "info", "--format", "{{.ServerVersion}}"]).strip()
    if not version or "\n" in version or " " in version:
        return Finding("Docker", "optional", "the client is there, but no engine answers", "start the Docker engine")
    return Finding("Docker", "ok", f"engine {version}")


def _log(surroundings: Settings) -> Finding:
    from tidewheel.log.interface import LogError, LogMisconfigured
    from tidewheel.log.opening import open_log

    fix = "start one with `make kafka` or `docker compose up kafka`, or set TIDEWHEEL_LOG (--log)"
    try:
        opened = open_log(surroundings.log)
        try:
            opened.check_topics()
        finally:
            opened.close()
    except LogMisconfigured as error:
        return Finding(
            "Log", "missing", str(error), "run `tidewheel topics create`; `tidewheel topics check` shows more"
        )
    except LogError as error:
        return Finding("Log", "missing", str(error), fix + near_dev("TIDEWHEEL_LOG", str(error)))
    return Finding("Log", "ok", f"{surroundings.log}: every topic is there, {opened.partitions} partitions")


def _triggers(surroundings: Settings) -> Finding:
    """Whether any wait, as the schedulers have noted it in the log."""
    from tidewheel.log.interface import LogError
    from tidewheel.log.opening import open_log
    from tidewheel.runtime.backlog import read_note

    try:
        opened = open_log(surroundings.log)
        try:
            notes = {shard: read_note(opened.noted(shard)) for shard in range(opened.partitions)}
        finally:
            opened.close()
    except LogError:
        return Finding("Triggers", "optional", "not known, for the log does not say")
    full = [str(shard) for shard, note in notes.items() if note.full]
    postponed = sorted(dag for note in notes.values() for dag in note.postponed)
    if not full and not postponed:
        return Finding("Triggers", "ok", "none wait for runs to end")
    found = []
    if postponed:
        more = " …" if len(postponed) > 5 else ""
        found.append(f"those of {', '.join(postponed[:5])}{more} wait for runs of the same DAG to end")
    if full:
        found.append(f"none are read of full shard {', '.join(full)}")
    fix = "nothing is lost, they go on as runs end: more slots, a larger max_runs of the DAG, or cancel runs"
    return Finding("Triggers", "optional", "; ".join(found), fix)


def _postgres(surroundings: Settings) -> Finding:
    import psycopg

    fix = (
        "start Postgres, or set TIDEWHEEL_POSTGRES (--postgres), such as postgresql://user:password@host:5432/tidewheel"
    )
    query = "SELECT current_setting('server_version'), to_regclass('tidewheel.projection_positions') IS NOT NULL"
    try:
        with psycopg.connect(surroundings.postgres, connect_timeout=_WAIT_S) as connection:
            row = connection.execute(query).fetchone()
    except psycopg.Error as error:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        return Finding("Postgres", "missing", reason, fix + near_dev("TIDEWHEEL_POSTGRES", reason))
    assert row is not None
    version, has_tables = row
    if not has_tables:
        return Finding(
            "Postgres", "missing", f"{version}, without the read model's tables", "start `tidewheel projector`"
        )
    return Finding("Postgres", "ok", f"{version}, with the read model")


def _listeners(surroundings: Settings) -> Finding:
    """Whether somebody listens to the topics that triggers name, and whether they are there."""
    import psycopg

    from tidewheel.log.feeds import feed_beside, open_feed
    from tidewheel.log.interface import LogError

    query = (
        "SELECT DISTINCT t -> 'kafka' ->> 'topic' FROM tidewheel.dags JOIN tidewheel.dag_versions USING (dag, version),"
        " json_array_elements(definition -> 'triggers') t WHERE NOT removed ORDER BY 1"
    )
    try:
        with psycopg.connect(surroundings.postgres, connect_timeout=_WAIT_S) as connection:
            topics = [str(row[0]) for row in connection.execute(query)]
    except psycopg.Error:
        return Finding("Listeners", "optional", "not known, for the read model does not say")
    if not topics:
        return Finding("Listeners", "ok", "no DAG has triggers")
    try:
        feed = open_feed(surroundings.feed or feed_beside(surroundings.log))
        try:
            missing, members = feed.missing(topics), feed.members()
        finally:
            feed.close()
    except LogError as error:
        return Finding("Listeners", "missing", str(error), "set TIDEWHEEL_FEED (--feed) to where these topics are")
    if members is not None and not members:
        found = f"nobody listens to {len(topics)} topics that triggers name"
        return Finding("Listeners", "missing", found, "start `tidewheel listener`; no record has been lost")
    if missing:
        found = "; ".join(f"{topic}: {why}" for topic, why in list(missing.items())[:5])
        return Finding("Listeners", "missing", found, "create the topic, or correct the trigger that names it")
    who = "" if members is None else f", heard by {', '.join(members[:5])}"
    return Finding("Listeners", "ok", f"{len(topics)} topics that triggers name{who}")


def _api(surroundings: Settings) -> Finding:
    from tidewheel_services.cli.client import Client, Refused

    try:
        with Client(surroundings) as client:
            answer: dict[str, Any] = client.get("ready")
    except Refused as error:
        return Finding("API", "missing", f"{surroundings.api}: {error}", "see what it says; `tidewheel api` logs more")
    except CliError as error:
        return Finding("API", "missing", str(error), "start `tidewheel dev DIR` or `tidewheel api`")
    checks = answer.get("checks", {})
    wrong = ", ".join(f"{name}: {what}" for name, what in checks.items() if what and name != "journal")
    if wrong:
        return Finding("API", "missing", f"{surroundings.api} is not ready: {wrong}", "see what it says")
    return Finding("API", "ok", f"{surroundings.api} is ready")


def _journal(surroundings: Settings) -> Finding:
    from tidewheel_services.cli.client import Client

    try:
        with Client(surroundings) as client:
            answer: dict[str, Any] = client.get("lag")
    except CliError:
        return Finding("Journal", "optional", "not known, for the API does not say", "`tidewheel verify` looks itself")
    stopped = [row["reason"] for row in answer["stopped_shards"]]
    unread = [row["stopped"] for row in answer["journals"] if row["stopped"]]
    if stopped or unread:
        return Finding(
            "Journal", "missing", "; ".join(stopped or unread), "`tidewheel journal repair` says what may be done"
        )
    return Finding("Journal", "ok", f"every shard goes on, {answer['partitions']} of them")


def _targets(_: Settings) -> Finding:
    """Those of this environment; the notifier may have another."""
    from tidewheel_services.notifier.targets import BadTargets, configured

    try:
        targets = configured()
    except BadTargets as error:
        return Finding("Notifications", "missing", str(error), "write the targets as docs/notifications.md says")
    if not targets:
        fix = "only to be told of runs: set TIDEWHEEL_NOTIFY_<NAME> to a URL where `tidewheel notifier` runs"
        return Finding("Notifications", "optional", "no targets are configured here", fix)
    from tidewheel_services.notifier.delivery import Delivery, Unusable

    faults = []
    for target in targets.values():
        try:
            Delivery(target)
        except Unusable as error:
            faults.append(str(error))
    names = f"targets: {', '.join(targets)}"
    if faults:
        return Finding("Notifications", "missing", "; ".join([names, *faults]), "correct the URLs")
    return Finding("Notifications", "ok", names)


def _output(command: list[str]) -> str:
    """What the command says, on either stream; nothing if it cannot be run."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_WAIT_S * 2, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout or done.stderr
