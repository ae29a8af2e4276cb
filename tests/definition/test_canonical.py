"""The canonical form: equal workflows, equal texts; the version follows what the workflow says and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tidewheel.core.workflow import Concurrency, Http, Python, Retry, Run, Schedule, Task, Workflow
from tidewheel.definition.canonical import CanonicalError, canonical_json, parse_canonical, version_of
from tidewheel.definition.load import load_text

WORDS = st.from_regex(r"[a-z][a-z0-9_]{0,5}", fullmatch=True).filter(
    lambda word: word not in ("in", "true", "false", "null")
)
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=12).filter(
    lambda text: "${{" not in text
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)


def durations(minimum: int = 1) -> st.SearchStrategy[str]:
    return st.integers(minimum, 10_000).map(lambda number: f"{number}s")


def optional(**keys: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=keys)


SHARED = {
    "infra_retries": st.integers(0, 9),
    "timeout": durations(),
    "pool": WORDS,
    "pool_slots": st.integers(1, 9),
    "retry": optional(
        max=st.integers(0, 9), delay=durations(0), backoff=st.sampled_from(["fixed", "linear"]), jitter=st.booleans()
    ),
}
ENV = st.dictionaries(st.from_regex(r"[A-Z_]{1,4}", fullmatch=True), TEXTS, max_size=3)
ACTIONS = st.one_of(
    st.fixed_dictionaries({"run": TEXTS.filter(bool)}),
    st.fixed_dictionaries(
        {"python": st.just("shop.etl:load")}, optional={"with": st.dictionaries(TEXTS, VALUES, max_size=3)}
    ),
    st.fixed_dictionaries(
        {
            "http": st.fixed_dictionaries(
                {"url": st.just("https://a.b/c")}, optional={"json": VALUES, "method": st.just("PUT")}
            )
        }
    ),
)


@st.composite
def files(draw: st.DrawFn) -> dict[str, Any]:
    """The content of a legal workflow file."""
    ids = draw(st.lists(WORDS, min_size=1, max_size=5, unique=True))
    tasks = [
        {
            "id": name,
            **draw(ACTIONS),
            **draw(
                optional(description=TEXTS, env=ENV, trigger_rule=st.sampled_from(["all_done", "always"]), **SHARED)
            ),
            **draw(optional(needs=st.lists(st.sampled_from(ids[:index]), unique=True) if index else st.just([]))),
        }
        for index, name in enumerate(ids)
    ]
    return {
        "id": draw(WORDS),
        "tasks": tasks,
        **draw(
            optional(
                description=TEXTS,
                owner=TEXTS,
                tags=st.lists(TEXTS, max_size=3),
                priority=st.integers(-9, 9),
                keep_runs=st.integers(0, 1_000),
                env=ENV,
                defaults=optional(**SHARED),
                concurrency=optional(
                    max_runs=st.integers(1, 20),
                    max_tasks=st.integers(1, 9),
                    max_pool_share=st.sampled_from(["1%", "100%"]),
                ),
                schedule=st.sampled_from(["0 6 * * *", {"every": "15m"}, {"cron": ["0 6 * * 1"], "catchup": "all"}]),
                inputs=st.dictionaries(
                    WORDS, st.sampled_from([{"type": "string"}, {"type": "array", "default": [1]}]), max_size=2
                ),
            )
        ),
    }


def shuffled(value: Any, draw: Any) -> Any:
    if isinstance(value, dict):
        return {key: shuffled(value[key], draw) for key in draw(st.permutations(list(value)))}
    if isinstance(value, list):
        return [shuffled(item, draw) for item in value]
    return value


def dumped(content: dict[str, Any], **style: Any) -> str:
    return yaml.safe_dump(content, sort_keys=False, **style)


@settings(max_examples=120, deadline=None)
@given(files(), st.data())
def test_neither_order_nor_style_nor_comments_make_a_version(content: dict[str, Any], data: st.DataObject) -> None:
    first = load_text(json.dumps(content, ensure_ascii=False), "f")
    assert first.workflow is not None, first.mistakes
    other = "# a comment\n---\n" + dumped(
        shuffled(content, data.draw),
        allow_unicode=data.draw(st.booleans()),
        default_flow_style=data.draw(st.sampled_from([True, False, None])),
        width=data.draw(st.sampled_from([20, 80, 1_000])),
    )
    second = load_text(other, "g")
    assert second.workflow == first.workflow, other
    assert second.version == first.version
    assert parse_canonical(canonical_json(first.workflow)) == first.workflow
    assert canonical_json(parse_canonical(canonical_json(first.workflow))) == canonical_json(first.workflow)


def test_the_form_is_sorted_and_without_defaults() -> None:
    task = Task(
        id="t",
        action=Python(callable="m:f", with_={"b": 1, "a": {"d": None, "c": 2.0}}),
        retry=Retry(max=0),
        needs=(),
        env={"B": "2", "A": "1"},
        if_="true",
    )
    workflow = Workflow(id="a", tasks=(task,), concurrency=Concurrency(max_runs=16), schedule=Schedule(every_ms=1))
    assert canonical_json(workflow) == (
        '{"id":"a","schedule":{"every_ms":1},"tasks":[{"action":{"callable":"m:f","type":"python",'
        '"with":{"a":{"c":2.0,"d":null},"b":1}},"env":{"A":"1","B":"2"},"id":"t","if":"true"}]}'
    )


def test_the_version_is_fixed_for_ever() -> None:
    workflow = Workflow(
        id="hello", tasks=(Task(id="hello", action=Run(command="echo hi")),), schedule=Schedule(cron=("0 6 * * *",))
    )
    assert version_of(workflow) == "6124f839719b89db"


@pytest.mark.parametrize(
    "other",
    [
        Task(id="t", action=Run(command="y")),
        Task(id="u", action=Run(command="x")),
        Task(id="t", action=Run(command="x"), retry=Retry(max=1)),
        Task(id="t", action=Run(command="x"), env={"A": ""}),
        Task(id="t", action=Http(url="https://a.b")),
    ],
)
def test_what_the_workflow_says_makes_a_version(other: Task) -> None:
    one = Workflow(id="a", tasks=(Task(id="t", action=Run(command="x")),))
    assert version_of(one) != version_of(Workflow(id="a", tasks=(other,)))


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"id": "a"}', '{"id": "a", "tasks": [], "later": 1}', b"\xff", "[" * 100_000]
)
def test_what_is_no_canonical_form_is_an_error_of_ours(text: str | bytes) -> None:
    with pytest.raises(CanonicalError):
        parse_canonical(text)


def test_a_definition_too_large_to_travel_is_refused() -> None:
    tasks = "".join(f"  - {{<<: *big, id: t{number}}}\n" for number in range(200))
    loaded = load_text(f"id: a\nx-big: &big {{run: {'x' * 10_000}}}\ntasks:\n{tasks}", "f")
    assert [mistake.code for mistake in loaded.mistakes] == ["too_large"]


def test_a_default_that_is_written_out_makes_no_version() -> None:
    short = "id: a\nschedule: '0 6 * * *'\ntasks: [{id: t, http: {url: 'https://a.b'}}]\n"
    full = """
id: a
description: ""
schedule: {cron: "0 6 * * *", timezone: UTC, catchup: none, overlap: queue, misfire_grace: 1h, jitter: 0s}
concurrency: {max_runs: 16}
priority: 0
tasks:
  - id: t
    trigger_rule: all_success
    retry: {max: 0, delay: 10s, backoff: exponential, max_delay: 1d, jitter: true}
    infra_retries: 3
    pool: default
    pool_slots: 1
    http: {url: "https://a.b", method: GET}
"""
    assert load_text(full, "f").version == load_text(short, "f").version
