"""What a workflow says of deadlines and of who is told must make sense."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tidewheel.core.workflow import Deadline, Notify
from tidewheel.definition.load import Loaded, load_text

Message = Callable[..., str]

TASKS = "tasks: [{id: t, run: x}]\n"


def dag(keys: str) -> str:
    return f"id: a\n{keys}\n{TASKS}"


def loaded(keys: str) -> Loaded:
    return load_text(dag(keys), "f")


@pytest.mark.parametrize(
    ("marked", "code", "words"),
    [
        ("deadlines: [{within: §-10m, notify: ops}]", "conflict", "there is none"),
        ("deadlines: [{within: §-10m, notify: ops}, {within: 2h, from: started}]", "conflict", "(scheduled)"),
        ("deadlines: [{within: §-10m, notify: ops}, {within: 2h}, {within: 1h}]", "conflict", "there are 2"),
        ("deadlines: [{within: §-2h, notify: ops}, {within: 2h}]", "bad_duration", "before the time begins"),
        ("deadlines: [§{within: -10m}, {within: 2h}]", "missing_key", "add 'notify'"),
        ("deadlines: [{within: -10m, notify: ops, action: §fail}, {within: 2h}]", "conflict", "only warns"),
        ("deadlines: [§{action: fail}]", "missing_key", "'within'"),
        ("deadlines: [{within: §2}]", "bad_duration", "2h"),
        ("deadlines: [{within: §0s}]", "bad_duration", "too short"),
        ("deadlines: [{within: 2h, from: §start}]", "bad_value", "did you mean 'started'"),
        ("deadlines: [{within: 2h, action: §page}]", "bad_value", "alert, fail"),
        ("deadlines: [{within: 2h, notify: §Ops Team}]", "wrong_type", "name of a target"),
        ("deadlines: §2h", "wrong_type", "a list of deadlines"),
        (
            "schedule: {every: 1h, catchup: all}\ndeadlines: [{within: 2h, action: §fail}]",
            "conflict",
            "from: queued",
        ),
        ("notify: [§{to: ops}]", "missing_key", "'events'"),
        ("notify: [{events: §run_fail, to: ops}]", "bad_value", "did you mean 'run_failed'"),
        ("notify: [{events: §[], to: ops}]", "bad_value", "at least one"),
        ("notify: [{events: run_failed, to: §slack://token}]", "wrong_type", "name of a target"),
        ("notify: [{events: run_failed, §target: ops, to: ops}]", "unknown_key", "target"),
    ],
)
def test_mistakes(message: Message, marked: str, code: str, words: str) -> None:
    assert words in message(dag(marked), code)


def test_a_warning_counts_like_the_deadline_it_comes_before() -> None:
    found = loaded("deadlines: [{within: -10m, from: started, notify: chat}, {within: 2h, from: started}]")
    assert found.workflow is not None
    assert found.workflow.deadlines == (
        Deadline(within_ms=110 * 60_000, from_="started", notify="chat", before_ms=10 * 60_000),
        Deadline(within_ms=120 * 60_000, from_="started"),
    )


def test_short_forms_of_notify() -> None:
    found = loaded("notify: [{events: run_failed, to: ops}, {events: [task_failed, task_failed], to: [a, b]}]")
    assert found.workflow is not None
    assert found.workflow.notify == (
        Notify(events=("run_failed",), to=("ops",)),
        Notify(events=("task_failed",), to=("a", "b")),
    )


def test_a_catch_up_may_alert_and_may_fail_by_its_creation() -> None:
    all_slots = "schedule: {every: 1h, catchup: all}\n"
    for deadline in ("{within: 2h}", "{within: 2h, from: queued, action: fail}", "{within: 2h, from: started}"):
        assert loaded(f"{all_slots}deadlines: [{deadline}]").workflow is not None
