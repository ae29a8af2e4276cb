"""What waits are for: times and their expressions, approvals."""

from __future__ import annotations

from tests.core.mapped import begun, kinds, succeed
from tests.core.scenes import NOW, task
from tests.core.waiting import HOUR, wait, waiting
from tidewheel.core import events as e
from tidewheel.core.workflow import Concurrency, HttpWait, KafkaWait, Schedule, Task, WaitFor


def test_a_duration_counts_from_when_the_task_became_ready() -> None:
    outcome = begun(task("a"), wait("w", "a", timeout_ms=2 * HOUR))
    outcome = succeed(outcome, "a")
    event = outcome.decision.events[-1]
    assert event == e.TaskDeferred(
        dag="d",
        run_id="r",
        task="w",
        attempt=1,
        at=NOW,
        waits_for="time",
        resume_at=NOW + HOUR,
        timeout_at=NOW + 2 * HOUR,
        detail='{"time":"2026-01-05T01:00:00Z"}',
    )


def test_an_expression_gives_the_time() -> None:
    outcome = begun(task("a"), wait("w", "a", at="${{ tasks.a.output.until }}"))
    assert waiting(succeed(outcome, "a", {"until": "2026-01-06"}), "w").resume_at == NOW + 24 * HOUR


def test_a_date_is_its_midnight_in_the_zone_of_the_schedule() -> None:
    berlin = Schedule(cron=("0 0 1 1 *",), timezone="Europe/Berlin")
    outcome = begun(task("a"), wait("w", at="2026-01-06"), schedule=berlin)
    assert waiting(outcome, "w").resume_at == NOW + 23 * HOUR


def test_a_wait_takes_no_place_of_max_tasks_and_asks_for_no_slot() -> None:
    outcome = begun(task("a"), wait("w"), task("b"), concurrency=Concurrency(max_tasks=1))
    assert kinds(outcome)[-3:] == [("TaskQueued", "a"), ("TaskDeferred", "w"), ("TaskReady", "b")]
    assert [getattr(command, "task", "") for command in outcome.decision.commands] == ["a"]


def test_each_item_of_a_fan_out_has_its_wait() -> None:
    mapped = wait("m", for_each=["2026-01-06", "2026-01-07"], at="${{ item }}", max_parallel=1)
    outcome = begun(mapped)
    assert kinds(outcome)[-2:] == [("TaskExpanded", "m"), ("TaskDeferred", "m[0]")]
    assert waiting(outcome, "m[0]").resume_at == NOW + 24 * HOUR


def test_a_waiter_is_told_the_request_with_its_secrets_unresolved() -> None:
    what = HttpWait(
        url="http://x/${{ run.id }}", headers={"A": "Bearer ${{ secrets.t }}"}, until="response.json.day == inputs.day"
    )
    outcome = begun(Task(id="w", action=WaitFor(what=what)))
    asked = waiting(outcome, "w").asked
    assert asked["request"] == {
        "type": "http",
        "method": "GET",
        "url": "http://x/r",
        "headers": {"A": ["Bearer ", {"kind": "secret", "name": "t"}]},
    }
    assert (asked["every_ms"], asked["until"], asked["inputs"], asked["run"]["id"]) == (60_000, what.until, {}, "r")
    assert waiting(begun(Task(id="w", action=WaitFor(what=HttpWait(url="http://x")))), "w").asked == {
        "request": {"type": "http", "method": "GET", "url": "http://x"},
        "every_ms": 60_000,
    }


def test_a_waiter_is_told_where_the_window_opens() -> None:
    what = KafkaWait(topic="t", match="event.key == run.id", window_ms=HOUR)
    asked = waiting(begun(Task(id="w", action=WaitFor(what=what))), "w").asked
    assert (asked["topic"], asked["since_ms"], asked["match"]) == ("t", NOW - HOUR, what.match)
    assert asked["run"]["id"] == "r" and "inputs" not in asked
