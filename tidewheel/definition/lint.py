"""What a workflow says must make sense: checks beyond the shape, each mistake at its line and column.

They work on drafts, so that a file with mistakes of shape is checked as far as it could be read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from tidewheel.core.cron import check_cron, parse_cron
from tidewheel.core.inputs import InputMistake, check_value, typed
from tidewheel.core.nearest import did_you_mean
from tidewheel.core.workflow import DEFAULT_POOL, Input
from tidewheel.core.zones import check_zone, zone_of
from tidewheel.definition.assemble import is_computed
from tidewheel.definition.children import lint_child
from tidewheel.definition.language import ACTIONS
from tidewheel.definition.lint_deadlines import lint_deadlines
from tidewheel.definition.lint_expressions import NOT_IN_EXPRESSIONS, lint_expressions
from tidewheel.definition.lint_graph import Graph, lint_graph
from tidewheel.definition.lint_switch import lint_switches
from tidewheel.definition.lint_triggers import lint_triggers
from tidewheel.definition.mistakes import Findings
from tidewheel.definition.nodes import descend
from tidewheel.definition.references import ROOTS
from tidewheel.definition.scalars import moment_ms
from tidewheel.definition.shapes import Draft
from tidewheel.definition.templates import has_expression
from tidewheel.definition.waits import lint_wait

_MODULE_AND_NAME: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
#: A function that an embedded worker registered.
_REGISTERED_NAME: Final = re.compile(r"[A-Za-z_][\w-]*")


def lint(draft: Draft, findings: Findings, pools: Mapping[str, int | None] | None = None) -> None:
    """Note every mistake. ``pools`` are the known pools with their slots (None: as many as their workers have)."""
    _lint_schedule(draft, findings)
    _lint_inputs(draft, findings)
    lint_triggers(draft, findings)
    defaults = draft.get("defaults", {})
    if isinstance(defaults, Draft):
        _lint_retry(defaults, findings)
    for task in tasks_of(draft):
        _lint_action(task, findings)
        _lint_mapping(task, findings)
        _lint_retry(task, findings)
        lint_child(task, draft.get("id"), findings)
        if pools is not None and not {"switch", "wait_for", "trigger", "workflow"} & set(task.node.entries):
            _lint_pool(task, defaults, pools, findings)
    lint_deadlines(draft, findings)
    graph = lint_graph(tasks_of(draft), findings)
    lint_switches(graph, findings)
    _lint_ids(graph, findings)
    lint_expressions(draft, graph, findings)


def tasks_of(draft: Draft) -> list[Draft]:
    """The tasks that could be read."""
    return [task for task in draft.get("tasks", ()) if task is not None]


def _lint_ids(graph: Graph, findings: Findings) -> None:
    for name, task in graph.tasks.items():
        if name in NOT_IN_EXPRESSIONS:
            findings.add(
                descend(task.node, "id"), "bad_name", f"{name!r} cannot be an id: expressions give the word a meaning"
            )


def _lint_schedule(draft: Draft, findings: Findings) -> None:
    written = draft.get("schedule")
    if isinstance(written, str):
        _lint_cron(written, descend(draft.node, "schedule"), findings)
    if not isinstance(written, Draft):
        return
    node = written.node
    if "cron" in node.entries and "every" in node.entries:
        findings.add(node.keys["every"], "conflict", "a schedule has 'cron' or 'every', not both")
    if not {"cron", "every"} & set(node.entries):
        findings.add(node, "missing_key", "a schedule needs 'cron' or 'every'")
    for index, expression in enumerate(written.get("cron", ())):
        if expression is not None:
            _lint_cron(expression, descend(node, "cron", index), findings)
    zone = written.get("timezone", "UTC")
    if problem := check_zone(zone):
        findings.add(node.entries["timezone"], "bad_timezone", problem)
    elif "start" in written and "end" in written:
        first, last = moment_ms(written["start"], zone_of(zone)), moment_ms(written["end"], zone_of(zone), last=True)
        if last < first:
            findings.add(node.entries["end"], "conflict", "the schedule ends before it starts")
    if written.get("catchup") == "all" and written.get("overlap") in ("skip", "cancel_running"):
        meaning = f"'overlap: {written['overlap']}' drops runs that 'catchup: all' promises; use queue or allow"
        findings.add(node.entries["overlap"], "conflict", meaning)
    _lint_clock_changes(written, findings)


def _lint_clock_changes(schedule: Draft, findings: Findings) -> None:
    crons = [text for text in schedule.get("cron", ()) if text is not None]
    if any(check_cron(text) or parse_cron(text).fixed for text in crons) or (not crons and "every" not in schedule):
        return
    for key in ("dst_gap", "dst_repeat"):
        if key in schedule:
            meaning = f"{key!r} is about a fixed minute and hour; this schedule follows elapsed time"
            findings.add(schedule.node.keys[key], "conflict", meaning)


def _lint_cron(expression: str, node: Any, findings: Findings) -> None:
    if problem := check_cron(expression):
        findings.add(node, "bad_cron", problem)


def _lint_inputs(draft: Draft, findings: Findings) -> None:
    for name, written in draft.get("inputs", {}).items():
        if name in NOT_IN_EXPRESSIONS:
            place = draft.node.entries["inputs"]
            findings.add(
                descend(place, name), "bad_name", f"{name!r} cannot be an input: expressions give the word a meaning"
            )
        kind = written.get("type")
        if kind is None:
            continue
        allowed: list[Any] = []
        for index, value in enumerate(written.get("enum", ())):
            try:
                allowed.append(typed(kind, value))
            except InputMistake as mistake:
                findings.add(descend(written.node, "enum", index), "bad_value", f"not of the input's type: {mistake}")
        default = written.get("default")
        if default is None or is_computed(default):
            continue
        try:
            check_value(Input(type=kind, enum=tuple(allowed)), default)
        except InputMistake as mistake:
            findings.add(written.node.entries["default"], "bad_default", f"the default does not fit: {mistake}")


def _lint_action(task: Draft, findings: Findings) -> None:
    entries, keys = task.node.entries, task.node.keys
    present = [key for key in entries if key in ACTIONS]
    if not present:
        near = next((hint for key in entries if key not in task and (hint := did_you_mean(key, ACTIONS))), "")
        findings.add(task.node, "missing_action", f"a task needs one of {', '.join(ACTIONS)}{near}")
    for extra in present[1:]:
        findings.add(
            keys[extra], "conflict", f"a task has one action: {present[0]!r} is already there, remove {extra!r}"
        )
    if "with" in entries and present and "python" not in entries:
        findings.add(
            keys["with"],
            "conflict",
            f"'with' are arguments of a python callable; give a {present[0]} task its values by 'env'",
        )
    if "python" in task:
        _lint_callable(task["python"], entries["python"], findings)
    if isinstance(http := task.get("http"), Draft):
        _lint_http(http, findings)
    if "wait_for" in entries:
        lint_wait(task, findings)
        if isinstance(http := task.get("wait_for", {}).get("http"), Draft):
            _lint_http(http, findings)


def _lint_mapping(task: Draft, findings: Findings) -> None:
    entries, keys = task.node.entries, task.node.keys
    if "for_each" not in entries:
        for key in ("as", "max_parallel", "max_items", "fail_fast"):
            if key in entries:
                findings.add(keys[key], "conflict", f"{key!r} is about the items of a 'for_each', and there is none")
        return
    written = task.get("for_each")
    if isinstance(written, str) and not has_expression(written):
        findings.add(entries["for_each"], "bad_expression", "'for_each' is a list, or an expression: '${{ … }}'")
    if isinstance(written, list) and len(written) > task.get("max_items", 1_000):
        findings.add(entries["for_each"], "bad_value", f"{len(written)} items are more than max_items")
    name = task.get("as", "item")
    if name in ROOTS or name in NOT_IN_EXPRESSIONS:
        findings.add(entries["as"], "bad_name", f"{name!r} cannot be an item: expressions give the word a meaning")


def _lint_callable(name: str, node: Any, findings: Findings) -> None:
    if _MODULE_AND_NAME.fullmatch(name) or _REGISTERED_NAME.fullmatch(name):
        return
    hint = ""
    module, dot, last = name.rpartition(".")
    if dot and _MODULE_AND_NAME.fullmatch(f"{module}:{last}"):
        hint = f"; did you mean '{module}:{last}'?"
    findings.add(node, "bad_callable", f"expected module:name (such as shop.etl:load), got {name[:80]!r}{hint}")


def _lint_http(http: Draft, findings: Findings) -> None:
    if "json" in http.node.entries and "body" in http.node.entries:
        findings.add(http.node.keys["body"], "conflict", "a request has 'json' or 'body', not both")
    url = http.get("url")
    if url is None or url.lstrip().startswith("${{"):
        return
    place = http.node.entries["url"]
    if not url.startswith(("http://", "https://")):
        findings.add(place, "bad_url", f"expected a URL that begins with http:// or https://, got {url[:80]!r}")
        return
    if has_expression(url):
        return
    try:
        parts = urlsplit(url)
        usable = bool(parts.hostname) and (parts.port is None or parts.port > 0) and not re.search(r"\s", url)
    except ValueError:
        usable = False
    if not usable:
        findings.add(place, "bad_url", f"{url[:80]!r} is no usable URL: it needs a host, a legal port and no spaces")


def _lint_retry(written: Draft, findings: Findings) -> None:
    retry = written.get("retry")
    if not isinstance(retry, Draft):
        return
    if "retries" in written.node.entries and "max" in retry.node.entries:
        findings.add(retry.node.keys["max"], "conflict", "'retries' already says how often; keep one of the two")
    # "id": defaults may say it for those among the tasks that have such failures.
    entries = written.node.entries
    if "only_on" not in retry or "id" not in entries:
        return
    only_on = retry.node.keys["only_on"]
    if "exit_codes" in retry["only_on"] and "run" not in entries and "container" not in entries:
        findings.add(only_on, "conflict", "only 'run' and 'container' tasks have exit codes to retry on")
    if "http_status" in retry["only_on"] and "http" not in entries:
        findings.add(only_on, "conflict", "only 'http' tasks have a status to retry on")


def _lint_pool(task: Draft, defaults: Any, pools: Mapping[str, int | None], findings: Findings) -> None:
    def written(key: str) -> Any:
        return task if key in task else defaults if key in defaults else None

    names, widths = written("pool"), written("pool_slots")
    name = names["pool"] if names is not None else DEFAULT_POOL
    if name not in pools:
        if names is not None:
            known = did_you_mean(name, pools) or (f"; known are {', '.join(sorted(pools))}" if pools else "")
            findings.add(names.node.entries["pool"], "unknown_pool", f"there is no pool {name!r}{known}")
        return
    slots = pools[name]
    width = widths["pool_slots"] if widths is not None else 1
    if slots is not None and width > slots:
        place = (widths or names or task).node
        place = descend(place, "pool_slots" if widths is not None else "pool")
        findings.add(
            place,
            "too_wide",
            f"the task takes {width} slots, but the pool {name!r} has {slots}: it would wait for ever",
        )
