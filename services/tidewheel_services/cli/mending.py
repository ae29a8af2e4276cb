"""What to do about a failure: the commands, ready to be copied."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any


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
