"""Mapped tasks: instances named, begun, counted and gathered."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.core.mapped import CEL, WHERE, begun, fail, kinds, lease, succeed
from tests.core.scenes import NOW, task
from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.deadlines import AT_ONCE, timers_of
from tidewheel.core.mapping import Fan, index_of, instance_name, written_task
from tidewheel.core.rules import ITEM_BYTES_MAX, ITEMS_BYTES_MAX


def test_names_say_whose_instance_it_is() -> None:
    assert instance_name("load", 12) == "load[12]"
    assert (written_task("load[12]"), index_of("load[12]")) == ("load", 12)
    assert (written_task("load"), index_of("load")) == ("load", None)


def test_room_is_what_has_not_begun_within_max_parallel() -> None:
    fan = Fan(10, begun=4)
    assert (fan.room(None), fan.room(3), fan.room(4), fan.room(6), fan.room(50)) == (6, 0, 0, 2, 6)


def test_each_item_is_an_instance_and_the_join_sees_a_list() -> None:
    mapped = task("m", for_each="${{ ['x', 'y'] }}", env={"V": "${{ item }}"})
    outcome = begun(mapped, task("z", "m", env={"ALL": "${{ tasks.m.output }}"}))
    assert kinds(outcome)[-3:] == [("TaskExpanded", "m"), ("TaskQueued", "m[0]"), ("TaskQueued", "m[1]")]
    first = lease(outcome, "m[0]").decision.mail
    assert '"V":["x"]' in first[0].action  # type: ignore[union-attr]
    outcome = succeed(succeed(outcome, "m[1]", {"n": 2}), "m[0]", {"n": 1})
    assert kinds(outcome) == [("TaskSucceeded", "m[0]"), ("TaskSucceeded", "m"), ("TaskQueued", "z")]
    assert '[{\\"n\\":1},{\\"n\\":2}]' in lease(outcome, "z").decision.mail[0].action  # type: ignore[union-attr]


def test_no_items_are_a_success_with_an_empty_list() -> None:
    """Field reports C038, C046: what follows an empty fan-out runs."""
    outcome = begun(task("m", for_each=[]), task("z", "m", trigger_rule="all_done"), task("y", "m"))
    assert kinds(outcome)[-4:] == [
        ("TaskExpanded", "m"),
        ("TaskSucceeded", "m"),
        ("TaskQueued", "z"),
        ("TaskQueued", "y"),
    ]


@pytest.mark.parametrize(
    ("source", "more", "said"),
    [
        ("${{ 3 }}", {}, "gives no list"),
        ("${{ {'a': 1} }}", {}, "gives no list"),
        ("${{ inputs.nothing }}", {}, "for_each"),
        ([1, 2, 3], {"max_items": 2}, "there are 3 items, and max_items is 2"),
        (["x" * ITEM_BYTES_MAX], {}, "item 0 has"),
        (["x" * 60_000] * (ITEMS_BYTES_MAX // 60_000 + 1), {}, "store them and map over their keys"),
    ],
)
def test_what_can_not_be_mapped_fails_the_task_with_the_reason(source: Any, more: Any, said: str) -> None:
    outcome = begun(task("m", for_each=source, **more), task("z", "m"))
    failed = next(event for event in outcome.decision.events if isinstance(event, e.TaskFailed))
    assert (failed.task, failed.kind) == ("m", "expression")
    assert said in failed.message
    assert kinds(outcome)[-2:] == [("TaskUpstreamFailed", "z"), ("RunFailed", "")]


def test_a_join_waits_for_the_last_instance_and_fails_with_any() -> None:
    """Field report C040: a join is not looked at before the fan-out is complete."""
    outcome = begun(task("m", for_each=[1, 2, 3]), task("z", "m"))
    outcome = fail(outcome, "m[1]").then(e.TaskFailed)
    outcome = succeed(outcome, "m[0]").then(e.TaskSucceeded)
    outcome = succeed(outcome, "m[2]")
    assert kinds(outcome) == [
        ("TaskSucceeded", "m[2]"),
        ("TaskFailed", "m"),
        ("TaskUpstreamFailed", "z"),
        ("RunFailed", ""),
    ]
    ended = outcome.decision.events[1]
    assert isinstance(ended, e.TaskFailed)
    assert (ended.kind, ended.message) == ("instances", "1 of 3 instances failed: m[1]")


def test_max_parallel_lets_one_begin_for_each_that_ends() -> None:
    outcome = begun(task("m", for_each=list("abcd"), max_parallel=2))
    assert kinds(outcome)[-2:] == [("TaskQueued", "m[0]"), ("TaskQueued", "m[1]")]
    assert list(timers_of(outcome.decision.state, 100)) == []
    assert kinds(succeed(outcome, "m[1]")) == [("TaskSucceeded", "m[1]"), ("TaskQueued", "m[2]")]


def test_a_large_fan_out_begins_in_steps_a_turn_apart() -> None:
    outcome = begun(task("m", for_each=list(range(2 * CEL.step + 1)), max_items=1_000))
    more = c.ContinueRun(**WHERE)
    assert list(timers_of(outcome.decision.state, 100)) == [(AT_ONCE, more)]
    for expected in (CEL.step, 1):
        outcome = outcome.when(more, at=NOW)
        assert len(outcome.decision.events) == expected
    assert list(timers_of(outcome.decision.state, 100)) == []
    outcome.when(more, at=NOW).then()


def test_many_items_travel_in_many_small_events() -> None:
    outcome = begun(task("m", for_each=["x" * 1_000] * 500))
    parts = [event for event in outcome.decision.events if isinstance(event, e.TaskExpanded)]
    assert len(parts) > 10
    assert max(len(part.values) for part in parts) < 40_000
    assert [part.first for part in parts] == [sum(_size(part) for part in parts[:n]) for n in range(len(parts))]
    assert sum(map(_size, parts)) == parts[0].items == 500


def _size(part: e.TaskExpanded) -> int:
    return len(msgspec.json.decode(part.values, type=list[Any]))


def test_fail_fast_ends_the_others_and_the_task_with_the_last_of_them() -> None:
    outcome = begun(task("m", for_each=list("abcd"), max_parallel=3, fail_fast=True), task("z"))
    outcome = lease(outcome, "m[0]")
    outcome = fail(outcome, "m[1]")
    assert kinds(outcome) == [
        ("TaskFailed", "m[1]"),
        ("TaskCancelRequested", "m"),
        ("TaskCancelRequested", "m[0]"),
        ("TaskCancelled", "m[2]"),
        ("TaskCancelled", "m[3]"),
    ]
    gone = {**WHERE, "task": "m[0]", "attempt": 1, "worker": "w", "started_at": NOW, "ended_at": NOW}
    outcome = outcome.when(c.ReportCancelled(**gone), at=NOW)
    assert kinds(outcome) == [("TaskCancelled", "m[0]"), ("TaskFailed", "m")]


def test_whoever_was_told_to_end_ends_though_the_one_that_failed_is_marked_meanwhile() -> None:
    outcome = fail(lease(begun(task("m", for_each=list("ab"), fail_fast=True)), "m[0]"), "m[1]")
    outcome = outcome.when(c.MarkTask(**WHERE, task="m[1]", state="success"), at=NOW)
    told = {**WHERE, "task": "m[0]", "attempt": 1, "worker": "w", "started_at": NOW, "ended_at": NOW}
    outcome = outcome.when(c.ReportCancelled(**told), at=NOW)
    assert kinds(outcome) == [("TaskCancelled", "m[0]"), ("TaskFailed", "m"), ("RunFailed", "")]
    ended = outcome.decision.events[1]
    assert isinstance(ended, e.TaskFailed)
    assert ended.message == "1 of 2 instances were cancelled: m[0]"


def test_a_failure_that_beats_the_cancel_of_fail_fast_is_not_tried_again() -> None:
    retrying = msgspec.structs.replace(task("m", for_each=list("ab"), fail_fast=True), infra_retries=5)
    outcome = fail(lease(begun(retrying), "m[0]"), "m[1]")
    lost = {**WHERE, "task": "m[0]", "attempt": 1, "worker": "w", "started_at": NOW, "ended_at": NOW}
    outcome = outcome.when(c.ReportFailure(**lost, kind="worker_lost", message="gone"), at=NOW)
    assert kinds(outcome) == [("TaskFailed", "m[0]"), ("TaskFailed", "m"), ("RunFailed", "")]


@pytest.mark.parametrize("name", ["m[7]", "m[-1]", "m[x]", "m", "[0]", "n[0]"])
def test_a_report_of_an_instance_that_never_was_is_refused(name: str) -> None:
    outcome = begun(task("m", for_each=list("ab")))
    report = {**WHERE, "task": name, "attempt": 1, "worker": "w", "started_at": NOW, "ended_at": NOW}
    outcome.when(c.ReportSuccess(**report), at=NOW).then(e.ReportRefused)
