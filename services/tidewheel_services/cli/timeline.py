"""A run drawn for a terminal: one row a task, its attempts as bars over the run's time."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, NamedTuple

from rich.table import Table
from rich.text import Text

from tidewheel_services.cli.output import STATE_STYLES, console, plain, size, state, took

_WIDTH = 44
#: Instances of one mapped task that are shown, and which come first.
_INSTANCES_MAX = 20
#: Instances that wait alike and are shown one by one; more of them are one row.
_ALIKE_MAX = 3
_WAITING = ("scheduled", "queued", "deferred")
#: Between what an exception says and its traceback; and how many tracebacks are shown.
_TRACE = "\n\n"
_TRACES_MAX = 3
_TELLING = {
    name: place for place, name in enumerate(("failed", "retrying", "running", "leased", "cancelled", "queued"))
}


class Span(NamedTuple):
    """A stretch of time in one style; ``waiting`` is drawn lighter."""

    begin: float
    end: float
    style: str
    waiting: bool


class Row(NamedTuple):
    """A task; or the first of instances that are ``like_it``, itself among them; or those that are ``left_out``."""

    task: Mapping[str, Any]
    like_it: Sequence[Mapping[str, Any]] = ()
    left_out: Sequence[Mapping[str, Any]] = ()


def draw(run: Mapping[str, Any], tasks: Iterable[Mapping[str, Any]], attempts: Iterable[Mapping[str, Any]]) -> None:
    """Print the run's heading, its table and its timeline."""
    terminal = console()
    begin = _instant(run["created_at"]) or 0.0
    end = _instant(run["ended_at"]) or datetime.now(UTC).timestamp()
    length = max(end - begin, 0.001)
    reason = f"  [red]{plain(run['reason'])}[/]" if run["reason"] else ""
    terminal.print(
        f"[bold]{plain(run['dag'])}[/] {plain(run['run_id'])}  {state(run['state'])}  "
        f"{run['kind']}, {took(length)}, created {run['created_at']} by {plain(run['actor'])}{reason}",
        soft_wrap=True,
    )
    if run.get("trigger"):
        terminal.print(f"by trigger {plain(run['trigger'])} for record {plain(run['origin'])}", soft_wrap=True)
    for missed in run.get("deadlines_missed", ()):
        terminal.print(f"[yellow]{missed['at']}  {plain(missed['reason'])}[/]", soft_wrap=True)
    by_task: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for attempt in attempts:
        by_task[attempt["task"]].append(attempt)
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("task")
    table.add_column("state")
    table.add_column("attempt", justify="right")
    table.add_column("took", justify="right")
    table.add_column(_scale(length), no_wrap=True)
    table.add_column("why", overflow="fold")
    rows = list(_shown(list(tasks)))
    for row in rows:
        if row.like_it:
            count = f"{len(row.like_it):,} {row.task['state']}"
            table.add_row(f"{plain(row.task['task'])}, …", _dim(count), "", "", "", plain(_first(row.task["reason"])))
            continue
        if row.left_out:
            counts = Counter(one["state"] for one in row.left_out)
            told = ", ".join(f"{count:,} {name}" for name, count in counts.items())
            table.add_row(_dim(f"… {len(row.left_out):,} more"), _dim(told))
            continue
        task = row.task
        tries = by_task[task["task"]]
        spans = [span for attempt in tries for span in _spans(attempt, end)]
        table.add_row(
            plain(task["task"]),
            state(task["state"]),
            str(task["attempt"] or ""),
            took(_took(task)),
            _bar(spans, begin, length),
            plain(_why(task, tries)),
        )
    terminal.print(table)
    for line in _traces(row.task for row in rows if row.task):
        terminal.print(plain(line), style="bright_black", soft_wrap=True)


