"""Every key: what it takes, and what is said when something else stands there."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tidewheel.core.workflow import Concurrency, Http, Input, Python, Retry, Run, Schedule
from tidewheel.definition.language import WORKFLOW
from tidewheel.definition.load import Loaded, load_text
from tidewheel.definition.mistakes import Findings
from tidewheel.definition.nodes import Mapping, Scalar
from tidewheel.definition.shapes import Record

Expect = Callable[..., Loaded]
Message = Callable[..., str]

HEAD = "id: a\n"
TASKS = "tasks: [{id: t, run: x}]\n"


def task(keys: str) -> str:
    return f"id: a\ntasks:\n  - {{id: t, {keys}}}\n"


def test_five_lines_are_enough(expect: Expect) -> None:
    loaded = expect('id: hello\nschedule: "0 6 * * *"\ntasks: [{id: hello, run: "echo hi"}]\n')
    assert loaded.workflow is not None
    assert loaded.workflow.schedule == Schedule(cron=("0 6 * * *",))
    assert loaded.workflow.tasks[0].action == Run(command="echo hi")


FULL = (Path(__file__).parent / "full.yaml").read_text(encoding="utf-8")


def test_every_key_of_the_language_arrives(expect: Expect) -> None:
    workflow = expect(FULL).workflow
    assert workflow is not None
    assert (workflow.id, workflow.owner, workflow.tags, workflow.priority) == (
        "daily_orders",
        "data-platform",
        ("orders", "tier1"),
        50,
    )
    assert workflow.description == "Load yesterday's orders."
    assert workflow.schedule == Schedule(
        cron=("0 6 * * *", "0 18 * * 1-5"),
        timezone="America/New_York",
        catchup="latest",
        catchup_window_ms=172_800_000,
        jitter_ms=300_000,
        misfire_grace_ms=1_800_000,
    )
    assert workflow.inputs == {
        "day": Input(type="date", default="${{ run.interval.start }}", required=False, description="The day."),
        "min_ratio": Input(type="number", default=1.0, required=False, enum=(1.0, 0.5)),
        "region": Input(type="string"),
        "note": Input(type="string", default=None, required=False),
    }
    assert workflow.concurrency == Concurrency(max_runs=1, max_tasks=16, max_pool_share=30)
    assert workflow.keep_runs == 100
    assert workflow.env == {"STAGE": "prod"}
    extract, load, report = workflow.tasks
    assert extract.action == Python(callable="shop.etl:extract", with_={"day": "${{ inputs.day }}", "limit": 3})
    assert (extract.retry, extract.infra_retries, extract.timeout_ms, extract.pool, extract.description) == (
        Retry(max=2, backoff="linear"),
        5,
        1_800_000,
        "warehouse",
        "Fetch it.",
    )
    assert load.needs == ("extract",)
    assert load.retry == Retry(
        max=2,
        delay_ms=90_000,
        backoff="linear",
        max_delay_ms=600_000,
        jitter=False,
        only_on_exit_codes=(75, 137),
        only_on_kinds=("timeout",),
    )
    assert (load.infra_retries, load.timeout_ms, load.pool, load.pool_slots) == (10, 3_600_000, "small", 2)
    assert (report.trigger_rule, report.if_) == ("all_done", 'run.kind != "manual" && tasks.load.state == "success"')
    assert report.retry.max == 0
    assert report.action == Http(
        method="POST",
        url="https://example.com/report",
        headers={"Authorization": "Bearer ${{ secrets.api }}"},
        json={"run": "${{ run.id }}"},
        expect=(200, 202),
    )


@pytest.mark.parametrize("rule", ["all_success", "all_failed", "all_done", "one_success", "one_failed", "none_failed",
                                  "none_failed_min_one_success", "none_skipped", "always"])  # fmt: skip
def test_all_nine_trigger_rules(expect: Expect, rule: str) -> None:
    workflow = expect(task(f"run: x, trigger_rule: {rule}")).workflow
    assert workflow is not None
    assert workflow.tasks[0].trigger_rule == rule


def test_dates_stand_bare_wherever_a_date_can(expect: Expect) -> None:
    """Field report C100, first half: ``2026-01-01`` is a date at each level, not a timestamp object."""
    workflow = expect(
        "id: a\nx-date: 2026-01-01\nschedule: {cron: '0 6 * * *', start: 2026-01-01, end: 2026-02-01}\n"
        "inputs:\n  day: {type: date, default: 2026-01-01, enum: [2026-01-01, 2026-01-02]}\nenv: {DAY: 2026-01-01}\n"
        "tasks: [{id: t, python: 'm:f', with: {day: 2026-01-01, days: [2026-01-01]}, env: {DAY: 2026-01-01}}]\n"
    ).workflow
    assert workflow is not None and workflow.schedule is not None
    first, after = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 2, 2, tzinfo=UTC)
    bounds = (first.timestamp() * 1000, after.timestamp() * 1000 - 1)
    assert (workflow.schedule.start_ms, workflow.schedule.end_ms) == bounds, "both days whole"
    assert workflow.inputs["day"].default == "2026-01-01"
    assert workflow.env == workflow.tasks[0].env == {"DAY": "2026-01-01"}
    assert workflow.tasks[0].action == Python(callable="m:f", with_={"day": "2026-01-01", "days": ["2026-01-01"]})


@pytest.mark.parametrize(
    ("marked", "words"),
    [
        ("id: a\n§shedule: x\n" + TASKS, "unknown key 'shedule' in a workflow; did you mean 'schedule'?"),
        ('id: a\nschedule: {cron: "0 6 * * *", §catchupp: all}\n' + TASKS, "did you mean 'catchup'?"),
        (task("run: x, §neds: []"), "unknown key 'neds' in a task; did you mean 'needs'?"),
        (task("run: x, retry: {§maximum: 3}"), "unknown key 'maximum' in retry; did you mean 'max'?"),
        (task("http: {url: 'https://a.b', §metod: GET}"), "did you mean 'method'?"),
        ("id: a\ninputs: {d: {type: date, §defualt: 1}}\n" + TASKS, "did you mean 'default'?"),
        (task("wait_for: {approval: {§message: x}}"), "unknown key 'message' in approval; its keys are roles, timeout"),
        ("id: a\n§and: 1\n" + TASKS, "unknown key 'and' in a workflow"),
        ("id: a\n§true: 1\n" + TASKS, "unknown key 'true' in a workflow"),
        ("id: a\ndefaults: {§timout: 5m}\n" + TASKS, "did you mean 'timeout'?"),
        ("id: a\nconcurrency: {§max_run: 5}\n" + TASKS, "did you mean 'max_runs'?"),
    ],
)
def test_a_misspelt_key_is_refused_with_the_nearest(message: Message, marked: str, words: str) -> None:
    """Field report C100, second half."""
    assert words in message(marked, "unknown_key")


def test_keys_of_the_language_to_come_are_refused_and_not_ignored() -> None:
    findings = Findings("dag.yaml")
    written = Mapping(1, 1, {"soon": Scalar(1, 7, "x")}, {"soon": Scalar(1, 1, "soon")})
    assert Record("a thing", {}, later=frozenset({"soon"})).read(written, findings) == {}
    (mistake,) = findings.sorted()
    assert (mistake.code, mistake.message) == ("not_supported_yet", "'soon' in a thing is not supported yet")


@pytest.mark.parametrize(
    ("marked", "code", "words"),
    [
        ("§tasks: [{id: t, run: x}]\n", "missing_key", "a workflow needs the key 'id'"),
        ("§id: a\n", "missing_key", "a workflow needs the key 'tasks'"),
        ("id: §Orders\n" + TASKS, "wrong_type", "expected an id (a small letter"),
        ("id: §a-b\n" + TASKS, "wrong_type", "got 'a-b'"),
        ("id: §1a\n" + TASKS, "wrong_type", "expected an id"),
        ("id: §é\n" + TASKS, "wrong_type", "expected an id"),
        (f"id: §{'a' * 201}\n" + TASKS, "bad_value", "longer than 200 characters"),
        ("id:§\n" + TASKS, "wrong_type", "got nothing"),
        ("id: a\nowner: §null\n" + TASKS, "wrong_type", "quote it if it is meant as a text"),
        ("id: a\ntags: §orders\n" + TASKS, "wrong_type", "expected a list of texts, got 'orders'"),
        ("id: a\ntags: [x, §{a: b}]\n" + TASKS, "wrong_type", "expected a text, got a mapping"),
        ("id: a\ntasks: §{t: x}\n", "wrong_type", "expected a list of tasks, got a mapping"),
        ("id: a\ntasks: §[]\n", "bad_value", "at least one item"),
        ("id: a\ntasks: [§t]\n", "wrong_type", "expected a task as a mapping of keys, got 't'"),
        ("id: a\ntasks: [§{run: x}]\n", "missing_key", "a task needs the key 'id'"),
        ("id: a\npriority: §high\n" + TASKS, "wrong_type", "expected a whole number from -1000 to 1000, got 'high'"),
        ("id: a\npriority: §'5'\n" + TASKS, "wrong_type", "leave the quotes out"),
        ("id: a\npriority: §5000\n" + TASKS, "bad_value", "from -1000 to 1000, got 5000"),
        ("id: a\npriority: §1.5\n" + TASKS, "wrong_type", "whole number"),
        ("id: a\nkeep_runs: §1001\n" + TASKS, "bad_value", "from 0 to 1000, got 1001"),
        ("id: a\npriority: §true\n" + TASKS, "wrong_type", "whole number"),
        ("id: a\nconcurrency: {max_runs: §0}\n" + TASKS, "bad_value", "from 1"),
        (task("run: x, retries: §-1"), "bad_value", "from 0 to 10000, got -1"),
        (task("run: x, retries: §010"), "ambiguous_value", "write 10"),
        (task("run: x, pool_slots: §0"), "bad_value", "from 1"),
        (task("run: x, pool: §My Pool"), "wrong_type", "expected the name of a pool"),
        (task("run: x, retry: {jitter: §yes}"), "wrong_type", "YAML 1.2 has only true and false"),
        (task("run: x, retry: {backoff: §exponentiel}"), "bad_value", "did you mean 'exponential'?"),
        (task("run: x, retry: {only_on: {exit_codes: [1, §300]}}"), "bad_value", "from 1 to 255, got 300"),
        (task("run: x, retry: {only_on: {exit_codes: §[]}}"), "bad_value", "at least one item"),
        (task("run: x, trigger_rule: §all_succes"), "bad_value", "did you mean 'all_success'?"),
        (task("run: x, trigger_rule: §[all_done]"), "wrong_type", "got a list"),
        (task("run: §[a, b]"), "wrong_type", "expected a shell command, got a list"),
        (task("run: x, env: §[A]"), "wrong_type", "expected a mapping of names to values"),
        (task("run: x, env: {§A-B: 1}"), "bad_name", "'A-B' is no name"),
        (task("run: x, env: {A: §[1]}"), "wrong_type", "expected a text, got a list"),
        (task("run: x, needs: [§{a: b}]"), "wrong_type", "the id of a task"),
        (task('run: x, needs: ["§${{ inputs.a }}"]').replace('"§', '§"'), "expression_not_allowed", "fixed when"),
        (task("python: 'm:f', with: §[1]"), "wrong_type", "expected a mapping of argument names"),
        (task("wait_for: §approval"), "wrong_type", "wait_for as a mapping of keys, such as {approval: …}, got"),
        (task("http: §https://a.b"), "wrong_type", "expected http as a mapping of keys"),
        (task("http: §{method: GET}"), "missing_key", "http needs the key 'url'"),
        (task("http: {url: 'https://a.b', method: §get}"), "bad_value", "did you mean 'GET'?"),
        (task("http: {url: 'https://a.b', expect: §99}"), "bad_value", "from 100 to 599"),
        (task("http: {url: 'https://a.b', headers: {§'a b': x}}"), "bad_name", "not a legal header name"),
        ("id: a\ninputs: {§a-b: {type: string}}\n" + TASKS, "bad_name", "'a-b' is no name"),
        ("id: a\ninputs: {a: §string}\n" + TASKS, "wrong_type", "expected an input as a mapping of keys"),
        ("id: a\ninputs: {a: §{default: 1}}\n" + TASKS, "missing_key", "an input needs the key 'type'"),
        ("id: a\ninputs: {a: {type: §str}}\n" + TASKS, "bad_value", "did you mean 'string'?"),
        ('id: a\nowner: §"${{ run.id }}"\n' + TASKS, "expression_not_allowed", "no place here"),
        ('id: a\nschedule: {cron: "0 6 * * *", catchup: §no}\n' + TASKS, "bad_value", "none, latest, all"),
    ],
)
def test_what_does_not_fit_is_said_where(message: Message, marked: str, code: str, words: str) -> None:
    assert words in message(marked, code)


@pytest.mark.parametrize(
    ("written", "ms"),
    [("10s", 10_000), ("5m", 300_000), ("2h", 7_200_000), ("1d", 86_400_000), ("1h30m", 5_400_000), ("250ms", 250)],
)
def test_durations(expect: Expect, written: str, ms: int) -> None:
    workflow = expect(task(f"run: x, timeout: {written}")).workflow
    assert workflow is not None
    assert workflow.tasks[0].timeout_ms == ms


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("30", "write 30s for seconds or 30m for minutes"),
        ("1:30", "expected a duration such as"),
        ("5 m", "expected a duration such as"),
        ("1.5h", "expected a duration such as"),
        ("30m1h", "expected a duration such as"),
        ("-5m", "expected a duration such as"),
        ("5M", "expected a duration such as"),
        ("0s", "0s is too short"),
        ("9999d", "longer than ten years"),
        ("''", "expected a duration such as"),
        ("[5m]", "expected a duration such as"),
    ],
)
def test_what_is_no_duration(written: str, words: str) -> None:
    (mistake,) = load_text(task(f"run: x, timeout: {written}"), "f").mistakes
    assert (mistake.line, mistake.column) == (3, 30)
    assert words in mistake.message


def test_a_shell_command_is_never_templated(message: Message) -> None:
    """Field report C128: a run's parameter can never become shell code."""
    text = message(task('run: §"echo ${{ inputs.name }}"'), "expression_not_allowed")
    assert "a shell command is never templated" in text
    assert "put the expression under 'env'" in text


def test_shell_braces_of_other_kinds_are_left_alone(expect: Expect) -> None:
    workflow = expect(task("run: 'echo ${HOME} {{ x }} $((1+1))'")).workflow
    assert workflow is not None
    assert workflow.tasks[0].action == Run(command="echo ${HOME} {{ x }} $((1+1))")


def test_all_mistakes_come_in_one_go_in_the_order_of_the_file(expect: Expect) -> None:
    expect(
        "id: §Bad\n§shedule: 1\npriority: §x\ntriggers_: 1\n".replace("triggers_", "§triggerz")
        + "inputs: {d: {type: date, default: §tomorrow}}\ntasks:\n  - {id: t, run: x, needs: [§u], timeout: §5}\n"
        "  - §{id: v}\n",
        *("wrong_type", "unknown_key", "wrong_type", "unknown_key", "bad_default", "unknown_task", "bad_duration"),
        "missing_action",
    )


def test_every_key_is_described_for_editors() -> None:
    def walk(record: Record) -> None:
        for name, key in record.keys.items():
            assert key.doc.endswith("."), name
            if isinstance(key.shape, Record):
                walk(key.shape)

    walk(WORKFLOW)
