"""A workflow built in Python is the workflow that the equal YAML file describes: the same version, to the last bit."""

from __future__ import annotations

import json
from datetime import date, timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tidewheel.authoring import (
    Task,
    cel,
    celery,
    container,
    dag,
    event,
    http,
    inputs,
    kubernetes,
    run,
    secrets,
    shell,
    switch,
    task,
    trigger,
    workflow,
)
from tidewheel.authoring.nodes import duration
from tidewheel.core.workflow import TriggerRule
from tidewheel.definition.load import Loaded, load_text


@task
def anything(**values: Any) -> Any:
    return values


@task(retries=2, pool="warehouse")
def count(path: str, limit: int = 3, context: object = None) -> int:
    return limit


#: Written as JSON, which YAML reads alike but for pairs of surrogates.
texts = st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]), max_size=12).filter(
    lambda text: "${{" not in text
)
scalars = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
)
values = st.recursive(
    scalars | texts, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=8
)
durations = st.timedeltas(timedelta(milliseconds=1), timedelta(days=30)).map(
    lambda length: timedelta(milliseconds=max(length // timedelta(milliseconds=1), 1))
)
names = st.sampled_from(["A", "b_1", "_c", "Day"])
env = st.dictionaries(names, texts | st.booleans() | st.integers(-9, 9), max_size=2)
task_keys = st.fixed_dictionaries(
    {},
    optional={
        "description": texts,
        "trigger_rule": st.sampled_from(TriggerRule.__args__),  # type: ignore[attr-defined]
        "env": env,
        "retries": st.integers(0, 9),
        "infra_retries": st.integers(0, 9),
        "timeout": durations,
        "queue_timeout": durations,
        "pool": st.sampled_from(["default", "gpu"]),
        "pool_slots": st.integers(1, 4),
    },
)
dag_keys = st.fixed_dictionaries(
    {},
    optional={
        "owner": texts,
        "tags": st.lists(texts, max_size=2),
        "priority": st.integers(-5, 5),
        "keep_runs": st.integers(0, 1_000),
        "env": env,
        "defaults": st.fixed_dictionaries({"timeout": durations}, optional={"retries": st.integers(0, 3)}),
        "concurrency": st.fixed_dictionaries({"max_runs": st.integers(1, 3)}),
        "schedule": st.just("0 6 * * *")
        | st.fixed_dictionaries(
            {"cron": st.just(["0 6 * * *", "30 2 * * 1"])},
            optional={
                "start": st.dates(date(2020, 1, 1), date(2021, 1, 1)),
                "end": st.dates(date(2030, 1, 1), date(2031, 1, 1)),
                "timezone": st.sampled_from(["UTC", "Europe/Zurich"]),
                "overlap": st.sampled_from(["queue", "allow"]),
                "catchup": st.sampled_from(["none", "latest", "all"]),
                "dst_gap": st.sampled_from(["run_after", "skip"]),
                "dst_repeat": st.sampled_from(["once", "twice"]),
                "jitter": durations,
            },
        ),
    },
)
#: How a task comes to need an earlier one.
WAYS = ("not", "needs", "arrow", "argument", "text", "condition", "items", "arrow and argument")
plans = st.lists(
    st.tuples(
        st.sampled_from(["run", "python", "http", "container", "kubernetes", "celery"]),
        task_keys,
        st.lists(st.sampled_from(WAYS), min_size=7, max_size=7),
        st.dictionaries(st.sampled_from(["x", "y"]), values, max_size=2),
    ),
    min_size=1,
    max_size=7,
)


def plain(value: Any) -> Any:
    """As an author writes it in YAML."""
    match value:
        case timedelta():
            return duration(value)
        case date():
            return value.isoformat()
        case dict():
            return {key: plain(one) for key, one in value.items()}
        case list():
            return [plain(one) for one in value]
    return value


def upstream(needs: dict[str, list[str]], of: list[str]) -> set[str]:
    return set(of) | {above for name in of for above in upstream(needs, needs[name])}


def build(name: str, kind: str, keys: dict[str, Any], ways: dict[Task, str], extra: dict[str, Any]) -> tuple[Task, Any]:
    """The task by the means of Python, and as YAML without its needs."""
    written: dict[str, Any] = {"id": name, **plain(keys)}
    read: dict[str, Any] = {}
    shown: dict[str, Any] = {}
    for one, way in ways.items():
        if way in ("argument", "arrow and argument"):
            read[one.id], shown[one.id] = one.output.rows[0], f"${{{{ tasks.{one.id}.output.rows[0] }}}}"
        elif way == "text":
            read[one.id], shown[one.id] = f"is {one}", f"is ${{{{ tasks.{one.id}.output }}}}"
    conditions = [one for one, way in ways.items() if way == "condition"]
    if conditions:
        keys = {**keys, "if_": (conditions[0].state == "success") & ~(run.kind == "manual")}
        written["if"] = f'tasks.{conditions[0].id}.state == "success" && !(run.kind == "manual")'
    items = [one for one, way in ways.items() if way == "items"]
    if items:
        keys = {**keys, "for_each": items[0].output.rows, "as_": "row", "fail_fast": True}
        written |= {"for_each": f"${{{{ tasks.{items[0].id}.output.rows }}}}", "as": "row", "fail_fast": True}
        read["row"], shown["row"] = cel.row.path, "${{ row.path }}"
    needs = [one for one, way in ways.items() if way == "needs"]
    if needs:
        keys = {**keys, "needs": needs}
    if kind == "python":
        return anything.override(id=name, **keys)(**read, **extra), {
            **written, "python": f"{__name__}:anything", **({"with": {**shown, **extra}} if shown or extra else {}),
        }  # fmt: skip
    if kind == "http":
        return http(name, "https://example.com", json={"read": read, "extra": extra}, expect=[200], **keys), {
            **written, "http": {"url": "https://example.com", "json": {"read": shown, "extra": extra}, "expect": [200]},
        }  # fmt: skip
    if kind == "container":
        words, said = [*read.values(), *extra], [*shown.values(), *extra]
        return container(name, "some/image", "go", *words, options={"cpus": 1.5, "pull": "never"}, **keys), {
            **written, "container": {"image": "some/image", "command": ["go", *said], "cpus": 1.5, "pull": "never"},
        }  # fmt: skip
    if kind == "kubernetes":
        job = {"spec": {"template": {"spec": {"read": read}}}}
        shown_job = {"spec": {"template": {"spec": {"read": shown}}}}
        return kubernetes(name, "some/image", "go", options={"namespace": "batch", "job": job}, **keys), {
            **written, "kubernetes": {"image": "some/image", "command": ["go"], "namespace": "batch", "job": shown_job},
        }  # fmt: skip
    if kind == "celery":
        return celery(name, "jobs:app", "jobs.add", 1, kwargs={"read": read, "extra": extra}, queue="slow", **keys), {
            **written, "celery": {
                "app": "jobs:app", "task": "jobs.add", "args": [1], "kwargs": {"read": shown, "extra": extra},
                "queue": "slow",
            },
        }  # fmt: skip
    keys = {**keys, "env": {**keys.get("env", {}), **read}}
    written["env"] = {**written.get("env", {}), **shown}
    return shell(name, "echo\nexit", **keys), {**written, "run": "echo\nexit"}


def same(built: Loaded, document: Any) -> None:
    """The YAML file, the DAG and the text that the DAG is deployed as are one workflow."""
    written = load_text(json.dumps(document), "w.yaml")
    assert written.workflow is not None, written.mistakes
    assert built.workflow == written.workflow, built.mistakes
    assert built.version == written.version
    assert load_text(built.source, "d.yaml").version == written.version


@settings(max_examples=150, deadline=None)
@given(dag_keys, plans)
def test_whatever_is_built_has_the_version_of_its_yaml(
    keys: dict[str, Any], plan: list[tuple[str, dict[str, Any], list[str], dict[str, Any]]]
) -> None:
    document: dict[str, Any] = {"id": "some", **plain(keys), "tasks": []}
    needs: dict[str, list[str]] = {}
    with dag("some", **keys) as built:
        tasks: list[Task] = []
        for index, (kind, own, chosen, extra) in enumerate(plan):
            ways = dict(zip(tasks, chosen, strict=False))
            # One condition and one list of items a task.
            seen = {way: [one for one in ways if ways[one] == way] for way in ("condition", "items")}
            ways = {one: way for one, way in ways.items() if one not in seen.get(way, [])[1:]}
            made, written = build(f"t{index}", kind, own, ways, extra)
            for one, way in ways.items():
                if way.startswith("arrow"):
                    one >> made
            said = [one.id for one, way in ways.items() if way == "needs"]
            said += [one.id for one, way in ways.items() if way.startswith("arrow")]
            above = upstream(needs, said)
            reads = [one.id for one, way in ways.items() if way not in ("not", "needs", "arrow")]
            needs[made.id] = said + [one for one in reads if one not in above]
            document["tasks"].append({**written, "needs": needs[made.id]})
            tasks.append(made)
    same(built.compile(), document)


def test_the_whole_language() -> None:
    with dag(
        "daily",
        schedule={"every": timedelta(minutes=15), "start": date(2026, 1, 1)},
        inputs={"day": {"type": "date", "default": "2026-01-01"}, "least": {"type": "number", "default": 0.8}},
    ) as built:
        rows = count(inputs.day, limit=9)
        count.override(id="again", retries=0, needs=rows)("x")
        load = shell(
            "load",
            "load",
            env={"ROWS": rows, "PASSWORD": secrets.warehouse},
            if_=(rows.output.ratio >= inputs.least) | (rows.output.size() == 0),
            retry={"max": 3, "delay": "10s", "only_on": {"exit_codes": [75]}},
        )
        [rows, load] >> http("tell", f"https://example.com/{run.id}", method="PUT", body="@ done", headers={"A": "b"})
    same(
        built.compile(),
        {
            "id": "daily",
            "schedule": {"every": "15m", "start": "2026-01-01"},
            "inputs": {"day": {"type": "date", "default": "2026-01-01"}, "least": {"type": "number", "default": 0.8}},
            "tasks": [
                {
                    "id": "count", "python": f"{__name__}:count", "retries": 2, "pool": "warehouse",
                    "with": {"path": "${{ inputs.day }}", "limit": 9},
                },
                {
                    "id": "again", "python": f"{__name__}:count", "retries": 0, "pool": "warehouse",
                    "with": {"path": "x"}, "needs": "count",
                },
                {
                    "id": "load", "run": "load", "needs": ["count"],
                    "if": "tasks.count.output.ratio >= inputs.least || tasks.count.output.size() == 0",
                    "env": {"ROWS": "${{ tasks.count.output }}", "PASSWORD": "${{ secrets.warehouse }}"},
                    "retry": {"max": 3, "delay": "10s", "only_on": {"exit_codes": [75]}},
                },
                {
                    "id": "tell", "needs": ["count", "load"],
                    "http": {
                        "method": "PUT", "url": "https://example.com/${{ run.id }}", "body": "@ done",
                        "headers": {"A": "b"},
                    },
                },
            ],
        },
    )  # fmt: skip


def test_a_switch_is_needed_by_what_it_names_and_needs_what_it_reads() -> None:
    with dag("some") as built:
        rows = count("x")
        few, many = shell("few", "few"), shell("many", "many")
        last = shell("last", "last", needs="route")
        switch(
            "route",
            (rows.output < 5, few),
            ("tasks.count.output < 50", [many, "last"]),
            otherwise=[],
            if_=rows.output > 0,
        )
        few >> last
    same(
        built.compile(),
        {
            "id": "some",
            "tasks": [
                {
                    "id": "count",
                    "python": f"{__name__}:count",
                    "retries": 2,
                    "pool": "warehouse",
                    "with": {"path": "x"},
                },
                {"id": "few", "run": "few", "needs": ["route"]},
                {"id": "many", "run": "many", "needs": ["route"]},
                {"id": "last", "run": "last", "needs": ["route", "few"]},
                {
                    "id": "route",
                    "needs": ["count"],
                    "if": "tasks.count.output > 0",
                    "switch": [
                        {"if": "tasks.count.output < 5", "then": ["few"]},
                        {"if": "tasks.count.output < 50", "then": ["many", "last"]},
                        {"else": []},
                    ],
                },
            ],
        },
    )


def test_tasks_that_ask_for_runs() -> None:
    with dag("report") as other:
        shell("t", "t")
    with dag("some") as built:
        rows = count("x")
        report = workflow("report", other, inputs={"rows": rows.output}, timeout=timedelta(minutes=5), retries=1)
        trigger("close", "close_month", inputs={"address": report.output.outputs.t}, for_each=["a", "b"])
    same(
        built.compile(),
        {
            "id": "some",
            "tasks": [
                {
                    "id": "count",
                    "python": f"{__name__}:count",
                    "retries": 2,
                    "pool": "warehouse",
                    "with": {"path": "x"},
                },
                {
                    "id": "report",
                    "needs": ["count"],
                    "workflow": "report",
                    "timeout": "5m",
                    "retries": 1,
                    "inputs": {"rows": "${{ tasks.count.output }}"},
                },
                {
                    "id": "close",
                    "needs": ["report"],
                    "trigger": "close_month",
                    "for_each": ["a", "b"],
                    "inputs": {"address": "${{ tasks.report.output.outputs.t }}"},
                },
            ],
        },
    )


def test_triggers_are_written_with_expressions_over_event() -> None:
    with dag(
        "some",
        inputs={"day": {"type": "date"}},
        triggers=[
            {
                "id": "late_file",
                "kafka": {
                    "topic": "landing.files",
                    "filter": (event.value.kind == "orders") & (event.partition < 3),
                    "dedupe_key": event.value.file_id,
                    "inputs": {"day": event.value.day},
                },
            }
        ],
    ) as built:
        shell("load", "./load")
    kafka = {
        "topic": "landing.files",
        "filter": '${{ event.value.kind == "orders" && event.partition < 3 }}',
        "dedupe_key": "${{ event.value.file_id }}",
        "inputs": {"day": "${{ event.value.day }}"},
    }
    same(
        built.compile(),
        {
            "id": "some",
            "inputs": {"day": {"type": "date"}},
            "triggers": [{"id": "late_file", "kafka": kafka}],
            "tasks": [{"id": "load", "run": "./load"}],
        },
    )