def _shown(tasks: list[Mapping[str, Any]]) -> Iterator[Row]:
    """The rows in order. Of a mapped task's many instances those that say most, then those that wait alike, each kind
    in one row, and then all that are left out."""
    for _, group in groupby(tasks, key=lambda task: task["ordinal"]):
        rows = list(group)
        yield from (Row(task) for task in rows if task["instance"] is None)
        alike: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
        for task in rows:
            if task["instance"] is not None and task["state"] in _WAITING:
                alike[task["state"], task["reason"]].append(task)
        many = [kind for kind in alike.values() if len(kind) > _ALIKE_MAX]
        folded = {task["task"] for kind in many for task in kind}
        instances = [task for task in rows if task["instance"] is not None and task["task"] not in folded]
        telling = sorted(instances, key=lambda task: _TELLING.get(task["state"], len(_TELLING)))[:_INSTANCES_MAX]
        kept = {task["task"] for task in telling}
        yield from (Row(task) for task in instances if task["task"] in kept)
        yield from (Row(kind[0], like_it=kind) for kind in many)
        if len(instances) > len(telling):
            yield Row({}, left_out=[task for task in instances if task["task"] not in kept])


def _spans(attempt: Mapping[str, Any], now: float) -> list[Span]:
    queued, started, ended = (_instant(attempt[name]) for name in ("queued_at", "started_at", "ended_at"))
    style = STATE_STYLES.get(attempt["state"], "default")
    spans: list[Span] = []
    if queued is not None:
        spans.append(Span(queued, started or ended or now, "bright_black", waiting=True))
    if started is not None:
        deferred = not attempt["pool"]  # it waited, and no worker ran it
        spans.append(Span(started, ended or now, style, waiting=deferred))
    return spans


def _bar(spans: Iterable[Span], begin: float, length: float) -> Text:
    """Every stretch is visible, however short; what ran hides what waited, and a later attempt an earlier one."""
    full, light = ("█", "░") if "utf" in (sys.stdout.encoding or "").lower() else ("#", ".")
    cells: list[tuple[str, str]] = [(" ", "")] * _WIDTH
    for span in sorted(spans, key=lambda span: (not span.waiting, span.begin)):
        first = min(int((span.begin - begin) / length * _WIDTH), _WIDTH - 1)
        last = min(int((span.end - begin) / length * _WIDTH), _WIDTH - 1)
        for cell in range(max(first, 0), max(last, 0) + 1):
            cells[cell] = (light if span.waiting else full, span.style)
    bar = Text()
    for char, style in cells:
        bar.append(char, style)
    return bar


def _dim(text: str) -> str:
    return f"[bright_black]{text}[/]"


def _scale(length: float) -> str:
    right = took(length)
    return "0" + right.rjust(_WIDTH - 1)


def _why(task: Mapping[str, Any], tries: list[Mapping[str, Any]]) -> str:
    """How earlier attempts ended, why the task is as it is, and what the next attempt finds of it."""
    said = [
        f"attempt {attempt['attempt']}: {_first(attempt['message']) or attempt['kind'] or attempt['state']}"
        for attempt in tries
        if attempt["state"] == "failed" and not (attempt["attempt"] == task["attempt"] and task["reason"])
    ]
    if task["reason"]:
        said.append(_first(task["reason"]))
    if task.get("checkpoint_at"):
        said.append(checkpoint(task))
    return "; ".join(said)


def _first(message: str) -> str:
    """What is said before the traceback, if there is one."""
    return message.partition(_TRACE)[0]


def _traces(tasks: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """The tracebacks of the first tasks that have one, line by line as Python writes them."""
    telling = [task for task in tasks if task["state"] == "failed" and _TRACE in task["reason"]]
    for task in telling[:_TRACES_MAX]:
        yield f"{task['task']}, attempt {task['attempt']}:"
        yield from (f"  {line}" for line in task["reason"].partition(_TRACE)[2].splitlines())


def checkpoint(task: Mapping[str, Any], now: datetime | None = None) -> str:
    """What an attempt has left for the next one: its size and age."""
    age = ((now or datetime.now(UTC)) - datetime.fromisoformat(task["checkpoint_at"])).total_seconds()
    return f"checkpoint of {size(task['checkpoint_bytes'])}, saved {took(max(0, round(age)))} ago"


def _took(task: Mapping[str, Any]) -> float | None:
    started, ended = _instant(task["started_at"]), _instant(task["ended_at"])
    return None if started is None or ended is None else ended - started


def _instant(text: str | None) -> float | None:
    return None if text is None else datetime.fromisoformat(text).timestamp()
