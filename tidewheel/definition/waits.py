"""The action ``wait_for``: its keys, what is checked about them, and what the workflow keeps of them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import tzinfo
from typing import Any, Final, get_args

from tidewheel.core.scope import rfc3339
from tidewheel.core.workflow import (
    ApprovalWait,
    Awaited,
    HttpWait,
    KafkaWait,
    OnTimeout,
    RunEnd,
    RunWait,
    TimeWait,
    WaitFor,
)
from tidewheel.definition.mistakes import Findings
from tidewheel.definition.nodes import Node, Scalar
from tidewheel.definition.scalars import ScalarMistake, duration_ms, moment, moment_ms
from tidewheel.definition.shapes import (
    Choice,
    Condition,
    Draft,
    Duration,
    Key,
    ListOf,
    MapOf,
    Record,
    Schema,
    Text,
    wrong_type,
)
from tidewheel.definition.templates import condition_source, has_expression

#: What a task may wait for; exactly one of them.
CONDITIONS: Final = ("time", "approval", "run", "http", "kafka")
#: A wait for anything but a time ends after so long, unless its ``timeout`` says otherwise.
_TIMEOUT: Final = "7d"
#: Keys of a task that are about a worker's work, and what to say of them beside a ``wait_for``.
_NOT_OF_WAITS: Final = {
    "retries": "a wait that failed would fail again: give it a longer 'timeout'",
    "retry": "a wait that failed would fail again: give it a longer 'timeout'",
    "infra_retries": "no worker runs it",
    "timeout": "the timeout of a wait stands within 'wait_for'",
    "total_timeout": "the timeout of a wait stands within 'wait_for'",
    "queue_timeout": "it does not queue for a worker",
    "heartbeat_timeout": "no worker runs it",
    "pool": "it takes no slot of a pool",
    "pool_slots": "it takes no slot of a pool",
}
_TIME_MEANING: Final = "a duration such as 30m, a time such as 2026-01-31T06:00, or an expression that gives a time"


@dataclass(frozen=True, slots=True)
class When:
    """A duration, an instant, or an expression that gives one; kept as written."""

    def read(self, node: Node, findings: Findings) -> str | None:
        if not isinstance(node, Scalar):
            wrong_type(node, findings, _TIME_MEANING)
            return None
        if not has_expression(node.text) and not _is_duration(node.text):
            try:
                moment(node.text)
            except ScalarMistake:
                findings.add(node, "bad_time", f"expected {_TIME_MEANING}; got {node.text[:60]!r}")
                return None
        return node.text

    def schema(self) -> Schema:
        return {"type": "string"}


_ENDS: Final = {
    "timeout": Key(Duration(), f"Longest it may wait; for a time as long as it takes, for all else {_TIMEOUT}."),
    "on_timeout": Key(
        Choice(get_args(OnTimeout)), "Whether the task fails at its timeout or is skipped.", default="fail"
    ),
}
_APPROVAL: Final = Record(
    "approval",
    {
        "roles": Key(
            ListOf(Text("a role"), "a role or a list of roles", single=True, required=True),
            "Who may decide: somebody in one of these roles. Without it anybody.",
        ),
        **_ENDS,
    },
)
_RUN: Final = Record(
    "run",
    {
        "dag": Key(
            Text("the id of a DAG", "[a-z][a-z0-9_]*", length_max=200), "The DAG whose run it is.", required=True
        ),
        "run_id": Key(Text("the id of a run", no_expression=""), "The run's id; may hold ${{ }}."),
        "logical_date": Key(
            Text("a time, or an expression that gives one", no_expression=""),
            "The slot of a scheduled run: a time, or an expression that gives one.",
        ),
        "states": Key(
            ListOf(Choice(get_args(RunEnd)), "a state or a list of states", single=True, required=True),
            "How it must have ended; else the task fails.",
            default="success",
        ),
    },
    one_of=("run_id", "logical_date"),
)
_HTTP: Final = Record(
    "http",
    {
        "url": Key(Text(no_expression=""), "Where to ask; may hold ${{ }}.", required=True),
        "method": Key(Choice(("GET", "HEAD", "POST")), "The request's method.", default="GET"),
        "headers": Key(
            MapOf(
                "[A-Za-z0-9!#$%&'*+.^_`|~-]+",
                Text(no_expression="", loose=True),
                "a mapping of header names to values",
                "not a legal header name",
            ),
            "Headers; values may hold ${{ }}, also ${{ secrets.NAME }}.",
        ),
        "every": Key(Duration(1_000), "Between two requests.", default="1m"),
        "until": Key(
            Condition(), "An expression over 'response'; true ends the wait. Without it a status from 200 to 299 does."
        ),
    },
)
_KAFKA: Final = Record(
    "kafka",
    {
        "topic": Key(
            Text("the name of a Kafka topic (letters, digits, '.', '_' and '-')", "[A-Za-z0-9._-]+", length_max=249),
            "The topic.",
            required=True,
        ),
        "match": Key(Condition(), "An expression over 'event'; the record for which it is true ends the wait."),
        "window": Key(Duration(0), "Records that came so long before the task became ready count too.", default="1h"),
    },
)
WAIT_FOR: Final = Record(
    "wait_for",
    {
        "time": Key(
            When(),
            "An instant, or a duration since the task became ready, or an expression that gives an RFC 3339 time.",
        ),
        "approval": Key(_APPROVAL, "A person's yes or no, by the command line or the API."),
        "run": Key(_RUN, "The end of a run of another DAG, also one that is yet to come."),
        "http": Key(_HTTP, "An answer to a request that is made again and again."),
        "kafka": Key(_KAFKA, "A record of a Kafka topic, which may have come a while ago."),
        **_ENDS,
    },
    one_of=CONDITIONS,
)


def lint_wait(task: Draft, findings: Findings) -> None:
    """What a task that waits may not say, and what its ``wait_for`` must."""
    for key, why in _NOT_OF_WAITS.items():
        if key in task.node.entries:
            findings.add(task.node.keys[key], "conflict", f"{key!r} does not go with 'wait_for': {why}")
    wait = task.get("wait_for")
    if not isinstance(wait, Draft):
        return
    present = [key for key in wait.node.entries if key in CONDITIONS]
    if not present:
        findings.add(wait.node, "missing_key", f"wait_for needs one of {', '.join(CONDITIONS)}")
    for extra in present[1:]:
        findings.add(
            wait.node.keys[extra], "conflict", f"a task waits for one thing: {present[0]!r} is there, remove {extra!r}"
        )
    if "time" in wait and "on_timeout" in wait.node.entries and "timeout" not in wait.node.entries:
        findings.add(wait.node.keys["on_timeout"], "conflict", "'on_timeout' without a 'timeout' never comes to pass")
    if isinstance(run := wait.get("run"), Draft):
        _lint_run(run, findings)
    within = wait.get("approval", {})
    for key in _ENDS:
        if key in within and key in wait:
            findings.add(wait.node.keys[key], "conflict", f"{key!r} stands within 'approval' already; keep one of them")


def _lint_run(run: Draft, findings: Findings) -> None:
    named = [key for key in ("run_id", "logical_date") if key in run.node.entries]
    if not named:
        findings.add(run.node, "missing_key", "a run is named by 'run_id' or by 'logical_date'")
    if len(named) > 1:
        findings.add(run.node.keys[named[1]], "conflict", "a run is named by 'run_id' or 'logical_date', not both")
    date = run.get("logical_date")
    if date is not None and not has_expression(date):
        try:
            moment(date)
        except ScalarMistake as mistake:
            findings.add(run.node.entries["logical_date"], "bad_date", str(mistake))


def assemble_wait(wait: Draft, zone: tzinfo) -> WaitFor:
    """The action, once it was found to be sound. Times without an offset are on the clock of ``zone``."""
    ends = {**wait.get("approval", {}), **wait}
    more: dict[str, Any] = {"on_timeout": ends["on_timeout"]} if "on_timeout" in ends else {}
    if "time" in wait:
        return WaitFor(what=_time(wait["time"], zone), timeout_ms=wait.get("timeout"), **more)
    what: Awaited
    if "approval" in wait:
        what = ApprovalWait(roles=tuple(wait["approval"].get("roles", ())))
    elif "http" in wait:
        what = _http(wait["http"])
    elif "kafka" in wait:
        what = _kafka(wait["kafka"])
    else:
        run = wait["run"]
        what = RunWait(**{**run, "states": tuple(run.get("states", ("success",)))})
    return WaitFor(what=what, timeout_ms=ends.get("timeout", duration_ms(_TIMEOUT)), **more)


def _http(written: Draft) -> HttpWait:
    fields: dict[str, Any] = {name: written[name] for name in ("url", "method") if name in written}
    if "every" in written:
        fields["every_ms"] = written["every"]
    if "until" in written:
        fields["until"] = condition_source(written["until"])
    return HttpWait(headers=dict(written.get("headers", {})), **fields)


def _kafka(written: Draft) -> KafkaWait:
    fields: dict[str, Any] = {"window_ms": written["window"]} if "window" in written else {}
    if "match" in written:
        fields["match"] = condition_source(written["match"])
    return KafkaWait(topic=written["topic"], **fields)


def _time(written: str, zone: tzinfo) -> TimeWait:
    if has_expression(written):
        return TimeWait(at=written)
    if _is_duration(written):
        return TimeWait(after_ms=duration_ms(written))
    return TimeWait(at=rfc3339(moment_ms(written, zone)))


def _is_duration(text: str) -> bool:
    try:
        duration_ms(text)
    except ScalarMistake:
        return False
    return True
