"""A draft without mistakes becomes a ``core.workflow.Workflow``: short forms written out, defaults merged in."""

from __future__ import annotations

from datetime import tzinfo
from typing import Any

from tidewheel.core.inputs import typed
from tidewheel.core.workflow import (
    Action,
    Branch,
    Celery,
    Concurrency,
    Container,
    Deadline,
    Http,
    Input,
    Kubernetes,
    Notify,
    Python,
    Records,
    Retry,
    Run,
    Schedule,
    Switch,
    Task,
    Trigger,
    Workflow,
)
from tidewheel.core.zones import zone_of
from tidewheel.definition.children import asks, assemble_child
from tidewheel.definition.scalars import moment_ms
from tidewheel.definition.shapes import Draft
from tidewheel.definition.templates import condition_source, has_expression
from tidewheel.definition.waits import assemble_wait


def assemble(draft: Draft) -> Workflow:
    """The workflow that the file describes. The draft has passed ``lint``."""
    defaults = draft.get("defaults", {})
    plain = ("description", "owner", "priority", "keep_runs")
    optional: dict[str, Any] = {name: draft[name] for name in plain if name in draft}
    zone = _zone(draft.get("schedule"))
    return Workflow(
        id=draft["id"],
        tasks=tuple(_task(task, defaults, zone) for task in draft["tasks"]),
        tags=tuple(draft.get("tags", ())),
        schedule=_schedule(draft["schedule"]) if "schedule" in draft else None,
        triggers=tuple(_trigger(trigger) for trigger in draft.get("triggers", ())),
        inputs={name: _input(declared) for name, declared in draft.get("inputs", {}).items()},
        env=dict(draft.get("env", {})),
        concurrency=Concurrency(**draft.get("concurrency", {})),
        deadlines=_deadlines(draft.get("deadlines", [])),
        notify=tuple(
            Notify(events=tuple(dict.fromkeys(entry["events"])), to=tuple(dict.fromkeys(entry["to"])))
            for entry in draft.get("notify", ())
        ),
        **optional,
    )


def _zone(schedule: Any) -> tzinfo:
    """The zone of the schedule, whose clock counts for what else the workflow says of times."""
    return zone_of(schedule.get("timezone", "UTC") if isinstance(schedule, Draft) else "UTC")


def _schedule(written: Any) -> Schedule:
    if isinstance(written, str):
        return Schedule(cron=(written,))
    names = {
        "every": "every_ms",
        "catchup_window": "catchup_window_ms",
        "jitter": "jitter_ms",
        "misfire_grace": "misfire_grace_ms",
    }
    fields = {names.get(key, key): value for key, value in written.items()}
    zone = zone_of(fields.get("timezone", "UTC"))
    if "start" in fields:
        fields["start_ms"] = moment_ms(fields.pop("start"), zone)
    if "end" in fields:
        fields["end_ms"] = moment_ms(fields.pop("end"), zone, last=True)
    return Schedule(**{**fields, "cron": tuple(fields.get("cron", ()))})


def _deadlines(written: list[Draft]) -> tuple[Deadline, ...]:
    """A warning is counted like the deadline that it comes before."""
    warned = {deadline.get("from", "scheduled"): deadline["within"] for deadline in written if deadline["within"] > 0}
    found = []
    for deadline in written:
        within = deadline["within"]
        begins = deadline.get("from", "scheduled")
        found.append(
            Deadline(
                within_ms=within if within > 0 else warned[begins] + within,
                from_=begins,
                action=deadline.get("action", "alert"),
                notify=deadline.get("notify", ""),
                before_ms=max(0, -within),
            )
        )
    return tuple(found)


def _trigger(written: Draft) -> Trigger:
    kafka = written["kafka"]
    return Trigger(
        id=written["id"],
        kafka=Records(
            topic=kafka["topic"],
            filter=condition_source(kafka["filter"]) if "filter" in kafka else None,
            dedupe_key=kafka.get("dedupe_key"),
            inputs=dict(kafka.get("inputs", {})),
        ),
    )


def _input(written: Draft) -> Input:
    kind = written["type"]
    default = written.get("default")
    return Input(
        type=kind,
        default=default if default is None or is_computed(default) else typed(kind, default),
        required="default" not in written,
        description=written.get("description", ""),
        enum=tuple(typed(kind, allowed) for allowed in written.get("enum", ())),
    )


