"""The action ``wait_for``: what may be written, and what becomes of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tidewheel.core.workflow import ApprovalWait, HttpWait, KafkaWait, RunWait, Task, TimeWait, WaitFor
from tidewheel.definition.load import Loaded

Expect = Callable[..., Loaded]
Message = Callable[..., str]


def workflow(keys: str, more: str = "") -> str:
    return f"id: a\n{more}tasks:\n  - {{id: t, {keys}}}\n"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("30m", TimeWait(after_ms=1_800_000)),
        ("1h30m", TimeWait(after_ms=5_400_000)),
        ("2026-02-01", TimeWait(at="2026-01-31T23:00:00Z")),
        ('"2026-02-01T06:00"', TimeWait(at="2026-02-01T05:00:00Z")),
        ('"2026-02-01T06:00Z"', TimeWait(at="2026-02-01T06:00:00Z")),
        ('"${{ run.interval.end }}"', TimeWait(at="${{ run.interval.end }}")),
        ("\"${{ timestamp(run.logical_date) + duration('1h') }}\"", None),
    ],
)
def test_times_as_they_may_be_written(expect: Expect, written: str, meant: TimeWait | None) -> None:
    zone = "schedule: {cron: '0 6 * * *', timezone: Europe/Berlin}\n"
    loaded = expect(workflow(f"wait_for: {{time: {written}}}", zone)).workflow
    assert loaded is not None
    action = loaded.tasks[0].action
    assert isinstance(action, WaitFor)
    assert (action.timeout_ms, action.on_timeout) == (None, "fail")
    assert meant is None or action.what == meant


def test_the_defaults_of_work_are_none_of_a_wait(expect: Expect) -> None:
    """Else a default that no wait heeds would make another version of it."""
    defaults = "defaults: {retries: 2, timeout: 30m, pool: warehouse, pool_slots: 2}\n"
    loaded = expect(workflow("wait_for: {time: 30m, timeout: 1h, on_timeout: skip}", defaults)).workflow
    assert loaded is not None
    wait = WaitFor(what=TimeWait(after_ms=1_800_000), timeout_ms=3_600_000, on_timeout="skip")
    assert loaded.tasks == (Task(id="t", action=wait),)


@pytest.mark.parametrize(
    "written",
    [
        "{approval: {roles: operator, timeout: 2d, on_timeout: skip}}",
        "{approval: {roles: [operator]}, timeout: 48h, on_timeout: skip}",
    ],
)
def test_the_end_of_an_approval_stands_with_it_or_beside_it(expect: Expect, written: str) -> None:
    loaded = expect(workflow(f"wait_for: {written}")).workflow
    assert loaded is not None
    wait = WaitFor(what=ApprovalWait(roles=("operator",)), timeout_ms=172_800_000, on_timeout="skip")
    assert loaded.tasks[0].action == wait


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("{dag: x, run_id: y}", RunWait(dag="x", run_id="y")),
        ("{dag: x, run_id: y, states: failed}", RunWait(dag="x", run_id="y", states=("failed",))),
        (
            "{dag: x, logical_date: 2026-01-01, states: [success, failed]}",
            RunWait(dag="x", logical_date="2026-01-01", states=("success", "failed")),
        ),
    ],
)
def test_runs_as_they_may_be_named(expect: Expect, written: str, meant: RunWait) -> None:
    loaded = expect(workflow(f"wait_for: {{run: {written}}}")).workflow
    assert loaded is not None
    assert loaded.tasks[0].action == WaitFor(what=meant, timeout_ms=604_800_000)


def test_answers_as_they_may_be_asked_for(expect: Expect) -> None:
    headers = 'headers: {X: "${{ secrets.y }}"}'
    asked = f"{{url: http://x, every: 30s, until: '${{{{ response.json.n > 2 }}}}', {headers}}}"
    loaded = expect(workflow(f"wait_for: {{http: {asked}, timeout: 1h}}")).workflow
    assert loaded is not None
    what = HttpWait(url="http://x", every_ms=30_000, until="response.json.n > 2", headers={"X": "${{ secrets.y }}"})
    assert loaded.tasks[0].action == WaitFor(what=what, timeout_ms=3_600_000)


def test_records_as_they_may_be_waited_for(expect: Expect) -> None:
    kafka = "{topic: cdc.done, match: '${{ event.value.n > 2 }}', window: 0s}"
    loaded = expect(workflow(f"wait_for: {{kafka: {kafka}, timeout: 1h}}")).workflow
    assert loaded is not None
    what = KafkaWait(topic="cdc.done", match="event.value.n > 2", window_ms=0)
    assert loaded.tasks[0].action == WaitFor(what=what, timeout_ms=3_600_000)


def test_an_approval_is_waited_for_a_week_unless_it_says_otherwise(expect: Expect) -> None:
    loaded = expect(workflow("wait_for: {approval: {}}")).workflow
    assert loaded is not None
    assert loaded.tasks[0].action == WaitFor(what=ApprovalWait(), timeout_ms=604_800_000)


@pytest.mark.parametrize(
    ("marked", "code", "words"),
    [
        ("wait_for: {time: §30x}", "bad_time", "a duration such as 30m"),
        ("wait_for: {time: §[]}", "wrong_type", "a duration such as 30m"),
        ("wait_for: {time: §2026-02-30}", "bad_time", "a time such as"),
        ("wait_for: §{timeout: 1h}", "missing_key", "needs one of time"),
        ("wait_for: §30m", "wrong_type", "a mapping"),
        ("wait_for: {time: 1h, §on_timeout: skip}", "conflict", "without a 'timeout'"),
        ("wait_for: {time: 1h, timeout: 2h, on_timeout: §sikp}", "bad_value", "did you mean 'skip'"),
        ("wait_for: {time: 1h, §approval: {}}", "conflict", "waits for one thing"),
        ("wait_for: {approval: §x}", "wrong_type", "a mapping"),
        ("wait_for: {approval: {roles: §[]}}", "bad_value", "at least one"),
        ("wait_for: {approval: {§role: x}}", "unknown_key", "did you mean 'roles'"),
        ("wait_for: {approval: {timeout: 1h}, §timeout: 1h}", "conflict", "within 'approval' already"),
        ("wait_for: {run: §{dag: x}}", "missing_key", "by 'run_id' or by 'logical_date'"),
        ("wait_for: {run: §{run_id: x}}", "missing_key", "needs the key 'dag'"),
        ("wait_for: {run: {dag: x, run_id: y, §logical_date: 2026-01-01}}", "conflict", "not both"),
        ("wait_for: {run: {dag: x, logical_date: §never}}", "bad_date", "2026-01-31"),
        ("wait_for: {run: {dag: x, run_id: y, states: [§won]}}", "bad_value", "one of success"),
        ('wait_for: {run: {dag: §"${{ run.id }}", run_id: y}}', "expression_not_allowed", "no place"),
        ('wait_for: {run: {dag: x, run_id: "${{ §inputs.y }}"}}', "unknown_name", "no input"),
        ("wait_for: {http: {url: §ftp://x}}", "bad_url", "http://"),
        ("wait_for: {http: {url: http://x, every: §10ms}}", "bad_duration", "too short"),
        ("wait_for: {http: {url: http://x, until: §response.status}}", "not_boolean", "an 'until' must be"),
        ("wait_for: {http: {url: http://x, until: §response.body == 'x'}}", "unknown_name", "no field 'response.body'"),
        ("wait_for: {http: {url: http://x, until: §tasks.y.output}}", "name_not_available", "inputs, response, run"),
        ('wait_for: {http: {url: "http://x/${{ §secrets.y }}"}}', "secret_not_allowed", "http headers"),
        ("wait_for: {kafka: {topic: §a b}}", "wrong_type", "Kafka topic"),
        ("wait_for: {kafka: §{}}", "missing_key", "needs the key 'topic'"),
        ("wait_for: {kafka: {topic: x, match: §event.offset}}", "not_boolean", "a 'match' must be"),
        ("wait_for: {kafka: {topic: x, match: §event.body == 1}}", "unknown_name", "no field 'event.body'"),
        ("wait_for: {kafka: {topic: x, match: §inputs.y == 1}}", "unknown_name", "no input 'y'"),
        ("wait_for: {time: 1h}, §pool: gpu", "conflict", "no slot"),
        ("wait_for: {time: 1h}, §retries: 2", "conflict", "longer 'timeout'"),
        ("wait_for: {time: 1h}, §timeout: 2h", "conflict", "within 'wait_for'"),
        ("wait_for: {time: 1h}, §with: {}", "conflict", "arguments of a python callable"),
        ("wait_for: {time: 1h}, §run: x", "conflict", "one action"),
        ('wait_for: {time: "${{ §tasks.x.output }}"}', "unknown_task", "no task 'x'"),
        ('wait_for: {time: "${{ §secrets.x }}"}', "secret_not_allowed", "where a worker reads"),
    ],
)
def test_mistakes(message: Message, marked: str, code: str, words: str) -> None:
    assert words in message(workflow(marked), code)
