"""What a workflow says must make sense."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tidewheel.core.scope import rfc3339
from tidewheel.core.workflow import Python
from tidewheel.definition.load import Loaded

Expect = Callable[..., Loaded]
Message = Callable[..., str]

TASKS = "tasks: [{id: t, run: x}]\n"


def task(keys: str) -> str:
    return f"id: a\ntasks:\n  - {{id: t, {keys}}}\n"


@pytest.mark.parametrize(
    ("marked", "code", "words"),
    [
        # Field report P03: a sixth field is seconds to some and years to others.
        ('id: a\nschedule: §"0 0 6 * * *"\n' + TASKS, "bad_cron", "6 fields"),
        ('id: a\nschedule: §"0 6 * *"\n' + TASKS, "bad_cron", "4"),
        ('id: a\nschedule: §"0 0 30 2 *"\n' + TASKS, "bad_cron", "never"),
        ('id: a\nschedule: §"60 * * * *"\n' + TASKS, "bad_cron", "60"),
        ("id: a\nschedule: §sometimes\n" + TASKS, "bad_cron", "sometimes"),
        ('id: a\nschedule: {cron: ["0 6 * * *", §"0 25 * * *"]}\n' + TASKS, "bad_cron", "25"),
        ('id: a\nschedule: {cron: "0 6 * * *", timezone: §Europe/Berlim}\n' + TASKS, "bad_timezone", "Europe/Berlin"),
        ('id: a\nschedule: {cron: "0 6 * * *", timezone: §../../etc/passwd}\n' + TASKS, "bad_timezone", "unknown"),
        ('id: a\nschedule: {cron: "0 6 * * *", §every: 5m}\n' + TASKS, "conflict", "not both"),
        ("id: a\nschedule: §{timezone: UTC}\n" + TASKS, "missing_key", "'cron' or 'every'"),
        ("id: a\nschedule: {every: §0s}\n" + TASKS, "bad_duration", "too short"),
        ("id: a\nschedule: {every: 1h, start: §2026-02-30}\n" + TASKS, "bad_date", "2026-02-30 is no date"),
        ("id: a\nschedule: {every: 1h, start: §tomorrow}\n" + TASKS, "bad_date", "such as 2026-01-31"),
        ("id: a\nschedule: {every: 1h, end: §[]}\n" + TASKS, "wrong_type", "such as 2026-01-31"),
        ("id: a\nschedule: {every: 1h, start: 2026-01-02, end: §2026-01-01}\n" + TASKS, "conflict", "before it starts"),
        ("id: a\nschedule: {every: 1h, overlap: §skipp}\n" + TASKS, "bad_value", "did you mean"),
        ("id: a\nschedule: {every: 1h, catchup: all, overlap: §skip}\n" + TASKS, "conflict", "queue or allow"),
        ("id: a\nschedule: {every: 1h, §dst_gap: skip}\n" + TASKS, "conflict", "elapsed time"),
        ('id: a\nschedule: {cron: "*/5 * * * *", §dst_repeat: twice}\n' + TASKS, "conflict", "elapsed time"),
        ("id: a\nschedule: {every: §15}\n" + TASKS, "bad_duration", "write 15s for seconds"),
    ],
)
def test_schedules(message: Message, marked: str, code: str, words: str) -> None:
    assert words in message(marked, code)


@pytest.mark.parametrize(
    "written", ['"@daily"', "0 6 * * *", '"0 9 * * MON#1"', "{every: 15m}", '{cron: "0 0 L * *", timezone: Asia/Tokyo}']
)
def test_schedules_that_are_fine(expect: Expect, written: str) -> None:
    workflow = expect(f"id: a\nschedule: {written}\n{TASKS}").workflow
    assert workflow is not None
    assert workflow.schedule is not None


@pytest.mark.parametrize(
    ("written", "start", "end"),
    [
        ("start: 2026-03-08, end: 2026-03-08", "2026-03-08T05:00:00Z", "2026-03-09T03:59:59.999Z"),
        ("start: 2026-03-09T06:00", "2026-03-09T10:00:00Z", None),
        ("end: 2026-03-09t06:00:30z", None, "2026-03-09T06:00:30Z"),
        ("start: '2026-03-09 06:00+02:00'", "2026-03-09T04:00:00Z", None),
    ],
)
def test_bounds_are_on_the_clock_of_the_schedule(
    expect: Expect, written: str, start: str | None, end: str | None
) -> None:
    workflow = expect(
        f'id: a\nschedule: {{cron: "0 6 * * *", timezone: America/New_York, {written}}}\n{TASKS}'
    ).workflow
    assert workflow is not None
    assert workflow.schedule is not None
    assert (rfc3339(workflow.schedule.start_ms), rfc3339(workflow.schedule.end_ms)) == (start, end)


@pytest.mark.parametrize(
    ("marked", "code", "words"),
    [
        (task("needs: []").replace("{id", "§{id"), "missing_action", "a task needs one of run, python, http, "),
        (task("run: x, §python: 'm:f'"), "conflict", "'run' is already there, remove 'python'"),
        (task("run: x, §with: {a: 1}"), "conflict", "give a run task its values by 'env'"),
        (task("http: {url: 'https://a.b'}, §with: {a: 1}"), "conflict", "give a http task"),
        (task("run: x, §as: file"), "conflict", "about the items of a 'for_each'"),
        (task("run: x, for_each: [1], §fail_fasst: true"), "unknown_key", "did you mean 'fail_fast'?"),
        (task("run: x, for_each: §files"), "bad_expression", "a list, or an expression"),
        (task("run: x, for_each: §'a ${{ [1] }}'"), "bad_expression", "nothing around it"),
        (task("run: x, for_each: '${{ §1 + 1 }}'"), "not_list", "of the type int"),
        (task("run: x, for_each: '${{ §item }}'"), "unknown_name", "item"),
        (task("run: x, max_items: 2, for_each: §[1, 2, 3]"), "bad_value", "3 items are more than max_items"),
        (task("run: x, for_each: [1], as: §inputs"), "bad_name", "'inputs' cannot be an item"),
        (task("run: x, for_each: [1], as: file, env: {F: '${{ item§.path }}'}"), "unknown_name", "item.path"),
        (task("python: §shop.etl.load"), "bad_callable", "did you mean 'shop.etl:load'?"),
        (task("python: §'shop etl:load'"), "bad_callable", "expected module:name"),
        (task("python: §'shop.etl:'"), "bad_callable", "expected module:name"),
        (task("http: {url: §'ftp://a.b'}"), "bad_url", "begins with http:// or https://"),
        (task("http: {url: §example.com}"), "bad_url", "begins with http:// or https://"),
        (task("http: {url: §'https://'}"), "bad_url", "needs a host"),
        (task("http: {url: §'https://a b/'}"), "bad_url", "no spaces"),
        (task("http: {url: §'https://a:99999/'}"), "bad_url", "a legal port"),
        (task("http: {url: §'https://[::1'}"), "bad_url", "no usable URL"),
        (task("http: {url: 'https://a.b', json: {}, §body: x}"), "conflict", "'json' or 'body', not both"),
        (task("run: x, retries: 1, retry: {§max: 2}"), "conflict", "keep one of the two"),
        (task("python: 'm:f', retry: {§only_on: {exit_codes: [1]}}"), "conflict", "have exit codes to retry on"),
        (task("run: x, retry: {§only_on: {http_status: 503}}"), "conflict", "have a status to retry on"),
        (task("run: x, retry: {only_on: {kinds: §lease_expired}}"), "bad_value", "expected one of exit_code, signal"),
        ("id: a\ndefaults: {retries: 1, retry: {§max: 2}}\n" + TASKS, "conflict", "keep one of the two"),
        ("id: a\ninputs: {d: {type: integer, default: §one}}\n" + TASKS, "bad_default", "expected a whole number"),
        ("id: a\ninputs: {d: {type: integer, default: §true}}\n" + TASKS, "bad_default", "got true"),
        ("id: a\ninputs: {d: {type: date, default: §2026-02-30}}\n" + TASKS, "bad_default", "expected a date"),
        ("id: a\ninputs: {d: {type: string, default: §3}}\n" + TASKS, "bad_default", "expected a text, got 3"),
        ("id: a\ninputs: {d: {type: string, default: §c, enum: [a, b]}}\n" + TASKS, "bad_default", "none of 'a', 'b'"),
        ("id: a\ninputs: {d: {type: number, enum: [1, §x]}}\n" + TASKS, "bad_value", "expected a number, got 'x'"),
        ("id: a\ninputs: {in: §{type: number}}\n" + TASKS, "bad_name", "'in' cannot be an input"),
        ("id: a\ntasks: [{id: §true, run: x}]\n", "bad_name", "'true' cannot be an id"),
    ],
)
def test_tasks_and_inputs(message: Message, marked: str, code: str, words: str) -> None:
    assert words in message(marked, code)


def test_a_registered_name_is_a_callable_too(expect: Expect) -> None:
    workflow = expect(task("python: load_orders")).workflow
    assert workflow is not None
    assert workflow.tasks[0].action == Python(callable="load_orders")


def test_default_exit_codes_hold_for_commands_and_leave_other_tasks_alone(expect: Expect) -> None:
    workflow = expect(
        "id: a\ndefaults: {retry: {max: 2, only_on: {exit_codes: [75], http_status: 503, kinds: timeout}}}\n"
        "tasks: [{id: t, run: x}, {id: u, python: 'm:f'}, {id: v, http: {url: 'https://x.org'}}]\n"
    ).workflow
    assert workflow is not None
    retries = [task.retry for task in workflow.tasks]
    assert [retry.only_on_exit_codes for retry in retries] == [(75,), (), ()]
    assert [retry.only_on_http_status for retry in retries] == [(), (), (503,)]
    assert {retry.only_on_kinds for retry in retries} == {("timeout",)}


POOLS = {"warehouse": 4, "default": None, "wide": None}


@pytest.mark.parametrize(
    ("marked", "code", "words"),
    [
        (task("run: x, pool: §warehous"), "unknown_pool", "there is no pool 'warehous'; did you mean 'warehouse'?"),
        (task("run: x, pool: §zzz"), "unknown_pool", "known are default, warehouse, wide"),
        ("id: a\ndefaults: {pool: §warehous}\n" + TASKS, "unknown_pool", "did you mean 'warehouse'?"),
        (task("run: x, pool: warehouse, pool_slots: §5"), "too_wide", "takes 5 slots, but the pool 'warehouse' has 4"),
        ("id: a\ndefaults: {pool: warehouse}\n" + task("run: x, pool_slots: §5")[6:], "too_wide", "takes 5 slots"),
        ("id: a\ndefaults: {pool_slots: §5}\n" + task("run: x, pool: warehouse")[6:], "too_wide", "has 4"),
    ],
)
def test_pools(message: Message, marked: str, code: str, words: str) -> None:
    """Field report C068: an unknown pool or a task wider than its pool would wait for ever."""
    assert words in message(marked, code, pools=POOLS)


def test_pools_that_fit(expect: Expect) -> None:
    expect(task("run: x"), pools=POOLS)
    expect(task("run: x"), pools={})  # the default pool need not be configured
    expect(task("run: x, pool: wide, pool_slots: 100"), pools=POOLS)
    expect(task("run: x, pool: whatever, pool_slots: 100"))