def is_computed(value: Any) -> bool:
    """Whether an expression stands anywhere in a JSON value."""
    match value:
        case str():
            return has_expression(value)
        case dict():
            return any(is_computed(item) for item in value.values())
        case list():
            return any(is_computed(item) for item in value)
    return False


def _branch(written: Draft) -> Branch:
    if "else" in written:
        return Branch(then=tuple(written["else"]))
    return Branch(if_=condition_source(written["if"]), then=tuple(written["then"]))


def _task(written: Draft, defaults: dict[str, Any], zone: tzinfo) -> Task:
    mapping = {
        name: written[name] for name in ("for_each", "max_parallel", "max_items", "fail_fast") if name in written
    }
    if "as" in written:
        mapping["as_"] = written["as"]
    return Task(
        id=written["id"],
        needs=tuple(written.get("needs", ())),
        if_=condition_source(written["if"]) if "if" in written else None,
        env=dict(written.get("env", {})),
        **{name: written[name] for name in ("description", "trigger_rule") if name in written},
        **mapping,
        **_work(written, defaults, zone),
    )


def _work(written: Draft, defaults: dict[str, Any], zone: tzinfo) -> dict[str, Any]:
    """What the task does, with what goes with that. Defaults are for what workers run."""
    if asks(written):
        return {**assemble_child(written), "retry": _retry(written, {})}
    for_workers = "wait_for" not in written and "switch" not in written
    return {"action": _action(written, zone), **(_of_workers(written, defaults) if for_workers else {})}


def _of_workers(written: Draft, defaults: dict[str, Any]) -> dict[str, Any]:
    """What only a task that a worker runs has."""
    fields: dict[str, Any] = {"retry": _retry(written, defaults)}
    for name in ("infra_retries", "pool", "pool_slots"):
        for source in (written, defaults):
            if name in source:
                fields[name] = source[name]
                break
    for name in ("timeout", "total_timeout", "queue_timeout", "heartbeat_timeout"):
        fields[f"{name}_ms"] = written.get(name, defaults.get(name))
    return fields


def _retry(written: Draft, defaults: dict[str, Any]) -> Retry:
    merged: dict[str, Any] = {}
    for source in (defaults, written):
        merged.update(source.get("retry", {}))
        if "retries" in source:
            merged["max"] = source["retries"]
    only_on = merged.pop("only_on", {})
    names = {"delay": "delay_ms", "max_delay": "max_delay_ms"}
    fields = {names.get(key, key): value for key, value in merged.items()}
    # Exit codes come from commands only, statuses from HTTP tasks; as a default they say nothing of other tasks.
    codes = only_on.get("exit_codes", ()) if "run" in written or "container" in written else ()
    statuses = only_on.get("http_status", ()) if "http" in written else ()
    return Retry(
        **fields,
        only_on_exit_codes=tuple(codes),
        only_on_http_status=tuple(statuses),
        only_on_kinds=tuple(only_on.get("kinds", ())),
    )


def _action(written: Draft, zone: tzinfo) -> Action:
    if "run" in written:
        return Run(command=written["run"])
    if "python" in written:
        return Python(callable=written["python"], with_=dict(written.get("with", {})))
    if "celery" in written:
        celery = written["celery"]
        return Celery(**{**celery, "args": tuple(celery.get("args", ())), "kwargs": dict(celery.get("kwargs", {}))})
    if "kubernetes" in written:
        job = written["kubernetes"]
        lists = {name: tuple(job.get(name, ())) for name in ("command", "entrypoint")}
        return Kubernetes(**{**job, **lists, "job": dict(job.get("job", {}))})
    if "switch" in written:
        return Switch(branches=tuple(_branch(branch) for branch in written["switch"]))
    if "container" in written:
        return _container(written["container"])
    if "wait_for" in written:
        return assemble_wait(written["wait_for"], zone)
    http = written["http"]
    return Http(
        **{
            **http,
            "headers": dict(http.get("headers", {})),
            "expect": tuple(http.get("expect", ())),
        }
    )


def _container(written: Draft) -> Container:
    lists = {name: tuple(written.get(name, ())) for name in ("command", "entrypoint", "volumes")}
    return Container(**{**written, **lists})
