"""What to do about a failure: the commands, ready to be copied."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tidewheel_services.cli.client import Client
from tidewheel_services.cli.faults import CliError

#: Tasks that one line names, and that are looked at for it.
_NAMES_MAX = 5
_LOOKED_AT_MAX = 1000


def steps(found: Mapping[str, Any], task: str | None = None) -> Iterator[str]:
    """A line for each thing to do about what failed, by an answer of the API's ``why``; none if nothing did. ``task``:
    the one that was asked for."""
    failed = [name for reason in found["reasons"] if reason["code"] == "failed" for name in reason["tasks"]]
    if not failed:
        return
    commands = list(_of_run(found, failed) if task is None or task not in failed else _of_task(found, failed, task))
    width = max(len(what) for what, _ in commands)
    yield "next:"
    for what, command in commands:
        # The command stands last, so that it can be copied to the end of the line.
        yield f"  {what:<{width}}  {command}"


def held_below(client: Client, marked: Mapping[str, Any], state: str) -> list[str]:
    """What a mark leaves as it was: tasks downstream that did not run for the task, and the command that lets them. By
    the API's answer to the mark, which stands also if no more is to be had."""
    where = ("dags", marked["dag"], "runs", marked["run_id"])
    try:
        run = client.get(*where, position=marked["position"])
        if not run["counts"].get("upstream_failed"):
            return []
        definition = client.get("dags", marked["dag"], "versions", run["version"])["definition"]
        below = _downstream(definition["tasks"], marked["task"].partition("[")[0])
        page = client.pages(*where, "tasks", limit=_LOOKED_AT_MAX, state="upstream_failed")
        held = [task["task"] for task in page if task["task"].partition("[")[0] in below]
    except CliError:
        return []
    if not held:
        return []
    more = f" and {len(held) - _NAMES_MAX:,} more" if len(held) > _NAMES_MAX else ""
    stay = "stays" if len(held) == 1 else "stay"
    command = _command("mark", marked, marked["task"], state, "--clear-downstream")
    return [f"{', '.join(held[:_NAMES_MAX])}{more} {stay} upstream_failed; to let that run:  {command}"]


def _downstream(tasks: Iterable[Mapping[str, Any]], name: str) -> set[str]:
    needs = {task["id"]: task.get("needs", ()) for task in tasks}
    found: set[str] = set()
    ahead = [name]
    while ahead:
        upstream = ahead.pop()
        fresh = {task for task, needed in needs.items() if upstream in needed} - found
        found |= fresh
        ahead += fresh
    return found


def _of_run(found: Mapping[str, Any], failed: list[str]) -> Iterator[tuple[str, str]]:
    yield _written(found, failed)
    clear = _command("clear", found, "--only-failed")
    yield "once it is mended, go on from there:", clear
    if _has_ended(found):
        yield "the same, by the version deployed now:", f"{clear} --version latest"
    yield "a new run, by the version deployed now:", _command("rerun", found)


def _of_task(found: Mapping[str, Any], failed: list[str], task: str) -> Iterator[tuple[str, str]]:
    yield _written(found, failed)
    clear = _command("clear", found, task)
    yield "once it is mended, let it run again:", clear
    if _has_ended(found):
        yield "the same, by the version deployed now:", f"{clear} --version latest"
    if not task.endswith("]"):
        yield "if it was done by hand, go on behind it:", _command("mark", found, task, "success", "--clear-downstream")


def _written(found: Mapping[str, Any], failed: list[str]) -> tuple[str, str]:
    # A task whose instances failed has written nothing itself.
    own = next(name for name in failed if not any(other.startswith(f"{name}[") for other in failed))
    return "what it wrote:", _command("logs", found, own)


def _command(verb: str, found: Mapping[str, Any], *more: str) -> str:
    return shlex.join(["tidewheel", verb, found["dag"], found["run_id"], *more])


def _has_ended(found: Mapping[str, Any]) -> bool:
    return found["state"] not in ("queued", "running")
